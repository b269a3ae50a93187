"""Sets of sequence numbers as ascending half-open ranges that neither touch nor overlap."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

from airflow_recovery.model.codec import Check

Range = Annotated[tuple[int, int], Check("a range that is not empty", lambda span: span[0] < span[1])]
"""``(start, stop)``: the numbers from ``start`` up to but not including ``stop``."""

Ranges = tuple[Range, ...]
"""As `merged` leaves them."""


def merged(ranges: Iterable[Range]) -> Ranges:
    """The same numbers, each once, in as few ranges as there can be."""
    joined: list[Range] = []
    for start, stop in sorted(ranges):
        if start >= stop:
            continue
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(joined[-1][1], stop))
        else:
            joined.append((start, stop))
    return tuple(joined)


def minus(whole: Ranges, holes: Ranges) -> Ranges:
    """What is in ``whole`` and not in ``holes``."""
    ranges: list[Range] = []
    for start, stop in whole:
        at = start
        for hole_start, hole_stop in holes:
            if hole_stop <= at:
                continue
            if hole_start >= stop:
                break
            if at < hole_start:
                ranges.append((at, hole_start))
            at = hole_stop
        if at < stop:
            ranges.append((at, stop))
    return tuple(ranges)


def common(left: Ranges, right: Ranges) -> Ranges:
    """What is in both."""
    return minus(left, minus(left, right))


def between(start: int, stop: int) -> Ranges:
    """``[start, stop)``; nothing where it is empty."""
    return ((start, stop),) if start < stop else ()


def size(ranges: Iterable[Range]) -> int:
    """How many numbers."""
    return sum(stop - start for start, stop in ranges)
