"""One rule off at a time: what each is there for, and a case in which its absence is found.

None of this is in the product: the classes here are the shipped ones with one method spoiled.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from airflow_recovery.source.reconcile import Decision, Fate, Plan, SubtaskOutcome, Support, reconcile
from airflow_recovery.source.split_coordinator import SplitCoordinator
from airflow_recovery.source.split_events import Action, Claimed, Event, FenceAnswered, RetryDue, Send, SendFailed
from airflow_recovery.source.split_log import CoordinatorState, Discovered, End, Message, Return
from airflow_recovery.source.subtask_gateway import SubtaskGateway
from airflow_recovery.testing.split_exploration.case import LOSSES, Case, Fault, Rules


class _SnapshotsInLimbo(SplitCoordinator):
    """Does not wait for what is in flight."""

    @property
    def is_quiet(self) -> bool:
        return True


class _ForgetsFailedCalls(SplitCoordinator):
    """A call that has failed is not open any more, although nobody has dealt with it (FLINK-23233)."""

    def on(self, event: Event) -> list[Action]:
        if isinstance(event, RetryDue):
            self._lanes[event.subtask].in_flight.update(self._forgotten(event))
        actions = super().on(event)
        if isinstance(event, SendFailed):
            sending = self._lanes[event.subtask].in_flight.pop(event.seq, None)
            if sending is not None:
                self._kept = {**getattr(self, "_kept", {}), (event.subtask, event.attempt, event.seq): sending}
            actions += self._snapshot_if_quiet()
        return actions

    def _forgotten(self, event: RetryDue) -> dict[int, Any]:
        found = getattr(self, "_kept", {}).pop((event.subtask, event.attempt, event.seq), None)
        return {event.seq: found} if found is not None and event.attempt == self._lanes[event.subtask].running else {}


class _NeverRetries(SplitCoordinator):
    """Neither sends again nor fences: the loss that FLINK-21996 is about."""

    def on(self, event: Event) -> list[Action]:
        if isinstance(event, RetryDue):
            if event.attempt == self._lanes[event.subtask].running:
                self._lanes[event.subtask].in_flight.pop(event.seq, None)
            return self._snapshot_if_quiet()
        return super().on(event)


class _SendsUnderNewNumbers(SplitCoordinator):
    """Gives what is in limbo to the next who asks: it may have arrived."""

    def on(self, event: Event) -> list[Action]:
        if not isinstance(event, RetryDue):
            return super().on(event)
        sending = self._sending(event)
        if sending is None or isinstance(sending.message, End):
            return super().on(event)
        del self._lanes[event.subtask].in_flight[event.seq]
        self.book.add(Return(event.subtask, event.attempt - 1, sending.message.splits))
        return [each for each in self._send_next(event.subtask) if isinstance(each, Send)] + self._snapshot_if_quiet()


class _ReturnsBeforeTheClaim(SplitCoordinator):
    """Returns what was not committed when the fence was answered: the claim may look later, and find more."""

    def on(self, event: Event) -> list[Action]:
        if isinstance(event, FenceAnswered) and event.finished is None:
            lane = self._lanes[event.subtask]
            if lane.fencing == event.attempt:
                return super().on(Claimed(event.subtask, event.attempt + 1, frozenset()))
        return super().on(event)


class _FinishesWithHoles(SubtaskGateway):
    """END is enough."""

    def missing(self) -> tuple[int, ...] | None:
        return None if super().missing() is None else ()


class _AppliesRepeats(SubtaskGateway):
    """Does not look whether a number came before."""

    def on(self, message: Message) -> list[Any]:
        self._applied.discard(message.seq)
        return super().on(message)


class _OutlivesItsAttempt(SubtaskGateway):
    """Takes what was sent to its predecessor."""

    def _is_for_me(self, message: Message) -> bool:
        return message.subtask == self.subtask


def _snapshot_alone(
    snapshot: CoordinatorState | None,
    outcomes: Iterable[SubtaskOutcome],
    support: Support,
    listed: Discovered | None = None,
) -> Plan:
    """Takes the snapshot for all there is: what has finished after it is not taken back, nor entered."""
    found = [*outcomes]
    counted = dict(snapshot.counted) if snapshot is not None else {}
    known = [each for each in found if each.finished is None or counted.get(each.subtask) == each.attempt]
    plan = reconcile(snapshot, known, support, listed)
    newer = [each for each in found if each not in known]
    kept = tuple(Decision(each.subtask, each.attempt, Fate.KEEP, "it is green") for each in newer)
    return Plan((*plan.decisions, *kept), plan.book, plan.enumerator, plan.is_drained)


def _keeps_finishes(
    snapshot: CoordinatorState | None,
    outcomes: Iterable[SubtaskOutcome],
    support: Support,
    listed: Discovered | None = None,
) -> Plan:
    """Keeps a volatile source's finishes although what the others were given is known to nobody."""
    plan = reconcile(snapshot, [each for each in outcomes if each.finished is None], support, listed)
    kept = [each for each in outcomes if each.finished is not None]
    decisions = tuple(Decision(each.subtask, each.attempt, Fate.KEEP, "it is green") for each in kept)
    return Plan((*plan.decisions, *decisions), plan.book, plan.enumerator, plan.is_drained)


@dataclass(frozen=True)
class Control:
    """A case with one rule off, and how the violation that must be found begins."""

    name: str
    case: Case
    finds: str


def _case(rules: Rules, *kinds: Fault, **more: Any) -> Case:
    return Case(2, 1, frozenset(kinds), rules=rules, **more)


CONTROLS = (
    Control("a snapshot waits for what is in flight", _case(Rules(_SnapshotsInLimbo), *LOSSES), "limbo"),
    Control("a failed call is open until it is dealt with", _case(Rules(_ForgetsFailedCalls), *LOSSES), "limbo"),
    Control(
        "what is lost is sent again",
        _case(Rules(_NeverRetries, may_snapshot_in_limbo=True), Fault.LOSE_SEND),
        "dead end",
    ),
    Control(
        "a number below END that is missing keeps from finishing",
        _case(Rules(gateway=_FinishesWithHoles), Fault.LOSE_SEND, window=2),
        "lost",
    ),
    Control("a number is applied once", _case(Rules(gateway=_AppliesRepeats), Fault.LOSE_ACK), "doubled"),
    Control("what is in limbo is nobody else's", _case(Rules(_SendsUnderNewNumbers), Fault.LOSE_ACK), "doubled"),
    Control(
        "a gateway does not outlive its attempt",
        _case(Rules(gateway=_OutlivesItsAttempt), Fault.KILL, Fault.PRESUME_DEAD),
        "dead end",
    ),
    Control("an attempt is fenced first", _case(Rules(is_fenced=False), Fault.PRESUME_DEAD), "doubled"),
    Control("claim and return look once", _case(Rules(looks_again=True), Fault.PRESUME_DEAD), "lost"),
    Control(
        "the claim comes before the return",
        _case(Rules(_ReturnsBeforeTheClaim, may_snapshot_in_limbo=True), Fault.PRESUME_DEAD),
        "doubled",
    ),
    Control("a finish newer than the snapshot counts", _case(Rules(reconcile=_snapshot_alone), Fault.CRASH), "doubled"),
    Control(
        "a volatile coordinator's subtasks restart together",
        _case(Rules(reconcile=_keeps_finishes), Fault.CRASH, support=Support.NONE),
        "doubled",
    ),
)
"""Each switches one rule off; the sentence is the rule."""
