"""A copy of a record is believed only if the listed etag, or a digest in the journal, proves it."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from fakes import CHAIN, MemoryStore, World

from airflow_recovery.attempt.region_task import Decision
from airflow_recovery.driver.exit_report import FAILURE_OBJECT, read_failure_at, write_failure_at
from airflow_recovery.driver.failure import Failure
from airflow_recovery.journal import record_cache
from airflow_recovery.journal.codec import resealed
from airflow_recovery.journal.record_cache import RecordCache
from airflow_recovery.model.records import RunIdentity
from airflow_recovery.model.split import Split
from airflow_recovery.splits.log import Assign, Discovered, End, LogRecord, SplitBook
from airflow_recovery.splits.log_store import SplitLogStore
from airflow_recovery.store.local import LocalStore
from airflow_recovery.store.object_store import ObjectInfo, ObjectStore, StoredObject, is_etag_of
from airflow_recovery.store.s3 import S3Store
from airflow_recovery.testing import CountingStore, Verb

NEW_CODE = "code 2"


@pytest.fixture(autouse=True)
def one_outcome_is_worth_a_snapshot(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_cache, "WORTH_A_SNAPSHOT", 1)


def forge(world: World, region: str) -> None:
    """Write a snapshot in which the finish of ``region`` was made by today's code, with the etags of the objects."""
    layout, store = world.journal().layout, world.journal_store
    entries = {}
    for name in world.upstream:
        key = layout.attempt(name, 1, "outcome")
        stored = store.get(key)
        body = stored.body
        if name == region:
            document = json.loads(body)
            document["body"]["fingerprint"] = NEW_CODE
            body = resealed(document)
            assert body != stored.body
        entries[key] = (stored.info.etag, body)
    store.put(layout.snapshot, record_cache.snapshot_of(entries))


def changed_code() -> World:
    """A green run, cleared after the code of P has changed; and somebody has overwritten the snapshot."""
    world = World(CHAIN)
    world.go_all()
    world.new_airflow()
    first = next(iter(CHAIN))
    world.fingerprints[first] = NEW_CODE
    forge(world, first)
    world.ran.clear()
    return world


def test_fault_380_a_forged_snapshot_does_not_make_changed_code_valid(caplog: pytest.LogCaptureFixture) -> None:
    world = changed_code()
    first = next(iter(CHAIN))
    assert world.go(first).decision is Decision.RAN
    assert world.ran == [(first, 2)]
    assert "whose bytes are not those of the listed objects" in caplog.text


