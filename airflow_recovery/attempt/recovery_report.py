"""What recovery was good for in one run: how much ran again, and what clearing everything would have cost. Pure."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from airflow_recovery.journal.run_state import RegionState, RunState
from airflow_recovery.model.records import Outcome, PlanRecord


@dataclass(frozen=True)
class Recovered:
    """``again``: regions that have more than one attempt, of ``regions``. ``by_hand``: a person has reset one of them.

    ``spared``: regions that are valid, had finished before the last one ran again, and would have run again with it had
    everything been cleared, which is what Airflow's own means come to. ``seconds_saved``: Spark's time of them, each
    counted once, however often they were spared. What no driver has measured is not in it.
    """

    regions: int
    again: tuple[str, ...]
    spared: tuple[str, ...]
    by_hand: bool
    seconds_saved: float

    def text(self) -> str:
        """One line for people, such as "recovered by itself: 3 of 14 regions, 2 h 10 min saved"."""
        if not self.again:
            return f"nothing had to recover: {self.regions} regions ran once"
        who = "recovered" if self.by_hand else "recovered by itself"
        return f"{who}: {len(self.again)} of {self.regions} regions, {_time(self.seconds_saved)} saved"


def recovered(plan: PlanRecord, state: RunState, kept: Collection[str] = ()) -> Recovered:
    """Of the run as its journal has it now.

    ``kept``: regions of which the history says that a later try has found them valid. Records alone tell which ran
    once while another one ran twice; that a whole run was cleared and nothing had to run stands in the history only.
    """
    regions = [name for group in plan.groups if group.template.vertices for name in group.names]
    again = tuple(name for name in regions if _attempts(state.of(name)) > 1)
    resets = (attempt.reset for name in regions for attempt in state.of(name).attempts.values())
    by_hand = any(reset is not None and not reset.failover for reset in resets)
    valid = {
        name: current.outcome
        for name in regions
        if (current := state.of(name).current) is not None and current.outcome is not None
    }
    spared = tuple(
        name
        for name, outcome in valid.items()
        if name in kept or (name not in again and any(_had_ended(outcome, state.of(other)) for other in again))
    )
    seconds = sum(valid[name].spark_seconds or 0.0 for name in spared)
    return Recovered(len(regions), again, spared, by_hand, seconds)


def _had_ended(outcome: Outcome, other: RegionState) -> bool:
    """Whether it had when the last attempt of the ``other`` one ended: by the workers' clocks, all of them in UTC."""
    last = other.attempts[other.latest_attempt].outcome
    return last is None or outcome.ended_at <= last.ended_at


def _attempts(region: RegionState) -> int:
    return sum(attempt.is_claimed for n, attempt in region.attempts.items() if n > region.closed_at)


def _time(seconds: float) -> str:
    minutes, hours = int(seconds // 60), int(seconds // 3600)
    if hours:
        return f"{hours} h {minutes % 60} min"
    return f"{minutes} min {int(seconds % 60)} s" if minutes else f"{int(seconds)} s"
