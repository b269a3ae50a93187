"""One run's journal out of a store: one listing, and every object that it names, over a few connections."""

from __future__ import annotations

import hashlib
import json
import re
import zlib
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from airflow_recovery.store.object_store import MAX_OBJECT_BYTES, ObjectInfo, ObjectStore
from airflow_recovery.verify.groups import Groups, has_groups, planned_regions
from airflow_recovery.verify.history import Attempt, Entry, History, Region
from airflow_recovery.verify.names import decoded, encoded
from airflow_recovery.verify.records import (
    Claim,
    Committed,
    CommittedBatch,
    Lost,
    Named,
    Outcome,
    Plan,
    Publish,
    Reset,
    Withdrawal,
    highest_of,
)

FORMATS = (1, 2)
CONNECTIONS = 32
_SHARED = "(shared)"
_ATTEMPT = re.compile(
    r"t/(?P<region>[^/]+)/(?P<number>[0-9]{8})\.(?P<kind>claim|outcome|reset|lost|released|committed"
    r"|(?:committer|confirmed|part|withdrawn)-[0-9]{4,8})"
)
_PLAN = re.compile(r"plan/(?P<hash>[0-9a-f]+)")
_PUBLISH = re.compile(r"publish/(?P<number>[0-9]{8})")
_CLOSED = re.compile(r"closed(?:-(?P<number>[0-9]{8}))?")


@dataclass(frozen=True)
class RunName:
    """The identity of a run: the three ids that every object of its journal repeats."""

    dag_id: str
    run_key: str
    group_id: str

    @classmethod
    def shared(cls, key: str) -> RunName:
        """The identity that the journal of the shared results ``key`` has in place of a run's."""
        return cls(_SHARED, key, _SHARED)

    @cached_property
    def prefix(self) -> str:
        """The prefix of all keys of the journal, with a slash at the end."""
        if self.dag_id == _SHARED:
            return f"_shared/{encoded(self.run_key)}/"
        return "".join(f"{encoded(name)}/" for name in (self.dag_id, self.run_key, self.group_id))


@dataclass
class _Objects:
    """The objects of a journal that were read so far, by what they are."""

    entries: dict[Named, dict[str, Entry]] = field(default_factory=dict)
    bodies: dict[tuple[Named, str], dict[str, Any]] = field(default_factory=dict)
    batches: dict[Named, dict[int, CommittedBatch]] = field(default_factory=dict)
    plans: dict[str, Plan] = field(default_factory=dict)
    groups: Groups = field(default_factory=Groups)
    publishes: dict[int, Publish] = field(default_factory=dict)
    closed: dict[int, dict[str, int]] = field(default_factory=dict)
    damaged: dict[str, str] = field(default_factory=dict)
    misplaced: dict[str, tuple[Named, str]] = field(default_factory=dict)

    def written_out(self, of: Named, kind: str) -> dict[str, Any]:
        """The body of an attempt's record with every single input; once the outcomes are read, which have digests."""
        body = self.bodies[of, kind]
        return self.groups.written_out(body, self._digest) if has_groups(kind, body) else body

    def _digest(self, of: Named, result: str) -> str | None:
        outputs = self.bodies.get((of, "outcome"), {}).get("outputs", ())
        return next((output.get("digest") for output in outputs if output["result"] == result), None)


def read_history(store: ObjectStore, run: RunName) -> History:
    """The run's journal as it is now. Raises the store's errors.

    An object that can't be read as JSON, or is too large to be read, is ``damaged``. What is written while it is read
    may be seen or not.
    """
    listed = {info.key: info for info in store.list(run.prefix)}
    # Plans before the attempts whose inputs they tell.
    wanted = sorted(key for key in listed if _kind(key[len(run.prefix) :]) is not None)
    objects = _Objects()
    for key in [key for key in wanted if listed[key].size > MAX_OBJECT_BYTES]:
        wanted.remove(key)
        why = f"{listed[key].size} bytes; at most {MAX_OBJECT_BYTES} are read: `airflow recovery show` says what to do"
        _note(objects, key[len(run.prefix) :], listed[key], why)
    for key, body in _get_all(store, wanted):
        _take_or_note(objects, key[len(run.prefix) :], listed[key], body, run)
    return _history(f"{store.base_uri}/{run.prefix}", objects, {key: info.etag for key, info in listed.items()})


def etags_now(store: ObjectStore, run: RunName) -> dict[str, str]:
    """Key -> etag of everything in the run's journal."""
    return {info.key: info.etag for info in store.list(run.prefix)}


def _get_all(store: ObjectStore, keys: list[str]) -> Iterable[tuple[str, bytes]]:
    with ThreadPoolExecutor(CONNECTIONS, thread_name_prefix="verify") as pool:
        yield from zip(keys, pool.map(lambda key: store.get(key).body, keys), strict=True)


def _kind(key: str) -> str | None:
    attempt = _ATTEMPT.fullmatch(key)
    if attempt:
        return attempt["kind"]
    kinds = {"plan": _PLAN, "publish": _PUBLISH, "closed": _CLOSED}
    return next((kind for kind, pattern in kinds.items() if pattern.fullmatch(key)), None)


