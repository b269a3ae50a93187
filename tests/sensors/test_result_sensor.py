from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk.exceptions import TaskDeferred
from published import DATE, PublishedRun

from airflow_recovery.errors import RecoveryError, StoreAccessDenied, StoreUnavailable
from airflow_recovery.hooks.result import RecoveryResultHook
from airflow_recovery.sensors import RecoveryResultSensor
from airflow_recovery.sensors.result import SAME_LOGICAL_DATE
from airflow_recovery.triggers.result import ResultPublishedTrigger


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PublishedRun:
    monkeypatch.setenv("AIRFLOW__RECOVERY__JOURNAL", tmp_path.as_uri())
    return PublishedRun(tmp_path)


def sensor(**arguments: Any) -> RecoveryResultSensor:
    given: dict[str, Any] = {"external_dag_id": "flights", "group_id": "group", "vertex": "delays", **arguments}
    return RecoveryResultSensor(task_id="wait", **given)


def trigger(**arguments: Any) -> ResultPublishedTrigger:
    given: dict[str, Any] = {"logical_date": DATE, "poll_interval_s": 0.01, **arguments}
    return ResultPublishedTrigger(dag_id="flights", group_id="group", vertex="delays", **given)


async def first_event(waiting: ResultPublishedTrigger) -> Any:
    async for event in waiting.run():
        return event.payload
    raise AssertionError("no event")


def test_what_is_published_already_defers_nothing(run: PublishedRun) -> None:
    run.complete()

    assert sensor(logical_date=DATE).execute({}) is None


def test_what_is_not_published_defers_to_the_trigger(run: PublishedRun) -> None:
    with pytest.raises(TaskDeferred) as deferred:
        sensor(logical_date=DATE, poke_interval=7, timeout=70).execute({})

    waiting = deferred.value.trigger
    assert isinstance(waiting, ResultPublishedTrigger)
    path, arguments = waiting.serialize()
    assert path == "airflow_recovery.triggers.result.ResultPublishedTrigger"
    assert ResultPublishedTrigger(**arguments).serialize() == (path, arguments)
    assert (arguments["logical_date"], arguments["poll_interval_s"]) == (DATE, 7.0)
    assert deferred.value.method_name == "execute_complete"
    assert deferred.value.timeout == timedelta(seconds=70)


def test_not_deferrable_pokes(run: PublishedRun) -> None:
    waiting = sensor(logical_date=DATE, deferrable=False)

    assert not waiting.poke({})
    run.complete()
    assert waiting.poke({})


def test_the_default_run_is_the_one_of_the_same_logical_date() -> None:
    assert sensor().logical_date == SAME_LOGICAL_DATE
    assert "logical_date" in RecoveryResultSensor.template_fields


def test_execution_delta_goes_back_in_time(run: PublishedRun) -> None:
    run.complete()
    waiting = sensor(execution_delta=timedelta(days=1))
    waiting.logical_date = "2024-01-03T00:00:00+00:00"  # as rendered

    assert waiting.poke({})


def test_a_run_is_named_in_one_way() -> None:
    with pytest.raises(ValueError, match="at most one of"):
        sensor(logical_date=DATE, external_run_id="r")
    with pytest.raises(ValueError, match="at most one of"):
        sensor(partition_key="p", execution_delta=timedelta(days=1))
    assert sensor(external_run_id="r").logical_date is None


def test_the_trigger_fires_when_the_result_is_published(run: PublishedRun) -> None:
    async def publish_while_waiting() -> Any:
        waiting = asyncio.ensure_future(first_event(trigger()))
        await asyncio.to_thread(run.complete)
        return await asyncio.wait_for(waiting, 20)

    assert asyncio.run(publish_while_waiting()) == {
        "status": "published",
        "location": "file:///results/delays/1",
        "attempt": "1",
        "publish": "1",
    }


def test_a_store_that_is_busy_is_asked_again_and_a_denied_one_is_not(
    run: PublishedRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers: list[Exception] = [StoreUnavailable("slow down"), StoreAccessDenied("no rights on the journal")]

    def answer(*arguments: Any, **named: Any) -> Any:
        raise answers.pop(0)

    monkeypatch.setattr(RecoveryResultHook, "get_result", answer)

    event = asyncio.run(first_event(trigger()))

    assert event == {"status": "error", "message": "StoreAccessDenied: no rights on the journal"}
    with pytest.raises(RecoveryError, match="no rights on the journal"):
        sensor(logical_date=DATE).execute_complete({}, event)
