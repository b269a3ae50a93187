"""What recovery says to Airflow's Stats, of real tries of the operators."""

from __future__ import annotations

import logging
import socket
from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk.observability import stats
from airflow.sdk.observability.metrics.stats_utils import get_stats_factory
from job_tasks import Drivers, job_dag
from tries import run_try, task_context

from airflow_recovery.errors import RegionFailed
from airflow_recovery.journal.events import RecordWritten
from airflow_recovery.journal.stream import NoEvents
from airflow_recovery.model.records import AttemptState, Outcome
from airflow_recovery.operators import SparkRegionOperator
from airflow_recovery.splits.mode import LostSplit, SplitOutcome
from airflow_recovery.store.local import LocalStore
from airflow_recovery.store.timed import TimedStore
from airflow_recovery.task import metrics
from airflow_recovery.task.metrics import MeteredEvents, RecoveryMetrics
from airflow_recovery.testing.patience import HANG_S


class Sent:
    """In place of StatsD."""

    def __init__(self) -> None:
        self.counters: Counter[str] = Counter()
        self.timers: dict[str, list[timedelta]] = {}
        self.tags: dict[str, dict[str, str]] = {}

    def incr(self, stat: str, count: int = 1, rate: float = 1, *, tags: dict[str, str] | None = None) -> None:
        self.counters[stat] += count
        self.tags[stat] = tags or {}

    def timing(self, stat: str, dt: timedelta, *, tags: dict[str, str] | None = None) -> None:
        self.timers.setdefault(stat, []).append(dt)


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> Sent:
    """Airflow's own module, with a backend that remembers."""
    found = Sent()
    monkeypatch.setattr("airflow.sdk._shared.observability.metrics.stats._backend", found)
    return found


def aside(**given: Any) -> SparkRegionOperator:
    regions = (task for task in job_dag("dagjobs.shapes:diamond", **given).tasks)
    return next(region for region in regions if isinstance(region, SparkRegionOperator) and region.region == "aside")


def fail() -> None:
    raise RegionFailed("boom")


@pytest.mark.slow
def test_a_failure_a_second_attempt_and_a_kept_result(recovery: Path, drivers: Drivers, sent: Sent) -> None:
    drivers.meanwhile = fail
    with pytest.raises(RegionFailed):
        run_try(aside())
    assert sent.counters == {"recovery.attempts": 1, "recovery.attempts.failed": 1}
    assert sent.tags["recovery.attempts.failed"]["cause"] == "own failure"
    sent.counters.clear()
    run_try(aside(), try_number=2)
    assert sent.counters == {"recovery.attempts": 1, "recovery.attempts.rerun": 1, "recovery.attempts.finished": 1}
    assert sent.timers["recovery.attempt.spark"] == [timedelta(seconds=2)]
    sent.counters.clear()
    run_try(aside(), try_number=3)
    # The kept try finds the finish of another process, and does not count it again.
    assert sent.counters == {"recovery.regions.kept": 1, "recovery.spark_seconds_saved": 2}
    assert {"recovery.journal.list", "recovery.journal.put_if_absent", "recovery.journal.get"} <= sent.timers.keys()


def test_what_a_result_does_without_is_counted_once(sent: Sent) -> None:
    lost = (LostSplit("a", "file:///a", "gone"), LostSplit("b", "file:///b", "gone"))
    outcome = Outcome("raw", 1, AttemptState.FINISHED, "writer", "now", mode=SplitOutcome(lost_splits=lost))
    for writer in ("writer", "another process, which keeps it"):
        events = MeteredEvents(NoEvents(), RecoveryMetrics(stats, {}), writer)
        events.record(RecordWritten(occurred_at="now", record=outcome))
    assert sent.counters == {"recovery.attempts.finished": 1, "recovery.ledger.splits": 2}


def test_they_are_sent_to_statsd_as_airflow_is_configured_to(
    recovery: Path, drivers: Drivers, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind(("127.0.0.1", 0))
        server.settimeout(HANG_S)
        host, port = server.getsockname()
        for name, value in {"ON": "True", "HOST": host, "PORT": port, "PREFIX": "night"}.items():
            monkeypatch.setenv(f"AIRFLOW__METRICS__STATSD_{name}", str(value))
        monkeypatch.setattr("airflow.sdk._shared.observability.metrics.stats._backend", None)
        monkeypatch.setattr("airflow.sdk._shared.observability.metrics.stats._factory", get_stats_factory())

        run_try(aside())

        expected = {b"night.recovery.attempts:1|c", b"night.recovery.attempts.finished:1|c"}
        while expected:
            expected.discard(server.recv(65536))  # raises after ten seconds


def test_the_tags_are_those_of_the_task_instance(recovery: Path, drivers: Drivers, sent: Sent) -> None:
    context = task_context("aside")
    context["ti"].stats_tags = {"dag_id": "d", "task_id": "g.aside"}
    run_try(aside(), context)
    assert sent.tags["recovery.attempts"] == {"dag_id": "d", "task_id": "g.aside"}


def test_a_backend_that_breaks_fails_no_task_and_is_told_of_once(
    recovery: Path, drivers: Drivers, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*arguments: Any, **options: Any) -> None:
        raise OSError("no route")

    monkeypatch.setattr(stats, "incr", broken)
    monkeypatch.setattr(stats, "timing", broken)
    with caplog.at_level(logging.WARNING, metrics.__name__):
        assert run_try(aside())["decision"] == "ran"
    assert caplog.text.count("no more metrics") == 1


def test_control_without_the_guard_it_fails_the_task(
    recovery: Path, drivers: Drivers, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*arguments: Any, **options: Any) -> None:
        raise OSError("no route")

    monkeypatch.setattr(stats, "timing", broken)
    monkeypatch.setattr(metrics.RecoveryMetrics, "_send", lambda self, send: send())
    with pytest.raises(OSError, match="no route"):
        run_try(aside())


def test_every_metric_is_documented() -> None:
    names = {*metrics.COUNTED.values(), "attempts", "attempts.rerun", "attempts.finished", "attempts.failed"}
    for name in names | {"ledger.splits", "regions.kept", "spark_seconds_saved", "history.dropped", "attempt.spark"}:
        assert f"recovery.{name} " in f"{metrics.__doc__} " or f"recovery.{name}:" in str(metrics.__doc__)


def test_a_timed_store_is_the_store_below(tmp_path: Path) -> None:
    ticks = iter(range(1000))
    told: list[tuple[str, float]] = []
    store = TimedStore(LocalStore(f"file://{tmp_path}"), lambda *each: told.append(each), clock=lambda: next(ticks))
    store.put("b", b"2")
    store.put_if_absent("a", b"1")
    assert [each.key for each in store.list()] == ["a", "b"]
    assert list(store.list("c")) == []
    assert store.get("a").body == b"1"
    store.delete(["a"])
    assert store.base_uri == f"file://{tmp_path}"
    assert [name for name, _ in told] == ["put", "put_if_absent", "list", "list", "get", "delete"]
    assert {seconds for _, seconds in told} == {1}
