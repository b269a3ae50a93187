"""The trigger of the start gate: it wakes the task where a look is worth its while, and only then."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_recovery.errors import StoreAccessDenied, StoreUnavailable
from airflow_recovery.journal.journal import Journal
from airflow_recovery.model.records import Claim, Reset, RunIdentity
from airflow_recovery.store.local import LocalStore
from airflow_recovery.streaming.channel_records import ChannelIdentity
from airflow_recovery.streaming.client import ChannelClient
from airflow_recovery.streaming.producing import give_up, open_producer
from airflow_recovery.triggers import channel as module
from airflow_recovery.triggers.channel import ChannelOpenTrigger

RUN = RunIdentity("d", "run-r", "g")
TURNS = 5
"""After so many looks without an event, it is said to wait."""


class Airflow:
    """What it says of the producer's task."""

    state: str | None = "running"


@pytest.fixture
def airflow(monkeypatch: pytest.MonkeyPatch) -> Airflow:
    found = Airflow()
    monkeypatch.setattr(ChannelOpenTrigger, "_producer_state", lambda self: found.state)
    return found


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("AIRFLOW__RECOVERY__JOURNAL", f"file://{tmp_path}/journal")
    monkeypatch.setenv("AIRFLOW__RECOVERY__RESULTS", f"file://{tmp_path}/results")
    return tmp_path


def trigger(**given: Any) -> ChannelOpenTrigger:
    facts: dict[str, Any] = {"dag_id": "d", "run_key": "run-r", "group_id": "g", "run_id": "r", "result": "events"}
    facts |= {"generation": 1, "producer": "events", "producer_task": "g.events", "poll_interval_s": 0.001}
    return ChannelOpenTrigger(**{**facts, **given})


def fires(waiting: ChannelOpenTrigger, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any] | None:
    """The event, or `None` where it still waits after some looks."""
    looks = 0

    async def sleep(seconds: float) -> None:
        nonlocal looks
        looks += 1
        if looks == TURNS:
            raise TimeoutError

    # The name in the trigger's module alone: other loops of this process, a server's in its thread, sleep as they do.
    monkeypatch.setattr(module, "asyncio", SimpleNamespace(sleep=sleep))

    async def first() -> dict[str, Any] | None:
        try:
            async for event in waiting.run():
                return dict(event.payload)
        except TimeoutError:
            return None
        raise AssertionError("no event")

    return asyncio.run(first())


def log_in(folder: Path, generation: int = 1) -> ChannelClient:
    store = LocalStore(f"file://{folder}/results")
    return ChannelClient(store, ChannelIdentity(RUN, "events", generation), "test")


def open_channel(folder: Path, generation: int = 1) -> ChannelClient:
    client = log_in(folder, generation)
    client.append(lambda state: open_producer(state, 1, subpartitions=1, schema=""))
    return client


def test_what_it_is_made_of_goes_through_airflows_database() -> None:
    path, arguments = trigger(deadline=12.5).serialize()
    assert path == "airflow_recovery.triggers.channel.ChannelOpenTrigger"
    again = ChannelOpenTrigger(**arguments)
    assert again.serialize() == (path, arguments)


def test_it_waits_while_the_producer_may_come(folder: Path, airflow: Airflow, monkeypatch: pytest.MonkeyPatch) -> None:
    for state in (None, "scheduled", "queued", "running", "up_for_retry", "deferred", "restarting"):
        airflow.state = state
        assert fires(trigger(), monkeypatch) is None


def test_it_fires_when_the_channel_is_open(folder: Path, airflow: Airflow, monkeypatch: pytest.MonkeyPatch) -> None:
    open_channel(folder)
    assert fires(trigger(), monkeypatch) == {"deadline": None}


@pytest.mark.parametrize("state", ["failed", "upstream_failed", "removed", "skipped", "success"])
def test_it_fires_when_the_producer_is_over(
    folder: Path, airflow: Airflow, monkeypatch: pytest.MonkeyPatch, state: str
) -> None:
    airflow.state = state
    assert fires(trigger(deadline=time.time() + 60), monkeypatch) is not None


def test_one_that_was_given_up_is_waited_for_while_its_producer_runs_again(
    folder: Path, airflow: Airflow, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = open_channel(folder)
    client.append(lambda state: give_up(state, 1, "no"))
    assert fires(trigger(), monkeypatch) is None
    client.append(lambda state: open_producer(state, 2, subpartitions=1, schema=""))
    assert fires(trigger(), monkeypatch) is not None


def test_it_fires_when_the_generation_has_moved_on(
    folder: Path, airflow: Airflow, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = Journal(LocalStore(f"file://{folder}/journal"), RUN, writer="test")
    journal.claim(Claim("events", 1, "test", "p", (), "r", 1, "id", "tag", "2024-01-01"))
    assert fires(trigger(), monkeypatch) is None
    journal.reset(Reset("events", 1, "test", "somebody", "2024-01-01"))
    assert fires(trigger(), monkeypatch) is not None
    assert fires(trigger(generation=2), monkeypatch) is None
    open_channel(folder)
    # That is the old one: nobody feeds it any more.
    assert fires(trigger(generation=2), monkeypatch) is None


def test_it_fires_when_its_time_is_over_and_says_when_that_was(
    folder: Path, airflow: Airflow, monkeypatch: pytest.MonkeyPatch
) -> None:
    deadline = time.time() - 1
    assert fires(trigger(deadline=deadline), monkeypatch) == {"deadline": deadline}


def test_a_store_that_is_away_is_asked_again_and_one_that_refuses_is_told_by_the_task(
    folder: Path, airflow: Airflow, monkeypatch: pytest.MonkeyPatch
) -> None:
    def raises(error: Exception) -> Any:
        def look(*arguments: Any) -> Any:
            raise error

        return look

    monkeypatch.setattr(module, "look", raises(StoreUnavailable("503")))
    assert fires(trigger(), monkeypatch) is None
    monkeypatch.setattr(module, "look", raises(StoreAccessDenied("403")))
    assert fires(trigger(), monkeypatch) == {"deadline": None}


def test_an_airflow_that_does_not_answer_is_no_answer(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The channel itself is what is waited for."""
    assert fires(trigger(), monkeypatch) is None
    open_channel(folder)
    assert fires(trigger(), monkeypatch) is not None
