"""A cache of write-once objects, so that each is read once: in this process, and in the run's snapshot.

    <journal of the run>/snap/newest      overwritten; a header, then a line for each outcome: key, etag, body

A snapshot is a cache and nothing else. An entry counts only if the etag that the present listing shows is a digest of
the entry's body (`is_etag_of`), so a snapshot can be forged, damaged or of another run, and changes no decision. It is
written in the background by whoever had to read many objects that it lacked, so that of all the tasks of a run that is
resumed a few read everything, and the others one object.

Azure, and S3 with a KMS key, list etags that are no digests. There are no snapshots there: each process reads every
outcome from its object.
"""

from __future__ import annotations

import logging
import threading
import time
import zlib
from collections.abc import Callable, Iterable, Mapping

from airflow_recovery.errors import ObjectMissing, RecordInvalid, StoreError
from airflow_recovery.journal.codec import MAX_RECORD_BYTES, parse_json
from airflow_recovery.model.codec import canonical_json
from airflow_recovery.store.object_store import ObjectInfo, ObjectStore, StoredObject, is_etag_of

log = logging.getLogger(__name__)

FORMAT = 2
_SEPARATOR = b"\t"
WORTH_A_SNAPSHOT = 200
"""Objects that a process must lack before it asks for a snapshot, or writes one: below, reading them is as fast."""

MIN_PAUSE_S = 180.0
"""Seconds between two snapshots: Flink's default (FLIP-383: ``execution.batch.job-recovery.snapshot.min-pause``)."""

Fetch = Callable[[list[str]], Mapping[str, StoredObject]]
"""Reads many objects; raises the store's errors."""

Entries = dict[str, tuple[str, bytes]]
"""Etags and bodies by key."""


class SnapshotPace:
    """Lets one writer take its first full snapshot at once, and the next ones ``min_pause_s`` after the last.

    In between there are the finishes themselves: each outcome is an incremental snapshot. ``now_s`` is compared with
    store times of other writers' snapshots, so a clock that is wrong makes snapshots more or less frequent, and nothing
    else (fault 33). Not for several threads.
    """

    def __init__(self, min_pause_s: float = MIN_PAUSE_S, now_s: Callable[[], float] = time.time) -> None:
        self._min_pause_s = min_pause_s
        self._now_s = now_s
        self._last_s: float | None = None

    def begins(self, others_s: float | None = None) -> bool:
        """Whether a snapshot is due; then it counts as taken now. ``others_s``: when the last one was stored."""
        now_s = self._now_s()
        taken_s = [number for number in (self._last_s, others_s) if number is not None]
        if taken_s and now_s - max(taken_s) < self._min_pause_s:
            return False
        self._last_s = now_s
        return True


