"""Tasks of streaming regions: the start gate, slots, what they say in their channels, and the audit. No Spark."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import DAG, Asset
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException, TaskDeferred
from expected_errors import fails_with
from job_tasks import job_dag
from streaming_drivers import EPOCHS, RECORDS, RUN, StreamingDrivers, client_of, log_of
from tries import journal_in, run_try, state_in, task_context

from airflow_recovery.driver.region_spec import RegionSpec
from airflow_recovery.errors import ChannelInconsistent, RegionFailed
from airflow_recovery.hooks.clear_clients import FirstClearClient
from airflow_recovery.model.channel_options import LossBudget, Reconnect
from airflow_recovery.model.records import Reset
from airflow_recovery.operators import RecoveryPublishOperator, SparkJobTaskGroup, SparkRegionOperator
from airflow_recovery.planning.restart_strategy import NoRestart
from airflow_recovery.streaming import task as streaming_task
from airflow_recovery.streaming.audit_operator import RecoveryAuditOperator
from airflow_recovery.streaming.consuming import commit_batch, create_view, make_plan
from airflow_recovery.streaming.producing import open_producer
from airflow_recovery.streaming.spec import StreamingSpec
from airflow_recovery.streaming.task import StreamingApplication
from airflow_recovery.testing.patience import wait_until
from airflow_recovery.triggers.channel import ChannelOpenTrigger

JOB = "dagjobs.streams:scoring"
RECORDS_IN_ALL = EPOCHS * RECORDS
REGIONS = ("events", "scores", "table")


@pytest.fixture
def drivers(monkeypatch: pytest.MonkeyPatch) -> StreamingDrivers:
    found = StreamingDrivers()
    found.install(monkeypatch)
    return found


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Notes, in place of the API server's."""
    notes: list[str] = []
    monkeypatch.setattr(FirstClearClient, "note", lambda self, text: notes.append(text))
    return notes


def task(name: str, **given: Any) -> Any:
    return job_dag(JOB, **given).get_task(f"g.{name}")


def states(**found: str | None) -> dict[str, str | None]:
    return {f"g.{name}": state for name, state in found.items()}


def run_region(name: str, *, given: Mapping[str, Any] | None = None, **changes: Any) -> dict[str, Any]:
    return run_try(task(name, **(given or {})), **changes)


def run_all() -> dict[str, dict[str, Any]]:
    """One after the other, which the drivers allow: each reads what is there."""
    return {name: run_region(name, states=states(events="success", scores="success")) for name in REGIONS}


def attempts(folder: Path, region: str) -> list[int]:
    return sorted(state_in(folder, "g", region).of(region).attempts)


def new_generation(folder: Path, *regions: str, attempt: int = 1, altered: bool = False) -> None:
    for region in regions:
        journal_in(folder, "g").reset(Reset(region, attempt, "test", "somebody", "2024-01-02", altered=altered))


# --- the task group ---------------------------------------------------------------------------------------------------


def test_regions_have_no_edges_and_all_of_them_end_in_the_audit() -> None:
    dag = job_dag(JOB, outlets=[Asset("scored")])
    assert {task.task_id: task.downstream_task_ids for task in dag.tasks} == {
        **{f"g.{name}": {"g.audit"} for name in REGIONS},
        "g.audit": set(),
    }
    audit = dag.get_task("g.audit")
    assert isinstance(audit, RecoveryAuditOperator)
    assert [outlet.name for outlet in audit.outlets] == ["scored"]
    assert dag.get_task("g.scores").doc_md == (
        "Vertices: scores. Reads the channel: events. Feeds the channel: scores."
    )
    # Restarts are as those of every region: the task's own retry is the restart.
    assert {task.retries for task in dag.tasks if isinstance(task, SparkRegionOperator)} == {12}


def test_a_group_without_channels_keeps_its_publish() -> None:
    dag = job_dag("dagjobs.shapes:diamond")
    last = dag.get_task("g.publish")
    assert type(last) is RecoveryPublishOperator
    assert not dag.has_task("g.audit")


