"""Many reads at once."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

from airflow_recovery.errors import ObjectTooLarge
from airflow_recovery.store.object_store import ObjectStore, StoredObject

LARGE_BYTES = 4 * 1024 * 1024
"""Objects above this are read one after the other, so that 64 connections never hold 64 of the largest at a time."""


def get_many(store: ObjectStore, keys: Iterable[str], *, connections: int = 64) -> dict[str, StoredObject]:
    """The objects at ``keys``, read over up to ``connections`` connections; large ones are asked for once more, alone.

    Raises what the first failing key (in the order given) raised; the others have been asked by then, none is retried.
    """
    wanted = list(dict.fromkeys(keys))
    if len(wanted) < 2 or connections < 2:
        return {key: store.get(key) for key in wanted}

    def unless_large(key: str) -> StoredObject | None:
        try:
            return store.get(key, LARGE_BYTES)
        except ObjectTooLarge:
            return None

    with ThreadPoolExecutor(min(connections, len(wanted)), thread_name_prefix="recovery-get") as pool:
        found = dict(zip(wanted, pool.map(unless_large, wanted), strict=True))
    return {key: store.get(key) if each is None else each for key, each in found.items()}
