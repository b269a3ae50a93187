"""How much a channel keeps: back-pressure before an epoch is published, and which objects nobody needs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

from airflow_recovery.errors import ChannelEvicted
from airflow_recovery.model.channel_options import Overflow
from airflow_recovery.streaming.channel_records import Segment, SegmentsDropped
from airflow_recovery.streaming.channel_state import ChannelState
from airflow_recovery.streaming.ranges import between, common, merged, minus, size


class Room(str, Enum):
    """Whether an epoch may be published now."""

    YES = "yes"
    AFTER_DROP = "after the drop"
    WAIT = "wait"


@dataclass(frozen=True)
class RoomDecision:
    """``drop`` is written first, where there is one, whatever ``room`` says. ``reason`` is for people."""

    room: Room
    drop: SegmentsDropped | None
    reason: str


def backlog_bytes(state: ChannelState) -> int:
    """What the consumer has not committed.

    What is committed and waits for its release is not in it: the release comes with the *next* batch, so a producer
    that waited for it would wait for ever. It is one batch at most.
    """
    return sum(segment.bytes for segment in state.retained.values() if _is_wanted(state, segment))


def make_room(
    state: ChannelState, attempt: int, incoming_bytes: int, *, overflow: Overflow, max_bytes: int
) -> RoomDecision:
    """Decide whether ``incoming_bytes`` may be published. Raises `ChannelEvicted`.

    An epoch always fits where nothing waits, however large it is. `Overflow.DROP` drops the oldest first, and never
    what the pending plan has pinned, so that the limit is exceeded by one batch at most; where the budget allows no
    more losses, the producer waits instead.
    """
    if attempt != state.producer:
        raise ChannelEvicted(f"producer attempt {attempt}: attempt {state.producer} owns the channel; stop")
    backlog = backlog_bytes(state)
    excess = backlog + incoming_bytes - max_bytes
    if excess <= 0 or backlog == 0:
        return RoomDecision(Room.YES, None, f"{backlog} of {max_bytes} bytes are taken")
    full = f"the consumer is {backlog} bytes behind, {incoming_bytes} more would exceed {max_bytes}"
    if overflow is Overflow.BLOCK:
        return RoomDecision(Room.WAIT, None, f"{full}: waiting for it")
    gone: list[Segment] = []
    waits = False
    for segment in _droppable(state):
        if excess <= 0:
            break
        if _is_over_budget(state, [*gone, segment]):
            waits = True
            break
        gone.append(segment)
        excess -= segment.bytes
    drop = SegmentsDropped(attempt, tuple(segment.key for segment in gone)) if gone else None
    if waits:
        return RoomDecision(Room.WAIT, drop, f"{full}, and the budget allows no more losses: waiting for it")
    return RoomDecision(Room.AFTER_DROP if drop else Room.YES, drop, f"{full}: dropped {len(gone)} segments")


def _is_wanted(state: ChannelState, segment: Segment) -> bool:
    """It holds records that are not behind the checkpoint.

    The mere beginning of a record is not counted, since the consumer can do nothing before the rest is published.
    """
    return segment.end > state.subs[segment.sub].done


def _droppable(state: ChannelState) -> Iterator[Segment]:
    for segment in state.retained.values():
        if _is_wanted(state, segment) and not _is_pinned(state, segment):
            yield segment


def _is_pinned(state: ChannelState, segment: Segment) -> bool:
    """The pending plan reads from it, or reads the record that begins in it."""
    if state.plan is None:
        return False
    return bool(common(state.plan.read[segment.sub], between(segment.first, _end_with_rest(segment))))


def _end_with_rest(segment: Segment) -> int:
    """Behind the last record that can't be read without this segment."""
    return segment.end + (1 if segment.trailing else 0)


def _is_over_budget(state: ChannelState, gone: Sequence[Segment]) -> bool:
    """Whether a checkpoint could break a budget once these are dropped.

    The worst one ends where the losses end: with them its fraction is the highest.
    """
    pending = 0
    for number, sub in enumerate(state.subs):
        lost = [*sub.dropped, *sub.torn]
        lost += [(segment.first, _end_with_rest(segment)) for segment in gone if segment.sub == number]
        if state.jump:
            lost.append((0, state.jump[number]))
        pending += size(minus(merged(lost), between(0, sub.done)))
    done = sum(state.done)
    since = sum(entry.records for entry in state.ledger if entry.attempt == state.view)
    return bool(
        state.budget.excess(state.lost + pending, done + pending)
        or state.restart_budget.excess(since + pending, done - sum(state.view_began) + pending)
    )


def orphans(state: ChannelState, keys: Iterable[str]) -> list[str]:
    """Those of a channel's objects that no record will ever name, to be deleted by a sweep.

    Segments ``seg/<attempt>/...`` and outputs ``out/<attempt>/...``; any other key is left alone. What the newest
    attempt of a side has written may still be named, until the channel has ended.
    """
    named = state.retained.keys() | set(state.outputs)
    unnamed = []
    for key in keys:
        kind, attempt, rest = [*key.split("/", 2), "", ""][:3]
        if key in named or not rest or not attempt.isdecimal():
            continue
        is_over = {
            "seg": int(attempt) < state.producer or state.is_finished,
            "out": int(attempt) < state.view or state.is_drained,
        }
        if is_over.get(kind, False):
            unnamed.append(key)
    return unnamed
