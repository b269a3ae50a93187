"""One slot of a control log: asked for at little cost, or for certain."""

from __future__ import annotations

from airflow_recovery.errors import ObjectMissing
from airflow_recovery.storage.object_store import ObjectStore


def peek_slot(store: ObjectStore, key: str) -> bytes | None:
    """The record under ``key``, `None` for "not yet". Raises the store's errors.

    An empty slot is asked for with each look, and a listing to confirm that it is empty would cost ten times as much.
    For who looks again, or takes the slot: a store that wrongly says "empty" delays the one, and the other hears of it.
    """
    try:
        return getattr(store, "peek", store.get)(key).body
    except ObjectMissing:
        return None


def get_slot(store: ObjectStore, key: str) -> bytes | None:
    """The same, for who concludes something from `None`: the store confirms it. Raises the store's errors."""
    try:
        return store.get(key).body
    except ObjectMissing:
        return None
