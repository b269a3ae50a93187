"""One listing of a large journal over several connections at once (docs/protocol.md#requests).

Pages of a listing are asked for one after the other, since each names the next. Where it is known which regions there
are, several listings begin at their names at the same time, so that a thousand regions cost as many round trips as one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import takewhile

from airflow_recovery.journal.layout import JournalLayout
from airflow_recovery.model.names import encode
from airflow_recovery.store.object_store import ObjectInfo, ObjectStore

REGIONS_A_SHARD = 490
"""A claim and an outcome each, and a few more, are just below the 1,000 keys of a page: little is listed twice."""

CONNECTIONS = 64

_AFTER_SLASH = "0"
"""The character behind the slash: where the keys end that are below a folder."""


def list_sharded(store: ObjectStore, layout: JournalLayout, regions: Iterable[str]) -> Iterator[ObjectInfo]:
    """All objects of the journal in key order, but for heartbeats, whether of ``regions`` or not.

    Without ``regions`` it is not known how many there are: heartbeats are left out all the same.

    As of any listing, its parts are of different moments. Raises the store's errors.
    """
    names = sorted({f"{layout.prefix}t/{encode(region)}/" for region in regions})
    starts = names[REGIONS_A_SHARD::REGIONS_A_SHARD]
    if names and not starts:
        yield from (info for info in store.list(layout.prefix) if not info.key.startswith(layout.heartbeats))
        return
    # There is a heartbeat of every attempt: no shard goes through them.
    behind = layout.heartbeats[:-1] + _AFTER_SLASH
    shards = [("", layout.heartbeats), *zip((behind, *starts), (*starts, None), strict=True)]

    def part(shard: tuple[str, str | None]) -> list[ObjectInfo]:
        # A shard begins behind its name: no key is a folder's name alone.
        begin, end = shard
        listed = store.list(layout.prefix, start_after=begin)
        return list(listed if end is None else takewhile(lambda info: info.key < end, listed))

    with ThreadPoolExecutor(min(CONNECTIONS, len(shards)), thread_name_prefix="recovery-list") as pool:
        for listed in pool.map(part, shards):
            yield from listed
