"""What is explored: how many splits and faults, of which kinds, under which rules."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum

from airflow_recovery.source.reconcile import Plan, Support, reconcile
from airflow_recovery.source.split_coordinator import SplitCoordinator
from airflow_recovery.source.subtask_gateway import SubtaskGateway


class Fault(str, Enum):
    """What may go wrong, at any moment."""

    LOSE_SEND = "a message is lost"
    LOSE_ACK = "an acknowledgement is lost"
    TIME_OUT = "a call times out, and its message or acknowledgement comes late"
    KILL = "an attempt dies"
    PRESUME_DEAD = "an attempt is taken for dead, and works on"
    CRASH = "the coordinator dies"
    RESET = "a finish is reset"
    SLOW_SNAPSHOT = "a snapshot takes too long"


LOSSES = frozenset({Fault.LOSE_SEND, Fault.LOSE_ACK, Fault.TIME_OUT})
EVERY_FAULT = frozenset(Fault)


@dataclass(frozen=True)
class Rules:
    """The classes that are explored, and what the world holds to beside them: the shipped ones, unless one is off."""

    coordinator: type[SplitCoordinator] = SplitCoordinator
    gateway: type[SubtaskGateway] = SubtaskGateway
    reconcile: Callable[..., Plan] = reconcile
    is_fenced: bool = True
    """Is an attempt ended before its successor is claimed?"""
    looks_again: bool = False
    """Does the coordinator look at the part logs for itself, and not at the claim's base?"""
    may_snapshot_in_limbo: bool = False
    """For what comes of it in the end."""


@dataclass(frozen=True)
class Case:
    """Two subtasks, ``splits`` splits, and up to ``faults`` faults of ``kinds``."""

    splits: int
    faults: int
    kinds: frozenset[Fault] = EVERY_FAULT
    support: Support = Support.STABLE_KEYS
    rules: Rules = field(default_factory=Rules)
    subtasks: int = 2
    window: int = 1
    """How many messages an attempt may be waiting for: with two, they can overtake."""
    in_every_order: bool = False
    """Also what happens after the last fault has been dealt with. Case 0 faults tells of it already."""

    def text(self) -> str:
        """One line for people."""
        kinds = "any kind" if self.kinds == EVERY_FAULT else ", ".join(sorted(each.name.lower() for each in self.kinds))
        return f"{self.splits} splits, {self.faults} faults ({kinds}), coordinator with {self.support.value}"
