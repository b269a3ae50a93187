"""Signs of life of an attempt."""

from __future__ import annotations

import logging
import threading
from pathlib import Path

import pytest

from airflow_recovery.errors import ObjectMissing, StoreUnavailable
from airflow_recovery.runtime.heartbeat import INTERVAL_S, SHORTEST_INTERVAL_S, Beat, Heartbeat, interval_s
from airflow_recovery.runtime.process_identity import own_process
from airflow_recovery.storage.local import LocalStore
from airflow_recovery.storage.object_store import ObjectInfo

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
        assert store.is_enough.wait(10)
    beat = store.beat()
    assert beat is not None
    assert (beat.tag, beat.process, beat.application_id, beat.ended) == ("tag", own_process(), "app-1", False)
    assert beat.count >= 3


def test_whoever_only_waits_for_the_driver_is_not_it(tmp_path: Path) -> None:
    store = Watched(tmp_path, 1)
    with Heartbeat(lambda: store, "h", "tag", log=LOG, is_driver=False):
        assert store.is_enough.wait(10)
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
        assert store.is_enough.wait(10)
    assert "A sign of life could not be given: 503" in caplog.text
    with pytest.raises(ObjectMissing):
        store.get("h")


def test_several_signs_fit_into_the_time_out() -> None:
    assert [interval_s(each) for each in (30, 12, 600, 0)] == [5.0, 2.0, INTERVAL_S, SHORTEST_INTERVAL_S]
