"""The start-up probe: a store that recovery can't rest on is refused with a clear text."""

from __future__ import annotations

import pytest

from airflow_recovery.errors import ObjectExists, StoreAccessDenied, StoreUnsuitable
from airflow_recovery.storage import ObjectStore, probe
from airflow_recovery.storage.local import LocalStore
from airflow_recovery.testing import CountingStore, Fault, FaultKind, FaultyStore, Verb


def test_fault_25_a_store_that_ignores_the_condition_is_refused(store: ObjectStore) -> None:
    with pytest.raises(StoreUnsuitable, match="no conditional writes"):
        probe(FaultyStore(store, ignores_if_none_match=True))
    assert list(store.list()) == []


def test_fault_25_negative_control_unprobed_such_a_store_has_two_winners(store: ObjectStore) -> None:
    unprobed = FaultyStore(store, ignores_if_none_match=True)
    unprobed.put_if_absent("claim", b"first")
    unprobed.put_if_absent("claim", b"second")
    assert store.get("claim").body == b"second"


def test_fault_26_a_store_with_stale_listings_is_refused(store: ObjectStore) -> None:
    with pytest.raises(StoreUnsuitable, match="stale listings"):
        probe(FaultyStore(store, hides_from_lists="_probe/"))


def test_fault_26_negative_control_unprobed_a_claim_would_go_unseen(store: ObjectStore) -> None:
    unprobed = FaultyStore(store, hides_from_lists=".claim")
    unprobed.put_if_absent("t/a/00000001.claim", b"")
    assert list(unprobed.list("t/")) == []
    with pytest.raises(ObjectExists):
        unprobed.put_if_absent("t/a/00000001.claim", b"")


def test_a_store_that_gives_back_something_else_is_refused(
    local_store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = local_store.put("other", b"other")
    monkeypatch.setattr(local_store, "get", lambda key: type(local_store).get(local_store, "other"))
    with pytest.raises(StoreUnsuitable, match="does not give back"):
        probe(local_store)
    assert kept.size == 5


def test_a_denied_probe_is_denied_and_not_unsuitable(local_store: LocalStore) -> None:
    with pytest.raises(StoreAccessDenied):
        probe(FaultyStore(local_store, [Fault(Verb.PUT_IF_ABSENT, FaultKind.DENIED)]))


def test_a_policy_without_deletes_is_fine(local_store: LocalStore) -> None:
    probe(FaultyStore(local_store, [Fault(Verb.DELETE, FaultKind.DENIED)]), token="fixed")
    assert [each.key for each in local_store.list()] == ["_probe/fixed"]


def test_the_probe_is_five_requests(local_store: LocalStore) -> None:
    counting = CountingStore(local_store)
    probe(counting)
    assert len(counting.requests) == 5