class RecordCache:
    """The bodies of one run's write-once objects. ``snapshot_key`` is where its snapshot lies. For one thread.

    Without ``writes`` it only reads: whoever looks at a run must not make it seem alive. ``pace`` says how often.
    """

    def __init__(
        self,
        store: ObjectStore,
        snapshot_key: str,
        *,
        writes: bool = False,
        worth: int | None = None,
        pace: SnapshotPace | None = None,
    ) -> None:
        self._store = store
        self._snapshot_key = snapshot_key
        self._writes = writes
        self._worth = WORTH_A_SNAPSHOT if worth is None else worth
        self._pace = pace or SnapshotPace()
        self._known: Entries = {}
        self._snapshot_read = ""
        self._writer: threading.Thread | None = None

    def bodies(self, etags: Mapping[str, str], snapshot: ObjectInfo | None, fetch: Fetch) -> dict[str, bytes]:
        """The bodies of the objects with these keys and etags. ``snapshot`` is the one that was listed beside them.

        Raises what ``fetch`` raises. An object that was overwritten since it was listed is taken as it is now.
        """
        missing = _missing(etags, self._known)
        if len(missing) >= self._worth and snapshot is not None and snapshot.etag != self._snapshot_read:
            self._snapshot_read = snapshot.etag
            self._known |= self._read_snapshot(missing, etags)
            missing = _missing(etags, self._known)
        fetched = fetch(missing) if missing else {}
        self._known |= _entries(fetched)
        if self._writes and len(missing) >= self._worth and self._is_due(snapshot):
            self._begin(self._write, {key: self._known[key] for key in etags})
        return {key: self._known[key][1] for key in etags}

    def renew(self, etags: Mapping[str, str], snapshot: ObjectInfo | None, fetch: Fetch) -> None:
        """Where a snapshot of so many objects is due, write one in the background that lacks nothing. Never waits.

        For whoever has time, so that a snapshot is there before somebody needs it.
        """
        if not self._writes or len(etags) < self._worth or not self._is_due(snapshot):
            return
        self._begin(self._renew, dict(etags), dict(self._known), snapshot is not None, fetch)

    def wait(self) -> None:
        """Wait until the snapshot that is being written, if any, is there."""
        if self._writer is not None:
            self._writer.join()

    def _is_due(self, snapshot: ObjectInfo | None) -> bool:
        if self._writer is not None and self._writer.is_alive():
            return False
        return self._pace.begins(snapshot.modified_s if snapshot is not None else None)

    def _read_snapshot(self, missing: Iterable[str], etags: Mapping[str, str]) -> Entries:
        """The entries of the snapshot for the ``missing`` keys whose bodies the listed ``etags`` prove."""
        try:
            entries = _read(self._store.get(self._snapshot_key).body, where=self._snapshot_key)
        except (RecordInvalid, StoreError) as error:
            # Everything that it could have said is read from the objects themselves.
            level = logging.DEBUG if isinstance(error, ObjectMissing) else logging.WARNING
            log.log(level, "The snapshot of the journal could not be read, so every outcome is: %s", error)
            return {}
        found = {key: entries[key] for key in missing if key in entries and entries[key][0] == etags[key]}
        proved = {key: entry for key, entry in found.items() if is_etag_of(*entry)}
        if len(proved) < len(found):
            log.warning(
                "The snapshot %s has %d outcomes whose bytes are not those of the listed objects. The objects are read "
                "instead. See who else may write there.",
                self._snapshot_key,
                len(found) - len(proved),
            )
        return proved

    def _begin(self, write: Callable[..., None], *arguments: object) -> None:
        self._writer = threading.Thread(target=write, args=arguments, name="journal snapshot", daemon=True)
        self._writer.start()

    def _renew(self, etags: dict[str, str], known: Entries, has_snapshot: bool, fetch: Fetch) -> None:
        missing = _missing(etags, known)
        if has_snapshot:
            known |= self._read_snapshot(missing, etags)
            missing = _missing(etags, known)
        if len(missing) < self._worth:
            return
        try:
            first = _entries(fetch(missing[:1]))
            if not all(is_etag_of(*entry) for entry in first.values()):
                return
            known |= first | _entries(fetch(missing[1:]))
        except StoreError as error:
            log.info("The snapshot of the journal could not be renewed: %s", error)
            return
        self._write({key: known[key] for key in etags})

    def _write(self, entries: Entries) -> None:
        proved = {key: entry for key, entry in entries.items() if is_etag_of(*entry)}
        if len(proved) < self._worth:
            return  # the etags of this store are no digests, so nobody could use it
        body = snapshot_of(proved)
        if len(body) > MAX_RECORD_BYTES:
            return
        try:
            self._store.put(self._snapshot_key, body)
        except StoreError as error:
            log.info("The snapshot of the journal could not be written: %s", error)


def _entries(fetched: Mapping[str, StoredObject]) -> Entries:
    return {key: (stored.info.etag, stored.body) for key, stored in fetched.items()}


def _missing(etags: Mapping[str, str], known: Entries) -> list[str]:
    return [key for key, etag in etags.items() if key not in known or known[key][0] != etag]


def snapshot_of(entries: Entries) -> bytes:
    """The bytes of a snapshot: a line for each object that fits into one, as all of ours do.

    Bodies go as they are: nothing is parsed twice.
    """
    lines = [_SEPARATOR.join((key.encode(), etag.encode(), body)) for key, (etag, body) in entries.items()]
    body = b"\n".join(line for line in lines if line.count(b"\n") == 0 and line.count(_SEPARATOR) == 2)
    return canonical_json({"format": FORMAT, "crc": zlib.crc32(body)}).encode() + b"\n" + body


def _read(snapshot: bytes, *, where: str) -> Entries:
    """The entries that `snapshot_of` made ``snapshot`` of. Raises `RecordInvalid` for anything else."""
    if len(snapshot) > MAX_RECORD_BYTES:
        raise RecordInvalid(f"{where}: {len(snapshot)} bytes, more than the limit of {MAX_RECORD_BYTES}.")
    head, _, body = snapshot.partition(b"\n")
    header = parse_json(head, where=where)
    if not isinstance(header, dict) or (header.get("format"), header.get("crc")) != (FORMAT, zlib.crc32(body)):
        raise RecordInvalid(f"{where}: expected a snapshot of format {FORMAT}, undamaged")
    document = {}
    for line in body.split(b"\n") if body else ():
        parts = line.split(_SEPARATOR)
        if len(parts) != 3:
            raise RecordInvalid(f"{where}: expected lines of key, etag and body, found one of {len(parts)} parts")
        document[parts[0].decode(errors="replace")] = (parts[1].decode(errors="replace"), parts[2])
    return document
