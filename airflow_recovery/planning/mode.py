"""What planning asks the mode of a region. The answers here are batch's; nothing else here knows a mode.

Another mode answers in ``planning`` of its package. What restarts together with a region of such a mode is asked in
`airflow_recovery.planning.restart_mode`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, ClassVar

from airflow_recovery.journal.run_state import Attempt, RunState
from airflow_recovery.model.mode import RegionMode, answers_of, modes_of_keys
from airflow_recovery.model.records import Outcome
from airflow_recovery.model.region_plan import RegionPlan
from airflow_recovery.planning.reason import Reason

BEGINS = "begins"
"""`airflow_recovery.planning.plan.PlannedRegion.restart` of a region that runs for the first time."""


@dataclass(frozen=True)
class PlannedMode:
    """What a plan says of a mode besides its regions. Batch says nothing.

    The fields of a subclass are keys of the plan's JSON.
    """

    def text(self) -> str:
        """For people: a paragraph with a heading, or nothing."""
        return ""


class PlanningMode:
    """The questions, with batch's answers. ``regions`` are those of the plan: one is made when it is looked up."""

    planned: ClassVar[type[PlannedMode]] = PlannedMode
    """The class of what a plan says of the mode."""

    def why_source_changed(
        self, regions: Mapping[str, RegionPlan], region: str, outcome: Outcome, known: object
    ) -> str | None:
        """How what ``region`` is to read today is other than what the finish ``outcome`` has read, if it is.

        ``known``: what the mode knows of the run besides its records (`Evaluation.known`).
        """
        return None

    def why_disconnected(
        self, regions: Mapping[str, RegionPlan], region: str, state: RunState, basis: RegionMode
    ) -> Reason | None:
        """Why what an attempt works, or has worked, with at the same time as others does not count any more.

        ``basis``: what its claim or its outcome says of it.
        """
        return None

    def why_peer_invalid(
        self, regions: Mapping[str, RegionPlan], region: str, state: RunState, invalid: Mapping[str, Reason | None]
    ) -> Reason | None:
        """Why a finish is invalid because of a region that fed it while it ran. ``invalid``: of those before it."""
        return None

    def results(self, region: RegionPlan) -> tuple[str, ...]:
        """What others read of ``region`` while it makes it: these are not in `RegionPlan.results`."""
        return ()

    def producers(self, region: RegionPlan) -> tuple[str, ...]:
        """Whose such results ``region`` reads: these are not in `RegionPlan.inputs`."""
        return ()

    def after_failure(self, attempts: Mapping[int, Attempt], number: int) -> dict[int, Attempt]:
        """``attempts`` of a region once attempt ``number`` has failed: no finish before it counts any more."""
        if number == 1:
            return dict(attempts)
        before = attempts.get(number - 1, Attempt(number - 1))
        return {**attempts, number - 1: replace(before, is_reset=True)}


def planning_of(region: RegionPlan) -> PlanningMode:
    """How the mode of ``region`` answers."""
    return planning(region.mode.name)


@cache
def planning(mode: str) -> PlanningMode:
    """How the mode of that name answers."""
    return answers_of(mode, "planning", PlanningMode)


def planned_class(kind: type[Any], keys: Collection[str]) -> type[PlannedMode]:
    """The class that reads what a plan with these JSON keys says of a mode."""
    del kind
    return next((planning(mode).planned for mode in modes_of_keys(keys)), PlannedMode)
