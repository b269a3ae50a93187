"""The names of the folders below a prefix, of a store that knows keys only: one request a folder."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from airflow_recovery.model.names import decode
from airflow_recovery.store.object_store import ObjectInfo, ObjectStore, in_key_order

AFTER_SLASH = chr(ord("/") + 1)


def folders(store: ObjectStore, prefix: str = "", *, most: int = 1000) -> list[str]:
    """The first ``most`` folder names (encoded) directly below ``prefix``, in key order."""
    return list(islice(_folders(store, prefix), most))


def _folders(store: ObjectStore, prefix: str) -> Iterator[str]:
    start_after = ""
    while True:
        listed = in_key_order(store, store.list(prefix, start_after=start_after))
        below = (info.key[len(prefix) :] for info in listed)
        key = next((name for name in below if "/" in name), None)
        if key is None:
            return
        name = key.partition("/")[0]
        yield name
        # Everything below this folder sorts before its name with the character that follows the slash.
        start_after = f"{prefix}{name}{AFTER_SLASH}"


def first_objects(store: ObjectStore, prefix: str, *, depth: int, most: int) -> Iterator[tuple[str, list[ObjectInfo]]]:
    """The folders ``depth`` levels below ``prefix`` (as ``a/b``), in key order, each with the first ``most`` objects.

    One listing, in which a page holds many small folders; what is left of a larger one is skipped by another request.
    """
    name, start_after, is_whole = "", "", False
    objects: list[ObjectInfo] = []
    while not is_whole:
        is_whole = True
        for info in in_key_order(store, store.list(prefix, start_after=start_after)):
            *parts, _ = info.key[len(prefix) :].split("/", depth)
            if len(parts) < depth:
                continue
            folder = "/".join(parts)
            if folder != name and objects:
                yield name, objects
                objects = []
            name = folder
            if len(objects) == most:
                start_after, is_whole = f"{prefix}{name}{AFTER_SLASH}", False
                break
            objects.append(info)
    if objects:
        yield name, objects


def readable(name: str) -> str:
    """The id that an encoded name stands for; a shortened one stays as it is."""
    try:
        return decode(name)
    except ValueError:
        return name
