"""Whether the objects of a manifest are there as they were listed (docs/protocol.md#evaluation).

"Missing" is said only after a successful listing that lacks the key: a 404 to HEAD proves nothing, and neither does a
Spark error. A listing that was denied or that timed out raises.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from os.path import commonpath
from typing import TYPE_CHECKING

from airflow_recovery.errors import ConfigurationError, StoreError
from airflow_recovery.journal.layout import parse_folder
from airflow_recovery.locations import comparable, is_table
from airflow_recovery.model.location import is_read_by_spark, listing_prefix
from airflow_recovery.model.manifest import PartitionManifest
from airflow_recovery.store.object_store import PAGE_KEYS

if TYPE_CHECKING:
    from airflow_recovery.store.object_store import ObjectInfo, ObjectStore

MOST_PAGES = 4
"""Of one listing for several results: what else lies between them costs no more than three pages."""


class AvailabilityState(str, Enum):
    """The answer for one result partition; the worst of its objects."""

    AVAILABLE = "AVAILABLE"
    MISSING = "MISSING"
    ARCHIVED = "ARCHIVED"
    ALTERED = "ALTERED"


@dataclass(frozen=True)
class Availability:
    """What one listing says of a manifest. All values are paths below its location, except ``evidence``.

    An ``archived`` object is as registered, and can't be read before a person restores it.

    An ``added`` object does not change ``state``. Of a result that was committed in batches there is none: its manifest
    names files in the folders of several attempts, beside others.
    """

    missing: tuple[str, ...] = ()
    altered: tuple[str, ...] = ()
    added: tuple[str, ...] = ()
    evidence: tuple[str, ...] = ()
    archived: tuple[str, ...] = ()

    @property
    def state(self) -> AvailabilityState:
        """MISSING before ALTERED: what is gone must be made again whatever became of the rest."""
        if self.missing:
            return AvailabilityState.MISSING
        if self.archived:
            return AvailabilityState.ARCHIVED
        return AvailabilityState.ALTERED if self.altered else AvailabilityState.AVAILABLE

    @property
    def is_available(self) -> bool:
        """Every object of the manifest is there with its size and etag, and can be read."""
        return self.state is AvailabilityState.AVAILABLE


def in_pages(objects: Mapping[str, int]) -> list[list[str]]:
    """These prefixes in key order, in lists whose objects are below a page. ``objects``: how many each prefix has.

    Of prefixes that lie in one another, the outer one alone.
    """
    pages: list[list[str]] = []
    length, last = 0, ""
    for prefix in sorted(objects):
        if last and prefix.startswith(last):
            continue
        if not pages or length + objects[prefix] >= PAGE_KEYS:
            pages.append([])
            length = 0
        pages[-1].append(prefix)
        length, last = length + objects[prefix], prefix
    return pages


def list_together(store: ObjectStore, prefixes: Sequence[str]) -> dict[str, list[ObjectInfo]]:
    """The objects below each of these prefixes, by one listing of what lies from the first to the last of them.

    ``prefixes`` are in key order. Where too much else lies between them, only the first ones are in the answer. Raises
    the store's errors.
    """
    listed: dict[str, list[ObjectInfo]] = {prefix: [] for prefix in prefixes}
    waiting = deque(prefixes)
    folder = commonpath([prefix.rpartition("/")[0] for prefix in (prefixes[0], prefixes[-1])])
    listing = store.list(f"{folder}/" if folder else "", start_after=prefixes[0])
    for number, info in enumerate(listing, 1):
        while not info.key.startswith(waiting[0]) and info.key > waiting[0]:
            waiting.popleft()
            if not waiting:
                return listed
        if number > MOST_PAGES * PAGE_KEYS:
            return {prefix: infos for prefix, infos in listed.items() if prefix < waiting[0]}
        if info.key.startswith(waiting[0]):
            listed[waiting[0]].append(info)
    return listed


def probe_manifest(
    store: ObjectStore, manifest: PartitionManifest, listed: Iterable[ObjectInfo] | None = None
) -> Availability:
    """Compare ``manifest`` with one listing of its location in ``store``: with ``listed``, where it was listed before.

    Raises `ConfigurationError` where the location is not below ``store.base_uri``, and the store's errors
    (`StoreAccessDenied`, `StoreTimeout`, ...) where it gave no answer: these never mean "missing".
    """
    prefix = listing_prefix(store.base_uri, manifest.location)
    infos = {info.key[len(prefix) :]: info for info in (store.list(prefix) if listed is None else listed)}
    missing, altered, archived, evidence = [], [], [], []
    for wanted in manifest.objects:
        info = infos.pop(wanted.path, None)
        where = f"{manifest.location}/{wanted.path}"
        if info is None:
            missing.append(wanted.path)
            evidence.append(f"{where} is gone (listed without it)")
        elif (info.size, info.etag) != (wanted.size, wanted.etag):
            altered.append(wanted.path)
            evidence.append(
                f"{where} was altered: {wanted.size} bytes, etag {wanted.etag} registered; "
                f"{info.size} bytes, etag {info.etag} found"
            )
        elif info.archived:
            archived.append(wanted.path)
            evidence.append(f"{where} is archived (storage class {info.archived}), so it can't be read")
    added = [] if _is_of_batches(manifest) else [name for name in infos if is_read_by_spark(name)]
    evidence.extend(f"{manifest.location}/{name} was added" for name in added)
    return Availability(tuple(missing), tuple(altered), tuple(added), tuple(evidence), tuple(archived))


def why_unreadable(
    manifests: Iterable[PartitionManifest], results: str, open_location: Callable[[str], ObjectStore]
) -> str | None:
    """Why a published result, made of ``manifests``, can't be read, and what to do; `None` if it can, or is not known.

    ``results``: the base URI of this deployment's results. Not looked at: tables, managed results that lie elsewhere,
    and stores that give no answer. Neighbours are listed together.
    """
    by_store: dict[int, tuple[ObjectStore, dict[str, PartitionManifest]]] = {}
    try:
        for manifest in manifests:
            is_ours = comparable(manifest.location).startswith(f"{comparable(results).rstrip('/')}/")
            if not is_table(manifest.location) and (is_ours or not manifest.managed):
                store = open_location(manifest.location)
                prefix = listing_prefix(store.base_uri, manifest.location)
                by_store.setdefault(id(store), (store, {}))[1][prefix] = manifest
        for store, by_prefix in by_store.values():
            pages = in_pages({prefix: len(manifest.objects) for prefix, manifest in by_prefix.items()})
            listed = {prefix: infos for page in pages for prefix, infos in list_together(store, page).items()}
            for prefix, manifest in by_prefix.items():
                found = probe_manifest(store, manifest, listed.get(prefix))
                if not found.is_available:
                    found = probe_manifest(store, manifest)  # only a listing of its own says that an object is missing
                if not found.is_available:
                    return f"{found.evidence[0]}. {_cure(manifest, found)}"
    except (StoreError, ConfigurationError):
        return None
    return None


def _cure(manifest: PartitionManifest, found: Availability) -> str:
    if found.state is AvailabilityState.ARCHIVED and not manifest.managed:
        return "Restore its objects (aws s3api restore-object), or move them away and clear the tasks of that run."
    return "Clear the tasks of that run: they make the result again, and publish it."


def _is_of_batches(manifest: PartitionManifest) -> bool:
    return manifest.managed and any(parse_folder(file.path.partition("/")[0]) for file in manifest.objects)
