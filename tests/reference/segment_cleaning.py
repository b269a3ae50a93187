"""FLIP-135, point 3: what a reader that has just connected skips, so that it begins with a whole record.

Each buffer knows how many of its leading bytes belong to a record that began in an earlier buffer.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Cleaned:
    """``skipped`` bytes at the beginning of a buffer are left out; ``is_clean``: what follows is a record's border."""

    skipped: int
    is_clean: bool


def clean_buffer(leading: int, size: int, *, was_read: bool) -> Cleaned:
    """Flink's rule for one buffer while cleaning is wanted.

    A buffer that begins with a record is a clean border, and so is one that was read from before, since only whole
    writes are visible. Else its leading part is skipped, and the border is found unless that was all of it. Raises
    `ValueError` where the leading part is longer than the buffer.
    """
    if not 0 <= leading <= size:
        raise ValueError(f"expected a leading part within the {size} bytes of the buffer, found {leading} bytes")
    if leading == 0 or was_read:
        return Cleaned(0, True)
    return Cleaned(leading, leading < size)


def clean(buffers: Iterable[tuple[int, bytes]]) -> list[bytes]:
    """What a new reader decodes of ``(leading bytes, content)`` in order; what is skipped entirely is left out."""
    bodies: list[bytes] = []
    is_clean = False
    for leading, content in buffers:
        skipped = 0
        if not is_clean:
            cleaned = clean_buffer(leading, len(content), was_read=False)
            skipped, is_clean = cleaned.skipped, cleaned.is_clean
        if skipped < len(content):
            bodies.append(content[skipped:])
    return bodies
