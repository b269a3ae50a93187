"""A version of this package to come, on the same journal: what it may write, by docs/journal-format.md, it writes.

Both versions are this interpreter's code, but for what lies between it and the store. The version to come

- calls a reset ``void``: a kind that this version does not know, and that takes away what it counts on
- writes outcomes of some attempts in a format of its own
- writes a note beside each claim, whose name begins with ``x-``, and more fields in and beside each body; but none in
  the body of a plan, by whose digest claims name it

It reads what this version writes, as each later version does.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from airflow_recovery.errors import ObjectMissing
from airflow_recovery.journal.codec import FORMAT_VERSION, checksum
from airflow_recovery.model.codec import canonical_json
from airflow_recovery.store.object_store import MAX_OBJECT_BYTES, ObjectInfo, ObjectStore, StoredObject
from airflow_recovery.testing.simulation.memory import Clock

_RESET = re.compile(r"(/t/[^/]+/\d{8}\.)reset")
_VOID = re.compile(r"(/t/[^/]+/\d{8}\.)void")
_CLAIM = re.compile(r"/t/[^/]+/\d{8}\.claim")
_PLAN = re.compile(r"/plan/\w+")
_OUTCOME = re.compile(r"/t/[^/]+/\d{7}[02468]\.outcome")
"""Of every second attempt."""
LATER = "later"
"""The field that it has added."""


def as_this_version(key: str) -> str:
    """The key that this version has for what lies at ``key``."""
    return _VOID.sub(r"\1reset", key)


class VersionToCome:
    """``inner`` as a process of the version to come uses it, for the journal that is this version's code above it."""

    def __init__(self, inner: ObjectStore, clock: Clock) -> None:
        self._inner = inner
        self.clock = clock
        self.base_uri = inner.base_uri

    def put_if_absent(self, key: str, body: bytes) -> ObjectInfo:
        """A record; beside a claim its note."""
        if _CLAIM.search(key):
            self._inner.put(key.replace(".claim", ".x-note"), b"?")
        own = _RESET.sub(r"\1void", key)
        info = self._inner.put_if_absent(own, _as_written(own, body))
        return info._replace(key=key)

    def put(self, key: str, body: bytes) -> ObjectInfo:
        """A heartbeat, or a cache."""
        return self._inner.put(key, body)

    def get(self, key: str, max_bytes: int | None = MAX_OBJECT_BYTES) -> StoredObject:
        """What either version has written."""
        own = _RESET.sub(r"\1void", key)
        try:
            stored = self._inner.get(own, max_bytes)
        except ObjectMissing:
            if own == key:
                raise
            stored = self._inner.get(key, max_bytes)
        return StoredObject(stored.info._replace(key=key), _as_read(stored.body))

    def list(self, prefix: str = "", *, start_after: str = "") -> Iterator[ObjectInfo]:
        """Its own kinds under the names that this version has for them."""
        seen: set[str] = set()
        for info in self._inner.list(prefix, start_after=start_after):
            key = as_this_version(info.key)
            if key not in seen:
                seen.add(key)
                yield info._replace(key=key)

    def delete(self, keys: Iterable[str]) -> None:
        """Both versions' objects of these names."""
        self._inner.delete([name for key in keys for name in dict.fromkeys((key, _RESET.sub(r"\1void", key)))])


def _as_written(key: str, body: bytes) -> bytes:
    def change(document: dict[str, Any]) -> None:
        document[LATER] = 1
        if not _PLAN.search(key):
            document["body"][LATER] = 1
        if _VOID.search(key):
            document["kind"] = "void"
        if _OUTCOME.search(key):
            document[LATER], document["format"] = document["format"], FORMAT_VERSION + 1

    return _changed(body, change)


def _as_read(body: bytes) -> bytes:
    def change(document: dict[str, Any]) -> None:
        later = document.pop(LATER, None)
        if later is None:
            return
        document["body"].pop(LATER, None)
        if document["kind"] == "void":
            document["kind"] = "reset"
        if document["format"] > FORMAT_VERSION:
            document["format"] = later

    return _changed(body, change)


def _changed(body: bytes, change: Callable[[dict[str, Any]], object]) -> bytes:
    """A record with the change, as it would be written; anything else as it is."""
    if not body.startswith(b'{"body":'):
        return body
    document = json.loads(body)
    change(document)
    document["crc"] = checksum(document["body"])
    return canonical_json(document).encode()
