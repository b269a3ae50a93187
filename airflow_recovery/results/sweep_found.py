"""What a sweep reads of the stores: the runs, the data of their attempts, and how old everything is.

Ages are differences of the store's own times: a sweeper whose clock is wrong by an hour deletes nothing too early
(fault 33).
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, fields

from airflow_recovery.errors import ObjectMissing, RecordInvalid
from airflow_recovery.journal.codec import parse_json
from airflow_recovery.journal.layout import SHARED_FOLDER, JournalLayout, names_record, parse_folder
from airflow_recovery.model.names import encode
from airflow_recovery.model.records import RunIdentity
from airflow_recovery.results.keeper import kept_below
from airflow_recovery.store.object_store import PAGE_KEYS, ObjectInfo, ObjectStore, in_key_order

TIME_ASKED = "_gc/"
CLOCK_MARGIN_S = 60.0
"""The clocks of one store's servers differ: everything is taken for younger by so much."""

KEYS_TRIED = 3
"""So many records of a run are asked whose it is: one of them may be damaged."""

_AFTER_SLASH = "0"
"""The character behind the slash: where the keys end that are below a folder."""

_AFTER_UNDERSCORE = "`"
"""The first key, in key order, behind all that begin with an underscore: those are no runs, and may be many."""


def store_now_s(store: ObjectStore) -> float:
    """The store's present time: when a small object was stored that is written below ``_gc/`` and removed again."""
    key = f"{TIME_ASKED}{uuid.uuid4().hex}"
    store.put(key, b"what time is it?")
    try:
        return modified_s(store.get(key).info)
    finally:
        store.delete([key])


def modified_s(info: ObjectInfo) -> float:
    """When an object was stored, in seconds since the epoch."""
    if info.modified_s is None:
        raise AssertionError(f"{info.key} was listed without a time")
    return info.modified_s


@dataclass(frozen=True)
class Ages:
    """How old the objects of one listing are."""

    now_s: float
    stored_s: dict[str, float]

    @classmethod
    def of(cls, listed: Iterable[ObjectInfo], now_s: float) -> Ages:
        """The ages of the objects in a listing. ``now_s`` is the store's present time."""
        return cls(now_s, {info.key: modified_s(info) for info in listed})

    def since_newest_s(self, keys: Iterable[str]) -> float:
        """Seconds since the newest of ``keys`` was stored, less the margin. What was not listed is new."""
        newest = max((self.stored_s.get(key, self.now_s) for key in keys), default=self.now_s)
        return max(0.0, self.now_s - newest - CLOCK_MARGIN_S)


@dataclass
class AttemptData:
    """What lies in the folders of one attempt, the views that a Spark Connect server keeps for it, and its tags.

    ``kept``: how many results keepers have of it. ``folders``: their names. There are several if a journal that came
    back from a backup gave the number again.
    """

    objects: int = 0
    size: int = 0
    newest_s: float = 0.0
    views: list[str] = field(default_factory=list)
    tags: int = 0
    kept: int = 0
    folders: set[str] = field(default_factory=set)

    def add(self, info: ObjectInfo) -> None:
        """Count one more object in, its size and its time."""
        self.objects += 1
        self.size += info.size
        self.newest_s = max(self.newest_s, modified_s(info))


@dataclass
class RunData:
    """The data of one run, by the region's name as a path segment, and attempt. ``strangers`` fit no attempt.

    ``unasked``: what is said of tables that may have tags of attempts, and gave no answer.
    """

    attempts: dict[tuple[str, int], AttemptData] = field(default_factory=dict)
    strangers: list[ObjectInfo] = field(default_factory=list)
    unasked: list[str] = field(default_factory=list)


def data_of_run(results: ObjectStore, layout: JournalLayout) -> RunData:
    """One listing of everything below a run's results, and what keepers have for folders there."""
    data = RunData()
    prefix, attempt = "", AttemptData()
    for info in results.list(layout.data):
        if not prefix or not info.key.startswith(prefix):
            parts = info.key[len(layout.data) :].split("/", 2)
            number = parse_folder(parts[1]) if len(parts) > 2 else None
            if not number:
                data.strangers.append(info)
                continue
            prefix = f"{layout.data}{parts[0]}/{parts[1]}/"
            attempt = data.attempts.setdefault((parts[0], number), AttemptData())
            attempt.folders.add(parts[1])
        attempt.add(info)
    for _, folder in kept_below(f"{results.base_uri}/{layout.data}"):
        region, name = folder[len(f"{results.base_uri}/{layout.data}") :].split("/", 2)[:2]
        data.attempts.setdefault((region, parse_folder(name) or 0), AttemptData()).kept += 1
    return data


def find_runs(journal: ObjectStore, dag_id: str | None = None) -> tuple[list[RunIdentity], list[str]]:
    """Every run that the journal's store holds, of one DAG or of all. Costs a listing, and one read a run.

    The second list has a text for each folder whose records do not say whose run it is, with the reason.
    """
    folders: dict[str, list[str]] = {}
    for key in _keys_of_runs(journal, "" if dag_id is None else f"{encode(dag_id)}/"):
        parts = key.split("/", 3)
        if len(parts) > 3 and names_record(parts[3]):
            # Any record will do: all carry the identity of their run. A damaged one is reported where the run is read.
            keys = folders.setdefault("/".join(parts[:3]), [])
            if len(keys) < KEYS_TRIED:
                keys.append(key)
    identities: list[RunIdentity] = []
    unread: list[str] = []
    for folder, keys in folders.items():
        why = ""
        for key in keys:
            try:
                identities.append(identity_of(journal, folder, key))
                break
            except ObjectMissing:
                continue  # another sweeper purges it
            except RecordInvalid as error:
                why = str(error)
        else:
            if why:
                unread.append(f"{journal.base_uri}/{folder} was left as it is, and nothing says whose run it is: {why}")
    return identities, unread


def find_shared(journal: ObjectStore) -> list[str]:
    """The keys of all shared results that the journal's store holds. Costs a listing of all their records."""
    return list(dict.fromkeys(info.key.split("/")[1] for info in journal.list(f"{SHARED_FOLDER}/")))


def _keys_of_runs(journal: ObjectStore, prefix: str) -> Iterator[str]:
    """Keys of every run: of a large one, a page of its heartbeats, and one of its records."""
    after: str | None = ""
    while after is not None:
        start, after = after, None
        folder, keys = "", 0
        for info in in_key_order(journal, journal.list(prefix, start_after=start)):
            if not prefix and info.key.startswith("_") and start < _AFTER_UNDERSCORE:
                after = _AFTER_UNDERSCORE
                break
            of = "/".join(info.key.split("/", 4)[:4])
            folder, keys = (folder, keys + 1) if of == folder else (of, 1)
            if keys > PAGE_KEYS:
                after = folder + _AFTER_SLASH
                break
            yield info.key


def identity_of(journal: ObjectStore, folder: str, key: str) -> RunIdentity:
    """Whose run lies in ``folder``, by the record at ``key``: a name in a path may be shortened.

    Raises `RecordInvalid` where that is none of this place.
    """
    document = parse_json(journal.get(key).body, where=key)
    names = [document.get(field_.name) if isinstance(document, dict) else None for field_ in fields(RunIdentity)]
    try:
        identity = RunIdentity(*(str(name or "") for name in names))
        is_here = JournalLayout(identity).prefix == f"{folder}/"
    except ValueError:  # an id that is empty, or no text
        is_here = False
    if not is_here:
        raise RecordInvalid(f"{key}: expected a record of the run in whose folder it lies, found one of {names}.")
    return identity
