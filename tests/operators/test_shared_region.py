"""A region whose result is shared between runs: it waits in the triggerer, and claims nothing while it does."""

from __future__ import annotations

import asyncio
import logging
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk.exceptions import TaskDeferred
from job_tasks import Drivers, job_dag
from tries import run_try, task_context

from airflow_recovery.attempt.shared import SharedApplication
from airflow_recovery.driver.attempt_result import AttemptResult
from airflow_recovery.driver.heartbeat import Heartbeat
from airflow_recovery.driver.outcome import finish_attempt
from airflow_recovery.journal.journal import Journal
from airflow_recovery.journal.layout import shared_identity
from airflow_recovery.model.manifest import PartitionManifest
from airflow_recovery.model.records import AttemptState, FenceCause, RunIdentity
from airflow_recovery.operators import SparkRegionOperator
from airflow_recovery.planning.restart_strategy import NoRestart
from airflow_recovery.store.local import LocalStore
from airflow_recovery.triggers import SharedResultTrigger

FIRST, SECOND = (datetime(2024, 1, day, tzinfo=timezone.utc) for day in (2, 3))


def airports(**given: Any) -> SparkRegionOperator:
    dag = job_dag("dagjobs.sharing:sharing", **given)
    (operator,) = [task for task in dag.tasks if isinstance(task, SparkRegionOperator) and task.region == "airports"]
    return operator


def own_journal(folder: Path, day: int) -> Journal:
    identity = RunIdentity("d", f"date-2024-01-0{day}T000000Z", "g")
    return Journal(LocalStore(f"file://{folder}/journal"), identity, writer="test")


def deferred(drivers: Drivers, monkeypatch: pytest.MonkeyPatch) -> TaskDeferred:
    """What the second date raises while the first one's driver runs."""
    seen: list[TaskDeferred] = []

    def second() -> None:
        with pytest.raises(TaskDeferred) as raised:
            run_try(airports(), logical_date=SECOND)
        seen.append(raised.value)

    drivers.meanwhile = second
    run_try(airports(), logical_date=FIRST)
    return seen[0]


def test_it_is_made_below_shared_and_adopted_by_the_next_date(recovery: Path, drivers: Drivers) -> None:
    made = run_try(airports(), logical_date=FIRST)
    adopted = run_try(airports(), logical_date=SECOND)
    assert len(drivers.specs) == 1
    assert "/_shared/" in drivers.specs[0].location
    assert made["results"] == adopted["results"]
    outcomes = [own_journal(recovery, day).read_outcome("airports", 1) for day in (2, 3)]
    assert outcomes[0] is not None
    assert outcomes[1] is not None
    assert outcomes[0].shared == outcomes[1].shared
    again = run_try(airports(), logical_date=SECOND, try_number=2)
    assert again["decision"] == "kept"


def test_another_date_waits_in_the_triggerer_and_has_claimed_nothing(
    recovery: Path, drivers: Drivers, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = deferred(drivers, monkeypatch)
    assert found.method_name == "execute_after_wait"
    assert isinstance(found.trigger, SharedResultTrigger)
    path, arguments = found.trigger.serialize()
    assert path == "airflow_recovery.triggers.shared.SharedResultTrigger"
    assert arguments["build"]["owner"]["run_key"] == "date-2024-01-02T000000Z"
    assert SharedResultTrigger(**arguments).serialize() == (path, arguments)
    assert list(own_journal(recovery, 3).list(["airports"]).state.of("airports").attempts) == []

    # It has ended meanwhile: the trigger fires, and the try starts over.
    event = asyncio.run(first_event(found.trigger))
    assert event == {"silent": None}
    operator = airports().prepare_for_execution()
    answer = operator.execute_after_wait(task_context("g.airports", logical_date=SECOND), event)
    assert (answer["decision"], len(drivers.specs)) == ("ran", 1)


def test_dates_that_begin_at_the_same_moment_wait_there_too_and_no_failure_is_counted(
    recovery: Path, drivers: Drivers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second one sees nobody before its own claim. One slot a waiting date would stop a large backfill."""
    monkeypatch.setattr(SharedApplication, "find_build", lambda self: None)
    monkeypatch.setattr(SharedApplication, "_wait", lambda *arguments: pytest.fail("it waits in a worker"))
    found = deferred(drivers, monkeypatch)
    assert isinstance(found.trigger, SharedResultTrigger)
    given_up = own_journal(recovery, 3).read_outcome("airports", 1)
    assert given_up is not None
    assert (given_up.state, given_up.cause) == (AttemptState.FENCED, FenceCause.SUPERSEDED)
    answer = run_try(airports(restart_strategy=NoRestart()), logical_date=SECOND)
    assert (answer["attempt"], len(drivers.specs)) == (2, 1)


def test_one_that_gives_no_sign_of_life_is_taken_over(
    recovery: Path, drivers: Drivers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW__RECOVERY__PREVIOUS_WORKER_TIMEOUT", "0s")
    monkeypatch.setattr(Heartbeat, "_run", lambda self: None)  # the first one's process is stopped, not ended
    found: list[dict[str, Any]] = []

    def second_takes_over() -> None:
        with pytest.raises(TaskDeferred) as raised:
            run_try(airports(), logical_date=SECOND)
        event = asyncio.run(first_event(raised.value.trigger))
        assert event["silent"]["attempt"] == 1
        operator = airports().prepare_for_execution()
        found.append(operator.execute_after_wait(task_context("g.airports", logical_date=SECOND), event))

    drivers.meanwhile = second_takes_over
    answer = run_try(airports(), logical_date=FIRST)
    # The first one lives, was fenced, and adopts what the second has made.
    assert answer["results"] == found[0]["results"]
    assert [spec.attempt for spec in drivers.specs] == [1, 2]


def test_a_dag_may_ask_for_waiting_in_the_worker(
    recovery: Path, drivers: Drivers, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = []

    def second() -> None:
        monkeypatch.setattr("airflow_recovery.attempt.shared.SharedApplication._wait", ends_first)
        run_try(airports(deferrable=False), logical_date=SECOND)

    def ends_first(self: Any, journal: Journal, found: Any) -> None:
        key.append(journal.identity.run_key)
        spec = drivers.specs[0]
        outputs = (PartitionManifest("airports", f"{spec.location}/airports", (), 0),)
        finish_attempt(spec, AttemptResult(outputs, 2.0, None), logging.getLogger("tests"))

    drivers.meanwhile = second
    run_try(airports(deferrable=False), logical_date=FIRST)
    journal = Journal(LocalStore(f"file://{recovery}/journal"), shared_identity(key[0]), writer="test")
    assert len(drivers.specs) == 1
    assert len([claim for claim in journal.open_claims() if claim.inputs]) == 2


async def first_event(trigger: Any) -> dict[str, Any]:
    trigger.poll_interval_s = 0.01
    async for event in trigger.run():
        return dict(event.payload)
    raise AssertionError("no event")
