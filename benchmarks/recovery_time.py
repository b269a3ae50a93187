"""How long a run takes to recover, over the work that was lost: with recovery, by plain retries, by a clear of all."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path
from statistics import median

from airflow_recovery.testing.spark_cluster import connect_server
from benchmarks.local_pipeline import (
    AIRFLOW_VALUES,
    RECOMMENDED_TEXT,
    RUN_TIMEOUT_S,
    LocalPipeline,
    moment_s,
    open_local_pipeline,
)
from benchmarks.report import Figure, Report, Table
from benchmarks.slow_chain import STEPS, WORK_S

GOAL = 1.1
RECOVERING, PLAIN = "slow_recovering", "slow_plain"
TASKS = {RECOVERING: "job.", PLAIN: ""}
"""What each DAG's tasks are called, before the name of the step."""
LAST, BEFORE_LAST = STEPS[-1], STEPS[-2]


@dataclass(frozen=True)
class Recovery:
    """``recovery_s`` from the failure (or from a person's clear) to the end of the run; ``lost_s`` is the work lost.

    ``values``: what Airflow's own intervals were (`AIRFLOW_VALUES`).
    """

    values: str
    disturbance: str
    way: str
    recovery_s: float
    lost_s: float

    @property
    def ratio(self) -> float:
        return self.recovery_s / self.lost_s


RAISES = "the last step raises"
LOSES = "... and the result that it reads is gone"
WITH, RETRIES, CLEAR = "with recovery", "plain Airflow, retries", "plain Airflow, the run cleared"


def measure(folder: Path, repeats: int | None) -> Report:
    """``repeats`` (default 1) rounds with each of `AIRFLOW_VALUES`, of 24 steps each."""
    rounds = repeats or 1
    folder.mkdir(parents=True)
    failures = folder / "failures"
    failures.mkdir()
    recoveries: list[Recovery] = []
    with connect_server() as server:
        connection = {"conn_type": "spark_connect", "host": "127.0.0.1", "port": server.port}
        env = {
            "AIRFLOW_CONN_SPARK_CONNECT": json.dumps(connection),
            "BENCHMARK_FAILURES": str(failures),
            "BENCHMARK_WORK_S": str(WORK_S),
        }
        for number, (name, values) in enumerate(AIRFLOW_VALUES.items()):
            place = folder / f"airflow-{number}"
            env["BENCHMARK_OUTPUT"] = str(place / "output")
            with open_local_pipeline(place / "pipeline", {**env, **values}, fast=False) as pipeline:
                bench = _Bench(pipeline, failures / "fail", place / "output", name)
                recoveries += [recovery for number in range(rounds) for recovery in bench.round(number)]
    return _report(recoveries, rounds)


class _Bench:
    def __init__(self, pipeline: LocalPipeline, order: Path, output: Path, values: str) -> None:
        self._pipeline = pipeline
        self._order = order
        self._output = output
        self._values = values

    def round(self, number: int) -> list[Recovery]:
        """Each disturbance and each way once, with steps of one and the same length."""
        days = [(date(2013, 1, 1) + timedelta(days=2 * number + candidate)).isoformat() for candidate in range(2)]
        self._run(PLAIN, days[0], "success")
        retried_s = self._since_failure(PLAIN, days[0])
        recovered_s = {RAISES: self._recovered(days[0]), LOSES: self._recovered(days[1], lose=True)}
        # The retry can't read what is gone either: a person looks, and clears the run.
        self._run(PLAIN, days[1], "failed", self._output / days[1] / BEFORE_LAST)
        begun = time.time()
        self._pipeline.airflow.clear(PLAIN, _run_id(days[1]))
        cleared_s = self._end(PLAIN, days[1], "success") - begun
        # Everything is warm by now, and nothing fails. All steps have the same work.
        cleared = self._pipeline.airflow.task_instances(PLAIN, _run_id(days[1]))
        step_s = median(float(instance["duration"]) for instance in cleared)
        lost_s = {RAISES: step_s, LOSES: 2 * step_s}
        return [
            Recovery(self._values, RAISES, RETRIES, retried_s, lost_s[RAISES]),
            *(Recovery(self._values, name, WITH, seconds, lost_s[name]) for name, seconds in recovered_s.items()),
            *(Recovery(self._values, name, CLEAR, cleared_s, lost_s[name]) for name in lost_s),
        ]

    def _recovered(self, day: str, *, lose: bool = False) -> float:
        """No person is asked. The result's folder is known before it is there."""
        key = f"date-{day}T000000Z"
        lost = self._pipeline.folder / "results" / RECOVERING / key / "job" / BEFORE_LAST
        self._run(RECOVERING, day, "success", *([lost] if lose else []))
        return self._since_failure(RECOVERING, day)

    def _run(self, dag_id: str, day: str, state: str, *lost: Path) -> None:
        """A run to its end, which must be ``state``. Its last step fails once, and takes ``lost`` with it."""
        self._order.write_text(" ".join(map(str, lost)))
        self._pipeline.airflow.trigger(dag_id, logical_date=f"{day}T00:00:00Z")
        self._end(dag_id, day, state)
        if self._order.exists():
            raise RuntimeError(f"{dag_id} of {day} has ended, and nothing failed")

    def _since_failure(self, dag_id: str, day: str) -> float:
        """From the end of the last step's first try to the end of the last step."""
        task = f"{TASKS[dag_id]}{LAST}"
        tries = self._pipeline.airflow.tries(dag_id, _run_id(day), task)
        return moment_s(tries[-1]["end_date"]) - moment_s(tries[0]["end_date"])

    def _end(self, dag_id: str, day: str, state: str) -> float:
        """Wait for the run; the end of its last step, in seconds since the epoch."""
        airflow, run_id = self._pipeline.airflow, _run_id(day)
        text = airflow.wait_run(dag_id, run_id, RUN_TIMEOUT_S)
        if text != state:
            raise RuntimeError(f"{dag_id} of {day}: expected {state}, found {text}\n{airflow.describe(dag_id, run_id)}")
        return moment_s(airflow.task_instance(dag_id, run_id, f"{TASKS[dag_id]}{LAST}")["end_date"])


