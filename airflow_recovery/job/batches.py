"""Batches: several subtasks of a parallel vertex in one task instance, where there are more than Airflow maps.

A batch is a run of neighbours in the recorded order of the subtasks, and all batches but the last are of one size. So
all regions of a chain, which have the same subtasks, have the same batches: index i of a consumer waits for index i of
its producer alone.
"""

from __future__ import annotations

from collections.abc import Sequence


def batch_size(count: int, *, limit: int, declared: int | None = None) -> int:
    """How many of ``count`` subtasks are one batch: as declared, else as few as fit into ``limit`` batches."""
    if declared is not None:
        return declared
    return max(1, -(-count // max(1, limit)))


def number_of_batches(count: int, size: int) -> int:
    """How many batches of ``size`` hold ``count`` subtasks."""
    return -(-count // size)


def batches(keys: Sequence[str], size: int) -> list[Sequence[str]]:
    """The keys of each batch, by map index."""
    return [keys[at : at + size] for at in range(0, len(keys), size)]


def batch_label(keys: Sequence[str]) -> str:
    """What stands for a batch where people look: ``2013-01..2013-06 (6)``; the key itself where it is alone."""
    return keys[0] if len(keys) == 1 else f"{keys[0]}..{keys[-1]} ({len(keys)})"
