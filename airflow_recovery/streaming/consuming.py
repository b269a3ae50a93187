"""What a consumer may write next: from the state and what is wanted, a record, or a refusal."""

from __future__ import annotations

from airflow_recovery.errors import ChannelEvicted, ChannelInconsistent, LossBudgetExceeded
from airflow_recovery.model.channel_options import Reconnect
from airflow_recovery.streaming.channel_records import (
    BatchCommitted,
    ChannelIdentity,
    CheckpointPlanned,
    Consumed,
    Loss,
    LossCause,
    Offsets,
    Released,
    ViewCreated,
)
from airflow_recovery.streaming.channel_state import ChannelState
from airflow_recovery.streaming.ledger import excess_of
from airflow_recovery.streaming.ranges import Ranges, between, common, merged, minus, size


def create_view(
    state: ChannelState,
    attempt: int,
    reconnect: Reconnect,
    *,
    published: tuple[int, Consumed] | None = None,
) -> ViewCreated:
    """Take the consumer's side. The older view is evicted, and needs no notice; its pending plan is aborted.

    ``published``: of the consumer's own output channel, as `published_of` says it. Where that holds the pending plan,
    the attempt before died between the two logs: the plan is completed by this very record.

    Raises `ChannelEvicted` for an attempt that is not newer than the view's, and `ChannelInconsistent` before the
    producer has opened the channel.
    """
    if not state.producer:
        raise ChannelInconsistent(
            f"consumer attempt {attempt}: expected an open channel: wait for its producer", code="channel-closed"
        )
    if attempt <= state.view:
        raise _evicted(state, attempt)
    adopt = None
    if published is not None and state.plan is not None and published[1].end == state.plan.end:
        adopt = published[0]
    jumps = reconnect is Reconnect.LATEST and state.view > 0
    return ViewCreated(attempt, reconnect, state.ends if jumps else (), state.epoch, adopt)


def published_of(output: ChannelState, identity: ChannelIdentity) -> tuple[int, Consumed] | None:
    """The newest epoch of a consumer's output channel, and what of channel ``identity`` it was made of, if anything.

    It must be asked *after* this attempt has opened the output: an older attempt can't publish any more then. The
    number of the epoch alone would not do: it says nothing of another generation.
    """
    consumed = output.consumed.get(identity.edge)
    return None if consumed is None or consumed.generation != identity.generation else (output.epoch, consumed)


