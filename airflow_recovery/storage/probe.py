"""The start-up probe: does this store do what recovery rests on? (PROMISES 25, 26)"""

from __future__ import annotations

import uuid
from contextlib import suppress

from airflow_recovery.errors import ObjectExists, ObjectMissing, StoreError, StoreUnsuitable
from airflow_recovery.storage.object_store import ObjectStore


def probe(store: ObjectStore, *, token: str | None = None) -> None:
    """Write, write again, list and read one object below ``_probe/``, then delete it: five requests.

    Returns where the second write was refused, the listing showed the object at once, and reading gave the first body
    back. Raises `StoreUnsuitable` with the property that is missing, or the error of a store that can't be reached.
    ``token`` names the object (default: random). Does not show that two writers at the same instant are told apart.
    """
    key = f"_probe/{token or uuid.uuid4().hex}"
    first, second = b"first " + key.encode(), b"second " + key.encode()
    store.put_if_absent(key, first)
    try:
        _refuses_a_second_write(store, key, second)
        _lists_what_was_written(store, key)
        _gives_back(store, key, first)
    finally:
        # A policy that forbids deletes is a good one for a journal; a few bytes below _probe/ stay then.
        with suppress(StoreError):
            store.delete([key])


def _refuses_a_second_write(store: ObjectStore, key: str, body: bytes) -> None:
    try:
        store.put_if_absent(key, body)
    except ObjectExists:
        return
    raise StoreUnsuitable(
        f"{store.base_uri} has no conditional writes: a PUT with 'If-None-Match: *' overwrote an object instead of "
        "being refused with 412, so two attempts could both win. Use a store that has them (AWS S3, versitygw, Ceph, "
        "a local folder), or switch the feature on in the server or the proxy before it."
    )


def _lists_what_was_written(store: ObjectStore, key: str) -> None:
    if key not in {each.key for each in store.list(key)}:
        raise StoreUnsuitable(
            f"{store.base_uri} has stale listings: an object that was just written is not listed, so attempts of other "
            "workers could go unseen. Use a store whose listings are strongly consistent, and no cache before it."
        )


def _gives_back(store: ObjectStore, key: str, body: bytes) -> None:
    try:
        found: bytes | None = store.get(key).body
    except ObjectMissing:
        found = None
    if found != body:
        raise StoreUnsuitable(
            f"{store.base_uri} does not give back what was written: expected the first body of {key}, found "
            f"{'nothing' if found is None else 'another body'}. Use a store with read-after-write consistency, and no "
            "cache before it."
        )
