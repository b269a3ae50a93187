"""Which subtasks restart together because their coordinator is volatile (FLIP-383's two rules for one that is).

    some subtask has not finished    -> after a loss, all subtasks are reset
    all subtasks have finished       -> they are kept; the first one that must run again later takes the others along

Here every try is a new process, so a subtask that has started and must run again is such a loss, whatever its cause: a
kill, an own failure, a lost result, changed code, a restart by a person. That makes the two rules one. It is derived
from the journal, so it survives any loss (in Flink, "unrecovered" vertices are remembered in memory). Consumers follow
since what they read does not count any more.
"""

from __future__ import annotations

from collections import Counter

from airflow_recovery.journal.run_state import RegionState, RunState
from airflow_recovery.model.records import CoordinatorSnapshot, PlanRecord
from airflow_recovery.model.region_plan import RegionPlan
from airflow_recovery.planning.reason import Reason


def restarted_with(topology: PlanRecord, region: RegionPlan) -> tuple[str, ...]:
    """The other subtasks of a vertex whose coordinator is volatile; none for any other region."""
    return tuple(_siblings(topology, region)) if region.is_volatile else ()


class VertexRestarts:
    """Of one state of a run: why a vertex restarts as a whole. What is known of a vertex is found out once."""

    def __init__(self, topology: PlanRecord, state: RunState) -> None:
        self._topology = topology
        self._state = state
        self._started: dict[str, set[str]] = {}
        self._answered: dict[str, Counter[str]] = {}

    def has_started(self, vertex: str) -> bool:
        """Is there a subtask of ``vertex`` that a reset would take an attempt from?"""
        return bool(self.started(vertex))

    def why(self, region: RegionPlan, reason: Reason) -> str | None:
        """Why the other subtasks have to be reset, now that ``region`` must run because of ``reason``.

        `None`: they need not. A person's reset of ``region`` is answered once: by resets of the others that name it.
        """
        if region.subtask is None or not region.is_volatile:
            return None
        region_state = self._state.of(region.name)
        started = self.started(region.subtask.of)
        others = len(started) - (region.name in started)
        if not others:
            return None
        cause = cause_of(region.name, region_state)
        if has_started(region_state):
            return f"{cause}, whose coordinator takes no snapshots, must run again: {reason.text()}"
        reset = (
            region_state.attempts[region_state.reset_watermark].reset
            if region_state.reset_watermark in region_state.attempts
            else None
        )
        if reset is None or reset.failover or reset.epoch is not None:
            return None
        if self._answered[region.subtask.of][cause] >= others:
            return None
        return f"{cause}, whose coordinator takes no snapshots, was reset: {reset.why}"

    def started(self, vertex: str) -> set[str]:
        """The subtasks of ``vertex`` that a reset would take an attempt from."""
        if vertex not in self._started:
            states = {name: self._state.of(name) for name in self._topology.subtask_names[vertex]}
            self._started[vertex] = {name for name, state in states.items() if has_started(state)}
            self._answered[vertex] = Counter(
                answer for name in self._started[vertex] for answer in _answers(states[name])
            )
        return self._started[vertex]


def coordinator_snapshots(topology: PlanRecord, state: RunState, region: RegionPlan) -> tuple[CoordinatorSnapshot, ...]:
    """What the coordinators of ``region`` are restored from: the other subtasks' finishes that count, of today's code.

    Not from its own, where it has finished and must run again: what it had been given goes back.
    """
    snapshots: list[CoordinatorSnapshot] = []
    for sibling in _siblings(topology, region) if region.coordinators else ():
        current = state.of(sibling).current
        outcome = current.outcome if current is not None else None
        if outcome is not None and outcome.fingerprint == topology.by_name[sibling].fingerprint:
            snapshots += [CoordinatorSnapshot(vertex, sibling, body) for vertex, body in outcome.coordinators]
    return tuple(snapshots)


def _siblings(topology: PlanRecord, region: RegionPlan) -> list[str]:
    """The other subtasks of its vertex."""
    if region.subtask is None:
        return []
    return [name for name in topology.subtask_names[region.subtask.of] if name != region.name]


def has_started(region: RegionState) -> bool:
    """Is there an attempt that a reset would take away?"""
    return region.latest_attempt > region.reset_watermark


def cause_of(region: str, state: RegionState) -> str:
    """The attempt that takes others along: ``region@n``."""
    return f"{region}@{max(state.latest_attempt, state.reset_watermark)}"


def _answers(state: RegionState) -> set[str]:
    """What the resets of a region were taken along by."""
    resets = (attempt.reset for attempt in state.attempts.values() if attempt.reset is not None)
    return {reset.answers for reset in resets if reset.answers is not None}
