"""Resume of a large run: round trips and requests (docs/protocol.md#requests)."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from itertools import islice

import pytest
from expected_errors import fails_with
from fakes import FolderByFolder
from hypothesis import given
from hypothesis import strategies as st

from airflow_recovery.errors import StoreAccessDenied
from airflow_recovery.journal import sharded_listing
from airflow_recovery.journal.journal import Journal
from airflow_recovery.journal.layout import JournalLayout
from airflow_recovery.journal.sharded_listing import list_sharded, list_whole
from airflow_recovery.model.names import encode
from airflow_recovery.model.records import AttemptState, Claim, Outcome, RunIdentity
from airflow_recovery.store.object_store import ObjectInfo
from airflow_recovery.testing import CountingStore, Fault, FaultKind, FaultyStore, Verb
from airflow_recovery.testing.patience import HANG_S
from airflow_recovery.testing.simulation.memory import Clock, MemoryStore

IDENTITY = RunIdentity("dag", "date-2026-01-01T000000Z", "g")
LAYOUT = JournalLayout(IDENTITY)
REGIONS = [f"region_{at:04d}" for at in range(1_000)]
PAGE_KEYS = 1_000


@pytest.fixture(scope="module")
def finished() -> MemoryStore:
    """1,000 regions have finished; one of them at its second attempt."""
    store = MemoryStore("memory://journal", Clock())
    journal = Journal(store, IDENTITY, writer="w")
    for region in REGIONS:
        journal.claim(Claim(region, 1, "w", "0a", (), "run", 1, "ti", "tag", "now"))
        journal.finish(Outcome(region, 1, AttemptState.FINISHED, "w", "now", "code"))
    journal.claim(Claim(REGIONS[5], 2, "w", "0a", (), "run", 2, "ti", "tag", "now"))
    journal.finish(Outcome(REGIONS[5], 2, AttemptState.FINISHED, "w", "now", "code"))
    return store


class MeetingStore(CountingStore):
    """Answers a page only when ``parties`` listings ask at the same time."""

    def __init__(self, inner: MemoryStore, parties: int, timeout_s: float = HANG_S) -> None:
        super().__init__(inner)
        self._meet = threading.Barrier(parties, timeout=timeout_s)

    def list(self, prefix: str = "", *, start_after: str = "") -> Iterator[ObjectInfo]:
        found = self.inner.list(prefix, start_after=start_after)
        while page := list(islice(found, PAGE_KEYS)):
            self._count(Verb.LIST, prefix)
            self._meet.wait()
            yield from page


def test_a_thousand_finished_regions_are_listed_in_one_round_trip(finished: MemoryStore):
    """Were one asked after another, nobody would meet and the barrier would break."""
    store = MeetingStore(finished, 4)
    listing = Journal(store, IDENTITY, writer="w").list(REGIONS)
    assert store.counts() == {Verb.LIST: 4}
    assert len(listing.objects) == 2_002
    assert all(listing.state.of(region).latest_attempt == (2 if region == REGIONS[5] else 1) for region in REGIONS)


def test_control_one_listing_asks_for_one_page_after_the_other(finished: MemoryStore, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sharded_listing, "REGIONS_A_SHARD", 10_000)
    journal = Journal(MeetingStore(finished, 2, timeout_s=0.2), IDENTITY, writer="w")
    with pytest.raises(threading.BrokenBarrierError):
        journal.list(REGIONS)


def test_requests_of_a_resume_without_and_with_a_snapshot(finished: MemoryStore):
    counted = CountingStore(finished)
    first = Journal(counted, IDENTITY, writer="first", writes_snapshot=True)
    first.load(first.list(REGIONS))
    first.wait_for_snapshot()
    assert counted.counts() == {Verb.LIST: 4, Verb.GET: 1_001, Verb.PUT: 1}
    counted.clear()
    second = Journal(counted, IDENTITY, writer="second", writes_snapshot=True)
    state = second.load(second.list(REGIONS))
    assert counted.counts() == {Verb.LIST: 4, Verb.GET: 1}
    assert all(state.of(region).current is not None for region in REGIONS)
    finished.delete([LAYOUT.snapshot])


def test_missing_outcomes_are_read_over_64_connections(finished: MemoryStore, monkeypatch: pytest.MonkeyPatch):
    meet = threading.Barrier(64)
    counted = CountingStore(finished)
    read = finished.get
    first = {LAYOUT.attempt(region, 1, "outcome") for region in REGIONS[:64]}

    def get(key: str, max_bytes: int):
        if key in first:
            meet.wait(HANG_S)
        return read(key, max_bytes)

    monkeypatch.setattr(finished, "get", get)
    journal = Journal(counted, IDENTITY, writer="w")
    journal.load(journal.list(REGIONS), REGIONS[:64])
    assert counted.count(Verb.GET) == 65


def test_a_listing_that_is_denied_in_one_shard_is_no_shorter_listing(finished: MemoryStore):
    faulty = FaultyStore(finished, [Fault(Verb.LIST, FaultKind.DENIED, skip=1)])
    with pytest.raises(StoreAccessDenied):
        Journal(faulty, IDENTITY, writer="w").list(REGIONS)


NAMES = st.text("ab/[]_ü.", min_size=1, max_size=4)


@given(
    known=st.sets(NAMES, max_size=12),
    others=st.sets(NAMES, max_size=6),
    folders=st.sets(st.sampled_from(["plan/0a", "h/x/00000001", "publish/00000001", "closed", "snap/newest", "zz"])),
    size=st.integers(1, 5),
)
def test_it_is_the_plain_listing_without_heartbeats_whatever_is_known_and_whatever_is_there(
    known: set[str], others: set[str], folders: set[str], size: int
):
    store = MemoryStore("memory://journal", Clock())
    for name in known | others:
        store.put(LAYOUT.attempt(name, 1, "claim"), b"x")
        store.put(LAYOUT.attempt(name, 2, "outcome"), b"x")
    for folder in folders:
        store.put(LAYOUT.prefix + folder, b"x")
    store.put(f"{encode('dag')}/other-run/g/closed", b"x")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(sharded_listing, "REGIONS_A_SHARD", size)
        keys = [each.key for each in list_sharded(store, LAYOUT, known)]
        patched.setattr(sharded_listing, "PAGE_KEYS", size)
        found = [each.key for each in list_whole(store, LAYOUT, lambda: known)]
    assert keys == [each.key for each in store.list(LAYOUT.prefix) if not each.key.startswith(LAYOUT.heartbeats)]
    assert found == keys


def test_of_a_journal_of_one_page_nobody_asks_for_the_regions(finished: MemoryStore, monkeypatch: pytest.MonkeyPatch):
    def never() -> list[str]:
        raise AssertionError("its plans were read")

    monkeypatch.setattr(sharded_listing, "PAGE_KEYS", 2_003)
    assert len(list(list_whole(finished, LAYOUT, never))) == 2_002


def test_a_large_journal_is_listed_in_two_round_trips_where_nobody_knows_how_large_it_is(finished: MemoryStore):
    """The first page alone, then what is left at once: two listings of it must meet."""
    store = MeetingStore(finished, 2)
    assert len(list(list_whole(store, LAYOUT, lambda: REGIONS))) == 2_002
    assert store.counts() == {Verb.LIST: 4}


@pytest.mark.parametrize("many", [1, sharded_listing.REGIONS_A_SHARD + 1])
def test_a_journal_that_is_listed_in_another_order_is_refused_by_name(many: int) -> None:
    """Where a part of the listing ends at a name, what comes behind it would go unseen."""
    regions = ["a", *(f"a-{number:04d}" for number in range(many))]
    store = FolderByFolder("memory://journal")
    for region in regions:
        store.put(LAYOUT.attempt(region, 1, "claim"), b"")
    for listed in (list_sharded(store, LAYOUT, regions), list_whole(store, LAYOUT, lambda: regions)):
        with fails_with("listing-unordered"):
            list(listed)
    assert len(list(store.list())) == len(regions)
