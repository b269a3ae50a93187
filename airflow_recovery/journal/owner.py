"""Whose a journal is, and whose the results are (faults 82 and 102).

    <journal>/_owner     {"deployment": name}          the deployment that uses it; "" is one without a name
    <journal>/_journal   {"journal": id}               a random id, by which this journal is told from every other one
    <journal>/_key       {"key": key}                  a random key of digests (`airflow_recovery.model.dag_run`)
    <results>/_owner     {"journal": id, "uri": uri}   the journal whose results they are

Two deployments with one journal would adopt each other's attempts. Two journals over one prefix of results would write
over, and delete, each other's data, since equal names lie at one place there. Each object is put if it is absent: the
first one has it, all others compare. No id of a DAG begins with an underscore, so they meet nothing. None of them is
ever removed by us: an administrator who hands a place over deletes the object that the error names.
"""

from __future__ import annotations

import uuid

from airflow_recovery.errors import ConfigurationError, ObjectMissing, RecordInvalid, WriteLost
from airflow_recovery.journal.codec import parse_json
from airflow_recovery.model.codec import canonical_json
from airflow_recovery.store.object_store import ObjectStore
from airflow_recovery.store.write_once import write_once

OWNER_KEY = "_owner"
JOURNAL_KEY = "_journal"
DIGEST_KEY = "_key"
NAMELESS = "a deployment without a name"


def own_prefix(store: ObjectStore, deployment: str, *, deadline_s: float = 60.0) -> None:
    """Take the journal in ``store`` for ``deployment`` ("": it has no name), unless another one has it.

    One request where it is taken. Raises `ConfigurationError` naming the owner, `RecordInvalid` for an object that
    names none, and the store's errors.
    """
    owner = _read(store, OWNER_KEY, "deployment") or _take(store, OWNER_KEY, {"deployment": deployment}, deadline_s)
    _check_deployment(store, owner["deployment"], deployment)


def check_owner(store: ObjectStore, deployment: str) -> None:
    """As `own_prefix`, and nothing is written: a journal that nobody has taken is anybody's."""
    owner = _read(store, OWNER_KEY, "deployment")
    if owner is not None:
        _check_deployment(store, owner["deployment"], deployment)


def own_results(journal: ObjectStore, results: ObjectStore, *, deadline_s: float = 60.0) -> None:
    """Take ``results`` for ``journal``, unless they are another journal's. Two requests where they are taken.

    Raises as `own_prefix`. Nothing is written where they are another one's.
    """
    owner = _read(results, OWNER_KEY, "journal", "uri")
    if owner is None:
        new = {"journal": uuid.uuid4().hex}
        mine = _read(journal, JOURNAL_KEY, "journal") or _take(journal, JOURNAL_KEY, new, deadline_s)
        owner = _take(results, OWNER_KEY, {**mine, "uri": journal.base_uri}, deadline_s)
    else:
        mine = _read(journal, JOURNAL_KEY, "journal") or {}
    _check_journal(journal, mine, results, owner)


def digest_key(store: ObjectStore, *, deadline_s: float = 60.0) -> str:
    """The key with which the journal in ``store`` digests values. The first caller makes it.

    It stands in no other place, message or record. One request, or two for the first caller. Raises as `own_prefix`.
    """
    found = _read(store, DIGEST_KEY, "key") or _take(store, DIGEST_KEY, {"key": uuid.uuid4().hex}, deadline_s)
    return found["key"]


def check_results(journal: ObjectStore, results: ObjectStore) -> None:
    """As `own_results`, and nothing is written: for a reader. Results that nobody has taken are anybody's."""
    owner = _read(results, OWNER_KEY, "journal", "uri")
    if owner is not None:
        _check_journal(journal, _read(journal, JOURNAL_KEY, "journal") or {}, results, owner)


def _check_deployment(store: ObjectStore, owner: str, deployment: str) -> None:
    if owner == deployment:
        return
    mine, other = f"deployment {deployment!r}" if deployment else NAMELESS, repr(owner) if owner else NAMELESS
    raise ConfigurationError(
        f"Expected {store.base_uri} to be the journal of {mine}, found that of {other}: two deployments would take "
        "each other's results for their own. Give this one a prefix of its own ([recovery] journal). If it is the same "
        "one, give all of its components the same [recovery] deployment. Where it has another name now, or the other "
        f"one is gone for good, delete {store.base_uri}/{OWNER_KEY}.",
        code="journal-of-other-deployment",
        expected=mine,
        found=other,
    )


def _check_journal(journal: ObjectStore, mine: dict[str, str], results: ObjectStore, owner: dict[str, str]) -> None:
    id_ = mine.get("journal")
    # A folder may be mounted at another place on each host; a bucket has one name.
    is_moved = owner["uri"] != journal.base_uri and not owner["uri"].startswith("file:")
    if owner["journal"] == id_ and not is_moved:
        return
    raise ConfigurationError(
        f"Expected {results.base_uri} to hold the results of the journal {journal.base_uri} ({id_ or 'it is new'}), "
        f"found that it holds those of the journal {owner['uri']} ({owner['journal']}): two journals would overwrite "
        "and delete each other's results there. Give this one a place of its own ([recovery] results). Only where "
        f"nobody works with the other journal any more, since it was moved here or is gone, delete "
        f"{results.base_uri}/{OWNER_KEY} if it still names that one: the next task takes the place for this one.",
        code="results-of-other-journal",
    )


def _take(store: ObjectStore, key: str, document: dict[str, str], deadline_s: float) -> dict[str, str]:
    """Write ``document``, unless another process has written the object; returns what the object holds then."""
    body = canonical_json(document).encode()
    try:
        write_once(store, key, body, is_mine=body.__eq__, deadline_s=deadline_s)
    except WriteLost:
        return _read(store, key, *document) or _take(store, key, document, deadline_s)
    return document


def _read(store: ObjectStore, key: str, *names: str) -> dict[str, str] | None:
    """The texts ``names`` of the object at ``key``; `None` where there is none. Raises `RecordInvalid`."""
    where = f"{store.base_uri}/{key}"
    try:
        document = parse_json(store.get(key).body, where=where)
    except ObjectMissing:
        return None
    if not isinstance(document, dict) or not all(isinstance(document.get(name), str) for name in names):
        raise RecordInvalid(f"{where}: expected {' and '.join(names)} as texts, found another document. Delete it.")
    return {name: document[name] for name in names}
