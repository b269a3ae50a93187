"""State = fold(log). A record of a former owner is void, even if it has won a slot: it counts for nothing.

A correct writer never writes such a record, since it prepares against the fold of everything before its slot. The fold
does not rely on it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sized
from itertools import dropwhile, islice

from airflow_recovery.errors import ChannelInconsistent
from airflow_recovery.streaming.channel_records import (
    BatchCommitted,
    ChannelRecord,
    CheckpointPlanned,
    EpochPublished,
    Finished,
    GaveUp,
    ProducerOpened,
    Released,
    Segment,
    SegmentsDropped,
    ViewCreated,
)
from airflow_recovery.streaming.channel_state import ChannelState, LedgerEntry, Subpartition, UnknownLoss
from airflow_recovery.streaming.ranges import Range, between, merged, minus, size


def fold(records: Iterable[ChannelRecord]) -> ChannelState:
    """The state after these records, which are those of the slots from 0. Raises as `apply`."""
    state = ChannelState()
    for record in records:
        apply(state, record)
    return state


def apply(state: ChannelState, record: ChannelRecord) -> None:
    """Take in the record of slot ``state.slots``. Raises `ChannelInconsistent` for one that no writer of ours wrote."""
    if is_void(state, record):
        state.void.append(state.slots)
    else:
        _check_fits(state, record)
        _apply(state, record)
    state.slots += 1


def is_void(state: ChannelState, record: ChannelRecord) -> bool:
    """Whether the record counts for nothing: its attempt is not the owner, or what it says is behind us already."""
    if isinstance(record, ProducerOpened):
        return record.attempt <= state.producer
    if isinstance(record, ViewCreated):
        return record.attempt <= state.view
    if isinstance(record, EpochPublished):
        return record.attempt != state.producer or record.epoch <= state.epoch or state.is_finished
    if isinstance(record, (SegmentsDropped, Finished, GaveUp)):
        return record.attempt != state.producer
    if record.attempt != state.view:
        return True
    if isinstance(record, BatchCommitted):
        return record.batch <= state.checkpoint or state.plan is None or record.end != state.plan.end
    return False


def _check_fits(state: ChannelState, record: ChannelRecord) -> None:
    """A valid record of another channel's shape would be folded into nonsense, or into a programmer's error."""
    count = len(state.subs)
    offsets: list[Sized] = []
    numbers: list[int] = []
    if isinstance(record, EpochPublished):
        numbers = [segment.sub for segment in record.segments]
    elif isinstance(record, ViewCreated):
        offsets = [record.jump] if record.jump else []
    elif isinstance(record, CheckpointPlanned):
        offsets, numbers = [record.start, record.end, record.read], [loss.sub for loss in record.lost]
    elif isinstance(record, Released):
        offsets = [record.upto]
    is_known = not isinstance(record, SegmentsDropped) or state.retained.keys() >= set(record.keys)
    if any(len(offset) != count for offset in offsets) or any(number >= count for number in numbers) or not is_known:
        raise ChannelInconsistent(
            f"slot {state.slots}: expected a record of {count} subpartitions that names retained segments, found "
            f"{record}: the log was altered from outside; begin a new generation",
            code="slot-names-others",
        )


def _apply(state: ChannelState, record: ChannelRecord) -> None:
    if isinstance(record, ProducerOpened):
        _open(state, record)
    elif isinstance(record, EpochPublished):
        _publish(state, record)
    elif isinstance(record, SegmentsDropped):
        _drop(state, record)
    elif isinstance(record, Finished):
        state.is_finished = True
    elif isinstance(record, GaveUp):
        state.failed = record.reason
    elif isinstance(record, ViewCreated):
        _view(state, record)
    elif isinstance(record, CheckpointPlanned):
        state.plan = record
    elif isinstance(record, BatchCommitted):
        _complete(state, record.attempt, record.batch)
        state.outputs += record.outputs
    else:
        _release(state, record)


def _open(state: ChannelState, record: ProducerOpened) -> None:
    # A second attempt may be the first of a new generation.
    if record.attempt > 1 and not record.replays and not state.is_finished:
        state.unknown.append(UnknownLoss(record.attempt, state.ends))
    if not state.subs:
        state.subs = [Subpartition() for _ in range(record.subpartitions)]
    state.producer, state.schema, state.failed = record.attempt, record.schema, None
    state.budget, state.restart_budget = record.budget, record.restart_budget


def _publish(state: ChannelState, record: EpochPublished) -> None:
    state.epoch = record.epoch
    state.consumed.update((consumed.edge, consumed) for consumed in record.consumed)
    for segment in record.segments:
        sub = state.subs[segment.sub]
        if segment.first != sub.end or segment.key in state.retained:
            raise ChannelInconsistent(
                f"epoch {record.epoch}, segment {segment.key}: expected a new key and the number {sub.end} for its "
                f"first record, found {segment.first}: the log was altered from outside; begin a new generation",
                code="segment-out-of-order",
            )
        if segment.leading and segment.count and sub.is_torn_open:
            sub.torn = merged([*sub.torn, (segment.first, segment.first + 1)])
        if segment.count or not segment.leading:
            # The record from before has ended here, or will never end.
            sub.is_torn_open = False
        sub.trailing_of = record.attempt if segment.trailing else 0
        sub.end = segment.end
        state.retained[segment.key] = segment


def _drop(state: ChannelState, record: SegmentsDropped) -> None:
    for key in record.keys:
        segment = state.retained[key]
        sub = state.subs[segment.sub]
        sub.dropped = merged([*sub.dropped, (segment.first, segment.end)])
        if segment.trailing:
            _tear(state, sub, segment)
        del state.retained[key]


def _tear(state: ChannelState, sub: Subpartition, dropped: Segment) -> None:
    """The record that begins in a dropped segment can't be read, wherever it ends."""
    segments = state.segments_of(dropped.sub)
    behind = dropwhile(lambda segment: segment is not dropped, segments)
    for later in islice(behind, 1, None):
        if not later.leading:
            return  # the producer died in the middle of that record: it never was one
        if later.count:
            sub.torn = merged([*sub.torn, (later.first, later.first + 1)])
            return
    sub.is_torn_open = sub.trailing_of != 0


