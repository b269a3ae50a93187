from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jinja2
import pytest
from airflow.sdk.exceptions import TaskDeferred
from expected_errors import fails_with
from published import DATE, PublishedRun

from airflow_recovery.airflow_compat import RuntimeTaskInstance
from airflow_recovery.driver.heartbeat import Beat
from airflow_recovery.errors import StoreAccessDenied, StoreUnavailable
from airflow_recovery.hooks.result import RecoveryResultHook
from airflow_recovery.hooks.result_watch import ResultWatch
from airflow_recovery.model.inputs import InputRef
from airflow_recovery.model.records import Claim
from airflow_recovery.sensors import RecoveryResultSensor
from airflow_recovery.sensors.result import SAME_LOGICAL_DATE
from airflow_recovery.triggers.result import ResultPublishedTrigger


class Runs:
    """What Airflow has of the runs of `flights`: the state of each, by logical date or run id. Counts the questions."""

    def __init__(self) -> None:
        self.states: dict[datetime | str, str] = {}
        self.asked = 0

    def count(
        self,
        dag_id: str,
        logical_dates: Sequence[datetime] | None = None,
        run_ids: Sequence[str] | None = None,
        states: Sequence[str] | None = None,
    ) -> int:
        self.asked += 1
        assert dag_id == "flights"
        assert (logical_dates is None) != (run_ids is None), "Airflow would count all runs"
        return sum(self.states.get(name) in (states or ()) for name in logical_dates or run_ids or ())


@pytest.fixture(autouse=True)
def runs(monkeypatch: pytest.MonkeyPatch) -> Runs:
    runs = Runs()
    monkeypatch.setattr(RuntimeTaskInstance, "get_dr_count", runs.count)
    return runs


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
    with fails_with("sensor-ways-exclude"):
        sensor(logical_date=DATE, external_run_id="r")
    with fails_with("sensor-ways-exclude"):
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


def test_fault_362_a_result_that_can_not_be_read_is_waited_for(run: PublishedRun) -> None:
    file = run.with_data(run.base / "_results")
    waiting = sensor(logical_date=DATE, deferrable=False)
    assert waiting.poke({})
    file.unlink()
    assert not waiting.poke({})
    with pytest.raises(TaskDeferred):
        sensor(logical_date=DATE).execute({})