def test_more_regions_than_the_dag_runs_at_once_are_refused_at_parse() -> None:
    dag = DAG("d", schedule=None, max_active_tasks=2)
    with dag, fails_with("channels-refused") as raised:
        SparkJobTaskGroup(group_id="g", job=JOB)
    assert "raise it, and give the pool 3 slots for every active run" in str(raised.value)


def test_channels_without_recovery_are_refused_at_parse() -> None:
    with fails_with("channels-without-recovery"):
        job_dag(JOB, job_recovery={"execution.batch.job-recovery.enabled": False})


def test_a_start_timeout_is_a_time() -> None:
    with fails_with("start-timeout-unfit"):
        job_dag(JOB, start_timeout_s=0)


def test_regions_over_connect_are_refused_with_advice(
    recovery: Path, drivers: StreamingDrivers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", '{"conn_type": "spark_connect", "host": "sc://nowhere"}')
    with fails_with("streaming-over-connect", by=AirflowFailException):
        run_region("events")
    assert (drivers.specs, attempts(recovery, "events")) == ([], [])


# --- the start gate ---------------------------------------------------------------------------------------------------


def deferred(name: str, *, given: Mapping[str, Any] | None = None, **changes: Any) -> ChannelOpenTrigger:
    with pytest.raises(TaskDeferred) as raised:
        run_region(name, given=given, **changes)
    assert raised.value.method_name == "execute_after_start"
    trigger = raised.value.trigger
    assert isinstance(trigger, ChannelOpenTrigger)
    return trigger


def test_a_consumer_defers_before_it_claims_and_runs_when_the_channel_is_open(
    recovery: Path, drivers: StreamingDrivers
) -> None:
    trigger = deferred("scores", states=states(events="running"))
    assert (trigger.result, trigger.generation, trigger.producer_task) == ("events", 1, "g.events")
    assert (trigger.run_key, trigger.run_id, trigger.deadline) == (RUN.run_key, "r", None)
    assert (drivers.specs, attempts(recovery, "scores")) == ([], [])

    run_region("events")
    operator = task("scores").prepare_for_execution()
    summary = operator.execute_after_start(
        task_context("g.scores", states=states(events="running")), {"deadline": None}
    )
    assert (summary["decision"], attempts(recovery, "scores")) == ("ran", [1])


def test_without_the_gate_it_would_have_claimed_at_once(
    recovery: Path, drivers: StreamingDrivers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control of the test before."""
    monkeypatch.setattr(StreamingApplication, "before_claim", lambda self, state: None)
    with pytest.raises(RegionFailed):
        run_region("scores", states=states(events="running"))
    assert attempts(recovery, "scores") == [1]


@pytest.mark.parametrize("state", ["failed", "upstream_failed", "removed"])
def test_a_producer_that_is_over_in_airflow_ends_its_consumer_by_name(
    recovery: Path, drivers: StreamingDrivers, state: str
) -> None:
    with fails_with("channel-producer-failed", by=AirflowFailException):
        run_region("scores", states=states(events=state))
    assert attempts(recovery, "scores") == []


def test_a_producer_that_a_person_marked_as_a_success_ends_its_consumer_too(
    recovery: Path, drivers: StreamingDrivers
) -> None:
    """It never said that all is there: nobody would feed the channel any more, nor end it."""
    client_of(recovery, "events").append(lambda state: open_producer(state, 1, subpartitions=1, schema=""))
    with fails_with("channel-producer-failed", by=AirflowFailException):
        run_region("scores", states=states(events="success"))


def test_without_its_producers_state_it_would_wait_for_one_that_never_comes(
    recovery: Path, drivers: StreamingDrivers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control of the two tests before and of `test_a_producer_whose_consumer_never_comes_fails_by_name`."""
    monkeypatch.setattr(StreamingApplication, "_producer_state", lambda self, producer: None)
    assert deferred("scores", states=states(events="failed")).deadline is None


def test_a_consumer_that_can_read_all_of_it_starts_whatever_its_producer_is(
    recovery: Path, drivers: StreamingDrivers
) -> None:
    run_region("events")
    assert run_region("scores", states=states(events="failed"))["decision"] == "ran"


def test_what_a_producer_gave_up_with_is_told_and_waited_for_where_it_runs_again(
    recovery: Path, drivers: StreamingDrivers
) -> None:
    drivers.meanwhile = fail_with(RuntimeError("the lake has dried up"))
    with pytest.raises(AirflowFailException):
        run_region("events", given={"restart_strategy": NoRestart()})
    assert "the lake has dried up" in str(log_of(recovery, "events").failed)

    with fails_with("channel-producer-failed", by=AirflowFailException):
        run_region("scores", states=states(events="failed"))
    # Somebody clears both: the producer opens the channel once more.
    assert deferred("scores", states=states(events="queued")).generation == 1


def test_a_skipped_producer_skips_its_consumer(recovery: Path, drivers: StreamingDrivers) -> None:
    with fails_with("channel-producer-skipped", by=AirflowSkipException):
        run_region("scores", states=states(events="skipped"))


def generation_read_by(spec: RegionSpec) -> int:
    assert isinstance(spec.mode, StreamingSpec)
    assert spec.mode.input is not None
    return spec.mode.input.generation


def test_a_generation_that_has_moved_on_is_what_is_waited_for(recovery: Path, drivers: StreamingDrivers) -> None:
    run_all()
    new_generation(recovery, *REGIONS)
    trigger = deferred("scores", states=states(events="running"), try_number=2)
    assert trigger.generation == 2
    run_region("events", try_number=2)
    assert run_region("scores", states=states(events="running"), try_number=2)["attempt"] == 2
    assert generation_read_by(drivers.specs[-1]) == 2


def test_a_start_timeout_fails_by_name(recovery: Path, drivers: StreamingDrivers) -> None:
    given = {"start_timeout_s": 3600}
    trigger = deferred("scores", given=given, states=states(events="queued"))
    assert trigger.deadline is not None
    operator = task("scores", **given).prepare_for_execution()
    with fails_with("channel-not-open-in-time", by=AirflowFailException) as raised:
        operator.execute_after_start(task_context("g.scores", states=states(events="queued")), {"deadline": 1.0})
    assert "start_timeout_s=3600" in str(raised.value)


def test_without_a_triggerer_it_waits_in_the_task(
    recovery: Path, drivers: StreamingDrivers, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        run_region("events")

    monkeypatch.setattr("airflow_recovery.streaming.task.time", SimpleNamespace(sleep=sleep, time=time.time))
    summary = run_region("scores", given={"deferrable": False}, states=states(events="running"))
    assert (summary["decision"], len(waits)) == ("ran", 1)


def test_a_region_that_is_kept_asks_nobody(
    recovery: Path, drivers: StreamingDrivers, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_all()
    monkeypatch.setattr(streaming_task, "look", lambda *arguments: pytest.fail("it looked at the channel"))
    assert run_region("table", try_number=2)["decision"] == "kept"


# --- slots ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("slots", "each"), [(2, 1), (5, 2), (0, 1)])
def test_fewer_slots_than_regions_are_refused_by_the_first_task(
    recovery: Path, drivers: StreamingDrivers, monkeypatch: pytest.MonkeyPatch, slots: int, each: int
) -> None:
    monkeypatch.setattr(FirstClearClient, "pool_slots", lambda self, name: slots)
    with fails_with("pool-too-small", by=AirflowFailException, pool="own") as raised:
        run_region("events", given={"pool": "own", "pool_slots": each})
    assert "times max_active_runs" in str(raised.value)
    assert attempts(recovery, "events") == []


@pytest.mark.parametrize("slots", [3, 128, -1, None])
def test_enough_slots_or_nobody_to_ask(
    recovery: Path, drivers: StreamingDrivers, monkeypatch: pytest.MonkeyPatch, slots: int | None
) -> None:
    monkeypatch.setattr(FirstClearClient, "pool_slots", lambda self, name: slots)
    assert run_region("events")["decision"] == "ran"


# --- being heard ------------------------------------------------------------------------------------------------------


def fail_with(error: Exception) -> Any:
    def fail() -> None:
        raise error

    return fail


def test_a_failure_that_is_retried_is_not_the_end_of_the_channel(recovery: Path, drivers: StreamingDrivers) -> None:
    drivers.meanwhile = fail_with(RuntimeError("once"))
    with pytest.raises(RegionFailed):
        run_region("events")
    assert log_of(recovery, "events").failed is None
    run_region("events", try_number=2)
    assert log_of(recovery, "events").is_finished


def test_the_last_of_airflows_tries_is(recovery: Path, drivers: StreamingDrivers) -> None:
    drivers.meanwhile = fail_with(RuntimeError("again"))
    context = task_context("g.events", try_number=13)
    context["ti"].max_tries = 12
    with pytest.raises(AirflowFailException, match="Airflow's own retries have ended"):
        run_try(task("events"), context)
    assert "again" in str(log_of(recovery, "events").failed)


def test_a_try_that_was_cleared_meanwhile_says_nothing(
    recovery: Path, drivers: StreamingDrivers, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from airflow_recovery.errors import NotMine

    def is_gone() -> None:
        def live_check(self: Any) -> None:
            raise NotMine("gone")

        monkeypatch.setattr(FirstClearClient, "live_check", live_check)
        raise RuntimeError("no")

    drivers.meanwhile = is_gone
    with pytest.raises(Exception, match="no"):
        run_region("events", given={"restart_strategy": NoRestart()})
    assert log_of(recovery, "events").failed is None


def test_a_store_that_is_away_hides_no_failure(
    recovery: Path, drivers: StreamingDrivers, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def away(*arguments: Any) -> bool:
        raise OSError("no route")

    monkeypatch.setattr(streaming_task, "give_up_output", away)
    drivers.meanwhile = fail_with(RuntimeError("the lake has dried up"))
    with fails_with("budget-ended", by=AirflowFailException):
        run_region("events", given={"restart_strategy": NoRestart()})
    assert "could not be told" in caplog.text


def test_a_running_consumer_hears_of_a_producer_that_was_killed_in_its_last_try(
    recovery: Path, drivers: StreamingDrivers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its process could say nothing; Airflow knows."""
    client = client_of(recovery, "events")
    client.append(lambda state: open_producer(state, 1, subpartitions=1, schema=""))
    monkeypatch.setattr(streaming_task, "WATCH_INTERVAL_S", 0.01)
    monkeypatch.setattr(StreamingApplication.__init__, "__kwdefaults__", {"slots_each": 1, "watch_interval_s": 0.01})
    now: dict[str, str | None] = states(events="running")
    heard = threading.Event()

    def wait() -> None:
        now.update(states(events="failed"))
        wait_until(lambda: log_of(recovery, "events").failed is not None, "the consumer to note the producer's failure")
        heard.set()

    drivers.meanwhile = wait
    context = task_context("g.scores")
    context["ti"].get_task_states = lambda **asked: {"r": dict(now)}
    with pytest.raises(RegionFailed, match="the task of events is failed in Airflow"):
        run_try(task("scores"), context)
    assert heard.is_set()


# --- what is told -----------------------------------------------------------------------------------------------------


def test_the_end_of_a_region_tells_its_ledger(
    recovery: Path, drivers: StreamingDrivers, told: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    summaries = run_all()
    assert list(summaries["scores"]["ledger"]) == ["events", "scores"]
    assert summaries["scores"]["ledger"]["events"]["committed"] == RECORDS_IN_ALL
    assert summaries["scores"]["ledger"]["events"]["lost_records"] == 0
    line = "scores: 12 records committed, 0 lost"
    assert told[-1].endswith(f"; {line}")
    assert line in caplog.messages[-1]
    # A region without channels has none.
    assert "ledger" not in summaries["events"]["results"]


def test_the_note_is_for_people_and_fails_nobody(
    recovery: Path, drivers: StreamingDrivers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is no API server here, and no setting that names one."""
    assert run_region("events")["decision"] == "ran"


# --- the audit --------------------------------------------------------------------------------------------------------


def lose(folder: Path, records: int, *, attempt: int = 9) -> None:
    """A consumer of `events` that comes back, and goes on at the head: ``records`` are lost."""
    client = client_of(folder, "events")
    client.append(lambda state: create_view(state, attempt - 1, Reconnect.LATEST))
    client.append(lambda state: create_view(state, attempt, Reconnect.LATEST))
    start, end = client.state.done, client.state.ends
    client.append(lambda state: make_plan(state, attempt, start, end))
    batch = client.state.checkpoint + 1
    client.append(lambda state: commit_batch(state, attempt, batch, (0,)))
    assert client.state.lost == records


def test_the_audit_reads_every_channel_and_publishes(
    recovery: Path, drivers: StreamingDrivers, told: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    run_all()
    answer = run_try(task("audit"))
    assert answer["publish"] == 1
    assert answer["regions"] == {"events": 1, "scores": 1, "table": 1}
    assert {
        name: (each["committed"], each["lost_records"], each["verdict"]) for name, each in answer["channels"].items()
    } == {
        "events": (12, 0, "within the budget"),
        "scores": (12, 0, "no budget was set"),
    }
    line = "Channel events: 12 records committed, 0 lost; within the budget"
    assert f"{line}." in caplog.messages
    assert line in told[-1]
    # A second time is the same publish.
    assert run_try(task("audit"))["publish"] == 1


def unbudgeted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commits are not held to it: only the audit is left."""
    monkeypatch.setattr(LossBudget, "excess", lambda self, lost, records: None)


def test_a_budget_that_is_exceeded_fails_the_run_by_name_and_publishes_nothing(
    recovery: Path, drivers: StreamingDrivers
) -> None:
    run_region("events")
    with pytest.MonkeyPatch.context() as patched:
        unbudgeted(patched)
        lose(recovery, RECORDS_IN_ALL)
    drivers.views_above = 9
    for name in ("scores", "table"):
        run_region(name, states=states(events="success", scores="success"))
    with fails_with("losses-over-budget", by=AirflowFailException) as raised:
        run_try(task("audit"))
    assert "Nothing is published" in str(raised.value)
    assert state_in(recovery, "g", *REGIONS).newest_publish == 0


@pytest.mark.slow
def test_what_nobody_knows_is_reported_as_unknown_and_never_as_zero(recovery: Path, drivers: StreamingDrivers) -> None:
    dag = job_dag("dagjobs.streams:unreplayed")
    drivers.meanwhile = fail_with(RuntimeError("once"))
    with pytest.raises(RegionFailed):
        run_try(dag.get_task("g.ticks"))
    run_try(dag.get_task("g.ticks"), try_number=2)
    run_try(dag.get_task("g.kept"), states={"g.ticks": "success"})
    channel = run_try(dag.get_task("g.audit"))["channels"]["ticks"]
    assert (channel["lost_records"], channel["known_lost_records"], channel["unknown"]) == (None, 0, 1)


def test_what_an_altered_generation_left_behind_is_lost_and_counts_in_the_budget(
    recovery: Path, drivers: StreamingDrivers
) -> None:
    """Nobody commits in the old generation any more, so no ledger has it."""
    run_region("events")
    new_generation(recovery, "events", altered=True)
    run_region("events", try_number=2)
    for name in ("scores", "table"):
        run_region(name, states=states(events="success", scores="success"))
    assert generation_read_by(drivers.specs[-2]) == 2
    with fails_with("losses-over-budget", by=AirflowFailException):
        run_try(task("audit"))


def test_an_account_that_is_not_complete_is_not_published(
    recovery: Path, drivers: StreamingDrivers, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_all()

    def incomplete(state: Any) -> None:
        raise ChannelInconsistent("subpartition 0: a hole")

    monkeypatch.setattr("airflow_recovery.streaming.audit.check_ledger", incomplete)
    with fails_with("channel-audit-fails", channel="events"):
        run_try(task("audit"))
    assert state_in(recovery, "g", *REGIONS).newest_publish == 0
