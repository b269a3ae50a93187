"""One listing of a large journal over several connections at once (docs/protocol.md#requests).

Pages of a listing are asked for one after the other, since each names the next. Where it is known which regions there
are, several listings begin at their names at the same time, so that a thousand regions cost as many round trips as one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice, takewhile

from airflow_recovery.journal.layout import JournalLayout
from airflow_recovery.model.names import encode
from airflow_recovery.store.object_store import PAGE_KEYS, ObjectInfo, ObjectStore, in_key_order

REGIONS_A_SHARD = 490
"""A claim and an outcome each, and a few more, are just below the 1,000 keys of a page: little is listed twice."""

CONNECTIONS = 64

_AFTER_SLASH = "0"
"""The character behind the slash: where the keys end that are below a folder."""


def is_large(objects: int) -> bool:
    """Return whether so many objects are more than one page of a listing."""
    return objects > PAGE_KEYS


def list_sharded(store: ObjectStore, layout: JournalLayout, regions: Iterable[str]) -> Iterator[ObjectInfo]:
    """All objects of the journal in key order, but for heartbeats, whether of ``regions`` or not.

    As of any listing, its parts are of different moments. Raises the store's errors.
    """
    names = _folders(layout, regions)
    starts = names[REGIONS_A_SHARD::REGIONS_A_SHARD]
    if names and not starts:
        whole = in_key_order(store, store.list(layout.prefix))
        yield from (info for info in whole if not info.key.startswith(layout.heartbeats))
        return
    # There is a heartbeat of every attempt: no shard goes through them.
    shards = [("", layout.heartbeats), *_shards([_behind_heartbeats(layout), *starts])]
    with ThreadPoolExecutor(min(CONNECTIONS, len(shards)), thread_name_prefix="recovery-list") as pool:
        for listed in pool.map(lambda shard: list(_between(store, layout, *shard)), shards):
            yield from listed


def list_whole(
    store: ObjectStore, layout: JournalLayout, find_regions: Callable[[], Iterable[str]]
) -> Iterator[ObjectInfo]:
    """As `list_sharded`, where nobody has asked for the regions yet: of a large journal, ``find_regions`` does."""
    with ThreadPoolExecutor(CONNECTIONS, thread_name_prefix="recovery-list") as pool:
        before = pool.submit(lambda: list(_between(store, layout, "", layout.heartbeats)))
        page = list(islice(_between(store, layout, _behind_heartbeats(layout), None), PAGE_KEYS))
        yield from before.result()
        yield from page
        if len(page) < PAGE_KEYS:
            return
        last = page[-1].key
        names = [name for name in _folders(layout, find_regions()) if name > last]
        shards = _shards([last, *names[REGIONS_A_SHARD::REGIONS_A_SHARD]])
        for listed in pool.map(lambda shard: list(_between(store, layout, *shard)), shards):
            yield from listed


def _folders(layout: JournalLayout, regions: Iterable[str]) -> list[str]:
    return sorted({f"{layout.prefix}t/{encode(region)}/" for region in regions})


def _behind_heartbeats(layout: JournalLayout) -> str:
    return layout.heartbeats[:-1] + _AFTER_SLASH


def _shards(starts: Sequence[str]) -> list[tuple[str, str | None]]:
    """From each of the keys to the next one. A shard begins behind its name: no key is a folder's name alone."""
    return list(zip(starts, (*starts[1:], None), strict=True))


def _between(store: ObjectStore, layout: JournalLayout, begin: str, end: str | None) -> Iterable[ObjectInfo]:
    listed = in_key_order(store, store.list(layout.prefix, start_after=begin))
    return listed if end is None else takewhile(lambda info: info.key < end, listed)
