"""The log of a dynamic assignment in the store: numbered write-once records, which whoever needs them folds.

    <base>/_splits/<dag id>/<run key>/<group id>/<vertex>/log-<k>       record k, put at the tail + 1
                                                         /snapshot-<k>  the book of log-0 to log-k: readers start there

A snapshot is a cache. Record k has the digest of the book that it leads to, and a snapshot with another book is passed
over.

No process coordinates. Whoever wants to append folds all records, and puts the next number if it is absent: of two
writers one is refused, reads the other's record, decides again, and tries the number after it. Where the reply to a
write was lost, the record is read back: it names the write that put it.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from typing import Any

from airflow_recovery.errors import JobDefinitionError, ObjectExists, ObjectMissing, RecordInvalid, StoreError
from airflow_recovery.journal.codec import check_belongs, check_size, checksum, parse_json
from airflow_recovery.journal.journal import Journal
from airflow_recovery.journal.layout import JournalLayout
from airflow_recovery.model.codec import canonical_json
from airflow_recovery.model.records import RunIdentity
from airflow_recovery.splits.log import LOG_RECORD, Assign, End, LogRecord, Message, SplitBook
from airflow_recovery.store.log import Steps, WriteOnceLog
from airflow_recovery.store.object_store import ObjectStore
from airflow_recovery.store.write_once import ListedSlots

log = logging.getLogger(__name__)

SNAPSHOT_EVERY = 100
LOG_FORMAT = 1
SNAPSHOT_EVERY = 100
"""In records: a process that opens the log reads one snapshot, and at most so many records after it."""


class SplitLogStore:
    """The log of the source ``vertex`` in one run's journal, for one thread of one process.

    ``writer`` is this process's random id. Raises the store's errors, and `RecordInvalid` for what is no log.
    """

    def __init__(
        self,
        store: ObjectStore,
        identity: RunIdentity,
        vertex: str,
        *,
        writer: str,
        deadline_s: float = 60.0,
        snapshot_every: int = SNAPSHOT_EVERY,
    ) -> None:
        folder = JournalLayout(identity).splits_of(vertex)
        self._store = store
        self._slots = ListedSlots(store, f"{folder}log-", deadline_s=deadline_s)
        self._snapshots = ListedSlots(store, f"{folder}snapshot-", deadline_s=deadline_s)
        self._log = _SplitLog(identity, vertex, writer, f"{store.base_uri}/{self._slots.prefix}", snapshot_every)
        self._is_open = False

    @property
    def book(self) -> SplitBook:
        """The book as it was last read, or before the first time as it is now. Not to be changed by the caller."""
        return self._log.state if self._is_open else self.read()

    @property
    def tail(self) -> int:
        """The number of the newest record that was read; -1 before the first."""
        return self._log.tail - 1

    def last_sent(self, subtask: int) -> Message | None:
        """The newest message to ``subtask`` among the records that were read one by one, whoever put it."""
        return self._log.last_sent.get(subtask)

    def read(self) -> SplitBook:
        """The book as it is now: one LIST, and the records behind what is known. Not to be changed by the caller."""
        self._open()
        return self._slots.run(self._log.refresh())

    def append(self, decide: Callable[[SplitBook], LogRecord | None]) -> LogRecord | None:
        """Put what ``decide`` says is next, given the book as it is when it is put; `None`: nothing.

        ``decide`` is asked again whenever somebody else was first. What it raises passes through.
        """
        self._open()
        steps: Steps[LogRecord | None] = self._log.append(decide)
        record = self._slots.run(steps)
        if record is not None and self._log.has_snapshot(self.tail):
            self._write_snapshot()
        return record

    def _open(self) -> None:
        """Begin at the newest snapshot, the first time."""
        if self._is_open:
            return
        for number in reversed(self._snapshots.numbers()):
            key = self._snapshots.key(number)
            where = f"{self._store.base_uri}/{key}"
            book = self._log.decode_snapshot(self._store.get(key).body, where)
            if book is not None and self._is_proved(book, number, where):
                self._log.state, self._log.tail = book, number + 1
                break
        self._is_open = True

    def _is_proved(self, book: SplitBook, number: int, where: str) -> bool:
        """Whether record ``number`` leads to ``book``. Records of earlier versions do not tell."""
        with suppress(ObjectMissing):
            if self._log.book_after(number, self._store.get(self._slots.key(number)).body) == _digest_of(book):
                return True
        log.warning("%s: expected the book that record %d leads to, found another. It is passed over.", where, number)
        return False

    def _write_snapshot(self) -> None:
        try:
            self._store.put_if_absent(self._snapshots.key(self.tail), self._log.encode_snapshot())
        except ObjectExists:
            pass  # of the same records: the same book
        except (StoreError, JobDefinitionError) as error:
            log.warning(
                "No snapshot of the splits of %s was written, readers read more records: %s", self._log.vertex, error
            )


class _SplitLog(WriteOnceLog[SplitBook]):
    """The documents of the log, and the fold over them. ``where`` is the URI of the log, for messages."""

    def __init__(self, identity: RunIdentity, vertex: str, writer: str, where: str, snapshot_every: int) -> None:
        super().__init__(SplitBook())
        self.vertex = vertex
        self.last_sent: dict[int, Message] = {}
        self._identity = identity
        self._writer = writer
        self._where = where
        self._snapshot_every = snapshot_every
        self._writes = 0

    def has_snapshot(self, slot: int) -> bool:
        """Whether a snapshot is written of the book that the record in ``slot`` leads to."""
        return (slot + 1) % self._snapshot_every == 0

    def encode(self, slot: int, record: LogRecord) -> bytes:
        """The document of one write: it has a write id, so that an equal record of another process is told apart."""
        self._writes += 1
        body = {"number": slot, "write_id": f"{self._writer}-{self._writes}", "record": LOG_RECORD.to_json(record)}
        if self.has_snapshot(slot):
            after = SplitBook.from_json(self.state.to_json())
            after.add(record)
            body["book"] = _digest_of(after)
        return self._document("split-log", body)

    def book_after(self, slot: int, body: bytes) -> str | None:
        """Return the digest of the book that the record in ``slot`` leads to, if it has one. Raises `RecordInvalid`."""
        content = self._content(body, "split-log", f"{self._where}{slot:08d}")
        return content.get("book") if isinstance(content, dict) and content.get("number") == slot else None

    def fold(self, slot: int, body: bytes) -> None:
        """Enter the record into the book. Raises `RecordInvalid`."""
        where = f"{self._where}{slot:08d}"
        content = self._content(body, "split-log", where)
        try:
            if content["number"] != slot:
                raise ValueError(f"number {content['number']}: it was copied here")
            record = LOG_RECORD.from_json(content["record"], exact=True)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise self._invalid(where, error) from error
        self.state.add(record)
        if isinstance(record, (Assign, End)):
            self.last_sent[record.subtask] = record

    def encode_snapshot(self) -> bytes:
        """The book of all records that were folded."""
        return self._document("split-snapshot", {"book": self.state.to_json()})

    def decode_snapshot(self, raw: bytes, where: str) -> SplitBook | None:
        """A snapshot's book; `None` for one of an earlier version, without attempts: then all records are read."""
        content = self._content(raw, "split-snapshot", where)
        try:
            return SplitBook.from_json(content["book"]) if "attempts" in content["book"] else None
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise self._invalid(where, error) from error

    def _document(self, kind: str, body: dict[str, Any]) -> bytes:
        head = {"format": LOG_FORMAT, "kind": kind, **asdict(self._identity), "vertex": self.vertex}
        document = canonical_json({**head, "body": body, "crc": checksum(body)}).encode()
        check_size(document, f"a {kind} of {self.vertex}")
        return document

    def _content(self, raw: bytes, kind: str, where: str) -> Any:
        document = parse_json(raw, where=where)
        if not isinstance(document, dict) or type(document.get("format")) is not int:
            raise self._invalid(where, "a document without a format number")
        if document["format"] > LOG_FORMAT:
            raise RecordInvalid(
                f"{where}: written by a newer version (format {document['format']}, this version reads up to "
                f"{LOG_FORMAT}). Upgrade airflow-recovery on this worker.",
                code="split-log-newer",
            )
        check_belongs(document, {"kind": kind, **asdict(self._identity), "vertex": self.vertex}, where=where)
        if document.get("crc") != checksum(document.get("body")):
            raise self._invalid(where, "another checksum")
        return document["body"]

    def _invalid(self, where: str, got: object) -> RecordInvalid:
        return RecordInvalid(
            f"{where}: expected a record of the splits of {self.vertex!r}, found {got!r}. Restore the object, or reset "
            "the vertex.",
            code="split-log-damaged",
        )


def _digest_of(book: SplitBook) -> str:
    return hashlib.sha256(canonical_json(book.to_json()).encode()).hexdigest()


def split_log(journal: Journal, vertex: str) -> SplitLogStore:
    """The log of the splits that the subtasks of ``vertex`` pull. Made once for ``journal``, so that it is read once.

    Not to be used by two threads at a time.
    """
    key = SplitLogStore, vertex
    if key not in journal.of_modes:
        journal.of_modes[key] = SplitLogStore(
            journal.store, journal.identity, vertex, writer=journal.writer, deadline_s=journal.deadline_s
        )
    log: SplitLogStore = journal.of_modes[key]
    return log
