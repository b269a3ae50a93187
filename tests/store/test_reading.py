"""How much is read: of one object, of many at once, and for one request."""

from __future__ import annotations

import threading
import tracemalloc
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from airflow_recovery.errors import ObjectTooLarge, RecordInvalid, StoreError, kind_of
from airflow_recovery.journal import codec
from airflow_recovery.journal.journal import Journal
from airflow_recovery.model.records import Claim, RunIdentity
from airflow_recovery.store import BudgetedStore, ObjectStore, get_many, parallel
from airflow_recovery.store.local import LocalStore
from airflow_recovery.store.object_store import MAX_OBJECT_BYTES, StoredObject

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
    with pytest.raises(
        ObjectTooLarge, match=rf"at most {MAX_OBJECT_BYTES} bytes, found {MAX_OBJECT_BYTES + 1}"
    ) as refused:
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
        self._meet.wait(30)
        with self._lock:
            self.now -= found.info.size
        return found


SIZE = parallel.LARGE_BYTES + 1


def test_large_objects_are_read_one_after_the_other(tmp_path: Path) -> None:
    store = Watched(f"{tmp_path}/store")
    for number in range(8):
        store.put(f"{number}", bytes(SIZE))
    store.put("small", b"1")
    found = get_many(store, [*map(str, range(8)), "small"])
    assert [each.info.size for each in found.values()] == [SIZE] * 8 + [1]
    assert store.peak <= SIZE + 1


def test_control_else_all_of_them_are_in_memory_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel, "LARGE_BYTES", MAX_OBJECT_BYTES)
    store = Watched(f"{tmp_path}/store", all_at_once=8)
    for number in range(8):
        store.put(f"{number}", bytes(SIZE))
    get_many(store, map(str, range(8)))
    assert store.peak == 8 * SIZE


IDENTITY = RunIdentity("dag", "date=2026-01-01", "group")
REGIONS = [f"R{number}" for number in range(20)]


def with_claims(store: ObjectStore) -> None:
    journal = Journal(store, IDENTITY, writer="w")
    for region in REGIONS:
        claim = Claim(
            region=region,
            attempt=1,
            writer="w",
            plan_hash="0" * 16,
            inputs=(),
            airflow_run_id="x" * 50_000,
            try_number=1,
            ti_id="t",
            tag=str(uuid.uuid4()),
            claimed_at="2026-01-01T00:00:00+00:00",
        )
        journal.claim(claim)


def test_a_journal_that_is_larger_than_the_budget_is_refused_by_name(store: ObjectStore) -> None:
    with_claims(store)
    within = Journal(BudgetedStore(store, 2 * MIB), IDENTITY, writer="w")
    assert len(within.load(within.list(REGIONS)).regions) == 20
    beyond = Journal(BudgetedStore(store, MIB // 2), IDENTITY, writer="w")
    with pytest.raises(ObjectTooLarge, match=r"no more than 524288 bytes to be read for one request.*recovery show"):
        beyond.load(beyond.list(REGIONS))


def test_the_budget_is_of_all_reads_and_names_the_limit_that_was_met(local_store: LocalStore) -> None:
    local_store.put("a", bytes(6))
    budgeted = BudgetedStore(local_store, 10)
    assert budgeted.get("a").info.size == 6
    with pytest.raises(ObjectTooLarge, match="at most 3 bytes, found 6"):
        budgeted.get("a", 3)
    with pytest.raises(ObjectTooLarge, match="10 bytes to be read for one request, found more: 6 were read"):
        budgeted.get("a")
    with pytest.raises(ObjectTooLarge, match="for one request"):
        budgeted.get("a", None)
