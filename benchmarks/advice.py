"""What following the advice of ``airflow recovery advise`` saves: pipelines as they were cut, and as is advised."""

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

RUNS = 3


@dataclass(frozen=True)
class Shape:
    """A pipeline of `benchmarks/dags/advice.py`, all of whose steps take `WORK_S`. ``what``, ``last``: in words.

    ``options`` of ``advise``.
    """

    name: str
    title: str
    dag_id: str
    what: str
    last: str
    options: tuple[str, ...] = ()


CHAIN = Shape(
    "advice", "A pipeline cut as it is advised to be", "advised", "A chain of four steps", "the last step raises"
)
DIAMOND = Shape(
    "advice_diamond",
    "A diamond with a side branch, cut as it is advised to be",
    "advised_diamond",
    "A diamond with a side branch (load; left, right and side, which read it; joined, which reads left and right), "
    "five steps",
    "joined raises",
    ("--job", "benchmarks.advised_diamond:diamond"),
)


@dataclass(frozen=True)
class Failed:
    """A run a step of which has failed once. ``recovery_s``: from that failure to the run's end."""

    cuts: str
    run_s: float
    recovery_s: float


def measure(folder: Path, repeats: int | None) -> Report:
    """``repeats`` (default `RUNS`) runs of a chain with each set of cuts, in each of which the last step fails once."""
    return _measured(CHAIN, folder, repeats)


def measure_diamond(folder: Path, repeats: int | None) -> Report:
    """As `measure`, of a diamond with a side branch, whose join fails once."""
    return _measured(DIAMOND, folder, repeats)


def _measured(shape: Shape, folder: Path, repeats: int | None) -> Report:
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
            before = _failed_runs(shape, pipeline, failures / "fail", "", runs)
            advice: dict[str, Any] = json.loads(pipeline.command("advise", shape.dag_id, *shape.options, "--json"))
        cuts = " ".join(each["result"] for each in advice["boundaries"] if each["advised"])
        with open_local_pipeline(folder / "after", {**env, "BENCHMARK_CUTS": cuts}) as pipeline:
            after = _failed_runs(shape, pipeline, failures / "fail", cuts, runs)
    return _report(shape, before, after, advice)


def _failed_runs(shape: Shape, pipeline: LocalPipeline, order: Path, cuts: str, runs: int) -> list[Failed]:
    found = []
    for number in range(runs):
        order.touch()
        day = (date(2013, 1, 1) + timedelta(days=number)).isoformat()
        run_id = pipeline.airflow.trigger(shape.dag_id, logical_date=f"{day}T00:00:00Z")
        state = pipeline.airflow.wait_run(shape.dag_id, run_id, RUN_TIMEOUT_S)
        if state != "success" or order.exists():
            raise RuntimeError(f"{run_id}: expected a failure and a success, found {state}")
        tasks = pipeline.airflow.task_instances(shape.dag_id, run_id)
        tries = [each for task in tasks for each in pipeline.airflow.tries(shape.dag_id, run_id, task["task_id"])]
        begun, ended = (
            pick(moment_s(each[key]) for each in tries) for pick, key in ((min, "start_date"), (max, "end_date"))
        )
        (failed,) = (moment_s(each["end_date"]) for each in tries if each["state"] != "success")
        found.append(Failed(cuts or "none", ended - begun, ended - failed))
    return found


def _report(shape: Shape, before: Sequence[Failed], after: Sequence[Failed], advice: dict[str, Any]) -> Report:
    recovery = median(each.recovery_s for each in after) / median(each.recovery_s for each in before)
    whole = median(each.run_s for each in after) / median(each.run_s for each in before)
    expected = (advice["best"]["run_s"] + advice["best"]["recovery_s"]) / (
        advice["now"]["run_s"] + advice["now"]["recovery_s"]
    )
    return Report(
        name=shape.name,
        title=shape.title,
        method=(
            f"{shape.what} of {WORK_S:g} s of work each (waited inside a Spark task), over one warm Spark "
            f"Connect server, in one region: nothing is written between its steps. In each run {shape.last} "
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
