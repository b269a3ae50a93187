"""Ids as the segments of a key: ASCII letters, digits and ``-_.`` stay, any other byte of UTF-8 is ``~XX``."""

from __future__ import annotations

import hashlib
import re
import string

_PLAIN = set(string.ascii_letters + string.digits + "-_.")
_LONGEST = 100
_HEAD = 60


def encoded(name: str) -> str:
    """The segment of an id. A leading ``.`` or ``_`` is a byte like others; long ones are cut, and end in a hash."""
    units: list[str] = []
    for character in name:
        if character in _PLAIN and (units or character not in "._"):
            units.append(character)
        else:
            units += [f"~{byte:02X}" for byte in character.encode()]
    whole = "".join(units)
    if len(whole) <= _LONGEST:
        return whole
    head = ""
    while units and len(head) + len(units[0]) <= _HEAD:
        head += units.pop(0)
    return f"{head}~~{hashlib.sha256(name.encode()).hexdigest()[:32]}"


def decoded(segment: str) -> str:
    """The id of a segment; a shortened one, or one that no id has, stays as it is."""
    if "~~" in segment:
        return segment
    try:
        raw = re.sub(r"~([0-9A-F]{2})", lambda escape: chr(int(escape[1], 16)), segment)
        return raw.encode("latin-1").decode()
    except ValueError:
        return segment