def test_a_store_that_is_busy_is_asked_again_and_a_denied_one_is_not(
    run: PublishedRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers: list[Exception] = [StoreUnavailable("slow down"), StoreAccessDenied("no rights on the journal")]

    def answer(*arguments: Any, **named: Any) -> Any:
        raise answers.pop(0)

    monkeypatch.setattr(RecoveryResultHook, "find", answer)

    event = asyncio.run(first_event(trigger()))

    assert event == {"status": "error", "message": "StoreAccessDenied: no rights on the journal"}
    with fails_with("awaited-not-published"):
        sensor(logical_date=DATE).execute_complete({}, event)


DAY = datetime.fromisoformat(DATE)


def claimed(run: PublishedRun, attempt: int = 2, beat: int | None = 1) -> None:
    """The driver of a newer attempt is at work, as far as its heartbeats say."""
    if attempt not in run.journal.list(["by_route"]).state.of("by_route").attempts:
        run.journal.claim(Claim("by_route", attempt, "w", "plan", (), "run", attempt, "ti", f"tag-{attempt}", DATE))
    if beat is not None:
        key = run.journal.layout.heartbeat("by_route", attempt)
        run.journal.store.put(key, Beat(f"tag-{attempt}", beat).to_bytes())


@pytest.mark.parametrize(
    ("state", "accept_failed", "is_green"),
    [
        (None, False, True),
        ("success", False, True),
        ("queued", False, False),
        ("running", False, False),
        ("failed", False, False),
        ("success", True, True),
        ("queued", True, False),
        ("running", True, False),
        ("failed", True, True),
    ],
)
def test_fault_200_a_published_result_waits_for_its_run(
    run: PublishedRun,
    runs: Runs,
    caplog: pytest.LogCaptureFixture,
    state: str | None,
    accept_failed: bool,
    is_green: bool,
) -> None:
    run.complete()
    if state is not None:
        runs.states[DAY] = state
    waiting = sensor(logical_date=DATE, deferrable=False, accept_failed=accept_failed)
    assert waiting.poke({}) is is_green
    fires = asyncio.wait_for(first_event(trigger(accept_failed=accept_failed)), 20 if is_green else 0.2)
    if is_green:
        assert asyncio.run(fires)["status"] == "published"
    else:
        with pytest.raises(TimeoutError):
            asyncio.run(fires)


def test_a_run_that_is_named_by_its_id_is_asked_for_by_that(tmp_path: Path, run: PublishedRun, runs: Runs) -> None:
    named = PublishedRun(tmp_path, run_id="manual__1")
    named.complete()
    waiting = sensor(external_run_id="manual__1", deferrable=False)
    assert waiting.poke({})
    runs.states["manual__1"] = "running"
    assert not waiting.poke({})


def test_the_runs_of_a_partition_are_those_that_have_claimed(tmp_path: Path, run: PublishedRun, runs: Runs) -> None:
    partition = PublishedRun(tmp_path, partition_key="eu")
    partition.complete()
    waiting = sensor(partition_key="eu", deferrable=False)
    assert waiting.poke({})
    runs.states["run"] = "failed"
    assert not waiting.poke({})


def test_the_run_of_the_sensor_itself_is_running_all_the_time(run: PublishedRun, runs: Runs) -> None:
    run.complete()
    runs.states[DAY] = "running"
    own = SimpleNamespace(dag_id="flights", logical_date=DAY, run_id="manual__1", partition_key=None)
    context: Any = {"dag_run": own}
    assert sensor(logical_date=DATE).execute(context) is None
    claimed(run)
    with pytest.raises(TaskDeferred) as deferred:
        sensor(logical_date=DATE).execute(context)
    assert deferred.value.trigger.serialize()[1]["of_own_run"] is True
    other: Any = {"dag_run": SimpleNamespace(**{**vars(own), "dag_id": "waits"})}
    assert not sensor(logical_date=DATE, deferrable=False).poke(other)


def test_an_airflow_that_gives_no_answer_is_asked_again(
    run: PublishedRun, runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(**_: Any) -> int:
        raise OSError("connection refused")

    run.complete()
    monkeypatch.setattr(RuntimeTaskInstance, "get_dr_count", fail)
    assert not sensor(logical_date=DATE, deferrable=False).poke({})
    monkeypatch.setattr(RuntimeTaskInstance, "get_dr_count", runs.count)
    assert sensor(logical_date=DATE, deferrable=False).poke({})


def test_while_nothing_is_published_airflow_is_not_asked(run: PublishedRun, runs: Runs) -> None:
    waiting = sensor(logical_date=DATE, deferrable=False)
    waiting.poke({})
    assert runs.asked == 0
    run.complete()
    assert waiting.poke({})
    assert runs.asked == 1


@pytest.mark.slow
def test_fault_201_a_driver_that_is_at_work_on_a_newer_attempt_is_waited_for(
    run: PublishedRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Airflow does not have the run: only the heartbeats tell."""
    monkeypatch.setenv("AIRFLOW__RECOVERY__PREVIOUS_WORKER_TIMEOUT", "1s")
    run.complete()
    claimed(run, beat=1)
    waiting = sensor(logical_date=DATE, deferrable=False)
    assert not waiting.poke({})
    claimed(run, beat=2)
    assert not waiting.poke({})

    async def silence() -> Any:
        return await asyncio.wait_for(first_event(trigger()), 20)

    assert asyncio.run(silence())["publish"] == "1", "it has given no heartbeat for a second"


def test_fault_200_201_control_a_sensor_that_reads_the_journal_alone_is_green_on_the_old_rows(
    run: PublishedRun, runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    run.complete()
    runs.states[DAY] = "running"
    claimed(run)
    asked = {"group_id": "group", "logical_date": DATE}
    monkeypatch.setattr(ResultWatch, "look", lambda watch: watch._hook.get_result("flights", "delays", **asked))
    assert sensor(logical_date=DATE, deferrable=False).poke({})


def test_what_a_newer_attempt_has_finished_is_waited_for_until_it_is_published(run: PublishedRun) -> None:
    run.complete()
    run.finish("by_route", 2)
    assert not sensor(logical_date=DATE, deferrable=False).poke({})
    run.finish("delays", 2, InputRef("by_route", 2))
    run.publish(2, 2, 2)
    assert sensor(logical_date=DATE, deferrable=False).poke({})


@pytest.mark.slow
def test_a_process_that_looks_once_waits_for_the_next_heartbeat(
    run: PublishedRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW__RECOVERY__PREVIOUS_WORKER_TIMEOUT", "1s")
    run.complete()
    claimed(run, beat=1)
    assert sensor(logical_date=DATE, deferrable=False, mode="reschedule").poke({}), "no heartbeat for a second"
    beats = itertools.count(2)  # other threads of this process sleep too
    monkeypatch.setattr("airflow_recovery.hooks.result_watch.time.sleep", lambda _: claimed(run, beat=next(beats)))
    assert not sensor(logical_date=DATE, deferrable=False, mode="reschedule").poke({})


def test_an_attempt_that_is_no_newer_than_the_publish_does_not_matter(run: PublishedRun) -> None:
    run.complete()
    run.journal.claim(Claim("other", 1, "w", "plan", (), "run", 1, "ti", "tag-other", DATE))
    assert not sensor(logical_date=DATE, deferrable=False).poke({}), "a region that the publish does not name"
    run.publish(2, 1, 1)
    key = run.journal.layout.heartbeat("other", 1)
    run.journal.store.put(key, Beat("tag-other", 1, ended=True).to_bytes())
    assert sensor(logical_date=DATE, deferrable=False).poke({}), "its driver has said that it has ended"


@pytest.mark.parametrize("rendered", ["", "None"])
def test_fault_202_a_run_without_a_logical_date_is_refused_by_name(run: PublishedRun, rendered: str) -> None:
    waiting = sensor()
    template = jinja2.Environment(undefined=jinja2.StrictUndefined, autoescape=True).from_string(SAME_LOGICAL_DATE)
    assert template.render({}) == ""
    assert template.render({"logical_date": DAY}) == DAY.isoformat()
    waiting.logical_date = rendered
    with fails_with("sensor-run-without-value", task="wait", name="logical_date"):
        waiting.execute({})