def _run_id(day: str) -> str:
    return f"local__{day}T00:00:00Z"


def _report(found: Sequence[Recovery], rounds: int) -> Report:
    return Report(
        name="recovery_time",
        title="Recovery time over lost work",
        method=(
            f"A chain of {len(STEPS)} steps of {WORK_S:g} s of work each (waited inside a Spark task, so that the "
            f"machine's speed does not count), over one warm Spark Connect server; {rounds} rounds. Its last step "
            "raises once; or raises once when the result that it reads has just been deleted. With recovery: a job "
            "task group as it is by default. Plain: the same functions in Python tasks that read and overwrite Parquet "
            "by prefix, one retry after 1 s. The time runs from the end of the failed try, or from the clear by a "
            "person who was there at once, to the end of the last step. Lost work: as many steps as truly had to run "
            "again, of the length that they have in the cleared run, where nothing fails. All of it with Airflow's own "
            f"defaults, and with what is recommended: {RECOMMENDED_TEXT}. What these settings are for is measured by "
            f"component_faults; load of the machine at the end: {os.getloadavg()[0]:.1f}."
        ),
        figures=[
            figure
            for name in AIRFLOW_VALUES
            for figure in _figures(name, [recovery for recovery in found if recovery.values == name])
        ],
        tables=[
            Table(
                "Every recovery (plain retries never recover a lost result: they fail, and a person is asked)",
                ("Airflow's settings", "disturbance", "way", "recovery, s", "lost work, s", "ratio"),
                [
                    (
                        recovery.values,
                        recovery.disturbance,
                        recovery.way,
                        f"{recovery.recovery_s:.1f}",
                        f"{recovery.lost_s:.1f}",
                        f"{recovery.ratio:.2f}",
                    )
                    for recovery in found
                ],
            )
        ],
    )


def _figures(values: str, found: Sequence[Recovery]) -> list[Figure]:
    """Those of one set of values."""

    def ratio(disturbance: str, way: str) -> float:
        return median(
            recovery.ratio for recovery in found if (recovery.disturbance, recovery.way) == (disturbance, way)
        )

    def fixed(disturbance: str) -> float:
        """What a recovery costs beside the lost work."""
        mine = [recovery for recovery in found if (recovery.disturbance, recovery.way) == (disturbance, WITH)]
        return median(recovery.recovery_s - recovery.lost_s for recovery in mine)

    raises, loses, unit = ratio(RAISES, WITH), ratio(LOSES, WITH), "times the lost work"
    return [
        Figure(f"{values}: {RAISES}: with recovery", raises, unit, f"at most {GOAL}", raises <= GOAL),
        Figure(f"{values}: {RAISES}: plain retries", ratio(RAISES, RETRIES), unit),
        Figure(f"{values}: {RAISES}: the run cleared", ratio(RAISES, CLEAR), unit),
        Figure(f"{values}: {LOSES}: with recovery", loses, unit, f"at most {GOAL}", loses <= GOAL),
        Figure(f"{values}: {LOSES}: the run cleared", ratio(LOSES, CLEAR), unit),
        Figure(f"{values}: a recovery's own time, nothing lost", fixed(RAISES), "s"),
        Figure(f"{values}: a recovery's own time, a result lost", fixed(LOSES), "s"),
    ]