def next_end(state: ChannelState, max_records: int | None = None) -> Offsets:
    """Where the next batch ends: ``max_records`` is the credit, shared by the subpartitions that have records.

    What is lost costs no credit. `None`: everything that is published.
    """
    if max_records is None:
        return state.ends
    waiting = [size(_readable(state, number, sub.done, sub.end)[0]) for number, sub in enumerate(state.subs)]
    taken = dict.fromkeys(range(len(waiting)), 0)
    credit = max_records
    # The shortest first, so that what one does not use is left for the others.
    for rank, number in enumerate(sorted(taken, key=waiting.__getitem__)):
        share = -(-credit // (len(waiting) - rank))
        taken[number] = min(waiting[number], share)
        credit -= taken[number]
    return tuple(_end_after(state, number, taken[number], waiting[number]) for number in taken)


def _end_after(state: ChannelState, number: int, taken: int, waiting: int) -> int:
    sub = state.subs[number]
    if taken == waiting:
        return sub.end
    for start, stop in _readable(state, number, sub.done, sub.end)[0]:
        if taken <= stop - start:
            return start + taken if taken else sub.done
        taken -= stop - start
    return sub.done


def make_plan(state: ChannelState, attempt: int, start: Offsets, end: Offsets) -> CheckpointPlanned | None:
    """Pin the records up to ``end``, and say range by range what will be read, and what is lost and why.

    Records before ``start`` must be behind the checkpoint; those behind the checkpoint are not read again. `None`:
    there is nothing to read, or this plan is pending already. Raises `ChannelEvicted`, `LossBudgetExceeded` before
    anything is read or written, and `ChannelInconsistent` where records would vanish.
    """
    if attempt != state.view:
        raise _evicted(state, attempt)
    if state.plan is not None and (state.plan.start, state.plan.end) == (start, end):
        return None
    if all(wanted <= sub.done for wanted, sub in zip(end, state.subs, strict=True)):
        return None
    read: list[Ranges] = []
    lost: list[Loss] = []
    for number, sub in enumerate(state.subs):
        if start[number] > sub.done or end[number] > sub.end:
            raise ChannelInconsistent(
                f"subpartition {number}, batch from {start[number]} to {end[number]}: expected it to begin at the "
                f"checkpoint {sub.done} or before, and to end at {sub.end} or before: records would be skipped without "
                "being counted. Fork the checkpoint at the last completed batch of the log",
                code="batch-skips-records",
            )
        ranges, losses = _readable(state, number, sub.done, end[number])
        held = merged((segment.first, segment.end) for segment in state.segments_of(number))
        if missing := minus(ranges, held):
            raise ChannelInconsistent(
                f"subpartition {number}: expected {missing} to be retained, found it neither retained nor dropped: "
                "the log was altered from outside; begin a new generation"
            )
        read.append(ranges)
        lost += losses
    excess = excess_of(state, sum(loss.records for loss in lost), map(max, end, state.done)) if lost else None
    if excess is not None:
        raise LossBudgetExceeded(
            f"the checkpoint after {state.checkpoint} is not made: it would lose too much, {excess}. Earlier ones "
            "stand; nothing of this one was read or written. Raise the budget, or rebuild with BLOCKING results",
            code="checkpoint-over-budget",
        )
    return CheckpointPlanned(attempt, start, end, tuple(read), tuple(lost))


def _readable(state: ChannelState, number: int, start: int, stop: int) -> tuple[Ranges, list[Loss]]:
    """Of the records ``[start, stop)`` of a subpartition: those that can be read, and the others with their cause."""
    sub = state.subs[number]
    rest = between(start, stop)
    losses: list[Loss] = []
    jump = between(0, state.jump[number]) if state.jump else ()
    for cause, gone in (
        (LossCause.RECONNECT, jump),
        (LossCause.OVERFLOW, sub.dropped),
        (LossCause.TORN, sub.torn),
    ):
        losses += [Loss(number, start, stop, cause) for start, stop in common(rest, gone)]
        rest = minus(rest, gone)
    return rest, losses


def commit_batch(
    state: ChannelState, attempt: int, batch: int, records: Offsets, outputs: tuple[str, ...] = ()
) -> BatchCommitted | None:
    """Complete the pending plan: checkpoint, sink commit and ledger in one record.

    ``records``: how many were read of every subpartition. `None`: the batch held no data, or its commit is in the log.
    Raises `ChannelEvicted`, and `ChannelInconsistent` where other records were read than were planned.
    """
    if attempt != state.view:
        raise _evicted(state, attempt)
    if batch <= state.checkpoint:
        return None
    planned = tuple(map(size, state.plan.read)) if state.plan is not None else (0,) * len(state.subs)
    if records != planned:
        raise ChannelInconsistent(
            f"batch {batch}: expected {planned} records by subpartition as planned, found {records}: it is not "
            "committed, since the difference would be an uncounted loss. The next attempt reads again",
            code="batch-not-as-planned",
        )
    return None if state.plan is None else BatchCommitted(attempt, batch, state.plan.end, outputs)


def release(state: ChannelState, attempt: int, upto: Offsets) -> Released | None:
    """Let go what Spark will never ask for again; `None` where nothing is new. Raises `ChannelEvicted`."""
    if attempt != state.view:
        raise _evicted(state, attempt)
    safe = tuple(map(min, upto, state.done))
    if all(offset <= sub.released for offset, sub in zip(safe, state.subs, strict=True)):
        return None
    return Released(attempt, safe)


def _evicted(state: ChannelState, attempt: int) -> ChannelEvicted:
    return ChannelEvicted(
        f"consumer attempt {attempt}: attempt {state.view} holds, or held, the only view; this process must stop, and "
        "has changed nothing",
        code="consumer-evicted",
    )
