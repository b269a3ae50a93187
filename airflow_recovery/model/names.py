"""Ids as path segments: injective, and no way out of the prefix (faults 45 and 86).

An id comes from a user (DAG, group, region) and may hold anything. Its name is safe as one segment of an S3 key, of a
local path, and of a Hadoop path or glob.
"""

from __future__ import annotations

import hashlib
import re
from functools import lru_cache

MAX_NAME_CHARS = 100
"""Four names and the rest of a journal key stay well below S3's limit of 1024 bytes."""

_NOT_KEPT = re.compile(rb"^[._]|[^A-Za-z0-9\-_.]")
_HEAD_CHARS = 60
_NAME = re.compile(r"(?:[A-Za-z0-9\-_.]|~[0-9A-F]{2})+")
_UNIT = re.compile(r"~[0-9A-F]{2}|.")


@lru_cache(maxsize=65_536)  # a listing asks for every region again
def encode(name: str) -> str:
    """The path segment that stands for the id ``name``.

    ASCII letters, digits, ``-``, ``_`` and ``.`` stay; every other UTF-8 byte becomes ``~XX``, and so does a leading
    ``.`` or ``_`` (Spark hides such names; it also removes ``.`` and ``..``). Longer than `MAX_NAME_CHARS`: the
    beginning, ``~~`` and a hash, which no shorter name can look like. Raises `ValueError` for an empty id.
    """
    if not name:
        raise ValueError("expected an id, found an empty string")
    encoded = _NOT_KEPT.sub(lambda byte: b"~%02X" % byte[0][0], name.encode()).decode()
    if len(encoded) <= MAX_NAME_CHARS:
        return encoded
    head = ""
    for unit in _UNIT.findall(encoded):
        if len(head) + len(unit) > _HEAD_CHARS:
            break
        head += unit
    return f"{head}~~{hashlib.sha256(name.encode()).hexdigest()[:32]}"


def decode(segment: str) -> str:
    """The id that ``segment`` stands for: the inverse of `encode`.

    Raises `ValueError` for anything that `encode` does not make, and for a shortened name: there the id stands in the
    records only.
    """
    if "~~" in segment:
        raise ValueError(f"{segment!r} is a shortened name: read the id from a record below it")
    if not _NAME.fullmatch(segment):
        raise ValueError(f"expected a name made by encode(), found {segment!r}")
    raw = re.sub(rb"~([0-9A-F]{2})", lambda escape: bytes([int(escape[1], 16)]), segment.encode())
    name = raw.decode()
    if encode(name) != segment:
        raise ValueError(f"expected a name made by encode(), found {segment!r}")
    return name
