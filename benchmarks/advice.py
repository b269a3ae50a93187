"""What following the advice of ``airflow recovery advise`` saves: a chain as it was cut, and as it is advised to be."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path
from statistics import median
from typing import Any

from airflow_recovery.testing.spark_cluster import connect_server
from benchmarks.advised_chain import WORK_S
from benchmarks.local_pipeline import RUN_TIMEOUT_S, LocalPipeline, moment_s, open_local_pipeline
from benchmarks.report import Figure, Report, Table

DAG_ID = "advised"
RUNS = 3


@dataclass(frozen=True)
class Failed:
    """A run whose last step has failed once. ``recovery_s``: from that failure to the run's end."""

    cuts: str
    run_s: float
    recovery_s: float


def measure(folder: Path, repeats: int | None) -> Report:
    """``repeats`` (default `RUNS`) runs with each set of cuts, in each of which the last step fails once."""
    runs = repeats or RUNS
    folder.mkdir(parents=True)
    failures = folder / "failures"
    failures.mkdir()
    with connect_server() as server:
        connection = {"conn_type": "spark_connect", "host": "127.0.0.1", "port": server.port}
        env = {
            "AIRFLOW_CONN_SPARK_CONNECT": json.dumps(connection),
            "BENCHMARK_FAILURES": str(failures),
            "BENCHMARK_WORK_S": str(WORK_S),
        }
        with open_local_pipeline(folder / "before", {**env, "BENCHMARK_CUTS": ""}) as pipeline:
            before = _failed_runs(pipeline, failures / "fail", "", runs)
            advice: dict[str, Any] = json.loads(pipeline.command("advise", DAG_ID, "--json"))
        cuts = " ".join(each["result"] for each in advice["boundaries"] if each["advised"])
        with open_local_pipeline(folder / "after", {**env, "BENCHMARK_CUTS": cuts}) as pipeline:
            after = _failed_runs(pipeline, failures / "fail", cuts, runs)
    return _report(before, after, advice)


def _failed_runs(pipeline: LocalPipeline, order: Path, cuts: str, runs: int) -> list[Failed]:
    found = []
    for number in range(runs):
        order.touch()
        day = (date(2013, 1, 1) + timedelta(days=number)).isoformat()
        run_id = pipeline.airflow.trigger(DAG_ID, logical_date=f"{day}T00:00:00Z")
        state = pipeline.airflow.wait_run(DAG_ID, run_id, RUN_TIMEOUT_S)
        if state != "success" or order.exists():
            raise RuntimeError(f"{run_id}: expected a failure and a success, found {state}")
        tasks = pipeline.airflow.task_instances(DAG_ID, run_id)
        tries = [each for task in tasks for each in pipeline.airflow.tries(DAG_ID, run_id, task["task_id"])]
        begun, ended = (
            pick(moment_s(each[key]) for each in tries) for pick, key in ((min, "start_date"), (max, "end_date"))
        )
        (failed,) = (moment_s(each["end_date"]) for each in tries if each["state"] != "success")
        found.append(Failed(cuts or "none", ended - begun, ended - failed))
    return found


def _report(before: Sequence[Failed], after: Sequence[Failed], advice: dict[str, Any]) -> Report:
    recovery = median(each.recovery_s for each in after) / median(each.recovery_s for each in before)
    whole = median(each.run_s for each in after) / median(each.run_s for each in before)
    expected = (advice["best"]["run_s"] + advice["best"]["recovery_s"]) / (
        advice["now"]["run_s"] + advice["now"]["recovery_s"]
    )
    return Report(
        name="advice",
        title="A pipeline cut as it is advised to be",
        method=(
            f"A chain of four steps of {WORK_S:g} s of work each (waited inside a Spark task), over one warm Spark "
            "Connect server, in one region: nothing is written between its steps. In each run the last step raises "
            "once at its end. `airflow recovery advise` reads the journal of these runs; then the results that it "
            "names are written, and the same runs fail in the same way. Recovery is from the failure to the run's end. "
            "It says: "
            f"{advice['first_line']}"
        ),
        figures=[
            Figure("recovery with the cuts advised", recovery, "times that before", "below 1", recovery < 1),
            Figure("a run with its failure", whole, "times that before", "below 1", whole < 1),
            Figure("a run, as the advice expects it", expected, "times that before"),
        ],
        tables=[
            Table(
                "Runs",
                ("results written", "run, s", "of that from the failure on, s"),
                [(each.cuts, f"{each.run_s:.1f}", f"{each.recovery_s:.1f}") for each in (*before, *after)],
            )
        ],
    )