def _view(state: ChannelState, record: ViewCreated) -> None:
    if record.adopt is not None:
        _complete(state, state.view, record.adopt)
    # The pending plan is aborted; its pins are gone, and so is the jump of the old view.
    state.view, state.plan, state.jump, state.min_epoch = record.attempt, None, record.jump, record.min_epoch
    state.view_began = state.done


def _complete(state: ChannelState, attempt: int, batch: int) -> None:
    plan = state.plan
    if plan is None:
        raise ChannelInconsistent(f"checkpoint {batch} of attempt {attempt}: expected a pending plan, found none")
    for number, sub in enumerate(state.subs):
        lost = [(loss.start, loss.stop) for loss in plan.lost if loss.sub == number]
        _check_exact(number, sub.done, plan.end[number], [*plan.read[number], *lost])
        sub.committed = merged([*sub.committed, *plan.read[number]])
        sub.lost = merged([*sub.lost, *lost])
        sub.done = max(sub.done, plan.end[number])
        behind = between(0, sub.done)
        sub.dropped, sub.torn = minus(sub.dropped, behind), minus(sub.torn, behind)
    state.ledger += [LedgerEntry(loss.sub, loss.start, loss.stop, loss.cause, attempt, batch) for loss in plan.lost]
    state.checkpoint, state.plan = batch, None


def _check_exact(number: int, done: int, end: int, ranges: list[Range]) -> None:
    """The invariant of `ledger.check_ledger`, step by step: what is read and lost is what was not done, each once."""
    if merged(ranges) != between(done, end) or size(ranges) != max(0, end - done):
        raise ChannelInconsistent(
            f"subpartition {number}: expected a checkpoint that reads or loses every record of [{done}, {end}) once, "
            f"found {sorted(ranges)}: do not publish this run",
            code="checkpoint-not-once",
        )


def _release(state: ChannelState, record: Released) -> None:
    for sub, upto in zip(state.subs, record.upto, strict=True):
        sub.released = max(sub.released, upto)
    state.retained = {key: segment for key, segment in state.retained.items() if not _is_released(state, segment)}


def _is_released(state: ChannelState, segment: Segment) -> bool:
    """A segment in which a record begins is needed until that record is released, too."""
    released = state.subs[segment.sub].released
    return segment.end < released or (segment.end == released and not segment.trailing)
