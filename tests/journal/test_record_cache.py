"""A snapshot of the journal saves requests, and is never believed against the listing."""

from __future__ import annotations

import json
import shutil
import uuid
from pathlib import Path

import pytest
from expected_errors import fails_with

from airflow_recovery.journal import record_cache
from airflow_recovery.journal.journal import Journal
from airflow_recovery.journal.record_cache import RecordCache, SnapshotPace
from airflow_recovery.model.records import AttemptState, Claim, Outcome, RunIdentity
from airflow_recovery.store.local import LocalStore
from airflow_recovery.store.object_store import ObjectInfo
from airflow_recovery.testing import CountingStore, Fault, FaultKind, FaultyStore, Verb

IDENTITY = RunIdentity("dag", "date-2026-01-01T000000Z", "g")
REGIONS = [f"r{at:03d}" for at in range(25)]


def finish(journal: Journal, region: str, attempt: int = 1) -> None:
    journal.claim(Claim(region, attempt, "w", "p", (), "run", 1, "ti", "tag", "now"))
    journal.finish(Outcome(region, attempt, AttemptState.FINISHED, "w", "now", "code"))


@pytest.fixture(autouse=True)
def small_runs_are_worth_a_snapshot(monkeypatch):
    monkeypatch.setattr(record_cache, "WORTH_A_SNAPSHOT", 20)


@pytest.fixture(scope="module")
def written(tmp_path_factory) -> Path:
    """A run with 25 finished regions, written once: each write is flushed to the disk."""
    folder = tmp_path_factory.mktemp("written")
    journal = Journal(LocalStore(f"file://{folder}"), IDENTITY, writer="w")
    for region in REGIONS:
        finish(journal, region)
    return folder


@pytest.fixture
def counted(written, tmp_path) -> CountingStore:
    """A copy of it."""
    shutil.copytree(written, tmp_path / "journal")
    return CountingStore(LocalStore(f"file://{tmp_path}/journal"))


def load(store: object, *, writes: bool = True) -> Journal:
    """What one process reads: all of it must be right."""
    journal = Journal(store, IDENTITY, writer="another", writes_snapshot=writes)  # type: ignore[arg-type]
    state = journal.load(journal.list(REGIONS))
    assert all(state.of(region).current is not None for region in REGIONS)
    journal.wait_for_snapshot()
    return journal


def gets(store: CountingStore) -> int:
    return store.count(Verb.GET)


def test_the_first_process_reads_every_outcome_and_the_second_one_object(counted):
    load(counted)
    assert (gets(counted), counted.count(Verb.PUT, "snap/newest")) == (25, 1)
    counted.clear()
    load(counted)
    assert (gets(counted), counted.count(Verb.PUT)) == (1, 0)


def test_what_has_finished_since_is_read_besides(counted):
    load(counted)
    later = Journal(counted, IDENTITY, writer="w")
    finish(later, "r000", 2)
    finish(later, "r001", 2)
    counted.clear()
    journal = load(counted)
    assert gets(counted) == 1 + 2
    assert journal.load(journal.list(REGIONS)).of("r000").current.number == 2


def test_whoever_has_time_leaves_a_snapshot_before_anybody_needs_one(counted):
    early = Journal(counted, IDENTITY, writer="w", writes_snapshot=True)
    early.renew_snapshot(early.list(REGIONS))
    early.wait_for_snapshot()
    assert (gets(counted), counted.count(Verb.PUT, "snap/newest")) == (25, 1)
    counted.clear()
    load(counted)
    assert gets(counted) == 1


def test_a_snapshot_that_lacks_little_or_is_young_is_not_renewed(counted):
    load(counted)
    later = Journal(counted, IDENTITY, writer="w")
    finish(later, "r000", 2)
    for pause_s, asked in ((180.0, 0), (0.0, 1)):
        early = Journal(counted, IDENTITY, writer="w", writes_snapshot=True, snapshot_min_pause_s=pause_s)
        listing = early.list(REGIONS)
        counted.clear()
        early.renew_snapshot(listing)
        early.wait_for_snapshot()
        assert (gets(counted), counted.count(Verb.PUT)) == (asked, 0)


def test_a_renewal_that_fails_stops_nothing(counted):
    faulty = FaultyStore(counted, [Fault(Verb.GET, FaultKind.DENIED, times=None)])
    early = Journal(faulty, IDENTITY, writer="w", writes_snapshot=True)
    early.renew_snapshot(early.list(REGIONS))
    early.wait_for_snapshot()
    assert counted.count(Verb.PUT) == 0


def test_one_process_reads_nothing_twice(counted):
    journal = load(counted)
    counted.clear()
    journal.load(journal.list(REGIONS))
    assert gets(counted) == 0


