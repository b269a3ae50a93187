"""Two deployments under one prefix (faults 82 and 109), and two journals over one place of results (fault 102)."""

from __future__ import annotations

from typing import Any

import pytest
from expected_errors import fails_with

from airflow_recovery.errors import ConfigurationError, RecordInvalid, StoreAccessDenied
from airflow_recovery.journal.owner import JOURNAL_KEY, OWNER_KEY, check_owner, check_results, own_prefix, own_results
from airflow_recovery.store import ObjectStore
from airflow_recovery.store.local import LocalStore
from airflow_recovery.testing import CountingStore, Fault, FaultKind, FaultyStore, Verb


def test_fault_82_the_second_deployment_is_refused_with_the_name_of_the_first(store: ObjectStore) -> None:
    own_prefix(store, "prod")
    own_prefix(store, "prod")
    with fails_with("journal-of-other-deployment", expected="deployment 'dev'", found="'prod'"):
        own_prefix(store, "dev")
    store.delete([OWNER_KEY])
    own_prefix(store, "dev")


def test_fault_82_of_two_that_begin_at_once_one_is_refused(local_store: LocalStore) -> None:
    """The other's object comes between the look and the write."""

    class Overtaken(CountingStore):
        def put_if_absent(self, key: str, body: bytes):
            own_prefix(local_store, "prod")
            return super().put_if_absent(key, body)

    with fails_with("journal-of-other-deployment", found="'prod'"):
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


def test_fault_109_a_deployment_without_a_name_has_its_journal_too(store: ObjectStore) -> None:
    own_prefix(store, "")
    own_prefix(store, "")
    check_owner(store, "")
    with fails_with("journal-of-other-deployment", expected="deployment 'dev'", found="a deployment without a name"):
        own_prefix(store, "dev")
    store.delete([OWNER_KEY])
    own_prefix(store, "prod")
    for refuses in (own_prefix, check_owner):
        with fails_with("journal-of-other-deployment", expected="a deployment without a name", found="'prod'"):
            refuses(store, "")


# results


def in_background(store: ObjectStore, name: str) -> Any:
    uri = f"{store.base_uri}/{name}"
    return LocalStore(uri) if isinstance(store, LocalStore) else store.sibling(uri)  # type: ignore[attr-defined]


def test_fault_102_results_are_those_of_the_first_journal(store: ObjectStore) -> None:
    one, two, results = (in_background(store, name) for name in ("one", "two", "results"))
    own_results(one, results)
    own_results(one, results)
    check_results(one, results)
    for refuses in (own_results, check_results):
        with pytest.raises(ConfigurationError) as error:
            refuses(two, results)
        for part in (one.base_uri, two.base_uri, f"delete {results.base_uri}/_owner"):
            assert part in str(error.value)
    assert list(two.list()) == []
    # The way out that it names.
    results.delete([OWNER_KEY])
    own_results(two, results)
    with fails_with("results-of-other-journal"):
        own_results(one, results)


def test_fault_102_of_two_journals_that_begin_at_once_one_is_refused(store: ObjectStore) -> None:
    one, two, results = (in_background(store, name) for name in ("one", "two", "results"))

    class Overtaken(CountingStore):
        def put_if_absent(self, key: str, body: bytes):
            own_results(one, results)
            return super().put_if_absent(key, body)

    with fails_with("results-of-other-journal"):
        own_results(two, Overtaken(results))
    own_results(one, results)


def test_fault_102_two_tasks_of_one_journal_that_begin_at_once_are_one(store: ObjectStore) -> None:
    one, results = in_background(store, "one"), in_background(store, "results")

    class Overtaken(CountingStore):
        def put_if_absent(self, key: str, body: bytes):
            own_results(one, results)
            return super().put_if_absent(key, body)

    own_results(Overtaken(one), Overtaken(results))
    own_results(one, results)


def test_fault_102_a_lost_reply_is_no_other_journal(local_store: LocalStore) -> None:
    one, results = in_background(local_store, "one"), in_background(local_store, "results")
    lost = [Fault(Verb.PUT_IF_ABSENT, FaultKind.LOST_REPLY_THEN_RETRIED)]
    own_results(FaultyStore(one, lost), FaultyStore(results, lost))
    own_results(one, results)


def test_fault_102_a_journal_that_was_moved_is_told_what_to_do(s3_store: Any) -> None:
    """Its id comes along; as long as the old place may be in use, both would write below one prefix."""
    one, two, results = (s3_store.sibling(f"{s3_store.base_uri}/{name}") for name in ("one", "two", "results"))
    own_results(one, results)
    for each in list(one.list()):
        two.put(each.key, one.get(each.key).body)
    with fails_with("results-of-other-journal"):
        own_results(two, results)
    results.delete([OWNER_KEY])
    own_results(two, results)
    with fails_with("results-of-other-journal"):
        check_results(one, results)


def test_fault_102_a_folder_that_is_mounted_elsewhere_is_the_same(local_store: LocalStore, tmp_path: Any) -> None:
    one, results = in_background(local_store, "one"), in_background(local_store, "results")
    own_results(one, results)
    elsewhere = LocalStore(f"file://{tmp_path}/mnt")
    elsewhere.put(JOURNAL_KEY, one.get(JOURNAL_KEY).body)
    check_results(elsewhere, results)


def test_fault_102_a_journal_that_was_emptied_does_not_write_over_its_old_results(store: ObjectStore) -> None:
    one, results = in_background(store, "one"), in_background(store, "results")
    own_results(one, results)
    one.delete([JOURNAL_KEY])
    with fails_with("results-of-other-journal"):
        own_results(one, results)


def test_where_results_are_taken_two_requests_tell_and_a_reader_writes_nothing(local_store: LocalStore) -> None:
    one, results = in_background(local_store, "one"), in_background(local_store, "results")
    counted = CountingStore(one), CountingStore(results)
    check_results(*counted)
    own_results(one, results)
    own_results(*counted)
    check_results(*counted)
    assert [each.counts() for each in counted] == [{Verb.GET: 2}, {Verb.GET: 3}]


@pytest.mark.parametrize("denied", ["journal", "results"])
def test_denied_says_nothing_of_whose_results_they_are(local_store: LocalStore, denied: str) -> None:
    one, results = in_background(local_store, "one"), in_background(local_store, "results")
    own_results(one, results)
    for asks in (own_results, check_results):
        stores: dict[str, Any] = {"journal": one, "results": results}
        stores[denied] = FaultyStore(stores[denied], [Fault(Verb.GET, FaultKind.DENIED)])
        with pytest.raises(StoreAccessDenied):
            asks(**stores)


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"journal":1,"uri":"x"}', b'{"journal":"x"}'])
def test_results_that_name_no_journal_are_refused(local_store: LocalStore, body: bytes) -> None:
    results = in_background(local_store, "results")
    results.put(OWNER_KEY, body)
    with pytest.raises(RecordInvalid):
        own_results(local_store, results)
