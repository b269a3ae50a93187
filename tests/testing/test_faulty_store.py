"""The tools that other tests rest on: a fault happens when it should, and a count is what S3 would see."""

from __future__ import annotations

import pytest

from airflow_recovery.errors import (
    ObjectExists,
    ObjectMissing,
    StoreAccessDenied,
    StoreError,
    StoreTimeout,
    StoreUnavailable,
)
from airflow_recovery.store.local import LocalStore
from airflow_recovery.testing import CountingStore, Fault, FaultKind, FaultyStore, SeededFaults, Verb


def test_faults_happen_in_the_order_of_the_script(local_store: LocalStore) -> None:
    store = FaultyStore(
        local_store,
        [Fault(Verb.GET, FaultKind.TIMEOUT, skip=1), Fault(Verb.GET, FaultKind.DENIED, key="b", times=2)],
    )
    local_store.put("a", b"a")
    local_store.put("b", b"b")
    assert store.get("a").body == b"a"
    with pytest.raises(StoreTimeout):
        store.get("a")
    for _ in range(2):
        with pytest.raises(StoreAccessDenied):
            store.get("b")
    assert store.get("b").body == b"b"


@pytest.mark.parametrize(
    ("kind", "error", "is_written"),
    [
        (FaultKind.TIMEOUT, StoreTimeout, False),
        (FaultKind.CONFLICT, StoreUnavailable, False),
        (FaultKind.SLOW_DOWN, StoreUnavailable, False),
        (FaultKind.DENIED, StoreAccessDenied, False),
        (FaultKind.LOST_REPLY, StoreTimeout, True),
        (FaultKind.LOST_REPLY_THEN_RETRIED, ObjectExists, True),
    ],
)
def test_a_fault_has_its_error_and_its_effect(
    local_store: LocalStore, kind: FaultKind, error: type[Exception], is_written: bool
) -> None:
    store = FaultyStore(local_store, [Fault(Verb.PUT_IF_ABSENT, kind)])
    with pytest.raises(error):
        store.put_if_absent("k", b"")
    assert [each.key for each in local_store.list()] == (["k"] if is_written else [])


def test_faults_of_every_verb(local_store: LocalStore) -> None:
    store = FaultyStore(local_store, [Fault(verb, FaultKind.SLOW_DOWN) for verb in Verb])
    uses = [
        lambda: store.put("k", b"x"),
        lambda: store.put_if_absent("k2", b"x"),
        lambda: store.get("k"),
        lambda: list(store.list()),
        lambda: store.delete(["k"]),
    ]
    for use in uses:
        with pytest.raises(StoreUnavailable):
            use()
    for use in uses:
        use()
    assert [each.key for each in store.list()] == ["k2"]


def test_seeded_faults_are_the_same_for_a_seed_and_stop(local_store: LocalStore) -> None:
    def outcomes(seed: int) -> list[str]:
        store = SeededFaults(local_store, seed, rate=0.5, limit=20)
        return [outcome(store) for _ in range(200)]

    def outcome(store: SeededFaults) -> str:
        with pytest.raises(StoreError) as raised:
            store.get("missing")
        return raised.type.__name__

    assert outcomes(1) == outcomes(1) != outcomes(2)
    assert set(outcomes(1)[100:]) == {ObjectMissing.__name__}


@pytest.mark.slow
def test_requests_are_counted_by_page_and_batch(local_store: LocalStore) -> None:
    store = CountingStore(local_store)
    keys = [f"k/{number:05d}" for number in range(1001)]
    for key in keys:
        store.put(key, b"")
    store.put_if_absent("one", b"")
    store.get("one")
    store.clear()
    assert len(list(store.list("k/"))) == 1001
    assert len(list(store.list("k/0000"))) == 10
    assert store.counts() == {Verb.LIST: 3}
    assert store.count(Verb.LIST, "k/0000") == 1
    list(store.list("none"))
    store.delete(keys)
    assert store.counts() == {Verb.LIST: 4, Verb.DELETE: 2}


@pytest.mark.slow
def test_a_listing_of_exactly_one_page_is_one_request(local_store: LocalStore) -> None:
    for number in range(1000):
        local_store.put(f"k/{number:05d}", b"")
    store = CountingStore(local_store)
    assert len(list(store.list())) == 1000
    assert store.counts() == {Verb.LIST: 1}
