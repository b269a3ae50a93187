"""Whose attempts in the journal of a shared result a task may end: its own, and one that gives no heartbeat."""

from __future__ import annotations

from dataclasses import dataclass, replace

from airflow_recovery.attempt.heartbeat_watch import last_beat
from airflow_recovery.attempt.run import Run
from airflow_recovery.journal.journal import Journal
from airflow_recovery.journal.run_state import Attempt
from airflow_recovery.model.build_in_progress import BuildInProgress, BuiltElsewhere
from airflow_recovery.model.records import RunAttempt


@dataclass(frozen=True)
class Builder:
    """A task that wants a result which other runs may be building.

    ``owner``: the attempt in its own run's journal that it builds for. ``silent``: another run's attempt, which was
    watched for long enough: it may be ended if it looks as it did then.
    """

    owner: RunAttempt
    silent: BuildInProgress | None = None

    def takes_over(self, run: Run, region: str, opened: Attempt) -> bool:
        """Whether ``opened`` is another run's and silent. False: it is of an earlier try of this very task.

        Raises `BuiltElsewhere` where somebody else is building the result.
        """
        build = build_of(run.journal, region, opened)
        if self.is_own(build.owner):
            return False
        if build != self.silent:
            raise BuiltElsewhere(build.text(), build)
        run.log.warning("%s, and has given no heartbeat: taking over.", build.text())
        return True

    def is_own(self, owner: RunAttempt | None) -> bool:
        """Of an earlier try of the same task: it is over, since Airflow has started this one."""
        return owner is not None and replace(owner, attempt=0) == replace(self.owner, attempt=0)


def build_of(journal: Journal, region: str, opened: Attempt) -> BuildInProgress:
    """The open attempt at a shared result, as it looks now."""
    owner = opened.claim.owner if opened.claim is not None else None
    beat = last_beat(journal, region, opened.number)
    return BuildInProgress(journal.identity.run_key, region, opened.number, owner, beat)