def _document(raw: bytes, run: RunName) -> dict[str, Any]:
    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len(dict(pairs)) != len(pairs):
            raise ValueError("a name appears twice in one object")
        return dict(pairs)

    document = json.loads(raw, object_pairs_hook=once)
    if not isinstance(document, dict) or document.get("format") not in FORMATS:
        raise ValueError(f"expected an object of one of the formats {FORMATS}")
    owner = (document["dag_id"], document["run_key"], document["group_id"])
    if owner != (run.dag_id, run.run_key, run.group_id):
        raise ValueError(f"it belongs to {' / '.join(map(str, owner))}")
    if document["format"] == 1 and has_groups(document["kind"], document["body"]):
        raise ValueError("it has groups of regions, which format 1 has not")
    # The first journals have none.
    if (document["format"] > 1 or "crc" in document) and document["crc"] != zlib.crc32(_canonical(document["body"])):
        raise ValueError("its checksum does not match its content")
    return document


def _canonical(body: Any) -> bytes:
    """What hashes and checksums are taken of: sorted names, no spaces."""
    return json.dumps(body, sort_keys=True, separators=(",", ":")).encode()


def _take_or_note(objects: _Objects, key: str, info: ObjectInfo, body: bytes, run: RunName) -> None:
    try:
        _take(objects, key, info, _document(body, run))
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        _note(objects, key, info, f"{type(error).__name__}: {error}")


def _note(objects: _Objects, key: str, info: ObjectInfo, why: str) -> None:
    objects.damaged[info.key] = why
    attempt = _ATTEMPT.fullmatch(key)
    if attempt:  # there all the same, whatever it says
        of = Named(decoded(attempt["region"]), int(attempt["number"]))
        objects.entries.setdefault(of, {})[attempt["kind"]] = _entry(info)


def _take(objects: _Objects, key: str, info: ObjectInfo, document: dict[str, Any]) -> None:
    kind = (_kind(key) or "").partition("-")[0]
    if document["kind"] != kind:
        raise ValueError(f"expected a {kind}, found a {document['kind']}")
    body = document["body"]
    attempt = _ATTEMPT.fullmatch(key)
    if attempt:
        of = Named(body["region"], body["attempt"])
        if (encoded(of.region), of.attempt) != (attempt["region"], int(attempt["number"])):
            is_finish = attempt["kind"] == "outcome" and body.get("state") == "FINISHED"
            objects.misplaced[info.key] = (of, "finish" if is_finish else attempt["kind"])
            return
        number = {"part": "number", "withdrawn": "turn"}.get(kind)
        if number is not None and f"{kind}-{body[number]:04d}" != attempt["kind"]:
            objects.misplaced[info.key] = (of, attempt["kind"])
            return
        checked = objects.groups.without(body) if has_groups(kind, body) else body
        record = _READ.get(kind, lambda body: None)(checked)  # raises where it is damaged
        if isinstance(record, CommittedBatch):
            objects.batches.setdefault(of, {})[record.number] = record
        objects.entries.setdefault(of, {})[attempt["kind"]] = _entry(info)
        objects.bodies[of, attempt["kind"]] = body
    elif plan := _PLAN.fullmatch(key):
        regions = planned_regions(body)
        objects.groups.add(body)
        objects.plans[plan["hash"]] = Plan(hashlib.sha256(_canonical(body)).hexdigest()[:32], regions)
    elif publish := _PUBLISH.fullmatch(key):
        objects.publishes[int(publish["number"])] = Publish.read(body)
    elif closed := _CLOSED.fullmatch(key):
        objects.closed[int(closed["number"] or 1)] = highest_of(body)


_READ: dict[str, Any] = {
    "claim": Claim.read,
    "outcome": Outcome.read,
    "reset": Reset.read,
    "lost": Lost.read,
    "committed": Committed.read,
    "part": CommittedBatch.read,
    "withdrawn": Withdrawal.read,
}


def _entry(info: ObjectInfo) -> Entry:
    return Entry(info.key, info.etag, info.modified_s)


def _history(where: str, objects: _Objects, etags: dict[str, str]) -> History:
    purged = objects.closed[max(objects.closed)] if objects.closed else {}
    attempts: dict[str, dict[int, Attempt]] = {name: {} for name in purged}
    for of, entries in objects.entries.items():
        if of.attempt <= purged.get(of.region, 0):
            attempts.setdefault(of.region, {})
            continue
        read = {kind: _READ[kind](objects.written_out(of, kind)) for kind in _READ if (of, kind) in objects.bodies}
        attempts.setdefault(of.region, {})[of.attempt] = Attempt(
            of, entries, batches=objects.batches.get(of, {}), **read
        )
    return History(
        where,
        {name: Region(name, of_region, purged.get(name, 0)) for name, of_region in sorted(attempts.items())},
        objects.plans,
        objects.publishes,
        objects.damaged,
        objects.misplaced,
        etags,
    )
