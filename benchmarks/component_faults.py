"""How much longer a run takes when a part of Airflow dies: with Airflow's defaults, and with what is recommended."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from datetime import date, timedelta
from itertools import count
from pathlib import Path

import psutil  # type: ignore[import-untyped]

from airflow_recovery.testing.local_airflow import LocalAirflow, LocalAirflowError, TaskProcesses
from airflow_recovery.testing.spark_cluster import connect_server
from benchmarks.local_pipeline import AIRFLOW_VALUES, RECOMMENDED_TEXT, RUN_TIMEOUT_S, moment_s, open_local_pipeline
from benchmarks.report import Figure, Report, Table

WORK_S = 10.0
INTO_THE_WORK_S = 5.0
DOWN_S = 60.0
"""How long the database, or the machine, is away."""
REGION, LONG_REGION, DEFERRED = "one_region", "long_region", "deferred"
HARMED = {REGION: "job.only_step", LONG_REGION: "job.long_step", DEFERRED: "wait"}
"""The DAGs, and the task of each in which the harm is done."""
POLL_S = 0.05


@dataclass(frozen=True)
class Fault:
    """``harm`` is called when the task that is harmed is in ``state``, and ``after_s`` later.

    Of one that is harmed while it is queued, the executor's workers stand still, so that none takes it before.
    """

    name: str
    dag_id: str
    state: str
    harm: Callable[[_Bench, TaskProcesses | None], None]
    after_s: float = 0.0


@dataclass(frozen=True)
class Recovered:
    """One fault with one set of values. ``longer_s``: than the same run undisturbed.

    ``idle_s``: from the harm to the start of the try that goes on; `None` where the task went on by itself.
    """

    fault: str
    values: str
    longer_s: float
    idle_s: float | None


def measure(folder: Path, repeats: int | None) -> Report:
    """Each fault with each set of values, ``repeats`` times (default 1).

    Both Airflows run at the same time: most of it is waiting, and what else the machine does then harms both.
    """
    folder.mkdir(parents=True)
    with connect_server() as server, ThreadPoolExecutor() as pool:
        env = {
            "AIRFLOW_CONN_SPARK_CONNECT": json.dumps(
                {"conn_type": "spark_connect", "host": "127.0.0.1", "port": server.port}
            ),
            "BENCHMARK_WORK_S": str(WORK_S),
        }

        def rounds(number: int, name: str) -> list[Recovered]:
            values = {**env, **AIRFLOW_VALUES[name]}
            with open_local_pipeline(
                folder / f"airflow-{number}", values, database="postgresql", fast=False
            ) as pipeline:
                bench = _Bench(pipeline.airflow, name)
                return [recovered for _ in range(repeats or 1) for recovered in bench.round()]

        found = [recovered for each in pool.map(rounds, count(), AIRFLOW_VALUES) for recovered in each]
    return _report(found)


class _Bench:
    def __init__(self, airflow: LocalAirflow, values: str) -> None:
        self.airflow = airflow
        self._values = values
        self._day = date(2013, 1, 1)

    def round(self) -> list[Recovered]:
        """Every fault, after a run of each DAG that nobody harms."""
        self._run(REGION)  # what is loaded at the first run is loaded now
        undisturbed = {dag_id: self._length(dag_id, self._run(dag_id)) for dag_id in HARMED}
        return [self._harmed(fault, undisturbed[fault.dag_id]) for fault in FAULTS]

    def _harmed(self, fault: Fault, undisturbed_s: float) -> Recovered:
        if fault.state == "queued":
            for worker in psutil.Process(self.airflow.processes["scheduler"].pid).children(recursive=True):
                worker.suspend()
        run_id, task_id = self._begin(fault.dag_id), HARMED[fault.dag_id]
        deadline = time.monotonic() + RUN_TIMEOUT_S
        while self.airflow.task_instance(fault.dag_id, run_id, task_id)["state"] != fault.state:
            if time.monotonic() > deadline:
                raise RuntimeError(f"{fault.name}: {task_id} was never {fault.state}")
            time.sleep(POLL_S)
        time.sleep(fault.after_s)
        processes = self.airflow.task_processes(fault.dag_id, run_id, task_id) if fault.state == "running" else None
        harmed_s = time.time()
        fault.harm(self, processes)
        self._end(fault.dag_id, run_id)
        tries = self.airflow.tries(fault.dag_id, run_id, task_id)
        begun = [moment_s(instance["start_date"]) for instance in tries if instance["start_date"]]
        idle_s = min((start - harmed_s for start in begun if start > harmed_s), default=None)
        longer_s = self._length(fault.dag_id, run_id) - undisturbed_s
        print(f"  {self._values}: {fault.name}: {longer_s:.0f} s longer", flush=True)
        return Recovered(fault.name, self._values, longer_s, idle_s)

    def _run(self, dag_id: str) -> str:
        run_id = self._begin(dag_id)
        self._end(dag_id, run_id)
        return run_id

    def _begin(self, dag_id: str) -> str:
        self._day += timedelta(days=1)
        return self.airflow.trigger(dag_id, logical_date=f"{self._day.isoformat()}T00:00:00Z")

    def _end(self, dag_id: str, run_id: str) -> None:
        deadline = time.monotonic() + RUN_TIMEOUT_S
        while (state := self.airflow.run_state(dag_id, run_id)) not in ("success", "failed"):
            if time.monotonic() > deadline:
                break
            time.sleep(1.0)
        if state != "success":
            raise RuntimeError(f"{dag_id} {run_id} is {state}\n{self.airflow.describe(dag_id, run_id)}")

    def _length(self, dag_id: str, run_id: str) -> float:
        run = next(run for run in self.airflow.dag_runs(dag_id) if run["dag_run_id"] == run_id)
        return moment_s(run["end_date"]) - moment_s(run["start_date"])


def _kill_the_scheduler(bench: _Bench, processes: TaskProcesses | None) -> None:
    """With its executor's workers and what waits in its queue; whoever looks after it starts it again at once."""
    bench.airflow.kill_group("scheduler")
    bench.airflow.start("scheduler")


