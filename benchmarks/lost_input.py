"""How long a run of existing applications takes to recover when a result is gone that four of them read."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from benchmarks.local_pipeline import LocalPipeline, moment_s, open_local_pipeline
from benchmarks.report import Figure, Report, Table

GOAL = 1.2
WORK_S = 30
WAYS = {
    "files": "nothing said; the same rows in the same order",
    "verify": "deterministic='verify'; the same rows in other files and another order",
    "always": "deterministic='always'",
}
STEPS = ("joined", "by_day", "by_route", "by_carrier", "last")


@dataclass(frozen=True)
class Recovery:
    """``recovery_s`` from the failure to the end of the run; ``lost_s``: what had to run again; ``ran``: what did."""

    way: str
    recovery_s: float
    lost_s: float
    ran: tuple[str, ...]

    @property
    def ratio(self) -> float:
        return self.recovery_s / self.lost_s


def measure(folder: Path, repeats: int | None) -> Report:
    """``repeats`` (default 1) rounds, of 11 to 14 applications in all for each."""
    folder.mkdir(parents=True)
    failures = folder / "failures"
    failures.mkdir()
    env = {"BENCHMARK_FAILURES": str(failures), "BENCHMARK_WORK_S": str(WORK_S)}
    with open_local_pipeline(folder / "pipeline", env) as pipeline:
        recoveries = [_recovery(pipeline, failures, way, day) for day in range(1, 1 + (repeats or 1)) for way in WAYS]
    return _report(recoveries, repeats or 1)


def _recovery(pipeline: LocalPipeline, failures: Path, way: str, day: int) -> Recovery:
    dag_id, logical_date = f"lost_{way}", f"2013-01-{day:02}T00:00:00Z"
    order = failures / dag_id
    order.touch()
    pipeline.run(dag_id, logical_date)
    if order.exists():
        raise RuntimeError(f"{dag_id} has ended, and nothing failed")
    tries = {step: pipeline.airflow.tries(dag_id, f"local__{logical_date}", step) for step in STEPS}
    # The first try of each step but the last one is undisturbed.
    step_s = median(
        moment_s(tried[0]["end_date"]) - moment_s(tried[0]["start_date"]) for tried in list(tries.values())[:-1]
    )
    recovery_s = moment_s(tries["last"][-1]["end_date"]) - moment_s(tries["last"][0]["end_date"])
    return Recovery(way, recovery_s, 2 * step_s, tuple(step for step, tried in tries.items() if len(tried) > 1))


def _report(recoveries: list[Recovery], rounds: int) -> Report:
    ratios = {way: median(found.ratio for found in recoveries if found.way == way) for way in WAYS}
    return Report(
        name="lost_input",
        title="A lost result that four applications read",
        method=(
            f"Five existing applications of {WORK_S} s of work each (waited), by spark-submit in local mode, one at a "
            "time: four read the result of the first. When three of these have finished, the last one raises once, "
            f"and the result of the first is gone; {rounds} rounds. The time runs from the end of the failed try to "
            "the end of the run. What had to run again are two applications, each as long as one that nothing "
            "disturbs. Airflow's intervals are those of its tests; load of the machine at the end: "
            f"{os.getloadavg()[0]:.1f}."
        ),
        figures=[
            Figure(WAYS[way], ratio, "times the lost work", f"at most {GOAL}", ratio <= GOAL)
            if way != "always"
            else Figure(WAYS[way], ratio, "times the lost work")
            for way, ratio in ratios.items()
        ],
        tables=[
            Table(
                "Every recovery",
                ("way", "recovery, s", "lost work, s", "ratio", "ran again"),
                [
                    (
                        WAYS[found.way],
                        f"{found.recovery_s:.1f}",
                        f"{found.lost_s:.1f}",
                        f"{found.ratio:.2f}",
                        ", ".join(found.ran),
                    )
                    for found in recoveries
                ],
            )
        ],
    )
