"""The log of a dynamic assignment in the store: numbered write-once records, which whoever needs them folds.

    <base>/_splits/<dag id>/<run key>/<group id>/<vertex>/log-<k>       record k, put at the tail + 1
                                                         /snapshot-<k>  the book of log-0 to log-k: readers start there

There is no coordinator that could die: a record is put only by who has folded all before it, so two writers can't both
be right about the tail. The loser reads, decides again, and tries the next number. A reply that is lost is settled by
reading back: every record says by which write it was put.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from airflow_recovery.errors import ObjectExists, RecordInvalid, StoreError
from airflow_recovery.journal.codec import FORMAT_VERSION, canonical_json, check_belongs, checksum, parse_json
from airflow_recovery.journal.layout import JournalLayout
from airflow_recovery.model.records import RunIdentity
from airflow_recovery.source.split_log import (
    Assign,
    End,
    LogRecord,
    Message,
    SplitBook,
    record_from_json,
    record_to_json,
)
from airflow_recovery.storage.object_store import ObjectStore
from airflow_recovery.storage.parallel import get_many
from airflow_recovery.storage.write_once import WriteLost, write_once

log = logging.getLogger(__name__)

SNAPSHOT_EVERY = 100
"""Records: a reader that starts anew reads so many at most, and one snapshot."""

_NUMBER = re.compile("(?:log|snapshot)-([0-9]{8})")


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
        self._store = store
        self._identity = identity
        self._vertex = vertex
        self._writer = writer
        self._deadline_s = deadline_s
        self._snapshot_every = snapshot_every
        self._folder = JournalLayout(identity).splits_of(vertex)
        self._book: SplitBook | None = None
        self._tail = -1
        self._writes = 0
        self._last_sent: dict[int, Message] = {}

    @property
    def book(self) -> SplitBook:
        """The book as it was last read, or before the first time as it is now. Not to be changed by the caller."""
        return self._book if self._book is not None else self.read()

    @property
    def tail(self) -> int:
        """The number of the newest record that was read; -1 before the first."""
        return self._tail

    def last_sent(self, subtask: int) -> Message | None:
        """The newest message to ``subtask`` among the records that were read one by one, whoever put it."""
        return self._last_sent.get(subtask)

    def read(self) -> SplitBook:
        """The book as it is now: one LIST, and the records behind what is known. Not to be changed by the caller."""
        if self._book is None:
            self._book = self._start()
        after = f"{self._folder}log-{self._tail:08d}" if self._tail >= 0 else ""
        numbers = [_number(each.key) for each in self._store.list(f"{self._folder}log-", start_after=after)]
        keys: list[str] = []
        for number in numbers:
            if number != self._tail + 1 + len(keys):
                break  # a page that is older than the next one; what is missing is read the next time
            keys.append(self._key(number))
        found = get_many(self._store, keys)
        for key in keys:
            self._enter(self._decode(found[key].body, key))
        return self._book

    def append(self, decide: Callable[[SplitBook], LogRecord | None]) -> LogRecord | None:
        """Put what ``decide`` says is next, given the book as it is when it is put; `None`: nothing.

        ``decide`` is asked again whenever somebody else was first. What it raises passes through.
        """
        while True:
            record = decide(self.read())
            if record is None:
                return None
            number = self._tail + 1
            self._writes += 1
            # Of this write alone: the same record of another process is not ours.
            place = {"number": number, "write_id": f"{self._writer}-{self._writes}"}
            body = self._encode("split-log", {**place, "record": record_to_json(record)})
            try:
                write_once(
                    self._store,
                    self._key(number),
                    body,
                    is_mine=lambda found, body=body: found == body,  # type: ignore[misc]
                    deadline_s=self._deadline_s,
                )
            except WriteLost:
                continue
            self._enter(record)
            if (number + 1) % self._snapshot_every == 0:
                self._write_snapshot()
            return record

    def _start(self) -> SplitBook:
        names = [each.key for each in self._store.list(f"{self._folder}snapshot-")]
        for key in reversed(names):
            body = self._body(self._store.get(key).body, "split-snapshot", key)
            try:
                if "attempts" not in body["book"]:
                    continue  # of a version that did not say by which attempt a split is held: the records do
                book = SplitBook.from_json(body["book"])
            except (KeyError, TypeError, ValueError, AttributeError) as error:
                raise self._invalid(key, error) from error
            self._tail = _number(key)
            return book
        return SplitBook()

    def _write_snapshot(self) -> None:
        assert self._book is not None
        key = f"{self._folder}snapshot-{self._tail:08d}"
        try:
            self._store.put_if_absent(key, self._encode("split-snapshot", {"book": self._book.to_json()}))
        except ObjectExists:
            pass  # of the same records: the same book
        except StoreError as error:
            log.warning(
                "No snapshot of the splits of %s was written, readers read more records: %s", self._vertex, error
            )

    def _enter(self, record: LogRecord) -> None:
        assert self._book is not None
        self._book.add(record)
        self._tail += 1
        if isinstance(record, (Assign, End)):
            self._last_sent[record.subtask] = record

    def _key(self, number: int) -> str:
        return f"{self._folder}log-{number:08d}"

    def _encode(self, kind: str, body: dict[str, Any]) -> bytes:
        head = {"format": FORMAT_VERSION, "kind": kind, **asdict(self._identity), "vertex": self._vertex}
        return canonical_json({**head, "body": body, "crc": checksum(body)}).encode()

    def _decode(self, raw: bytes, key: str) -> LogRecord:
        body = self._body(raw, "split-log", key)
        try:
            if body["number"] != _number(key):
                raise ValueError(f"number {body['number']}: it was copied here")
            return record_from_json(body["record"])
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise self._invalid(key, error) from error

    def _body(self, raw: bytes, kind: str, key: str) -> Any:
        where = f"{self._store.base_uri}/{key}"
        document = parse_json(raw, where=where)
        if not isinstance(document, dict) or type(document.get("format")) is not int:
            raise self._invalid(key, "a document without a format number")
        if document["format"] > FORMAT_VERSION:
            raise RecordInvalid(
                f"{where}: written by a newer version (format {document['format']}, this version reads up to "
                f"{FORMAT_VERSION}). Upgrade airflow-recovery on this worker."
            )
        check_belongs(document, {"kind": kind, **asdict(self._identity), "vertex": self._vertex}, where=where)
        if document.get("crc") != checksum(document.get("body")):
            raise self._invalid(key, "another checksum")
        return document["body"]

    def _invalid(self, key: str, found: object) -> RecordInvalid:
        return RecordInvalid(
            f"{self._store.base_uri}/{key}: expected a record of the splits of {self._vertex!r}, found {found!r}. "
            "Restore the object, or reset the vertex."
        )


def _number(key: str) -> int:
    found = _NUMBER.fullmatch(key.rpartition("/")[2])
    if found is None:
        raise RecordInvalid(f"{key}: expected a record of the log of splits, found another name. Delete the object.")
    return int(found[1])
