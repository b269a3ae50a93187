"""What a sweep finds in the stores: runs, the data of their attempts, and how old everything is.

Ages are differences of the store's own times: a sweeper whose clock is wrong by an hour deletes nothing too early
(fault 33).
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from airflow_recovery.errors import ObjectMissing, RecordInvalid
from airflow_recovery.journal.codec import parse_json
from airflow_recovery.journal.layout import SHARED_FOLDER, JournalLayout
from airflow_recovery.journal.records import RunIdentity
from airflow_recovery.storage.names import encode
from airflow_recovery.storage.object_store import ObjectInfo, ObjectStore

CLOCK_MARGIN_S = 60.0
"""The servers of one store differ among themselves: everything is taken for younger by this."""

_KEYS_TRIED = 3

_AFTER_UNDERSCORE = "`"
"""The first key that can't begin with an underscore, in key order: what is there is no run, and may be large."""


def store_now_s(store: ObjectStore) -> float:
    """The store's present time: when a small object was stored that is written below ``_gc/`` and removed again."""
    key = f"_gc/{uuid.uuid4().hex}"
    store.put(key, b"what time is it?")
    try:
        return modified_s(store.get(key).info)
    finally:
        store.delete([key])


def modified_s(info: ObjectInfo) -> float:
    """When an object was stored, in seconds since the epoch."""
    if info.modified is None:
        raise AssertionError(f"{info.key} was listed without a time")
    return float(info.modified.timestamp())


@dataclass(frozen=True)
class Ages:
    """How old the objects of one listing are."""

    now_s: float
    stored_s: dict[str, float]

    @classmethod
    def of(cls, listed: Iterable[ObjectInfo], now_s: float) -> Ages:
        """From a listing, and the store's present time."""
        return cls(now_s, {each.key: modified_s(each) for each in listed})

    def since_newest_s(self, keys: Iterable[str]) -> float:
        """Seconds since the newest of ``keys`` was stored, less the margin. What was not listed is new."""
        newest = max((self.stored_s.get(key, self.now_s) for key in keys), default=self.now_s)
        return max(0.0, self.now_s - newest - CLOCK_MARGIN_S)


@dataclass
class AttemptData:
    """What lies below the prefix of one attempt, and the views that a Spark Connect server keeps for it."""

    objects: int = 0
    size: int = 0
    newest_s: float = 0.0
    views: list[str] = field(default_factory=list)

    def add(self, info: ObjectInfo) -> None:
        """Count one more object."""
        self.objects += 1
        self.size += info.size
        self.newest_s = max(self.newest_s, modified_s(info))


@dataclass
class RunData:
    """The data of one run, by the region's name as a path segment, and attempt. ``strangers`` fit no attempt."""

    attempts: dict[tuple[str, int], AttemptData] = field(default_factory=dict)
    strangers: list[ObjectInfo] = field(default_factory=list)


def data_of_run(results: ObjectStore, layout: JournalLayout) -> RunData:
    """One listing of everything below a run's results."""
    found = RunData()
    for info in results.list(layout.data):
        parts = info.key[len(layout.data) :].split("/")
        if len(parts) > 2 and len(parts[1]) == 8 and parts[1].isdigit():
            found.attempts.setdefault((parts[0], int(parts[1])), AttemptData()).add(info)
        else:
            found.strangers.append(info)
    return found


def find_runs(journal: ObjectStore, dag_id: str | None = None) -> list[RunIdentity]:
    """Every run that the journal's store holds, of one DAG or of all. Costs a listing, and one read a run."""
    prefix = f"{encode(dag_id)}/" if dag_id else ""
    folders: dict[str, list[str]] = {}
    for key in _keys_of_runs(journal, prefix):
        parts = key.split("/")
        if len(parts) > 3 and parts[3] != "h":
            # Any object but a sign of life will do: all carry the identity of their run. Tombstones stay the longest.
            # Others are for where the first one is damaged: that has to be told, not passed over.
            keys = folders.setdefault("/".join(parts[:3]), [])
            if len(keys) < _KEYS_TRIED:
                keys.append(key)
    found = (
        next((one for key in keys if (one := _identity(journal, folder, key)) is not None), None)
        for folder, keys in folders.items()
    )
    return [identity for identity in found if identity is not None]


def find_shared(journal: ObjectStore) -> list[str]:
    """The keys of all shared results."""
    return list(dict.fromkeys(info.key.split("/")[1] for info in journal.list(f"{SHARED_FOLDER}/")))


def _keys_of_runs(journal: ObjectStore, prefix: str) -> Iterator[str]:
    for info in journal.list(prefix):
        if not prefix and info.key.startswith("_"):
            break
        yield info.key
    else:
        return
    for info in journal.list(start_after=_AFTER_UNDERSCORE):
        yield info.key


def _identity(journal: ObjectStore, folder: str, key: str) -> RunIdentity | None:
    """From a record: a name in a path may be shortened. `None` where it is none of ours, or of another place."""
    document: Any
    try:
        document = parse_json(journal.get(key).body, where=key)
        identity = RunIdentity(str(document["dag_id"]), str(document["run_key"]), str(document["group_id"]))
    except (RecordInvalid, ObjectMissing, KeyError, TypeError):
        return None
    return identity if JournalLayout(identity).prefix == f"{folder}/" else None
