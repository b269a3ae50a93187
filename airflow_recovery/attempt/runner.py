"""What a region's task and the runner of its Spark application say to each other."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from airflow_recovery.errors import Failure
from airflow_recovery.journal.run_state import RunState
from airflow_recovery.model.committing import CommitSpec
from airflow_recovery.model.coordinator_snapshot import CoordinatorSnapshot
from airflow_recovery.model.mode import BATCH
from airflow_recovery.model.records import AttemptTrace, Claim, ExternalObject, Outcome
from airflow_recovery.splits.parts import SplitWork
from airflow_recovery.streaming.mode import StreamingClaim, StreamingOutcome
from airflow_recovery.streaming.work import StageWork


@dataclass(frozen=True)
class ClaimedAttempt:
    """What a runner is given: its claim, the outcomes of what it reads, and its external inputs."""

    claim: Claim
    inputs: Mapping[str, Outcome]
    externals: tuple[ExternalObject, ...]
    fingerprint: str
    earlier_failures: tuple[Failure, ...] = ()
    """Those that count in the region's restart budget, oldest first."""
    coordinators: tuple[CoordinatorSnapshot, ...] = ()
    """What the coordinators of its vertices are restored from."""
    commit: CommitSpec | None = None
    """What its finish is prepared for."""
    splits: SplitWork | None = None
    """Of a region that commits split by split: what is to be read, and what its claim takes over."""
    stage: StageWork | None = None
    """Of a stage: the channels at its ends, and what it goes on from."""
    comes_back: bool = False
    """Its run was closed before: what was there of it at the listing may have been purged since."""
    found_inputs_kept: Callable[[], bool] | None = None
    """Waits for the look for released inputs that this process makes beside Spark's start."""

    @property
    def trace(self) -> AttemptTrace:
        """What its outcome will say that it rests on."""
        claim = self.claim
        commit = None if self.commit is None else replace(self.commit, number=claim.commit_number)
        return AttemptTrace(
            claim.region,
            claim.attempt,
            claim.writer,
            self.fingerprint,
            claim.inputs,
            self.externals,
            commit,
            StreamingOutcome(StreamingClaim.of(claim).channels) if self.stage is not None else BATCH,
        )


class RegionRunner(Protocol):
    """Runs one region's Spark application."""

    def externals(self) -> tuple[ExternalObject, ...]:
        """Today's external inputs of the region. Raises where they can't be listed."""
        ...

    def check_target(self, state: RunState) -> None:
        """May the region be run again at all? Raises, for example, where that would overwrite newer data."""
        ...

    def run(self, attempt: ClaimedAttempt) -> Outcome | None:
        """Run to the end. Returns the outcome that is known to be in the journal; `None`: it is to be looked for.

        Raises `RegionFailed` (or `UserCodeError`) where the application failed.
        """
        ...

    def stop(self) -> None:
        """Stop the application that `run` waits for, from another thread."""
        ...

    def stop_orphan(self, claim: Claim) -> None:
        """Stop what may be left running of an earlier attempt. Best effort: fencing is what makes it harmless."""
        ...
