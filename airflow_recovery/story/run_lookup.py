"""Which journal is meant by a DAG, a run and perhaps a group, found in the journal alone."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import datetime, timedelta, timezone
from itertools import islice, takewhile, zip_longest

from airflow_recovery.errors import JournalError, NothingRecorded, ObjectMissing, RecordInvalid
from airflow_recovery.journal.codec import parse_json
from airflow_recovery.journal.folders import AFTER_SLASH, first_objects, folders, readable
from airflow_recovery.journal.layout import names_record, run_key
from airflow_recovery.model.names import decode, encode
from airflow_recovery.model.records import RunIdentity
from airflow_recovery.results.sweep_found import KEYS_TRIED, identity_of
from airflow_recovery.store.object_store import ObjectInfo, ObjectStore

CLAIMS_READ = 10_000
"""A run id says nothing of its run key where the run has a logical date: at most so many claims are read to find it."""
_CONNECTIONS = 64

_NEAR = timedelta(days=32)
"""The date in a run id is not the logical date: it is when the run could start, mostly within a month of it."""
_FIRST_MOMENT = datetime.min.replace(tzinfo=timezone.utc)
_OBJECTS_A_RUN = 1000
"""As many as one request lists."""

_DATE = re.compile(r"\d{4}-\d{2}-\d{2}(?:[T ]\d{2}:?\d{2}(?::?\d{2}(?:\.\d+)?)?)?(?:Z|[+-]\d{2}:?\d{2})?")


def find_run(store: ObjectStore, dag_id: str, run: str, group_id: str | None = None) -> RunIdentity:
    """The identity of the run that ``run`` names: its key, its logical date, its partition key, or a run id of a claim.

    Raises `NothingRecorded`, with the nearest that there is, where the journal has no such DAG, run or group, and where
    there are several groups and none is named. The same if ``run`` is no run key and several runs have that name: a
    logical date and a partition, for example.
    """
    check_dag(store, dag_id)
    dag = f"{encode(dag_id)}/"
    key = run
    if not _has(store, f"{dag}{encode(run)}/"):
        keys = [key for key in dict.fromkeys(_keys_of(run)) if _has(store, f"{dag}{encode(key)}/")]
        if len(keys) > 1:
            raise NothingRecorded(
                f"DAG {dag_id!r} has {len(keys)} runs that {run!r} names: expected one. Name it by its run key: "
                f"{' or '.join(keys)}.",
                code="run-ambiguous",
                dag=dag_id,
                run=run,
            )
        key = keys[0] if keys else _key_by_claims(store, dag_id, run)
    groups = [readable(folder) for folder in folders(store, f"{dag}{encode(key)}/")]
    where = f"Run {key} of DAG {dag_id!r}"
    if not groups:
        raise NothingRecorded(
            f"{where} has no group: what lies in its folder is nothing of ours.", code="run-without-group"
        )
    if group_id is None:
        if len(groups) > 1:
            raise NothingRecorded(f"{where} has {len(groups)} groups: name one with --group: {', '.join(groups)}.")
        group_id = groups[0]
    elif readable(encode(group_id)) not in groups:
        raise NothingRecorded(f"{where} has no group {group_id!r}. It has {', '.join(groups)}.")
    return _exact(store, RunIdentity(dag_id, key, group_id))


def check_dag(store: ObjectStore, dag_id: str) -> None:
    """Raise `NothingRecorded`, with the nearest that there are, where the journal has no such DAG."""
    if _has(store, f"{encode(dag_id)}/"):
        return
    known = [readable(folder) for folder in folders(store) if not folder.startswith("_")]
    if not known:
        raise NothingRecorded(f"The journal {store.base_uri} is empty: no run has claimed an attempt yet.")
    raise NothingRecorded(f"The journal {store.base_uri} has no DAG {dag_id!r}. {_nearest(dag_id, known, 'DAGs')}")


def all_runs(
    store: ObjectStore,
    dag_id: str,
    group_id: str | None = None,
    *,
    wanted_key: Callable[[str], bool] = lambda key: True,
) -> list[RunIdentity]:
    """Every run and group of a DAG, or every run of one group. Raises `NothingRecorded` where there is none.

    ``wanted_key``: of which run keys. One listing, in which a page holds many small runs.
    """
    check_dag(store, dag_id)
    wanted = None if group_id is None else encode(group_id)
    found = first_objects(store, f"{encode(dag_id)}/", depth=2, most=_OBJECTS_A_RUN)
    split = (folder.partition("/") for folder, _ in found)
    encoded = [(key, group) for key, _, group in split if wanted_key(readable(key))]
    _check_group(store, dag_id, group_id, {group for _, group in encoded})
    return _identities(store, dag_id, [(key, group) for key, group in encoded if wanted in (None, group)])


def newest_runs(store: ObjectStore, dag_id: str, group_id: str | None = None, *, most: int) -> list[RunIdentity]:
    """The ``most`` runs (each with all its groups, or one) in which a task was last at work, the oldest first.

    That is known by the store's times of their newest claims and heartbeats (`worked_s`), whatever the runs are called;
    of one moment, the later key is the newer. Raises as `all_runs`.
    """
    check_dag(store, dag_id)
    wanted = None if group_id is None else encode(group_id)
    groups: dict[str, dict[str, float]] = {}
    known: set[str] = set()
    for folder, listed in first_objects(store, f"{encode(dag_id)}/", depth=2, most=_OBJECTS_A_RUN):
        key, _, group = folder.partition("/")
        known.add(group)
        if wanted in (None, group):
            groups.setdefault(key, {})[group] = worked_s(listed) or 0.0
    _check_group(store, dag_id, group_id, known)
    ordered = sorted(groups, key=lambda key: (max(groups[key].values()), key))
    return _identities(store, dag_id, [(key, group) for key in ordered[-most:] for group in groups[key]])


def worked_s(listed: Iterable[ObjectInfo]) -> float | None:
    """When the newest claim or heartbeat in the listing of a run was stored, by the store's clock; `None`: not known.

    What a sweep, a pin or a publish writes later is not the run's work.
    """
    times = [
        info.modified_s
        for info in listed
        if info.modified_s is not None and (info.key.endswith(".claim") or info.key.split("/")[3:4] == ["h"])
    ]
    return max(times, default=None)


def _check_group(store: ObjectStore, dag_id: str, group_id: str | None, known: set[str]) -> None:
    """Raise `NothingRecorded`, with the groups that there are, where none of the runs looked at has this one."""
    if (group_id is None and known) or (group_id is not None and encode(group_id) in known):
        return
    wanted = "such run" if group_id is None else f"run of group {group_id!r}"
    nearest = f" {_nearest(group_id, sorted(map(readable, known)), 'groups')}" if group_id and known else ""
    raise NothingRecorded(
        f"The journal {store.base_uri} has no {wanted} of DAG {dag_id!r}.{nearest}", code="run-of-journal-unknown"
    )


def _identities(store: ObjectStore, dag_id: str, encoded: Iterable[tuple[str, str]]) -> list[RunIdentity]:
    """Of (run key, group) as their folders are called. Where a name is shortened, and no record says it: none."""
    identities = []
    for key, group in encoded:
        with suppress(NothingRecorded):
            identities.append(_exact(store, RunIdentity(dag_id, readable(key), readable(group))))
    return identities


def groups_of(store: ObjectStore, dag_id: str, run_key: str) -> list[str]:
    """The groups of a run that have a journal, by their whole names."""
    run = f"{encode(dag_id)}/{encode(run_key)}/"

    groups = []
    for folder in folders(store, run):
        try:
            groups.append(decode(folder))
        except ValueError:  # noqa: PERF203 - so long that its folder is shortened; or no folder of ours
            with suppress(NothingRecorded):
                groups.append(_identity_below(store, f"{run}{folder}").group_id)
    return groups


def _keys_of(run: str) -> Iterable[str]:
    """Of what ``run`` may be besides a key. The date in a run id is no logical date: the next run may have that one."""
    moment = moment_of(run)
    if moment is not None:
        yield _key_of(moment)
    yield run_key(logical_date=None, partition_key=None, run_id=run)
    yield run_key(logical_date=None, partition_key=run, run_id=run)


def _key_of(moment: datetime) -> str:
    return run_key(logical_date=moment.isoformat(), partition_key=None, run_id="")


def moment_of(text: str) -> datetime | None:
    """ISO 8601, in UTC; a date alone is its midnight, and no offset means UTC, as in Airflow. `None`: it is none."""
    if not _DATE.fullmatch(text):
        return None
    try:
        parsed = datetime.fromisoformat(text.replace("Z", "+00:00"))
        return (parsed if parsed.tzinfo else parsed.replace(tzinfo=timezone.utc)).astimezone(timezone.utc)
    except (ValueError, OverflowError):  # in UTC, it may be before year 1 or after 9999
        return None


def _key_by_claims(store: ObjectStore, dag_id: str, run_id: str) -> str:
    """The key of the run of which a claim carries this run id: nothing else in a journal knows it.

    The newest claims of all runs are read first, and not all of very many. Raises `NothingRecorded` where none has it.
    """
    dag = f"{encode(dag_id)}/"
    known: list[str] = []
    read: set[str] = set()
    unread: list[str] = []
    with ThreadPoolExecutor(_CONNECTIONS, thread_name_prefix="recovery-get") as pool:
        for listing in (_runs_near(store, dag, run_id), store.list(dag)):
            runs: dict[str, list[ObjectInfo]] = {}
            for info in listing:
                claims = runs.setdefault(info.key[len(dag) :].partition("/")[0], [])
                if info.key.endswith(".claim"):
                    claims.append(info)
            known = [readable(folder) for folder in runs]
            unread = [key for key in _newest_of_each_first(runs.values()) if key not in read]
            while unread and len(read) < CLAIMS_READ:
                batch, unread = unread[:_CONNECTIONS], unread[_CONNECTIONS:]
                read.update(batch)
                keys = pool.map(lambda claim: _key_if_claimed_by(store, claim, run_id), batch)
                key = next(filter(None, keys), None)
                if key is not None:
                    return key
    nearest = _nearest(run_id, known, "run keys")
    if unread:
        nearest += f" Only the newest {len(read)} of {len(read) + len(unread)} claims were read for a run id."
    raise NothingRecorded(
        f"The journal of DAG {dag_id!r} has no run {run_id!r}. {nearest} RUN may be a run key, a logical date, or a "
        "run id that a claim has. A run that was only just made again has claimed nothing: name its logical date.",
        code="run-unknown",
    )


def _runs_near(store: ObjectStore, dag: str, run_id: str) -> Iterable[ObjectInfo]:
    """What is in the journals of runs of the month before a date that stands in a run id."""
    dated = _DATE.search(run_id)
    last = None if dated is None else moment_of(dated[0])
    if last is None:
        return ()
    first = last - min(_NEAR, last - _FIRST_MOMENT)
    end = f"{dag}{encode(_key_of(last))}{AFTER_SLASH}"
    return takewhile(lambda info: info.key < end, store.list(dag, start_after=f"{dag}{encode(_key_of(first))}"))


def _newest_of_each_first(runs: Iterable[list[ObjectInfo]]) -> list[str]:
    """The keys of claims: the newest of each run, those that were at work last before the others, and so on."""
    by_time = [sorted(claims, key=_stored_at, reverse=True) for claims in runs if claims]
    by_time.sort(key=lambda claims: _stored_at(claims[0]), reverse=True)
    return [claim.key for nth in zip_longest(*by_time) for claim in nth if claim is not None]


def _stored_at(claim: ObjectInfo) -> tuple[float, str]:
    return claim.modified_s or 0.0, claim.key


def _key_if_claimed_by(store: ObjectStore, claim: str, run_id: str) -> str | None:
    try:
        record = parse_json(store.get(claim).body, where=claim)
        return str(record["run_key"]) if record["body"]["airflow_run_id"] == run_id else None
    except (KeyError, TypeError, ObjectMissing, RecordInvalid):
        return None


def _exact(store: ObjectStore, identity: RunIdentity) -> RunIdentity:
    """Where a name is so long that its folder is shortened, the whole of it stands in every record."""
    names = (identity.dag_id, identity.run_key, identity.group_id)
    if not any("~~" in name for name in names):
        return identity
    return _identity_below(store, "/".join(name if "~~" in name else encode(name) for name in names))


def _identity_below(store: ObjectStore, folder: str) -> RunIdentity:
    """Whose run lies in this folder. Raises `NothingRecorded` where there is no record, and `RecordInvalid`."""
    listed = (info.key for info in store.list(f"{folder}/"))
    error: JournalError = NothingRecorded(f"The journal {store.base_uri} has no record below {folder}/.")
    for key in islice((key for key in listed if names_record(key[len(folder) + 1 :])), KEYS_TRIED):
        try:
            return identity_of(store, folder, key)
        except RecordInvalid as invalid:  # noqa: PERF203 - the next one may tell
            error = invalid
    raise error


def _has(store: ObjectStore, prefix: str) -> bool:
    return next(iter(store.list(prefix)), None) is not None


def _nearest(name: str, known: list[str], what: str) -> str:
    close = difflib.get_close_matches(name, known, n=5, cutoff=0.3) or known[-5:]
    return f"The nearest {what} of {len(known)}: {', '.join(close)}."
