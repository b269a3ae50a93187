"""What was read of write-once objects, so that it is read once: in this process, and in the run's snapshot.

    <journal of the run>/snap/newest      overwritten; bodies of outcomes by key and etag

A snapshot is a cache and nothing else. An entry counts only for the etag that the present listing shows, and every
record has a checksum of its own; a snapshot that is damaged, or of something else, is as good as none. It is written in
the background by whoever had to read many objects that it lacked, so that of all the tasks of a run that is resumed a
few read everything, and the others one object.
"""

from __future__ import annotations

import logging
import threading
import time
import zlib
from collections.abc import Callable, Mapping

from airflow_recovery.errors import ObjectMissing, RecordInvalid, StoreError
from airflow_recovery.journal.codec import MAX_RECORD_BYTES, canonical_json, parse_json
from airflow_recovery.storage.object_store import ObjectInfo, ObjectStore, StoredObject

log = logging.getLogger(__name__)

FORMAT = 1
WORTH_A_SNAPSHOT = 200
"""Objects that a process must lack before it asks for a snapshot, or writes one: below, reading them is as fast."""

MIN_PAUSE_S = 180.0
"""Between two snapshots of a run (FLIP-383: ``snapshot.min-pause``), by the store's time of the last one."""


class RecordCache:
    """The bodies of one run's write-once objects. ``snapshot_key`` is where its snapshot lies. For one thread.

    Without ``writes`` it only reads: whoever looks at a run must not make it seem alive.
    """

    def __init__(
        self,
        store: ObjectStore,
        snapshot_key: str,
        *,
        writes: bool = False,
        worth: int | None = None,
        now_s: Callable[[], float] = time.time,
    ) -> None:
        self._store = store
        self._snapshot_key = snapshot_key
        self._writes = writes
        self._worth = WORTH_A_SNAPSHOT if worth is None else worth
        self._now_s = now_s
        self._known: dict[str, tuple[str, bytes]] = {}
        self._snapshot_read = ""
        self._writer: threading.Thread | None = None

    def bodies(
        self,
        etags: Mapping[str, str],
        snapshot: ObjectInfo | None,
        fetch: Callable[[list[str]], Mapping[str, StoredObject]],
    ) -> dict[str, bytes]:
        """The bodies of the objects with these keys and etags. ``snapshot`` is the one that was listed beside them.

        Raises what ``fetch`` raises. An object that was overwritten since it was listed is taken as it is now.
        """
        missing = self._missing(etags)
        if len(missing) >= self._worth and snapshot is not None and snapshot.etag != self._snapshot_read:
            self._snapshot_read = snapshot.etag
            self._known |= self._read_snapshot()
            missing = self._missing(etags)
        found = fetch(missing) if missing else {}
        self._known |= {key: (each.info.etag, each.body) for key, each in found.items()}
        if self._writes and len(missing) >= self._worth and self._is_due(snapshot):
            self._write_snapshot(etags)
        return {key: found[key].body if key in found else self._known[key][1] for key in etags}

    def wait(self) -> None:
        """Until the snapshot that is being written, if any, is there."""
        if self._writer is not None:
            self._writer.join()

    def _missing(self, etags: Mapping[str, str]) -> list[str]:
        return [key for key, etag in etags.items() if key not in self._known or self._known[key][0] != etag]

    def _is_due(self, snapshot: ObjectInfo | None) -> bool:
        if self._writer is not None:
            return False  # one a process
        if snapshot is None or snapshot.modified is None:
            return True
        return self._now_s() - snapshot.modified.timestamp() >= MIN_PAUSE_S

    def _read_snapshot(self) -> dict[str, tuple[str, bytes]]:
        try:
            head, _, body = self._store.get(self._snapshot_key).body.partition(b"\n")
            header = parse_json(head, where=self._snapshot_key)
            if not isinstance(header, dict) or (header.get("format"), header.get("crc")) != (FORMAT, zlib.crc32(body)):
                raise RecordInvalid(f"{self._snapshot_key}: expected a snapshot of format {FORMAT}, undamaged")
            entries = parse_json(body, where=self._snapshot_key)
            return {str(key): (str(etag), str(text).encode()) for key, (etag, text) in entries.items()}
        except (AttributeError, RecordInvalid, StoreError, TypeError, ValueError) as error:
            # Everything that it could have said is read from the objects themselves.
            level = logging.DEBUG if isinstance(error, ObjectMissing) else logging.WARNING
            log.log(level, "The snapshot of the journal could not be read, so every outcome is: %s", error)
            return {}

    def _write_snapshot(self, keys: Mapping[str, str]) -> None:
        entries = {key: (self._known[key][0], self._known[key][1].decode()) for key in keys}
        self._writer = threading.Thread(target=self._write, args=(entries,), name="journal snapshot", daemon=True)
        self._writer.start()

    def _write(self, entries: dict[str, tuple[str, str]]) -> None:
        body = canonical_json(entries).encode()
        if len(body) > MAX_RECORD_BYTES:
            return
        header = canonical_json({"format": FORMAT, "crc": zlib.crc32(body)}).encode()
        try:
            self._store.put(self._snapshot_key, header + b"\n" + body)
        except StoreError as error:
            log.info("The snapshot of the journal could not be written: %s", error)
