"""How much is read: of one object, of many at once, and for one request."""

from __future__ import annotations

import threading
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest
from expected_errors import fails_with

from airflow_recovery.errors import RecordInvalid, StoreError, kind_of
from airflow_recovery.journal import codec
from airflow_recovery.store import ObjectStore, get_many, object_store
from airflow_recovery.store.local import LocalStore
from airflow_recovery.store.object_store import MAX_OBJECT_BYTES, StoredObject
from airflow_recovery.testing.patience import HANG_S

MIB = 1024 * 1024


def memory_of(read: Callable[[], object]) -> int:
    """The most that ``read`` held at a time, in bytes, whatever becomes of it."""
    tracemalloc.start()
    try:
        read()
    except StoreError:
        pass
    finally:
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    return peak


def test_an_object_that_is_too_large_is_refused_unread(store: ObjectStore) -> None:
    store.put("t/a/00000001.outcome", bytes(MAX_OBJECT_BYTES + 1))
    with fails_with("object-too-large-to-read", found=67108865) as refused:
        store.get("t/a/00000001.outcome")
    assert isinstance(refused.value, RecordInvalid)
    assert kind_of(refused.value).is_final
    assert memory_of(lambda: store.get("t/a/00000001.outcome")) < 8 * MIB


def test_control_without_a_limit_all_of_it_is_held(store: ObjectStore) -> None:
    store.put("t/a/00000001.outcome", bytes(MAX_OBJECT_BYTES + 1))
    assert memory_of(lambda: store.get("t/a/00000001.outcome", None)) > MAX_OBJECT_BYTES


def test_a_record_of_the_largest_size_is_read(local_store: LocalStore) -> None:
    assert codec.MAX_RECORD_BYTES == MAX_OBJECT_BYTES
    local_store.put("a", bytes(MAX_OBJECT_BYTES))
    assert local_store.get("a").info.size == MAX_OBJECT_BYTES


def test_a_huge_file_costs_nothing(local_store: LocalStore, tmp_path: Path) -> None:
    local_store.put("a", b"")
    with open(tmp_path / "store" / "a", "wb") as file:
        file.truncate(1 << 40)
    assert memory_of(lambda: local_store.get("a")) < MIB


class Watched(LocalStore):
    """How many bytes of bodies are in memory at a time; ``all_at_once`` waits until so many reads are at work."""

    def __init__(self, base_uri: str, all_at_once: int = 1) -> None:
        super().__init__(base_uri)
        self._meet = threading.Barrier(all_at_once)
        self._lock = threading.Lock()
        self.now = self.peak = 0

    def get(self, key: str, max_bytes: int | None = MAX_OBJECT_BYTES) -> StoredObject:
        found = super().get(key, max_bytes)
        with self._lock:
            self.now += found.info.size
            self.peak = max(self.peak, self.now)
        self._meet.wait(HANG_S)
        with self._lock:
            self.now -= found.info.size
        return found


SIZE = object_store.LARGE_BYTES + 1


def test_large_objects_are_read_one_after_the_other(tmp_path: Path) -> None:
    store = Watched(f"{tmp_path}/store")
    for number in range(8):
        store.put(f"{number}", bytes(SIZE))
    store.put("small", b"1")
    many = get_many(store, [*map(str, range(8)), "small"])
    assert [each.info.size for each in many.values()] == [SIZE] * 8 + [1]
    assert store.peak <= SIZE + 1


def test_control_else_all_of_them_are_in_memory_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(object_store, "LARGE_BYTES", MAX_OBJECT_BYTES)
    store = Watched(f"{tmp_path}/store", all_at_once=8)
    for number in range(8):
        store.put(f"{number}", bytes(SIZE))
    get_many(store, map(str, range(8)))
    assert store.peak == 8 * SIZE
