"""Heartbeats of an attempt."""

from __future__ import annotations

import logging
import threading
from pathlib import Path

import pytest
from expected_errors import fails_with

from airflow_recovery.driver.fencing import FenceWatch, is_fenced
from airflow_recovery.driver.heartbeat import INTERVAL_S, SHORTEST_INTERVAL_S, Beat, Heartbeat, interval_s
from airflow_recovery.driver.process_identity import own_process
from airflow_recovery.errors import ObjectMissing, StoreUnavailable
from airflow_recovery.journal.journal import Journal
from airflow_recovery.model.records import AttemptState, AttemptTrace, FenceCause, Outcome, RunIdentity
from airflow_recovery.store.local import LocalStore
from airflow_recovery.store.object_store import ObjectInfo
from airflow_recovery.testing import CountingStore, Verb
from airflow_recovery.testing.patience import HANG_S

LOG = logging.getLogger("test_heartbeat")


class Watched(LocalStore):
    """Tells when ``count`` beats were given."""

    def __init__(self, folder: Path, count: int) -> None:
        super().__init__(f"file://{folder}")
        self._left = count
        self.is_enough = threading.Event()
        self.refuses = False

    def put(self, key: str, body: bytes) -> ObjectInfo:
        self._left -= 1
        if self._left <= 0:
            self.is_enough.set()
        if self.refuses:
            raise StoreUnavailable("503")
        return super().put(key, body)

    def beat(self) -> Beat | None:
        return Beat.from_bytes(self.get("h").body)


def test_it_changes_while_the_block_runs_and_the_driver_is_named(tmp_path: Path) -> None:
    store = Watched(tmp_path, 3)
    with Heartbeat(lambda: store, "h", "tag", log=LOG, every_s=0.01) as signs:
        signs.tell_application("app-1")
        assert store.is_enough.wait(HANG_S)
    beat = store.beat()
    assert beat is not None
    assert (beat.tag, beat.process, beat.application_id, beat.ended) == ("tag", own_process(), "app-1", False)
    assert beat.count >= 3


def test_whoever_only_waits_for_the_driver_is_not_it(tmp_path: Path) -> None:
    store = Watched(tmp_path, 1)
    with Heartbeat(lambda: store, "h", "tag", log=LOG, is_driver=False):
        assert store.is_enough.wait(HANG_S)
    assert store.beat() == Beat("tag", 1)


def test_a_failure_is_the_last_sign(tmp_path: Path) -> None:
    store = Watched(tmp_path, 1)
    with pytest.raises(SystemExit), Heartbeat(lambda: store, "h", "tag", log=LOG):
        raise SystemExit(1)
    beat = store.beat()
    assert beat is not None
    assert beat.ended


def test_a_store_that_does_not_answer_stops_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = Watched(tmp_path, 2)
    store.refuses = True
    with caplog.at_level(logging.WARNING), Heartbeat(lambda: store, "h", "tag", log=LOG, every_s=0.01):
        assert store.is_enough.wait(HANG_S)
    assert "A heartbeat could not be written: 503" in caplog.text
    with pytest.raises(ObjectMissing):
        store.get("h")


# --- it looks whether it was fenced -----------------------------------------------------------------------------------


class Fenced:
    """Says so from the third look on; ``stop`` is called again while the work goes on."""

    def __init__(self) -> None:
        self.looks = 0
        self.stops = 0
        self.is_stopped_twice = threading.Event()

    def is_fenced(self) -> bool:
        self.looks += 1
        return self.looks >= 3

    def stop(self) -> None:
        self.stops += 1
        if self.stops == 1:
            raise RuntimeError("the gateway is busy")
        self.is_stopped_twice.set()


def test_fault_11_a_fenced_attempt_is_stopped_and_ends_as_such_whatever_its_work_says(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store, fenced = Watched(tmp_path, 1), Fenced()
    watch = FenceWatch(fenced.is_fenced, fenced.stop)
    signs = Heartbeat(lambda: store, "h", "tag", log=LOG, every_s=0.01, watch=watch)

    def work() -> None:
        with signs:
            assert fenced.is_stopped_twice.wait(HANG_S)
            raise RuntimeError("SparkContext was shut down")

    with fails_with("fenced-at-work") as raised:
        work()
    assert str(raised.value.__context__) == "SparkContext was shut down"
    assert signs.is_fenced
    assert fenced.looks == 3
    # One sign before each look, and the last one.
    assert store.beat() == Beat("tag", 5, own_process(), None, ended=True)
    assert "its job not stopped: the gateway is busy" in caplog.text


def test_a_look_that_gets_no_answer_stops_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def no_answer() -> bool:
        raise StoreUnavailable("503")

    store = Watched(tmp_path, 3)
    watch = FenceWatch(no_answer, lambda: pytest.fail("it was stopped"))
    with Heartbeat(lambda: store, "h", "tag", log=LOG, every_s=0.01, watch=watch):
        assert store.is_enough.wait(HANG_S)
    assert "Whether this attempt was fenced could not be seen" in caplog.text


@pytest.mark.parametrize("end", ["open", "finished", "fenced"])
def test_a_look_costs_one_request_and_a_finish_of_its_own_is_no_fence(local_store: LocalStore, end: str) -> None:
    store = CountingStore(local_store)
    journal = Journal(store, RunIdentity("d", "r", "g"), writer="w")
    if end == "finished":
        journal.finish(AttemptTrace("P", 1, "w", "f", (), ()).finished("now", ()))
    if end == "fenced":
        journal.fence(Outcome("P", 1, AttemptState.FENCED, "w", "now", cause=FenceCause.OWN_FAILURE))
    store.clear()
    assert is_fenced(journal, "P", 1) is (end == "fenced")
    assert store.counts() == ({Verb.LIST: 1} if end == "open" else {Verb.LIST: 1, Verb.GET: 1})


def test_several_signs_fit_into_the_time_out() -> None:
    assert [interval_s(number) for number in (30, 12, 600, 0)] == [5.0, 2.0, INTERVAL_S, SHORTEST_INTERVAL_S]
