"""Two deployments under one prefix (fault 82)."""

from __future__ import annotations

import pytest

from airflow_recovery.errors import ConfigurationError, RecordInvalid, StoreAccessDenied
from airflow_recovery.journal.owner import OWNER_KEY, own_prefix
from airflow_recovery.storage import ObjectStore
from airflow_recovery.storage.local import LocalStore
from airflow_recovery.testing import CountingStore, Fault, FaultKind, FaultyStore, Verb


def test_fault_82_the_second_deployment_is_refused_with_the_name_of_the_first(store: ObjectStore) -> None:
    own_prefix(store, "prod")
    own_prefix(store, "prod")
    with pytest.raises(ConfigurationError, match="journal of deployment 'dev', found that of 'prod'"):
        own_prefix(store, "dev")
    store.delete([OWNER_KEY])
    own_prefix(store, "dev")


def test_fault_82_of_two_that_begin_at_once_one_is_refused(local_store: LocalStore) -> None:
    """The other's object comes between the look and the write."""

    class Overtaken(CountingStore):
        def put_if_absent(self, key: str, body: bytes):  # type: ignore[no-untyped-def]
            own_prefix(local_store, "prod")
            return super().put_if_absent(key, body)

    with pytest.raises(ConfigurationError, match="found that of 'prod'"):
        own_prefix(Overtaken(local_store), "dev")


def test_fault_82_a_lost_reply_is_no_other_deployment(local_store: LocalStore) -> None:
    own_prefix(FaultyStore(local_store, [Fault(Verb.PUT_IF_ABSENT, FaultKind.LOST_REPLY_THEN_RETRIED)]), "prod")
    own_prefix(local_store, "prod")


def test_where_it_is_taken_one_request_tells(local_store: LocalStore) -> None:
    own_prefix(local_store, "prod")
    counted = CountingStore(local_store)
    own_prefix(counted, "prod")
    assert counted.counts() == {Verb.GET: 1}


def test_denied_is_no_answer(local_store: LocalStore) -> None:
    with pytest.raises(StoreAccessDenied):
        own_prefix(FaultyStore(local_store, [Fault(Verb.GET, FaultKind.DENIED)]), "prod")


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"deployment":1}'])
def test_what_names_no_deployment_is_refused(local_store: LocalStore, body: bytes) -> None:
    local_store.put(OWNER_KEY, body)
    with pytest.raises(RecordInvalid):
        own_prefix(local_store, "prod")
