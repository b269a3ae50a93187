"""Real processes, a real PostgreSQL: killed at every step of a commit, and frozen there while another one goes on."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sink_process import STEPS, Case, TaskProcess
from staging import Warehouse

from airflow_recovery.attempt import region_task
from airflow_recovery.attempt.confirm import confirm_dead
from airflow_recovery.journal.run_state import RunState
from airflow_recovery.model.records import CommitEnd
from airflow_recovery.sinks import Committable, PostgresTable, ProbedSink, SinkResources
from airflow_recovery.sinks import postgres as module

GIVEN = [("AA", 1.5), ("UA", -2.0), (None, 3.0), ("", None)]


def end_transactions(case: Case) -> None:
    """End what is frozen in a transaction, as the server does after `IDLE_TIMEOUT_S`: test_postgres_sink.py."""
    case.warehouse.ask(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
        "WHERE application_name = 'airflow-recovery' AND state LIKE 'idle in transaction%%'"
    )


@pytest.fixture
def case(warehouse: Warehouse, tmp_path: Path) -> Iterator[Case]:
    yield Case(warehouse, PostgresTable(conn_id="warehouse", table=warehouse.table), tmp_path / "journal")
    TaskProcess.kill_all()


def check_committed_once(case: Case) -> None:
    attempt = case.state().current
    assert attempt is not None
    assert attempt.committed is not None
    assert attempt.committed.end is CommitEnd.COMMITTED
    assert case.warehouse.rows() == GIVEN
    assert [n for _, n in case.warehouse.held()] == [attempt.number]


def test_undisturbed(case):
    assert TaskProcess(case).wait() == "success"
    check_committed_once(case)


@pytest.mark.parametrize("step", STEPS)
def test_fault_12_killed_at_every_step_the_rows_are_there_once(case, step):
    assert TaskProcess(case, step).wait() == "killed"
    assert TaskProcess(case).wait() == "success"
    check_committed_once(case)


@pytest.mark.parametrize("step", STEPS)
def test_case_14_a_zombie_that_wakes_at_any_step_adds_nothing(case, step):
    zombie = TaskProcess(case, step, signal.SIGSTOP)
    assert zombie.wait() == "stopped"
    end_transactions(case)
    assert TaskProcess(case).wait() == "success"
    check_committed_once(case)
    zombie.go_on()
    assert zombie.wait() != "stopped"
    check_committed_once(case)


@pytest.mark.parametrize("step", ["take", "commit"])
def test_fault_12_sigterm_inside_the_commit(case, step):
    assert TaskProcess(case, step, signal.SIGTERM).wait() == "killed"
    assert TaskProcess(case).wait() == "success"
    check_committed_once(case)


def test_control_without_the_token_a_zombie_adds_its_rows_again(case, monkeypatch):
    monkeypatch.setattr(module._PostgresCommitter, "_take", lambda self, cursor, of: True)
    monkeypatch.setattr(region_task, "keep_rows", lambda *given: "")
    zombie = TaskProcess(case, "copy", signal.SIGSTOP)
    assert zombie.wait() == "stopped"
    assert TaskProcess(case).wait() == "success"
    zombie.go_on()
    zombie.wait()
    assert case.warehouse.rows() == GIVEN * 2


# probe-only: two functions of a user's, over the same database


def put_rows(committable: Committable, resources: SinkResources) -> None:
    sink = PostgresTable(conn_id="warehouse", table=TABLE[0])
    committer: Any = sink.open(resources)
    # A target that knows nothing of attempts: the name is all there is, and it takes it twice.
    committer._take = lambda cursor, of: True
    committer._held = lambda cursor, of: None
    committer.commit(committable)


def has_rows(of: object, resources: SinkResources) -> bool:
    return bool(WAREHOUSE[0].rows())


TABLE: list[str] = []
WAREHOUSE: list[Warehouse] = []


@pytest.fixture
def probed(case: Case) -> Case:
    TABLE[:] = [case.warehouse.table]
    WAREHOUSE[:] = [case.warehouse]
    return Case(case.warehouse, ProbedSink(apply=put_rows, is_applied=has_rows), case.journal)


@pytest.mark.parametrize("step", ["copy", "insert", "commit"])
def test_case_15_in_doubt_until_a_person_confirms(probed, step):
    """The zombie is frozen inside the commit: nothing is visible, and it may be at any moment."""
    zombie = TaskProcess(probed, step, signal.SIGSTOP)
    assert zombie.wait() == "stopped"
    said = TaskProcess(probed).wait()
    assert said.startswith("SinkInDoubt: delays@1: expected its sink to be committed or its process to be known dead")
    zombie.go_on()
    # It lived, and has done it; the next try finds that out.
    assert zombie.wait() == "success"
    assert TaskProcess(probed).wait() == "success"
    assert probed.warehouse.rows() == GIVEN


def test_case_15_killed_inside_the_commit_a_person_confirms_and_it_goes_on(probed):
    assert TaskProcess(probed, "insert").wait() == "killed"
    assert TaskProcess(probed).wait().startswith("SinkInDoubt")
    confirm_dead(probed.journal_of(), RunState({"delays": probed.state()}), "delays", "ann", "killed it myself")
    assert TaskProcess(probed).wait() == "success"
    assert probed.warehouse.rows() == GIVEN
    assert probed.state().latest_attempt == 1
    assert probed.state().attempts[1].committer_epoch == 2


def test_case_15_killed_after_the_targets_commit_the_probe_decides(probed):
    assert TaskProcess(probed, "before committed").wait() == "killed"
    assert TaskProcess(probed).wait() == "success"
    assert probed.warehouse.rows() == GIVEN
