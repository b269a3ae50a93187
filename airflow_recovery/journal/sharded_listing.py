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

CONNECTIONS = 32


def list_sharded(store: ObjectStore, layout: JournalLayout, regions: Iterable[str]) -> Iterator[ObjectInfo]:
    """All objects of the journal in key order, whether of ``regions`` or not. Raises the store's errors.

    As of any listing, its parts are of different moments.
    """
    names = sorted({f"{layout.prefix}t/{encode(region)}/" for region in regions})
    starts = names[REGIONS_A_SHARD::REGIONS_A_SHARD]
    if not starts:
        yield from store.list(layout.prefix)
        return

    def part(at: int) -> list[ObjectInfo]:
        # A shard begins behind its name: no key is a folder's name alone.
        listed = store.list(layout.prefix, start_after=starts[at - 1] if at else "")
        return list(listed if at == len(starts) else takewhile(lambda info: info.key < starts[at], listed))

    with ThreadPoolExecutor(min(CONNECTIONS, len(starts) + 1), thread_name_prefix="recovery-list") as pool:
        for shard in pool.map(part, range(len(starts) + 1)):
            yield from shard
