"""Whose a journal's prefix is: two deployments under one prefix would adopt each other's attempts (fault 82).

    <base>/_owner      put-if-absent by the first deployment that has a name ([recovery] deployment)

No id of a DAG begins with an underscore, so it meets nothing. Nothing is removed with it: an administrator who hands a
prefix over deletes the object.
"""

from __future__ import annotations

from airflow_recovery.errors import AttemptLost, ConfigurationError, ObjectMissing, RecordInvalid
from airflow_recovery.journal.codec import canonical_json, parse_json
from airflow_recovery.journal.write_once import write_once
from airflow_recovery.storage.object_store import ObjectStore

OWNER_KEY = "_owner"


def own_prefix(store: ObjectStore, deployment: str, *, deadline_s: float = 60.0) -> None:
    """Take the prefix of ``store`` for ``deployment``, unless another one has it. One request where it is taken.

    Raises `ConfigurationError` naming the owner, `RecordInvalid` for an object that names none, and the store's errors.
    """
    body = canonical_json({"deployment": deployment}).encode()
    try:
        owner = _owner_in(store, store.get(OWNER_KEY).body)
    except ObjectMissing:
        try:
            write_once(store, OWNER_KEY, body, is_mine=lambda found: found == body, deadline_s=deadline_s)
            return
        except AttemptLost:
            owner = _owner_in(store, store.get(OWNER_KEY).body)
    _check_same(store, owner, deployment)


def check_owner(store: ObjectStore, deployment: str) -> None:
    """As `own_prefix`, and nothing is written: a prefix that nobody has taken is anybody's."""
    try:
        owner = _owner_in(store, store.get(OWNER_KEY).body)
    except ObjectMissing:
        return
    _check_same(store, owner, deployment)


def _check_same(store: ObjectStore, owner: str, deployment: str) -> None:
    if owner != deployment:
        raise ConfigurationError(
            f"Expected {store.base_uri} to be the journal of deployment {deployment!r}, found that of {owner!r}: two "
            "deployments would take each other's results for their own. Give this one a prefix of its own ([recovery] "
            f"journal). If {owner!r} is gone for good, delete {store.base_uri}/{OWNER_KEY}."
        )


def _owner_in(store: ObjectStore, body: bytes) -> str:
    where = f"{store.base_uri}/{OWNER_KEY}"
    found = parse_json(body, where=where)
    if not isinstance(found, dict) or not isinstance(found.get("deployment"), str):
        raise RecordInvalid(f"{where}: expected the name of a deployment, found another document. Delete it.")
    return str(found["deployment"])
