"""What a producer may write next: from the state and what is wanted, a record, or a refusal."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from airflow_recovery.errors import ChannelEvicted, ChannelInconsistent
from airflow_recovery.model.channel_options import UNLIMITED, LossBudget
from airflow_recovery.streaming.channel_records import (
    Consumed,
    EpochPublished,
    Finished,
    GaveUp,
    ProducerOpened,
    Segment,
)
from airflow_recovery.streaming.channel_state import ChannelState


@dataclass(frozen=True)
class WrittenSegment:
    """What one task of a batch has written for one subpartition; the epoch gives it its numbers.

    ``count``: records that end in it. ``bytes``, ``leading`` and ``trailing`` as in `Segment`.
    """

    sub: int
    task: int
    key: str
    count: int
    bytes: int
    leading: int = 0
    trailing: int = 0


def open_producer(
    state: ChannelState,
    attempt: int,
    *,
    subpartitions: int,
    schema: str,
    replays: bool = True,
    budget: LossBudget = UNLIMITED,
    restart_budget: LossBudget = UNLIMITED,
) -> ProducerOpened:
    """Take the producer's side, and fence every older attempt.

    Raises `ChannelEvicted` where this or a newer attempt has it already, and `ChannelInconsistent` where the schema or
    the number of subpartitions is not that of the attempts before: numbers mean something else then.
    """
    if attempt <= state.producer:
        raise _evicted(state, attempt)
    if state.producer and (len(state.subs), state.schema) != (subpartitions, schema):
        raise ChannelInconsistent(
            f"producer attempt {attempt}: expected {len(state.subs)} subpartitions of {state.schema}, found "
            f"{subpartitions} of {schema}: the consumers must restart with it (approximate-downstream), on a new "
            "generation of the channel",
            code="subpartitions-changed",
        )
    return ProducerOpened(attempt, subpartitions, schema, replays, budget, restart_budget)


def publish(
    state: ChannelState,
    attempt: int,
    epoch: int,
    written: Iterable[WrittenSegment],
    consumed: tuple[Consumed, ...] = (),
) -> EpochPublished | None:
    """Make one batch readable, in all subpartitions at once.

    ``consumed``: what of its own input channels the batch was made of. `None`: nothing is to be written. Either the
    batch holds nothing, or this very epoch was published by an earlier attempt and is adopted; ``written`` are orphans
    then. Raises `ChannelEvicted`, and `ChannelInconsistent` where the epoch that is there was made of something else,
    or they don't continue what is published.
    """
    if is_published(state, attempt, epoch, consumed):
        return None
    ordered = sorted(written, key=lambda segment: (segment.sub, segment.task))
    if not ordered and not consumed:
        return None
    if state.is_finished:
        raise ChannelInconsistent(
            f"epoch {epoch} of attempt {attempt}: expected no more data, the channel is finished",
            code="channel-finished",
        )
    if len({segment.key for segment in ordered}) < len(ordered):
        raise ChannelInconsistent(
            f"epoch {epoch} of attempt {attempt}: expected segments with keys of their own", code="segment-key-reused"
        )
    segments: list[Segment] = []
    ends = list(state.ends)
    open_record = [sub.trailing_of == attempt for sub in state.subs]
    for segment in ordered:
        _check_continues(state, attempt, segment, open_record)
        first = ends[segment.sub]
        segments.append(
            Segment(segment.sub, segment.key, first, segment.count, segment.bytes, segment.leading, segment.trailing)
        )
        ends[segment.sub] += segment.count
        open_record[segment.sub] = segment.trailing > 0
    return EpochPublished(attempt, epoch, tuple(segments), consumed)


def is_published(state: ChannelState, attempt: int, epoch: int, consumed: tuple[Consumed, ...] = ()) -> bool:
    """Whether the epoch is there already, so that nothing need be written. Raises as `publish`."""
    if attempt != state.producer:
        raise _evicted(state, attempt)
    if epoch <= state.epoch:
        _check_adopted(state, epoch, consumed)
    return epoch <= state.epoch


def finish(state: ChannelState, attempt: int) -> Finished | None:
    """Say that everything is published; `None` where it was said. Raises `ChannelEvicted`."""
    if attempt != state.producer:
        raise _evicted(state, attempt)
    return None if state.is_finished else Finished(attempt)


def give_up(state: ChannelState, attempt: int, reason: str) -> GaveUp:
    """Say that no more will come. A later attempt may open the channel again. Raises `ChannelEvicted`."""
    if attempt != state.producer:
        raise _evicted(state, attempt)
    return GaveUp(attempt, reason)


def _check_adopted(state: ChannelState, epoch: int, consumed: tuple[Consumed, ...]) -> None:
    """A batch that was published counts as this one only if it was made of the same input."""
    for read in consumed:
        if (published := state.consumed.get(read.edge)) != read:
            raise ChannelInconsistent(
                f"epoch {epoch}: epochs up to {state.epoch} are published and made of {published}; this batch was made "
                f"of {read}: expected a batch number above {state.epoch}. Fork the checkpoint at the newest batch of "
                "both logs",
                code="epoch-from-other-batch",
                epoch=epoch,
            )


def _check_continues(state: ChannelState, attempt: int, segment: WrittenSegment, open_record: list[bool]) -> None:
    if not 0 <= segment.sub < len(state.subs) or segment.count < 0 or segment.bytes < 0:
        raise ChannelInconsistent(
            f"segment {segment.key}: expected a subpartition below {len(state.subs)} and sizes of at least 0, found "
            f"subpartition {segment.sub} with {segment.count} records in {segment.bytes} bytes",
            code="segment-unfit",
            segment=segment.key,
        )
    goes_on = segment.leading > 0 and segment.count == 0 and segment.trailing == 0
    if open_record[segment.sub] != (segment.leading > 0) or goes_on:
        raise ChannelInconsistent(
            f"segment {segment.key} of attempt {attempt}: expected "
            f"{'the rest of a record' if open_record[segment.sub] else 'a whole record'} first, and a record that does "
            f"not end in it as trailing bytes; found {segment.leading} leading and {segment.trailing} trailing bytes "
            f"with {segment.count} records",
            code="segment-cuts-record",
        )


def _evicted(state: ChannelState, attempt: int) -> ChannelEvicted:
    return ChannelEvicted(
        f"producer attempt {attempt}: attempt {state.producer} owns the channel; this process must stop, and has "
        "changed nothing",
        code="producer-evicted",
    )
