"""What planning asks of regions that commit split by split: is a finish made of the splits that are its own today?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from airflow_recovery.model.records import Outcome, PlanRecord
from airflow_recovery.model.region_plan import RegionPlan
from airflow_recovery.planning.mode import PlanningMode
from airflow_recovery.splits.log import SplitBook
from airflow_recovery.splits.mode import SplitOutcome, SplitPlan


@dataclass(frozen=True)
class SplitBooks:
    """The books of the sources whose subtasks pull their splits, by name, read after the run's state was listed.

    Of a subtask whose source has no book here it is not asked whose its splits are.
    """

    books: Mapping[str, SplitBook]
    subtasks: Mapping[str, int]
    """How many regions pull the splits of each source."""

    @classmethod
    def of(cls, plan: PlanRecord, read: Callable[[str], SplitBook]) -> SplitBooks:
        """The books of all sources in ``plan`` whose subtasks pull; ``read`` is asked once for each."""
        planned = (SplitPlan.of(region) for region in plan.regions)
        subtasks = Counter(plan.split_source for plan in planned if plan.pulls_splits)
        return cls({source: read(source) for source in sorted(subtasks)}, subtasks)


class SplitPlanning(PlanningMode):
    """A subtask that pulls its splits has read exactly those that the log says are its own."""

    def why_source_changed(
        self, regions: Mapping[str, RegionPlan], region: str, outcome: Outcome, known: object
    ) -> str | None:
        """Which splits the finish has that are another subtask's, or lacks."""
        planned = SplitPlan.of(regions[region])
        if not planned.pulls_splits or not isinstance(known, SplitBooks):
            return None
        book = known.books.get(planned.split_source)
        if book is None:
            return None
        subtask = regions[region].subtask
        index = subtask.index if subtask is not None else 0
        return book.invalid_because(index, known.subtasks[planned.split_source], SplitOutcome.of(outcome).batches)


MODE = SplitPlanning()
