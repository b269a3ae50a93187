"""A person's word that the process which might still commit does not run any more: then the next try goes on."""

from __future__ import annotations

from dataclasses import dataclass

from airflow_recovery.errors import NothingRecorded
from airflow_recovery.journal.journal import Journal
from airflow_recovery.journal.run_state import Attempt, RegionState, RunState
from airflow_recovery.model.records import CommitterDead


@dataclass(frozen=True)
class Confirmed:
    """Of which commit it was said, and of which process: ``writer`` is its id in the journal."""

    region: str
    attempt: int
    epoch: int
    writer: str


def confirm_dead(journal: Journal, state: RunState, region: str, who: str, why: str) -> Confirmed:
    """Write it down for the commit of ``region`` that is not completed, or that was begun again and is not completed.

    It names the epoch of the process as ``state`` has it: one that has begun the next epoch since is not meant. Raises
    `NothingRecorded` where no commit waits.
    """
    prepared = state.of(region).prepared_attempt or _committing_again(state.of(region))
    if prepared is None or prepared.outcome is None:
        raise NothingRecorded(
            f"Expected a finish of {region} whose commit is not completed, found none: there is nothing to confirm.",
            code="nothing-to-confirm",
        )
    epoch = max(prepared.committer_epoch, 1)
    writer = prepared.outcome.writer if epoch == 1 else journal.read_committer(region, prepared.number, epoch).writer
    journal.confirm_dead(CommitterDead(region, prepared.number, epoch, who, why))
    return Confirmed(region, prepared.number, epoch, writer)


def _committing_again(region: RegionState) -> Attempt | None:
    """The attempt that counts, if a process has taken over its commit and has not said that it has ended."""
    current = region.current
    return current if current is not None and current.committer_epoch > max(current.dead_epoch, 1) else None