def test_whoever_only_looks_writes_none(counted):
    load(counted, writes=False)
    assert counted.count(Verb.PUT) == 0


def test_a_small_run_has_none(tmp_path):
    counted = CountingStore(LocalStore(f"file://{tmp_path}/small"))
    journal = Journal(counted, IDENTITY, writer="w", writes_snapshot=True)
    finish(journal, "r000")
    journal.load(journal.list(["r000"]))
    journal.wait_for_snapshot()
    assert counted.count(Verb.PUT) == 0


@pytest.mark.parametrize(
    "spoil",
    [
        lambda body: b"",
        lambda body: body[:-100],
        lambda body: body.replace(b"FINISHED", b"FENCED!!", 1),
        lambda body: b'{"crc":0,"format":3}\n{}',
        lambda body: b'{"crc":223132457,"format":2}\n[]',
        lambda body: b"[" * 100_000,
    ],
    ids=["empty", "cut", "a byte flipped", "newer", "no object", "deep"],
)
def test_a_damaged_snapshot_is_as_good_as_none(counted, spoil):
    load(counted)
    key = Journal(counted, IDENTITY, writer="w").layout.snapshot
    counted.put(key, spoil(counted.get(key).body))
    counted.clear()
    load(counted)
    assert gets(counted) == 1 + 25


def test_fault_23_28_a_snapshot_that_can_not_be_read_or_written_costs_requests_and_nothing_else(counted):
    load(counted)
    for verb, kind in ((Verb.GET, FaultKind.DENIED), (Verb.GET, FaultKind.TIMEOUT), (Verb.PUT, FaultKind.SLOW_DOWN)):
        load(FaultyStore(counted, [Fault(verb, kind, key="snap/newest", times=None)]))


def test_an_entry_of_another_etag_does_not_count(counted):
    """The control: a cache that believed the snapshot alone would not see what an outsider wrote over an outcome."""
    load(counted)
    journal = Journal(counted, IDENTITY, writer="w")
    key = journal.layout.attempt("r000", 1, "outcome")
    document = json.loads(counted.get(key).body)
    counted.put(key, json.dumps({**document, "dag_id": "another"}).encode())
    with fails_with("record-of-other-journal"):
        load(counted)


def test_control_without_the_etags_what_is_in_the_journal_would_not_be_seen(counted, monkeypatch):
    load(counted)
    journal = Journal(counted, IDENTITY, writer="w")
    counted.put(journal.layout.attempt("r000", 1, "outcome"), b"{}")
    monkeypatch.setattr(record_cache, "_missing", lambda etags, known: [key for key in etags if key not in known])
    monkeypatch.setattr(RecordCache, "bodies", _believing(RecordCache.bodies))
    load(counted)


def _believing(bodies):
    def all_of_the_snapshot(self, etags, snapshot, fetch):
        self._known |= record_cache._read(self._store.get(self._snapshot_key).body, where=self._snapshot_key)
        return bodies(self, etags, snapshot, fetch)

    return all_of_the_snapshot


def written_by(cache: RecordCache, store: CountingStore, listed: ObjectInfo | None) -> int:
    """Snapshots that one process writes when it finds three objects more than it had."""
    names = [uuid.uuid4().hex for _ in range(3)]
    etags = {key: store.put(key, key.encode()).etag for key in names}
    store.clear()
    cache.bodies(etags, listed, lambda keys: {key: store.get(key) for key in keys})
    cache.wait()
    return store.count(Verb.PUT)


@pytest.mark.parametrize(("later_s", "written"), [(599, 0), (600, 1)])
def test_between_two_snapshots_of_a_run_there_is_the_min_pause(tmp_path, later_s, written):
    """Another process wrote the last one, at the store's time."""
    counted = CountingStore(LocalStore(f"file://{tmp_path}"))
    at_s = 1_767_225_600.0
    pace = SnapshotPace(600, now_s=lambda: at_s + later_s)
    cache = RecordCache(counted, "snap", writes=True, worth=3, pace=pace)
    assert written_by(cache, counted, ObjectInfo("snap", 1, "e", at_s)) == written


def test_one_process_writes_the_first_at_once_and_the_next_after_the_min_pause(tmp_path):
    counted = CountingStore(LocalStore(f"file://{tmp_path}"))
    clock = iter([0, 179, 180, 181])
    cache = RecordCache(counted, "snap", writes=True, worth=3, pace=SnapshotPace(180, now_s=lambda: next(clock)))
    assert [written_by(cache, counted, None) for _ in range(4)] == [1, 0, 1, 0]
