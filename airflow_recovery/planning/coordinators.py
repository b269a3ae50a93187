"""Which subtasks restart together because their coordinator is volatile (FLIP-383's two rules for one that is).

    some subtask has not finished    -> after a loss, all subtasks are reset
    all subtasks have finished       -> they are kept; the first one that must run again later takes the others along

Here every try is a new process, so a subtask that has started and must run again is such a loss, whatever its cause: a
kill, an own failure, a lost result, changed code, a restart by a person. That makes the two rules one. It is derived
from the journal, so it survives any loss (in Flink, "unrecovered" vertices are remembered in memory). Consumers follow
since what they read does not count any more.
"""

from __future__ import annotations

from airflow_recovery.journal.run_state import RegionState, RunState
from airflow_recovery.model.records import CoordinatorSnapshot, PlanRecord, RegionPlan
from airflow_recovery.planning.reason import Reason


def restarted_with(topology: PlanRecord, region: RegionPlan) -> tuple[str, ...]:
    """The other subtasks of a vertex whose coordinator is volatile; none for any other region."""
    return tuple(sibling.name for sibling in _siblings(topology, region)) if region.is_volatile else ()


def why_restart_vertex(topology: PlanRecord, state: RunState, region: RegionPlan, why: Reason) -> str | None:
    """Why the other subtasks have to be reset, now that ``region`` must run because of ``why``; `None`: they need not.

    A person's reset of ``region`` is answered once: by resets of the others that name it.
    """
    mine = state.of(region.name)
    started = [name for name in restarted_with(topology, region) if has_started(state.of(name))]
    if not started:
        return None
    if has_started(mine):
        return f"{cause_of(region.name, mine)}, whose coordinator takes no snapshots, must run again: {why.text()}"
    reset = mine.attempts[mine.reset_watermark].reset if mine.reset_watermark in mine.attempts else None
    if reset is None or reset.failover or reset.epoch is not None:
        return None
    cause = cause_of(region.name, mine)
    if all(_answers(state.of(name), cause) for name in started):
        return None
    return f"{cause}, whose coordinator takes no snapshots, was reset: {reset.why}"


def coordinator_snapshots(topology: PlanRecord, state: RunState, region: RegionPlan) -> tuple[CoordinatorSnapshot, ...]:
    """What the coordinators of ``region`` are restored from: the other subtasks' finishes that count, of today's code.

    Not from its own, where it has finished and must run again: what it had been given goes back.
    """
    snapshots: list[CoordinatorSnapshot] = []
    for sibling in _siblings(topology, region) if region.coordinators else ():
        current = state.of(sibling.name).current
        outcome = current.outcome if current is not None else None
        if outcome is not None and outcome.fingerprint == sibling.fingerprint:
            snapshots += [CoordinatorSnapshot(vertex, sibling.name, body) for vertex, body in outcome.coordinators]
    return tuple(snapshots)


def _siblings(topology: PlanRecord, region: RegionPlan) -> list[RegionPlan]:
    """The other subtasks of its vertex."""
    if region.subtask is None:
        return []
    of = region.subtask.of
    others = (region for region in topology.regions if region.subtask is not None and region.subtask.of == of)
    return [other for other in others if other.name != region.name]


def has_started(region: RegionState) -> bool:
    """Is there an attempt that a reset would take away?"""
    return region.latest_attempt > region.reset_watermark


def cause_of(region: str, state: RegionState) -> str:
    """The attempt that takes others along: ``region@n``."""
    return f"{region}@{max(state.latest_attempt, state.reset_watermark)}"


def _answers(state: RegionState, cause: str) -> bool:
    return any(attempt.reset is not None and attempt.reset.answers == cause for attempt in state.attempts.values())