def _kill_the_supervisor(bench: _Bench, processes: TaskProcesses | None) -> None:
    assert processes is not None
    os.kill(processes.supervisor.pid, signal.SIGKILL)


def _kill_the_task(bench: _Bench, processes: TaskProcesses | None) -> None:
    assert processes is not None
    os.kill(processes.task.pid, signal.SIGKILL)


def _kill_the_triggerer(bench: _Bench, processes: TaskProcesses | None) -> None:
    bench.airflow.kill_group("triggerer")
    bench.airflow.start("triggerer")


def _stop_the_database(bench: _Bench, processes: TaskProcesses | None) -> None:
    """Whoever looks after Airflow's components starts what has ended by then."""
    with bench.airflow.database_down():
        time.sleep(DOWN_S)
    for _ in range(5):
        with suppress(LocalAirflowError):  # one of them has ended only now
            bench.airflow.start()
            return
    raise RuntimeError("Airflow has not come back with its database")


def _lose_the_machine(bench: _Bench, processes: TaskProcesses | None) -> None:
    """All of Airflow, and its tasks; the database and Spark are elsewhere."""
    for component in bench.airflow.components:
        bench.airflow.kill_group(component)
    time.sleep(DOWN_S)
    bench.airflow.start()


FAULTS = (
    Fault("the scheduler is killed while a task is queued", REGION, "queued", _kill_the_scheduler, 1.0),
    Fault("the scheduler is killed while a task runs", REGION, "running", _kill_the_scheduler, INTO_THE_WORK_S),
    Fault("a task's supervisor is killed", REGION, "running", _kill_the_supervisor, INTO_THE_WORK_S),
    Fault("a task's process is killed", REGION, "running", _kill_the_task, INTO_THE_WORK_S),
    Fault("the triggerer is killed while a task is deferred", DEFERRED, "deferred", _kill_the_triggerer, 1.0),
    Fault(f"the database is away for {DOWN_S:.0f} s", LONG_REGION, "running", _stop_the_database, INTO_THE_WORK_S),
    Fault(f"the machine is away for {DOWN_S:.0f} s", REGION, "running", _lose_the_machine, INTO_THE_WORK_S),
)


def _rounded(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds:.0f}"


def _report(found: list[Recovered]) -> Report:
    return Report(
        name="component_faults",
        title="A part of Airflow dies",
        method=(
            f"A region with {WORK_S:g} s of work ({9 * WORK_S:g} s where the database is away: longer than that) on a "
            "warm Spark Connect server; Airflow with LocalExecutor and PostgreSQL, one with each set of values, at the "
            f"same time. The region is harmed when it is queued or {INTO_THE_WORK_S:g} s after its start; or a task "
            "that is deferred. What was killed is started again at once, as a service manager does it. Longer: than "
            "the same run that nobody harms. Idle: from the harm to the start of the try that goes on. Recommended: "
            f"{RECOMMENDED_TEXT}."
        ),
        figures=[Figure(f"{each.fault}: {each.values}", each.longer_s, "s longer") for each in found],
        tables=[
            Table(
                "Every fault",
                ("fault", "values", "longer, s", "idle, s"),
                [(fault.fault, fault.values, _rounded(fault.longer_s), _rounded(fault.idle_s)) for fault in found],
            )
        ],
    )
