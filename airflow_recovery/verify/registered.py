"""What the results' stores say of registered objects, by few listings: one for all results below one run's folder."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor

from airflow_recovery.errors import LocationNotAllowed
from airflow_recovery.store.object_store import ObjectStore
from airflow_recovery.verify.records import Manifest

CONNECTIONS = 16
_ATTEMPT = re.compile("[0-9]{8}(?:-[0-9a-f]{8})?")

OpenLocation = Callable[[str], ObjectStore]


def is_in_a_store(location: str) -> bool:
    """Whether a location is in an object store. What a Spark Connect server or a table keeps is not looked at here."""
    return not location.startswith(("spark-connect:", "iceberg:", "delta+"))


class Registered:
    """What lies at the locations of ``manifests``, as listed once. Raises the store's errors: "denied" is no answer.

    A location of a user's own at which the credentials may not be used is not looked at.
    """

    def __init__(self, open_location: OpenLocation, manifests: Iterable[Manifest]) -> None:
        self._open = open_location
        self._not_opened: set[str] = set()
        below: dict[str, set[str]] = {}
        for manifest in manifests:
            location = manifest.location
            if is_in_a_store(location):
                folder = location.rsplit("/", _below_a_run(manifest))[0] if manifest.managed else location
                below.setdefault(folder, set()).add(location)
        # One result by itself is listed alone: what lies beside it may be anything.
        folders = [next(iter(inside)) if len(inside) == 1 else folder for folder, inside in below.items()]
        with ThreadPoolExecutor(CONNECTIONS, thread_name_prefix="verify") as pool:
            self._stored = dict(entry for part in pool.map(self._list, folders) for entry in part)

    def is_looked_at(self, manifest: Manifest) -> bool:
        """Whether its location is in a store, and was opened."""
        return is_in_a_store(manifest.location) and manifest.location not in self._not_opened

    def wrong(self, manifest: Manifest) -> list[str]:
        """A text for each object that is not there as it was registered, or that can't be read.

        None for an object that is not looked at.
        """
        if not self.is_looked_at(manifest):
            return []
        texts = []
        for path, (size, etag) in manifest.objects.items():
            uri = f"{manifest.location}/{path}"
            stored = self._stored.get(_one_spelling(uri))
            if stored is None:
                texts.append(f"{uri} is not there")
            elif stored[:2] != (size, etag):
                texts.append(f"{uri} has {stored[0]} bytes and etag {stored[1]}, registered were {size} and {etag}")
            elif stored[2]:
                texts.append(f"{uri} is archived (storage class {stored[2]}), so it can't be read")
        return texts

    def read(self, manifest: Manifest, path: str) -> bytes:
        """The bytes of the object at ``path`` below the manifest's location. Raises the store's errors."""
        store = self._open(manifest.location)
        key = _below(store, manifest.location)
        return store.get(f"{key}/{path}" if key else path, max_bytes=None).body

    def _list(self, folder: str) -> list[tuple[str, tuple[int, str, str]]]:
        try:
            store = self._open(folder)
        except LocationNotAllowed:
            self._not_opened.add(folder)
            return []
        key = _below(store, folder)
        base = _one_spelling(store.base_uri)
        return [
            (f"{base}/{info.key}", (info.size, info.etag, info.archived))
            for info in store.list(f"{key}/" if key else "")
        ]


def _below_a_run(manifest: Manifest) -> int:
    """The folders between a run's data and a location: region, attempt and result; of several attempts the region."""
    above = manifest.location.rsplit("/", 2)
    return 3 if len(above) == 3 and _ATTEMPT.fullmatch(above[1]) else 1


def _below(store: ObjectStore, location: str) -> str:
    base, wanted = _one_spelling(store.base_uri), _one_spelling(location)
    if wanted != base and not wanted.startswith(f"{base}/"):
        raise ValueError(f"expected a store that holds {location}, found {store.base_uri}")
    return wanted[len(base) + 1 :]


def _one_spelling(uri: str) -> str:
    for spelling, same in (("s3a://", "s3://"), ("abfs://", "abfss://"), ("file:///", "file:/")):
        if uri.startswith(spelling):
            return same + uri[len(spelling) :]
    return f"file:{uri}" if uri.startswith("/") else uri
