"""The start-up probe: a store that recovery can't rest on is refused with a clear text."""

from __future__ import annotations

import importlib
import os
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from expected_errors import fails_with
from fakes import FolderByFolder

from airflow_recovery.errors import ObjectExists, StoreAccessDenied, StoreTimeout
from airflow_recovery.store import ObjectStore, probe
from airflow_recovery.store.local import LocalStore
from airflow_recovery.store.probe import RACE_EVERY_S, RACED
from airflow_recovery.store.s3 import S3Store
from airflow_recovery.testing import CountingStore, Fault, FaultKind, FaultyStore, MotoServer, S3Server, Verb
from scripts.s3_proxy import LookThenWrite, S3Proxy

probing = importlib.import_module("airflow_recovery.store.probe")


def test_fault_25_a_store_that_ignores_the_condition_is_refused(store: ObjectStore) -> None:
    with fails_with("no-conditional-writes"):
        probe(FaultyStore(store, ignores_if_none_match=True))
    assert list(store.list()) == []


def test_fault_25_negative_control_unprobed_such_a_store_has_two_winners(store: ObjectStore) -> None:
    unprobed = FaultyStore(store, ignores_if_none_match=True)
    unprobed.put_if_absent("claim", b"first")
    unprobed.put_if_absent("claim", b"second")
    assert store.get("claim").body == b"second"


def test_fault_26_a_store_with_stale_listings_is_refused(store: ObjectStore) -> None:
    with fails_with("stale-listings"):
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
    with fails_with("stale-reads"):
        probe(local_store)
    assert kept.size == 5


def test_a_denied_probe_is_denied_and_not_unsuitable(local_store: LocalStore) -> None:
    with pytest.raises(StoreAccessDenied):
        probe(FaultyStore(local_store, [Fault(Verb.PUT_IF_ABSENT, FaultKind.DENIED)]))


def test_a_probe_whose_first_reply_is_lost_leaves_nothing(local_store: LocalStore) -> None:
    with pytest.raises(StoreTimeout):
        probe(FaultyStore(local_store, [Fault(Verb.PUT_IF_ABSENT, FaultKind.LOST_REPLY)]))
    assert list(local_store.list("_probe/")) == []


def test_a_policy_without_deletes_is_fine(local_store: LocalStore) -> None:
    probe(FaultyStore(local_store, [Fault(Verb.DELETE, FaultKind.DENIED)]), token="fixed")
    races = [f"_probe/fixed-race-{name}" for name in ("0-0", "0/0", "1", "2")]
    assert [each.key for each in local_store.list()] == ["_probe/fixed", *races, RACED]


# writers at the same instant


def test_the_race_is_34_requests_once_a_day_and_the_rest_six(s3_store: ObjectStore) -> None:
    counting = CountingStore(s3_store)
    probe(counting)
    assert counting.counts() == {
        Verb.PUT_IF_ABSENT: 2 + 8 * 4, Verb.PUT: 1, Verb.LIST: 3, Verb.GET: 1, Verb.DELETE: 1,
    }  # fmt: skip
    assert [each.key for each in s3_store.list()] == [RACED]
    counting.clear()
    probe(counting)
    assert counting.counts() == {Verb.PUT_IF_ABSENT: 2, Verb.LIST: 2, Verb.GET: 1, Verb.DELETE: 1}
    counting.clear()
    probe(counting, always_race=True)  # who asks for a check wants it now
    assert counting.counts() == {Verb.PUT_IF_ABSENT: 2 + 8 * 4, Verb.LIST: 2, Verb.GET: 1, Verb.DELETE: 1}


def test_a_race_that_is_a_day_old_is_run_again(local_store: LocalStore, tmp_path: Path) -> None:
    counting = CountingStore(local_store)
    for age_s, races in ((RACE_EVERY_S - 60, 0), (RACE_EVERY_S + 60, 32), (-3600, 32)):
        local_store.put(RACED, b"")
        written_s = (tmp_path / "store" / RACED).stat().st_mtime - age_s
        os.utime(tmp_path / "store" / RACED, (written_s, written_s))
        counting.clear()
        probe(counting)
        assert counting.count(Verb.PUT_IF_ABSENT, "race") == races


@pytest.fixture
def not_atomic(start_s3_server: Callable[[str], S3Server]) -> Iterator[S3Store]:
    """A server that refuses a second conditional write with 412, and lets several at the same instant win."""
    server = start_s3_server(MotoServer.name)
    with S3Proxy(server, lambda request: LookThenWrite() if request.is_conditional else None) as proxy:
        uri = f"s3://recovery-tests/{uuid.uuid4().hex}"
        yield S3Store(uri, endpoint_url=proxy.endpoint_url, session=server.session())


def test_honest_servers_let_one_writer_win_in_every_round(s3_store: ObjectStore) -> None:
    keys = [f"race-{number}" for number in range(20)]
    probing._lets_one_writer_win(s3_store, keys)
    assert [each.key for each in s3_store.list("race-")] == sorted(keys)


@pytest.mark.s3
def test_a_server_whose_conditional_writes_are_not_atomic_is_refused(not_atomic: S3Store) -> None:
    with fails_with("conditional-writes-not-atomic"):
        probe(not_atomic)
    assert list(not_atomic.list()) == []


@pytest.mark.s3
def test_control_without_the_race_such_a_server_is_accepted(
    not_atomic: S3Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probing, "_lets_one_writer_win", lambda store, keys: True)
    probe(not_atomic)


def test_writers_without_an_answer_prove_nothing_and_the_race_is_run_again(store: ObjectStore) -> None:
    counting = CountingStore(store)
    for kind in (FaultKind.LOST_REPLY, FaultKind.SLOW_DOWN, FaultKind.CONFLICT):
        counting.clear()
        probe(FaultyStore(counting, [Fault(Verb.PUT_IF_ABSENT, kind, "-race-", times=None)]))
        assert counting.count(Verb.PUT, RACED) == 0
    probe(counting)
    assert counting.count(Verb.PUT, RACED) == 1


def test_a_server_that_lists_folder_by_folder_is_refused() -> None:
    """Where a listing ends at a name, it would end too early there."""
    store = FolderByFolder("memory://store")
    with fails_with("listing-unordered"):
        probe(store)
    assert list(store.list()) == []


# names that differ by case


class FoldsCase(LocalStore):
    """As in a folder of macOS, Windows or a Samba share: names keep their case, and are found by any."""

    def _split(self, key: str) -> tuple[str, str]:
        return super()._split(key.casefold())


def test_a_folder_that_folds_case_is_refused(tmp_path: Path) -> None:
    folded = FoldsCase(f"file://{tmp_path}/store")
    with fails_with("no-capitals"):
        probe(folded)
    assert list(folded.list()) == []


def test_control_unprobed_two_regions_share_a_file_there(tmp_path: Path) -> None:
    folded = FoldsCase(f"file://{tmp_path}/store")
    folded.put("results/A/00000001/part-0", b"of A")
    folded.put("results/a/00000001/part-0", b"of a")
    assert folded.get("results/A/00000001/part-0").body == b"of a"
