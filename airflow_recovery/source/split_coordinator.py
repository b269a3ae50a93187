"""Dynamic assignment while it runs: numbered messages, limbo, fall-back, snapshots (FLINK-21996, FLIP-383).

    PENDING ──send seq──▶ OPEN ──ack──▶ GIVEN ──part──▶ COMMITTED ──finish──▶ COUNTED
       ▲                   │ call failed or timed out                            │ reset
       │                 LIMBO ──retry, same seq, twice at most──▶ OPEN          │
       │                   │ retries used up, or the attempt failed              │
       └──return───────── fence, then claim ◀────────────────────────────────────┘

1. A split in limbo may have arrived or not. It is sent again under its number, which its receiver applies once; after
   that the attempt is fenced, so that both sides fall back to what its successor's claim adopts.
2. Fence, claim, return, in this order. Before the claim nobody knows what was read: a fenced attempt may have committed
   more, and what it commits after the claim has looked belongs to nobody.
3. What is in limbo is open until its failure was *handled*, not only until the call has failed (FLINK-23233).
4. No snapshot while anything is open, in limbo, or fenced and not returned.

Everything from outside is an event, time-outs and times too: no clock, no random number, no I/O.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from airflow_recovery.source.enumerators import SupportsBatchSnapshot
from airflow_recovery.source.reconcile import Fate, Plan
from airflow_recovery.source.split_events import (
    Acked,
    Action,
    AttemptFailed,
    Claimed,
    Event,
    Fence,
    FenceAnswered,
    Finished,
    NoMoreSplits,
    PartCommitted,
    Ready,
    Requested,
    RetryDue,
    Send,
    SendFailed,
    Snapshot,
    SnapshotTimedOut,
    SnapshotWritten,
    SubtaskReset,
)
from airflow_recovery.source.split_log import (
    Assign,
    CoordinatorState,
    Discovered,
    End,
    Message,
    Reset,
    Return,
    SplitBook,
)

MAX_RETRIES = 2
"""How often a number is sent again before its attempt is fenced."""

MIN_PAUSE_S = 180.0
"""Between snapshots (FLIP-383: ``snapshot.min-pause``)."""


class SplitState(str, Enum):
    """Where a split stands. `LIMBO` stands for "may have been read": in flight and failed, or its attempt is fenced."""

    PENDING = "pending"
    OPEN = "open"
    LIMBO = "limbo"
    GIVEN = "given"
    COMMITTED = "committed"
    COUNTED = "counted"


@dataclass
class _Sending:
    message: Message
    retries: int = 0
    is_limbo: bool = False


@dataclass
class _Lane:
    """What is known of one subtask: at most one of ``running``, ``fencing`` and ``counted`` is not `None`."""

    running: int | None = None
    fencing: int | None = None
    counted: int | None = None
    in_flight: dict[int, _Sending] = field(default_factory=dict)
    committed: set[str] = field(default_factory=set)
    queued: int = 0
    """Requests that came while the gateways were closed, or before there was anything to give."""


class SplitCoordinator:
    """Of one source with ``parallelism`` subtasks. A snapshot is due ``min_pause_s`` after the last at the earliest.

    ``batch_bytes`` bounds what one message gives, but for a single split that is larger. ``enumerator``: one that tells
    of its splits while others are read already; the built-in ones have told of all before (``is_drained``).
    """

    def __init__(
        self,
        parallelism: int,
        *,
        batch_bytes: int = 1,
        min_pause_s: float = MIN_PAUSE_S,
        enumerator: SupportsBatchSnapshot | None = None,
        is_drained: bool = True,
    ) -> None:
        self.book = SplitBook()
        self._lanes = {subtask: _Lane() for subtask in range(parallelism)}
        self._batch_bytes = batch_bytes
        self._min_pause_s = min_pause_s
        self._enumerator = enumerator
        self._is_drained = is_drained
        self._unheard: set[int] = set()
        self._number = 0
        self._last_snapshot_s: float | None = None
        self._finish_s: float = 0.0
        self._is_wanted = False
        self._is_writing = False

    # asking

    def state_of(self, split: str) -> SplitState:
        """Where ``split`` stands. Raises `KeyError` for one that is not known."""
        subtask = self.book.holder_of(split)
        if subtask is None:
            self.book.known[split]
            return SplitState.PENDING
        lane = self._lanes[subtask]
        if lane.counted is not None:
            return SplitState.COUNTED
        if lane.fencing is not None:
            return SplitState.LIMBO
        for each in lane.in_flight.values():
            if isinstance(each.message, Assign) and split in each.message.splits:
                return SplitState.LIMBO if each.is_limbo else SplitState.OPEN
        return SplitState.COMMITTED if split in lane.committed else SplitState.GIVEN

    @property
    def is_quiet(self) -> bool:
        """Nothing is open, in limbo, or fenced and not returned: what a snapshot needs."""
        return not any(each.in_flight or each.fencing is not None for each in self._lanes.values())

    @property
    def is_done(self) -> bool:
        """All subtasks have finished, and nothing is left for any of them."""
        return not self.book.has_pending and all(each.counted is not None for each in self._lanes.values())

    # restoring

    def restore(self, plan: Plan) -> list[Action]:
        """Go on from ``plan``. Attempts that have not finished are fenced, and none is adopted as it is.

        Their numbers are unknown here, and could be given out once more. Nobody is sent anything before it is known
        what the successor of each of them adopts: until then, a split that seems to be pending may have been read.
        """
        self.book = plan.book
        self._is_drained = plan.is_drained
        if self._enumerator is not None and plan.enumerator is not None:
            self._enumerator.restore(plan.enumerator)
        actions: list[Action] = []
        for each in plan.decisions:
            if each.fate is Fate.KEEP:
                self._lanes[each.subtask].counted = each.attempt
            if each.fate in (Fate.RESET, Fate.START_ANEW):
                actions.append(Reset(each.subtask, each.attempt))
            if each.fate in (Fate.ADOPT, Fate.START_ANEW):
                self._unheard.add(each.subtask)
                actions += self._fence(each.subtask, each.attempt)
        return actions

    # events

    def on(self, event: Event) -> list[Action]:
        """What has to be done now. An event of an attempt that is not the running one changes nothing."""
        actions = _HANDLERS[type(event)](self, event)
        return actions + self._snapshot_if_quiet()

    def _listed(self, event: Discovered) -> list[Action]:
        self.book.add(event)
        return self._open_gateways()

    def _no_more_splits(self, event: NoMoreSplits) -> list[Action]:
        self._is_drained = True
        return self._open_gateways()

    def _ready(self, event: Ready) -> list[Action]:
        lane = self._lanes[event.subtask]
        if lane.fencing is None and lane.counted is None and not self.book.is_over(event.subtask, event.attempt):
            lane.running = event.attempt
        return []

    def _requested(self, event: Requested) -> list[Action]:
        lane = self._lanes[event.subtask]
        if event.attempt != lane.running:
            return []
        if self._is_wanted or self._unheard:
            lane.queued += 1
            return []
        return self._send_next(event.subtask)

    def _acked(self, event: Acked) -> list[Action]:
        lane = self._lanes[event.subtask]
        if event.attempt == lane.running:
            lane.in_flight.pop(event.seq, None)
        return []

    def _send_failed(self, event: SendFailed) -> list[Action]:
        sending = self._sending(event)
        if sending is not None:
            sending.is_limbo = True
        return []

    def _retry_due(self, event: RetryDue) -> list[Action]:
        sending = self._sending(event)
        if sending is None or not sending.is_limbo:
            return []
        if sending.retries == MAX_RETRIES:
            return self._fence(event.subtask, event.attempt)
        sending.retries += 1
        sending.is_limbo = False
        return [Send(sending.message)]

    def _part_committed(self, event: PartCommitted) -> list[Action]:
        lane = self._lanes[event.subtask]
        if event.attempt == lane.running:
            lane.committed.update(event.splits)
        return []

    def _attempt_failed(self, event: AttemptFailed) -> list[Action]:
        if event.attempt != self._lanes[event.subtask].running:
            return []
        return self._fence(event.subtask, event.attempt)

    def _fence_answered(self, event: FenceAnswered) -> list[Action]:
        if event.attempt != self._lanes[event.subtask].fencing or event.finished is None:
            return []
        if self.book.is_over(event.subtask, event.attempt):
            return []
        return self._count(event.subtask, event.attempt, event.finished)

    def _claimed(self, event: Claimed) -> list[Action]:
        lane = self._lanes[event.subtask]
        # One that runs may have been fenced by others, who start its successor.
        before = lane.running if lane.fencing is None else lane.fencing
        if before is None or event.attempt <= before:
            return []
        self.book.adopt(event.subtask, sorted(event.base))
        rest = tuple(each for each in self.book.held_by(event.subtask) if each not in event.base)
        returned = Return(event.subtask, before, rest)
        self.book.add(returned)
        self._lanes[event.subtask] = _Lane(committed=set(event.base))
        return [returned, *self._heard_of(event.subtask)]

    def _finished(self, event: Finished) -> list[Action]:
        lane = self._lanes[event.subtask]
        if event.attempt not in (lane.running, lane.fencing) or self.book.is_over(event.subtask, event.attempt):
            return []
        self._finish_s = event.at_s
        return self._count(event.subtask, event.attempt, event.splits)

    def _subtask_reset(self, event: SubtaskReset) -> list[Action]:
        lane = self._lanes[event.subtask]
        # Of a finish that was reset before we heard of it, the subtask still seems to run, or to be fenced.
        if event.attempt not in (lane.counted, lane.running, lane.fencing):
            return []
        reset = Reset(event.subtask, event.attempt)
        self.book.add(reset)
        if lane.fencing is None:
            self._lanes[event.subtask] = _Lane()
        return [reset]

    def _snapshot_ended(self, event: SnapshotWritten | SnapshotTimedOut) -> list[Action]:
        if event.number != self._number or not self._is_wanted:
            return []
        if isinstance(event, SnapshotWritten):
            self._last_snapshot_s = self._finish_s
        self._is_wanted = self._is_writing = False
        self._number += 1
        return self._open_gateways()

    # what events come to

    def _sending(self, event: SendFailed | RetryDue) -> _Sending | None:
        lane = self._lanes[event.subtask]
        return lane.in_flight.get(event.seq) if event.attempt == lane.running else None

    def _send_next(self, subtask: int) -> list[Action]:
        lane = self._lanes[subtask]
        if lane.running is None or self.book.has_end(subtask, lane.running):
            return []
        message = self.book.message_for(subtask, lane.running, self._batch_bytes)
        if isinstance(message, End) and not self._is_drained:
            lane.queued += 1
            return []
        self.book.add(message)
        lane.in_flight[message.seq] = _Sending(message)
        return [Send(message)]

    def _fence(self, subtask: int, attempt: int) -> list[Action]:
        self._lanes[subtask] = _Lane(fencing=attempt)
        return [Fence(subtask, attempt)]

    def _count(self, subtask: int, attempt: int, splits: Iterable[str]) -> list[Action]:
        self.book.adopt(subtask, splits)
        rest = tuple(each for each in self.book.held_by(subtask) if each not in set(splits))
        # It finished without them: nothing that was sent to it is open any more.
        returned = Return(subtask, attempt, rest)
        self.book.add(returned)
        self._lanes[subtask] = _Lane(counted=attempt)
        everyone = all(each.counted is not None for each in self._lanes.values())
        last_s = self._last_snapshot_s
        if everyone or last_s is None or self._finish_s - last_s >= self._min_pause_s:
            self._is_wanted = True
        return [*([returned] if rest else []), *self._heard_of(subtask)]

    def _heard_of(self, subtask: int) -> list[Action]:
        self._unheard.discard(subtask)
        return self._open_gateways()

    def _open_gateways(self) -> list[Action]:
        if self._is_wanted or self._unheard:
            return []
        actions: list[Action] = []
        for subtask, lane in self._lanes.items():
            queued, lane.queued = lane.queued, 0
            for _ in range(queued):
                actions += self._send_next(subtask)
        return actions

    def _snapshot_if_quiet(self) -> list[Action]:
        if not self._is_wanted or self._is_writing or not self.is_quiet:
            return []
        self._is_writing = True
        counted = tuple((subtask, each.counted) for subtask, each in self._lanes.items() if each.counted is not None)
        state = self._enumerator.snapshot_state() if self._enumerator is not None else None
        return [Snapshot(self._number, CoordinatorState(self.book.to_json(), counted, state, self._is_drained))]


_HANDLERS: Mapping[type[Any], Callable[[SplitCoordinator, Any], list[Action]]] = {
    Discovered: SplitCoordinator._listed,
    NoMoreSplits: SplitCoordinator._no_more_splits,
    Ready: SplitCoordinator._ready,
    Requested: SplitCoordinator._requested,
    Acked: SplitCoordinator._acked,
    SendFailed: SplitCoordinator._send_failed,
    RetryDue: SplitCoordinator._retry_due,
    PartCommitted: SplitCoordinator._part_committed,
    AttemptFailed: SplitCoordinator._attempt_failed,
    FenceAnswered: SplitCoordinator._fence_answered,
    Claimed: SplitCoordinator._claimed,
    Finished: SplitCoordinator._finished,
    SubtaskReset: SplitCoordinator._subtask_reset,
    SnapshotWritten: SplitCoordinator._snapshot_ended,
    SnapshotTimedOut: SplitCoordinator._snapshot_ended,
}