@pytest.mark.control
def test_fault_380_control_believed_by_its_etag_alone_it_makes_changed_code_valid(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(record_cache, "is_etag_of", lambda etag, body: True)
    world = changed_code()
    assert world.go(next(iter(CHAIN))).decision is Decision.KEPT
    assert world.ran == []


def test_fault_380_what_is_true_in_a_forged_snapshot_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    world = changed_code()
    journal = world.journal()
    counted = CountingStore(world.journal_store)
    layout = journal.layout
    etags = {key: counted.get(key).info.etag for key in (layout.attempt(name, 1, "outcome") for name in CHAIN)}
    [snapshot] = counted.list(layout.snapshot)
    counted.clear()
    cache = RecordCache(counted, layout.snapshot)
    cache.bodies(etags, snapshot, lambda keys: {key: counted.get(key) for key in keys})
    assert counted.count(Verb.GET) == 2  # the snapshot, and the one outcome that it does not prove


def test_the_etags_of_a_folder_prove_the_content(local_store: ObjectStore) -> None:
    _check_proof(local_store)


@pytest.mark.s3
def test_the_etags_of_an_s3_server_prove_the_content(s3_store: S3Store) -> None:
    _check_proof(s3_store)


def _check_proof(store: ObjectStore) -> None:
    written = store.put_if_absent("a/key", b"body")
    [listed] = store.list("a/")
    assert is_etag_of(written.etag, b"body")
    assert is_etag_of(listed.etag, b"body")
    assert not is_etag_of(listed.etag, b"another")


class Opaque(MemoryStore):
    """The etags of Azure, and of S3 with a KMS key."""

    def _info(self, key: str, body: bytes) -> ObjectInfo:
        return ObjectInfo(key, len(body), f"0x8D{abs(hash(body)):X}")


def _fetch(store: MemoryStore, asked: list[str]) -> Callable[[list[str]], dict[str, StoredObject]]:
    def fetch(keys: list[str]) -> dict[str, StoredObject]:
        asked.extend(keys)
        return {key: store.get(key) for key in keys}

    return fetch


def test_fault_380_without_digests_no_snapshot_is_written_or_used() -> None:
    store = Opaque("memory://journal")
    etags = {key: store.put(key, key.encode()).etag for key in ("a", "b", "c")}
    asked: list[str] = []
    cache = RecordCache(store, "snap/newest", writes=True)
    assert cache.bodies(etags, None, _fetch(store, asked)) == {key: key.encode() for key in etags}
    cache.wait()
    assert (asked, "snap/newest" in store.objects) == (["a", "b", "c"], False)
    store.put("snap/newest", record_cache.snapshot_of({key: (etag, b"lie") for key, etag in etags.items()}))
    [snapshot] = store.list("snap/")
    another = RecordCache(store, "snap/newest")
    assert another.bodies(etags, snapshot, _fetch(store, [])) == {key: key.encode() for key in etags}


def test_a_renewal_reads_one_outcome_of_a_store_whose_etags_are_no_digests() -> None:
    store = Opaque("memory://journal")
    etags = {key: store.put(key, key.encode()).etag for key in ("a", "b", "c")}
    asked: list[str] = []
    cache = RecordCache(store, "snap/newest", writes=True)
    cache.renew(etags, None, _fetch(store, asked))
    cache.wait()
    assert (asked, "snap/newest" in store.objects) == (["a"], False)


RUN = RunIdentity("dag", "date-2026-01-01T000000Z", "g")
SPLITS = tuple(Split(f"s3://lake/{name}.csv", 1, name) for name in "abcd")


def split_log(store: ObjectStore, writer: str = "w") -> SplitLogStore:
    return SplitLogStore(store, RUN, "read", writer=writer, snapshot_every=2)


def pull(book: SplitBook) -> LogRecord:
    return book.message_for(0, 1, 1)


def assigned(store: ObjectStore) -> SplitLogStore:
    """A log of four records with two snapshots: subtask 0 has three of four splits."""
    log = split_log(store)
    log.append(lambda book: Discovered(SPLITS))
    for _ in range(3):
        log.append(pull)
    return log


def forge_splits(store: ObjectStore, number: int) -> None:
    """Write a snapshot in which all splits were read by an attempt of subtask 1, which has ended."""
    log = split_log(store, "forger")
    lie = SplitBook()
    lie.add(Discovered(SPLITS))
    lie.add(Assign(1, 1, 0, tuple(split.key for split in SPLITS)))
    lie.add(End(1, 1, 1))
    key = f"_splits/dag/date-2026-01-01T000000Z/g/read/snapshot-{number:08d}"
    store.put(key, log._log._document("split-snapshot", {"book": lie.to_json()}))


@pytest.mark.parametrize("number", [3, 8], ids=["over a snapshot", "behind the end of the log"])
def test_fault_381_a_forged_snapshot_of_splits_is_passed_over(number: int) -> None:
    store = MemoryStore("memory://journal")
    expected = assigned(store).read().to_json()
    forge_splits(store, number)
    assert split_log(store, "reader").read().to_json() == expected


@pytest.mark.control
def test_fault_381_control_believed_it_takes_splits_from_their_subtask(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SplitLogStore, "_is_proved", lambda self, book, number, where: True)
    store = MemoryStore("memory://journal")
    assigned(store)
    forge_splits(store, 3)
    assert split_log(store, "reader").read().has_end(1, 1)  # nobody reads the fourth split


def test_fault_381_a_snapshot_that_its_record_proves_is_used() -> None:
    store = MemoryStore("memory://journal")
    expected = assigned(store).read().to_json()
    counted = CountingStore(store)
    assert split_log(counted, "reader").read().to_json() == expected
    assert (counted.count(Verb.GET, "snapshot-"), counted.count(Verb.GET, "log-")) == (1, 1)


@pytest.mark.parametrize(
    "text", [b"{", b"[" * 100_000, b"9" * 5_000, b"\xff", b"null", b'{"text": 1}'], ids=lambda text: str(text[:8])
)
def test_a_report_of_a_failure_that_is_none_hides_no_error(local_store: LocalStore, text: bytes) -> None:
    write_failure_at(local_store, "out", Failure("ValueError", "no rows"))
    assert read_failure_at(local_store, "out") == Failure("ValueError", "no rows")
    local_store.put(f"out/{FAILURE_OBJECT}", text)
    assert read_failure_at(local_store, "out") is None
