"""What the journal says about one run, for the demo's report."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from airflow_recovery.journal.journal import Journal
from airflow_recovery.journal.run_state import RegionState, RunState
from airflow_recovery.model.manifest import PartitionManifest
from airflow_recovery.model.records import AttemptState, CommittedBatch, Outcome, RunIdentity
from airflow_recovery.model.region_plan import RegionPlan
from airflow_recovery.splits.mode import SplitOutcome
from airflow_recovery.store.object_store import ObjectStore

_ENDED_WITH = re.compile(r"Cannot execute: .*Error code is: (-?\d+)", re.DOTALL)
"""What the provider says of an application, behind its whole command line."""


@dataclass(frozen=True)
class RegionStory:
    """One region of one run. ``worker_seconds`` is from the claim of its newest attempt to the outcome.

    ``spark_seconds`` is the sum over its finished attempts.
    """

    name: str
    subtask_of: str | None
    attempts: int
    ran_again: bool
    why: str
    spark_seconds: float
    worker_seconds: float
    splits: int = 0
    """In its result, where it was committed split by split; earlier attempts had written ``splits_kept`` of them."""
    splits_kept: int = 0


class JournalView:
    """The journal of one run, read once. Raises the store's errors, and `ValueError` for a run without a plan."""

    def __init__(self, store: ObjectStore, identity: RunIdentity) -> None:
        self._journal = Journal(store, identity, writer="demo report (reads only)")
        plans = self._journal.list(()).state.plans
        if len(plans) != 1:
            raise ValueError(f"expected one plan, found {len(plans)}: was the job edited while the demo ran?")
        (plan,) = plans
        self.regions: Sequence[RegionPlan] = self._journal.read_plan(plan).regions
        names = [region.name for region in self.regions]
        self._state: RunState = self._journal.load(self._journal.list(names))

    @property
    def sinks(self) -> list[str]:
        """The names of the final results of the job."""
        return sorted(result for region in self.regions if region.final for result in region.results)

    def result(self, name: str) -> PartitionManifest:
        """The manifest of a result, of its region's current attempt. Raises `KeyError`."""
        for region in self.regions:
            if name in region.results:
                current = self._state.of(region.name).current
                if current is not None and current.outcome is not None:
                    return next(output for output in current.outcome.outputs if output.result == name)
        raise KeyError(name)

    def has_finished(self, region: str) -> bool:
        """A finished attempt of the region counts."""
        return self._state.of(region).current is not None

    def batches(self, region: str, attempt: int) -> tuple[CommittedBatch, ...]:
        """What an attempt has committed until now."""
        return self._journal.read_batch_log(region, attempt, self._state.of(region).attempts[attempt].batches)

    def published(self) -> Mapping[str, int]:
        """Region and attempt of the newest publish; empty where there is none."""
        number = self._state.newest_publish
        return (
            {region.region: region.attempt for region in self._journal.read_publish(number).regions} if number else {}
        )

    def stories(self) -> list[RegionStory]:
        """The story of every region, in topological order."""
        return [self._story(region) for region in self.regions]

    def _story(self, region: RegionPlan) -> RegionStory:
        state = self._state.of(region.name)
        numbers = sorted(state.attempts)
        outcomes = [outcome for n in numbers if (outcome := state.attempts[n].outcome) is not None]
        whys = [self._why_not_kept(region, state, n) for n in numbers[:-1]]
        batches = SplitOutcome.of(outcomes[-1]).batches if outcomes else ()
        splits = sum(len(batch.splits) for batch in batches)
        kept = sum(len(batch.splits) for batch in batches if batch.attempt != numbers[-1])
        if kept:
            whys.append(f"{kept} of {splits} splits kept")
        return RegionStory(
            name=region.name,
            subtask_of=region.subtask.of if region.subtask is not None else None,
            attempts=len(numbers),
            ran_again=len(numbers) > 1,
            why="; ".join(whys) or "its result stands",
            spark_seconds=sum(outcome.spark_seconds or 0.0 for outcome in outcomes),
            worker_seconds=self._seconds(outcomes[-1]) if outcomes else 0.0,
            splits=splits,
            splits_kept=kept,
        )

    def _why_not_kept(self, region: RegionPlan, state: RegionState, number: int) -> str:
        attempt, outcome = state.attempts[number], state.attempts[number].outcome
        if outcome is not None and outcome.state is AttemptState.FENCED:
            return f"attempt {number}: {_short(outcome)}"
        if attempt.is_lost:
            reporter = self._journal.read_lost(region.name, number).reporter
            return f"attempt {number}: objects lost, reported by {reporter}"
        newer = state.attempts[max(state.attempts)].outcome
        before = {pin.region: pin.attempt for pin in outcome.inputs} if outcome is not None else {}
        after = newer.inputs if newer is not None else ()
        remade = [f"{pin.region}@{pin.attempt}" for pin in after if before.get(pin.region) != pin.attempt]
        return f"attempt {number}: " + (f"input made again ({', '.join(remade)})" if remade else "superseded")

    def _seconds(self, outcome: Outcome) -> float:
        claim = self._journal.read_claim(outcome.region, outcome.attempt)
        return (datetime.fromisoformat(outcome.ended_at) - datetime.fromisoformat(claim.claimed_at)).total_seconds()


def _short(outcome: Outcome) -> str:
    if outcome.failure is not None and "said nothing" not in outcome.failure.message:
        ended = _ENDED_WITH.search(outcome.failure.message)
        if ended is not None:
            return f"its spark-submit ended with {ended[1]}"
        return f"{outcome.failure.type}: {outcome.failure.message}".splitlines()[0]
    cause = outcome.cause.value if outcome.cause is not None else "fenced"
    return f"{cause}: {_summary(outcome.detail or '')}"


def _summary(detail: str) -> str:
    if "said nothing" in detail:
        return "its Spark driver died without a word"
    return detail.splitlines()[0][:80] if detail else ""
