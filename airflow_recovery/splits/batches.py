"""What a region that commits split by split reads next: batches of splits, each of which is committed as a whole.

Which batches there are is a pure function of what is left to be read (`planned_batches`). So after a driver has died,
the next attempt can tell which splits it was reading, although nobody has written them down
(`airflow_recovery.splits.poison`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from airflow_recovery.model.split import Split
from airflow_recovery.model.split_assignment import batches

ALONE = 2
"""From this degree of suspicion on, a split is a batch by itself; below it, suspects share batches."""


@dataclass(frozen=True)
class Batch:
    """Splits that are read by one Spark job and committed together.

    ``may_be_poison``: an earlier driver has died while it read one of these, perhaps because of it. Such a batch is
    read after all others are committed, and nothing else is read at the same time.
    """

    splits: tuple[Split, ...]
    may_be_poison: bool = False

    @property
    def keys(self) -> frozenset[str]:
        """Content keys."""
        return frozenset(split.key for split in self.splits)

    @property
    def weight(self) -> int:
        """Bytes, as far as they are known."""
        return sum(split.weight for split in self.splits)


class BatchSupplier(Protocol):
    """Where the driver's threads get their batches from: `PlannedBatches`, or `airflow_recovery.splits.pull`.

    Not thread-safe: the loop lets one thread ask at a time.
    """

    def next_batch(self) -> Batch | None:
        """A batch that no one has been given yet; `None`: there is nothing more for this attempt, also later.

        May wait. Raises `AttemptLost` where the attempt has been fenced.
        """
        ...


class PlannedBatches:
    """The batches of a static assignment, known from the start. Arguments as of `planned_batches`."""

    def __init__(self, todo: Iterable[Split], *, batch_bytes: int, suspicion: Mapping[str, int]) -> None:
        self._batches = deque(planned_batches(todo, batch_bytes=batch_bytes, suspicion=suspicion))

    def next_batch(self) -> Batch | None:
        """The next batch, suspects last; never waits."""
        return self._batches.popleft() if self._batches else None


def planned_batches(todo: Iterable[Split], *, batch_bytes: int, suspicion: Mapping[str, int]) -> tuple[Batch, ...]:
    """``todo`` in batches of about ``batch_bytes``, by name; a split that is larger is one by itself. Pure.

    ``suspicion``: content key -> degree. After one driver has died while it read a split, that is read in a batch of
    suspects; from `ALONE` on by itself: if a driver dies then, that split is the cause.
    """
    regular: list[Split] = []
    suspects: list[Split] = []
    for split in todo:
        (suspects if suspicion.get(split.key) else regular).append(split)
    alone = {suspect.key for suspect in suspects if suspicion[suspect.key] >= ALONE}
    return (
        *(Batch(batch) for batch in batches(regular, batch_bytes=batch_bytes)),
        *(Batch(batch, may_be_poison=True) for batch in batches(suspects, batch_bytes=batch_bytes, suspects=alone)),
    )
