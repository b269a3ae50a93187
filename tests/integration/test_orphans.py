"""Airflow ends a task's process while its driver works, in client mode: it goes on, and the next try follows it.

An Airflow of its own: a scheduler that takes back the tasks of a dead one, and supervisors that give up.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import closing

import psutil
import pytest
from pipeline import DagRun, Pipeline, is_gone
from shared_airflow import open_pipeline
from warehouse import ask, connected

from airflow_recovery.testing import S3Server
from airflow_recovery.testing.local_airflow import TaskProcesses
from scripts.spark_drivers import drivers_of, kill_9

pytestmark = [pytest.mark.airflow, pytest.mark.spark, pytest.mark.s3, pytest.mark.drill]

LIMITS = {
    "AIRFLOW__SCHEDULER__SCHEDULER_HEALTH_CHECK_THRESHOLD": "15",
    "AIRFLOW__WORKERS__MAX_FAILED_HEARTBEATS": "3",
    "AIRFLOW__WORKERS__EXECUTION_API_RETRIES": "2",
    "AIRFLOW__WORKERS__EXECUTION_API_RETRY_WAIT_MAX": "1",
}


@pytest.fixture(scope="module")
def own(
    tmp_path_factory: pytest.TempPathFactory, s3_server_names: list[str], start_s3_server: Callable[[str], S3Server]
) -> Iterator[Pipeline]:
    server = start_s3_server(s3_server_names[-1])
    with open_pipeline(tmp_path_factory.mktemp("orphans"), server, "sc://127.0.0.1:1", LIMITS) as pipeline:
        lake = pipeline.folder / "lake"
        lake.mkdir()
        (lake / "gated.csv").write_text("1\n41\n")
        yield pipeline


class Held:
    """A run whose only driver waits at a gate."""

    def __init__(self, own: Pipeline, dag_id: str) -> None:
        self.is_job = dag_id == "outliving_job"
        self.region, self.gate = ("first.second", "second") if self.is_job else ("copied", "copied")
        run = self.run = own.run(dag_id)
        if not self.is_job:
            run.group_id = "~28operators~29"
        run.hold(self.gate)
        run.start()
        run.wait_called(self.gate)
        (self.jvm,) = drivers_of(own.airflow.home, None)
        found = own.airflow.task_processes(run.dag_id, run.run_id, run.task(self.region))
        assert found is not None
        self.first: TaskProcesses = found

    def wait_followed(self) -> None:
        """The first try ends, and the next one waits for its driver."""
        run = self.run
        # While the API server is away, Airflow may count several tries that never began.
        run.wait(lambda: run.tries(self.region) > 1 and "waiting for it" in run.log(self.region), "the next try")
        run.wait(self.first.is_gone, "the end of the first try")
        assert not is_gone(self.jvm)

    def is_followed(self) -> None:
        """As `wait_followed`. The next try takes what the driver makes, and the step runs once."""
        self.wait_followed()
        run = self.run
        run.release(self.gate)
        journal = run.ends()
        journal.check()
        assert journal.executions()[self.region] == 1
        assert run.calls(self.gate) == 1
        run.wait(lambda: not keepers(run), "the end of the keeper")

    def driver_ends(self) -> None:
        """Its keeper ends with it."""
        self.run.wait(lambda: is_gone(self.jvm), "the end of the driver")
        self.run.wait(lambda: not keepers(self.run), "the end of the keeper")

    def runs_again(self, causes: list[str]) -> None:
        """Another attempt runs the step, after the driver of the first one has ended."""
        run = self.run
        run.wait(lambda: is_gone(self.jvm), "the end of the driver")
        run.wait_called(self.gate, 2)
        run.release(self.gate)
        journal = run.ends()
        journal.check()
        assert journal.executions()[self.region] == 2
        assert journal.fenced(self.region) == causes


def keepers(run: DagRun) -> list[psutil.Process]:
    return [
        process
        for process in psutil.process_iter(["cmdline", "environ"])
        if any(name.endswith("/submit_keeper.py") for name in process.info["cmdline"] or ())
        and (process.info["environ"] or {}).get("AIRFLOW_HOME") == str(run.airflow.home)
    ]


@pytest.fixture(params=["outliving", "outliving_job"])
def held(own: Pipeline, request: pytest.FixtureRequest) -> Held:
    return Held(own, request.param)


def test_fault_235_a_scheduler_is_killed_and_the_next_one_takes_the_task_back(own: Pipeline, held: Held) -> None:
    own.airflow.restart("scheduler")

    held.is_followed()
    assert "Server indicated the task shouldn't be running anymore" in held.run.log(held.region, 1)


def test_fault_235_a_task_is_killed(held: Held) -> None:
    kill_9(held.first.task)
    held.is_followed()


def test_fault_235_a_supervisor_is_told_to_end_as_by_the_shutdown_of_its_worker(held: Held) -> None:
    held.first.supervisor.terminate()
    held.is_followed()


def test_fault_235_the_api_server_is_away_for_longer_than_a_supervisor_waits(own: Pipeline, held: Held) -> None:
    own.airflow.kill("api-server")
    held.run.wait(held.first.is_gone, "the supervisor to give up")
    own.airflow.start("api-server")
    own.airflow.miss_heartbeat(held.run.dag_id, held.run.run_id, held.run.task(held.region))
    held.is_followed()


def test_fault_235_a_supervisor_is_killed(own: Pipeline, held: Held) -> None:
    """The kernel kills its task with it."""
    kill_9(held.first.supervisor)
    held.run.wait(held.first.is_gone, "the end of the task")
    own.airflow.miss_heartbeat(held.run.dag_id, held.run.run_id, held.run.task(held.region))
    held.is_followed()


def test_fault_235_the_run_is_deleted_and_a_new_run_of_its_date_follows(own: Pipeline, held: Held) -> None:
    """The API deletes no run that is at work: its rows go, as with a database that is lost."""
    run = held.run
    with closing(connected({**own.airflow.database_address, "dbname": "airflow"})) as database:
        ask(database, f"DELETE FROM dag_run WHERE dag_id = '{run.dag_id}' AND run_id = '{run.run_id}'")
    run.wait(held.first.is_gone, "the end of the task")
    assert not is_gone(held.jvm)

    run.run_id = f"new-{run.run_id}"
    run.start()
    run.wait(lambda: run.tries(held.region) > 0 and "waiting for it" in run.log(held.region), "the new run to follow")
    run.release(held.gate)
    journal = run.ends()
    journal.check()
    assert journal.executions()[held.region] == run.calls(held.gate) == 1


def test_fault_236_a_person_clears_the_running_task(held: Held) -> None:
    """The next try ends the driver before it claims another attempt."""
    held.run.clear(held.region)
    held.runs_again(["superseded"])


def test_fault_237_a_running_task_that_is_marked_failed_ends_its_driver(held: Held) -> None:
    held.run.mark(held.region, "failed")
    held.driver_ends()
    held.run.ends("failed")
    assert held.run.journal().fenced(held.region) == ["superseded"]


def test_fault_237_one_that_is_marked_success_ends_its_driver_and_its_reader_has_it_made_again(held: Held) -> None:
    held.run.mark(held.region, "success")
    held.runs_again(["superseded"])


def test_fault_237_a_run_that_has_timed_out_ends_its_driver(own: Pipeline, held: Held) -> None:
    """Airflow is told that the run began long ago."""
    run = held.run
    with closing(connected({**own.airflow.database_address, "dbname": "airflow"})) as database:
        ask(database, f"UPDATE dag_run SET start_date = '2000-01-01' WHERE run_id = '{run.run_id}'")
    held.driver_ends()
    run.ends("failed")
    assert run.state(held.region) == "skipped"
    assert run.journal().fenced(held.region) == ["superseded"]


@pytest.mark.parametrize("is_followed", [False, True], ids=["its own", "followed"])
def test_fault_237_execution_timeout_ends_the_driver(held: Held, is_followed: bool) -> None:
    """The signal is the one by which Airflow's timer ends a task."""
    if is_followed:
        kill_9(held.first.task)
        held.wait_followed()
    run = held.run
    now = run.airflow.task_processes(run.dag_id, run.run_id, run.task(held.region))
    assert now is not None
    now.task.send_signal(signal.SIGALRM)
    held.runs_again(["own failure"])
