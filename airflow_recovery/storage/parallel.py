"""Many reads at once."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

from airflow_recovery.storage.object_store import ObjectStore, StoredObject


def get_many(store: ObjectStore, keys: Iterable[str], *, connections: int = 64) -> dict[str, StoredObject]:
    """The objects at ``keys``, read over up to ``connections`` connections.

    Raises what the first failing key (in the order given) raised; the others have been asked by then, none is retried.
    """
    wanted = list(dict.fromkeys(keys))
    if len(wanted) < 2 or connections < 2:
        return {key: store.get(key) for key in wanted}
    with ThreadPoolExecutor(min(connections, len(wanted)), thread_name_prefix="recovery-get") as pool:
        return dict(zip(wanted, pool.map(store.get, wanted), strict=True))
