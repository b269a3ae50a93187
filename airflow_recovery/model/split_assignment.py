"""Which subtask reads which split, and what is read together. Pure: a function of the splits and of what was before.

A split that has a *home* keeps it for as long as it is listed, whatever comes and goes beside it: so a subtask that has
finished, and the batches that an attempt has committed, stay good. New splits go to the lightest subtask, the largest
first.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from airflow_recovery.errors import SplitsVanished
from airflow_recovery.model.records import SplitGeneration
from airflow_recovery.model.split import Split, in_order
from airflow_recovery.model.split_matching import ListingMatch, Vanished, match, names

MAX_BATCH_SPLITS = 1_000
"""Of one Spark job: a committed batch names its splits, and Spark plans every file."""


@dataclass(frozen=True)
class Assignment:
    """The home of every split of a source, by subtask index from 0."""

    parallelism: int
    homes: Mapping[Split, int]
    gone: Mapping[Split, int] = field(default_factory=dict)
    """What is not listed any more, where it was read: should it come back, that is its home."""
    enumerator: str | None = None
    """The state of an enumerator that goes on where it was, as JSON."""

    def of(self, subtask: int) -> tuple[Split, ...]:
        """The splits that are listed and at home in ``subtask``, in the order of their names."""
        return tuple(in_order(split for split, home in self.homes.items() if home == subtask))

    def gone_of(self, subtask: int) -> tuple[Split, ...]:
        """As `of`, of those that are not listed any more."""
        return tuple(in_order(split for split, home in self.gone.items() if home == subtask))

    @property
    def in_order(self) -> tuple[Split, ...]:
        """The splits that are listed, of all subtasks, in the order of their names."""
        return tuple(in_order(self.homes))

    @classmethod
    def of_record(cls, record: SplitGeneration) -> Assignment:
        """The assignment that a record of the journal holds. Inverse of `record`."""
        return cls(record.parallelism, _owners(record.splits), _owners(record.gone), record.enumerator)

    def record(self, vertex: str, generation: int, writer: str) -> SplitGeneration:
        """The record of this assignment. Equal assignments have equal rows in it, whatever order they were made in."""
        homes, gone = _rows(self.homes), _rows(self.gone)
        return SplitGeneration(vertex, generation, writer, self.parallelism, homes, gone, self.enumerator)


@dataclass(frozen=True)
class Advance:
    """The assignment of today's listing, and how that listing differs from the one before."""

    assignment: Assignment
    match: ListingMatch

    def is_new(self, before: Assignment | None) -> bool:
        """Whether the assignment differs from the one before, so that it must be written."""
        return before is None or self.assignment != before


def advance(
    before: Assignment | None,
    today: Iterable[Split],
    parallelism: int,
    *,
    vanished: Vanished = Vanished.DROP,
    earlier: Assignment | None = None,
    enumerator: str | None = None,
) -> Advance:
    """The assignment of today's listing, which ``before`` is matched with (FLIP-383; fault 55).

    A split that has ever had a home has it for good, also where it had vanished: a subtask that has not looked since
    still has it in its finish. An overwritten split is another one, and has its home where it was. With another
    ``parallelism`` the subtasks are others, and every split gets a new home; ``earlier`` is then the newest assignment
    to so many subtasks as today, whose homes hold again. Raises `SplitsVanished` where something has, and ``vanished``
    is `FAIL`, or it is `KEEP` and the subtasks are others; `SplitIdentityError` as `listed`.
    """
    matched = match(() if before is None else before.homes, today)
    present = (*matched.kept, *matched.overwritten, *matched.added)
    missing = matched.vanished
    if missing and vanished is Vanished.FAIL:
        raise SplitsVanished(
            f"expected every split that was listed before, found {len(missing)} gone: {names(missing)}. Restore them, "
            'or declare vanished="drop" (a result of what is there) or "keep" (with what was read of them)',
            code="splits-gone",
            found=len(missing),
        )
    if before is not None and before.parallelism != parallelism:
        here = {split.uri for split in present}
        kept = [split for split in (*before.gone, *missing) if split.uri not in here]
        if kept and vanished is Vanished.KEEP:
            raise SplitsVanished(
                f"expected what was read of {len(kept)} splits that are not listed any more to be kept "
                f'(vanished="keep"), found {parallelism} subtasks, where {before.parallelism} have read them: '
                f'{names(kept)}. Restore them, declare {before.parallelism} subtasks, or declare vanished="drop"',
                code="kept-splits-other-subtasks",
                found=parallelism,
                expected=before.parallelism,
            )
        before = earlier
    known = {} if before is None else {**before.gone, **before.homes}
    at_uri = {split.uri: home for split, home in known.items()}
    homes = {split: at_uri[split.uri] for split in present if split.uri in at_uri}
    here = {split.uri for split in present}
    gone = {split: home for split, home in known.items() if split.uri not in here}
    return Advance(Assignment(parallelism, _with_owners(homes, present, parallelism), gone, enumerator), matched)


def batches(
    todo: Iterable[Split], *, batch_bytes: int, suspects: Collection[str] = frozenset()
) -> list[tuple[Split, ...]]:
    """The batches in which ``todo`` is read, in order. A pure function: a later reader computes the same batches.

    A batch holds at most ``batch_bytes`` (or one split) and `MAX_BATCH_SPLITS`. ``suspects`` are the content keys of
    splits that may have killed a driver: each travels alone, after all others.
    """
    complete: list[tuple[Split, ...]] = []
    batch: list[Split] = []
    weight = 0
    alone: list[Split] = []
    for split in in_order(todo):
        if split.key in suspects:
            alone.append(split)
            continue
        if batch and (weight + split.weight > batch_bytes or len(batch) == MAX_BATCH_SPLITS):
            complete.append(tuple(batch))
            batch, weight = [], 0
        batch.append(split)
        weight += split.weight
    if batch:
        complete.append(tuple(batch))
    return [*complete, *((split,) for split in alone)]


def _with_owners(kept: Mapping[Split, int], splits: Iterable[Split], parallelism: int) -> dict[Split, int]:
    homes = dict(kept)
    loads = [[0, 0, index] for index in range(parallelism)]
    for split, home in homes.items():
        loads[home][0] += split.weight
        loads[home][1] += 1
    lightest = [(weight, count, index) for weight, count, index in loads]
    heapq.heapify(lightest)
    for split in sorted(
        (split for split in splits if split not in homes), key=lambda split: (-split.weight, split.uri)
    ):
        weight, count, index = lightest[0]
        homes[split] = index
        heapq.heapreplace(lightest, (weight + split.weight, count + 1, index))
    return homes


def _rows(homes: Mapping[Split, int]) -> tuple[tuple[str, int, str, int], ...]:
    return tuple((split.uri, split.size, split.etag, homes[split]) for split in in_order(homes))


def _owners(rows: Sequence[tuple[str, int, str, int]]) -> dict[Split, int]:
    return {Split(uri, size, etag): home for uri, size, etag, home in rows}
