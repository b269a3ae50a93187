"""The log of a dynamic assignment in the store: put at the tail, read back, snapshots. Over every kind of store."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from expected_errors import fails_with

from airflow_recovery.errors import StoreTimeout
from airflow_recovery.journal import codec
from airflow_recovery.model.records import RunIdentity
from airflow_recovery.model.split import Split
from airflow_recovery.splits.log import Assign, Discovered, End, LogRecord, SplitBook
from airflow_recovery.splits.log_store import SplitLogStore
from airflow_recovery.store import ObjectStore
from airflow_recovery.store.local import LocalStore
from airflow_recovery.store.log import Steps, WriteOnceLog, fill
from airflow_recovery.testing import CountingStore, Fault, FaultKind, FaultyStore, SeededFaults, Verb
from airflow_recovery.testing.patience import HANG_S

IDENTITY = RunIdentity("dag", "date-2026-01-01", "group")
FOLDER = "_splits/dag/date-2026-01-01/group/read/"


def splits(count: int) -> tuple[Split, ...]:
    return tuple(Split.of_file(f"s3://lake/{number:04d}", 10, "e") for number in range(count))


def log_of(store: ObjectStore, writer: str = "me", **given: int) -> SplitLogStore:
    return SplitLogStore(store, IDENTITY, "read", writer=writer, **given)


def listing(store: ObjectStore, count: int) -> SplitLogStore:
    log = log_of(store, "lister")
    log.append(lambda book: None if book.known else Discovered(splits(count)))
    return log


def pull(subtask: int, book: SplitBook) -> LogRecord | None:
    return None if book.has_end(subtask, 1) else book.message_for(subtask, 1, 10)


def test_what_one_process_puts_another_one_reads(store: ObjectStore):
    listing(store, 2)
    mine, other = log_of(store), log_of(store, "other")
    assert mine.append(lambda book: pull(0, book)) == Assign(0, 1, 0, (splits(2)[0].key,))
    assert other.append(lambda book: pull(1, book)) == Assign(1, 1, 0, (splits(2)[1].key,))
    assert mine.append(lambda book: pull(0, book)) == End(0, 1, 1)
    assert other.read().to_json() == mine.read().to_json()
    assert [each.key for each in store.list(FOLDER)] == [f"{FOLDER}log-{number:08d}" for number in range(4)]


def test_what_nobody_would_read_is_not_written(local_store: LocalStore, monkeypatch: pytest.MonkeyPatch):
    listing(local_store, 20)
    log = log_of(local_store, snapshot_every=1)
    log.read()
    monkeypatch.setattr(codec, "MAX_RECORD_BYTES", 1_000)
    with fails_with("record-too-large-to-write"):
        log.append(lambda book: Discovered(splits(50)))
    # A record that fits is written; the book is known without the snapshot, which does not.
    assert log.append(lambda book: pull(0, book)) is not None
    monkeypatch.undo()
    assert [each.key for each in local_store.list(FOLDER)] == [f"{FOLDER}log-00000000", f"{FOLDER}log-00000001"]
    assert log_of(local_store, "other").read().to_json() == log.read().to_json()


def test_threads_that_pull_at_once_are_each_given_something_else(store: ObjectStore):
    listing(store, 24)
    start = threading.Barrier(4)

    def read_all(subtask: int) -> list[str]:
        log = log_of(store, f"writer {subtask}", snapshot_every=7)
        given: list[str] = []
        start.wait(HANG_S)
        while isinstance(record := log.append(lambda book: pull(subtask, book)), Assign):
            given += record.splits
        return given

    with ThreadPoolExecutor(4) as pool:
        given = [key for each in pool.map(read_all, range(4)) for key in each]
    assert sorted(given) == sorted(split.key for split in splits(24))
    assert all(log_of(store).read().next_batch(subtask, 1) == () for subtask in range(4))


@pytest.mark.parametrize("kind", [FaultKind.LOST_REPLY, FaultKind.LOST_REPLY_THEN_RETRIED, FaultKind.TIMEOUT])
def test_fault_24_every_write_loses_its_reply_and_is_read_back(local_store: LocalStore, kind: FaultKind):
    # Every second request, since a write is repeated after a time-out.
    faults = [Fault(Verb.PUT_IF_ABSENT, kind, key=f"log-{number:08d}") for number in range(5)]
    log = log_of(FaultyStore(local_store, faults), deadline_s=30)
    log.append(lambda book: Discovered(splits(3)))
    given = [log.append(lambda book: pull(0, book)) for _ in range(4)]
    assert [type(each) for each in given] == [Assign, Assign, Assign, End]
    assert log_of(local_store).read().held_by(0) == tuple(split.key for split in splits(3))


def test_fault_24_control_without_a_write_id_another_process_s_record_is_taken_for_ours(
    local_store: LocalStore, monkeypatch: pytest.MonkeyPatch
):
    listing(local_store, 2)

    def put(self: WriteOnceLog[SplitBook], slot: int, body: bytes) -> Steps[bool]:
        yield from fill(slot, body)
        return True

    monkeypatch.setattr(WriteOnceLog, "_put", put)
    late = log_of(local_store, "late")

    def decide(book: SplitBook) -> LogRecord | None:
        log_of(local_store, "fast").append(lambda book: pull(0, book))  # it has folded, and somebody is faster
        return pull(1, book)

    both = late.append(decide)
    assert isinstance(both, Assign)
    assert both.splits == log_of(local_store).read().held_by(0)


def test_fault_24_a_write_whose_outcome_stays_unknown_is_no_success(local_store: LocalStore):
    log = log_of(FaultyStore(local_store, [Fault(Verb.PUT_IF_ABSENT, FaultKind.TIMEOUT, times=None)]), deadline_s=0)
    with pytest.raises(StoreTimeout, match="whether it was written is unknown"):
        log.append(lambda book: Discovered(splits(1)))
    assert log.tail == -1


@pytest.mark.parametrize("seed", range(5))
def test_whatever_requests_fail_all_splits_are_given_once(local_store: LocalStore, seed: int):
    listing(local_store, 12)
    given: list[str] = []
    logs = [
        log_of(SeededFaults(local_store, seed * 10 + number, rate=0.2, limit=25), str(number)) for number in range(2)
    ]
    ended: set[int] = set()
    while len(ended) < 2:
        for subtask, log in enumerate(logs):
            seq = log_of(local_store).read().next_seq(subtask, 1)
            try:
                record = log.append(lambda book, subtask=subtask: pull(subtask, book))  # type: ignore[misc]
            except Exception:
                continue  # unknown: what the log has counts
            if record is None or isinstance(record, End):
                ended.add(subtask)
            assert log_of(local_store).read().next_seq(subtask, 1) > seq or record is None
    book = log_of(local_store).read()
    given = [*book.held_by(0), *book.held_by(1)]
    assert sorted(given) == sorted(split.key for split in splits(12))


# snapshots


def test_a_reader_begins_at_the_newest_snapshot(local_store: LocalStore):
    log = log_of(local_store, snapshot_every=10)
    log.append(lambda book: Discovered(splits(30)))
    while not isinstance(log.append(lambda book: pull(0, book)), End):
        pass
    assert [each.key for each in local_store.list(f"{FOLDER}snapshot-")] == [
        f"{FOLDER}snapshot-{number:08d}" for number in (9, 19, 29)
    ]
    counting = CountingStore(local_store)
    reader = log_of(counting)
    assert reader.read().to_json() == log.read().to_json()
    assert counting.count(Verb.GET, "log-") == 3  # two records, and the one that proves the snapshot
    assert reader.tail == 31


def test_a_second_reading_reads_what_is_new(local_store: LocalStore):
    log = listing(local_store, 5)
    counting = CountingStore(local_store)
    reader = log_of(counting)
    reader.read()
    counting.clear()
    log.append(lambda book: pull(0, book))
    reader.read()
    assert counting.counts() == {Verb.LIST: 1, Verb.GET: 1}


def test_a_snapshot_that_can_not_be_written_costs_nothing_but_reads(
    local_store: LocalStore, caplog: pytest.LogCaptureFixture
):
    fault = Fault(Verb.PUT_IF_ABSENT, FaultKind.DENIED, key="snapshot-", times=None)
    log = log_of(FaultyStore(local_store, [fault]), snapshot_every=1)
    log.append(lambda book: Discovered(splits(1)))
    assert "No snapshot of the splits of read was written" in caplog.text
    assert log_of(local_store).read().to_json() == log.read().to_json()


# what is no log of this run


def test_a_page_that_is_older_than_the_next_one_ends_what_is_known(local_store: LocalStore):
    log = listing(local_store, 3)
    for _ in range(3):
        log.append(lambda book: pull(0, book))
    reader = log_of(FaultyStore(local_store, hides_from_lists="log-00000001"))
    reader.read()
    assert reader.tail == 0


@pytest.mark.parametrize(
    ("spoil", "code"),
    [
        (lambda body: body.replace(b"lake", b"lage"), "split-log-damaged"),
        (lambda body: body.replace(b'"format":1', b'"format":9'), "split-log-newer"),
        (lambda body: body.replace(b'"dag_id":"dag"', b'"dag_id":"gad"'), "record-of-other-journal"),
        (lambda body: body.replace(b'"vertex":"read"', b'"vertex":"rear"'), "record-of-other-journal"),
        (lambda body: b"[]", "split-log-damaged"),
    ],
)
def test_a_damaged_or_foreign_record_is_refused(local_store: LocalStore, spoil: object, code: str):
    listing(local_store, 1)
    key = f"{FOLDER}log-00000000"
    local_store.put(key, spoil(local_store.get(key).body))  # type: ignore[operator]
    with fails_with(code):
        log_of(local_store).read()


def test_a_record_that_was_copied_to_another_number_is_refused(local_store: LocalStore):
    listing(local_store, 1)
    local_store.put(f"{FOLDER}log-00000001", local_store.get(f"{FOLDER}log-00000000").body)
    with fails_with("split-log-damaged"):
        log_of(local_store).read()


def test_the_log_of_another_run_is_another_one(local_store: LocalStore):
    listing(local_store, 1)
    other = SplitLogStore(local_store, replace(IDENTITY, run_key="date-2026-01-02"), "read", writer="me")
    assert not other.read().known


def test_a_snapshot_of_an_earlier_version_is_passed_over_and_its_log_is_read(local_store: LocalStore):
    """It did not say which attempt has a split; the records always have."""
    log = listing(local_store, 4)
    for subtask in (0, 1, 0):
        log.append(lambda book, subtask=subtask: pull(subtask, book))  # type: ignore[misc]
    told = log.read().to_json()
    for name in ("attempts", "parallelism", "enumerator"):
        del told[name]
    local_store.put(f"{FOLDER}snapshot-00000003", log._log._document("split-snapshot", {"book": told}))
    store = CountingStore(local_store)
    book = log_of(store).read()
    assert book.to_json() == log.read().to_json()
    assert book.has(0, 1, [each.key for each in (splits(4)[0], splits(4)[2])])
    assert store.count(Verb.GET, "log-") == 4
