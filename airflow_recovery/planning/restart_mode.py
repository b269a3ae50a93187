"""What making a plan asks the modes of a run: which regions restart together. Batch's answer: each one by itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from airflow_recovery.journal.run_state import RunState
from airflow_recovery.model.mode import answers_of
from airflow_recovery.model.records import PlanRecord
from airflow_recovery.planning.evaluation import Evaluation
from airflow_recovery.planning.mode import PlannedMode
from airflow_recovery.planning.reason import Reason
from airflow_recovery.planning.scenario import Scenario


@dataclass(frozen=True)
class PlannedRestarts:
    """``run``: as scenario, with everything reset that starts over. ``how``: in words, of each region that runs.

    ``reasons``: of what was reset by this alone. ``planned``: what the plan says of the mode besides.
    """

    run: Scenario
    how: Mapping[str, str] = field(default_factory=dict)
    reasons: Mapping[str, Reason] = field(default_factory=dict)
    planned: PlannedMode = field(default_factory=PlannedMode)


class RestartMode:
    """The question, with batch's answer. Another mode has its own in ``restart_plan`` of its package."""

    def plan(
        self, run: Scenario, seen: RunState, today: PlanRecord, evaluate: Callable[[Scenario], Evaluation]
    ) -> PlannedRestarts | None:
        """What restarts together in the run that is supposed; `None`: each region by itself.

        ``seen`` and ``today``: the run and the plan as they are.
        """
        return None


def restarts(mode: str) -> RestartMode:
    """How the mode of that name answers."""
    return answers_of(mode, "restart_plan", RestartMode)
