"""A person gives up a commit that its target refuses for good, or that can't be completed: then the region runs again.

Never where the target has taken it, or may still take it: it is asked first, and a process that might still commit has
to be confirmed dead (`airflow_recovery.attempt.confirm`), but for a token sink in mode replace: its target refuses a
late one once a later attempt is there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from airflow_recovery.attempt.commit import declared, forgotten_before, recovery_command, token_of_finish
from airflow_recovery.errors import AttemptLost, NothingRecorded, Refused
from airflow_recovery.journal.journal import Journal
from airflow_recovery.journal.run_state import RunState
from airflow_recovery.model.committing import CommitKind, CommitMode, CommitSpec
from airflow_recovery.model.keys import RegionKey
from airflow_recovery.model.records import CommitEnd, Committed, CommitterEpoch
from airflow_recovery.sinks.committer import Committer, Probe


@dataclass(frozen=True)
class Abandonable:
    """A finish whose commit may be given up.

    ``epoch``: how many processes have had the right to commit it so far. ``target_says``: what its target answered.
    """

    region: str
    attempt: int
    epoch: int
    spec: CommitSpec
    target_says: str

    @property
    def name(self) -> str:
        """The attempt as people write it: ``region@attempt``."""
        return f"{self.region}@{self.attempt}"


def look_at_abandon(
    journal: Journal,
    state: RunState,
    region: str,
    open_committer: Callable[[CommitSpec], Committer],
    *,
    not_applied: bool = False,
) -> Abandonable:
    """The finish of ``region`` that waits for its commit. Changes nothing.

    ``not_applied``: a person's word in place of the target's, which is not asked then. Raises `NothingRecorded` where
    no commit waits, `Refused` where the target has taken it or may still take it, and what the committer raises.
    """
    prepared = state.of(region).prepared_attempt
    if prepared is None or prepared.outcome is None or prepared.outcome.commit is None:
        raise NothingRecorded(
            f"Expected a finish of {region} whose commit is not completed, found none: there is nothing to abandon."
        )
    outcome, spec, epoch = prepared.outcome, prepared.outcome.commit, max(prepared.committer_epoch, 1)
    name = f"{region}@{prepared.number}"
    if prepared.dead_epoch < epoch and (spec.kind, spec.mode) != (CommitKind.TOKEN, CommitMode.REPLACE):
        writer = outcome.writer if epoch == 1 else journal.read_committer(region, prepared.number, epoch).writer
        raise Refused(
            f"Expected the process that might still commit {name} to be confirmed dead, found {writer}, of which "
            "nobody has said so. Make sure that it does not run any more (worker, supervisor, pod), then: "
            f"{recovery_command('confirm', RegionKey.of(journal.identity, region))}; and abandon it after that."
        )
    if not_applied:
        return Abandonable(region, prepared.number, epoch, spec, "not asked")
    regions = [planned for plan in sorted(state.plans) for planned in journal.read_plan(plan).regions]
    specs = [planned.commit for planned in regions if planned.name == region and planned.commit is not None]
    today = declared(spec, specs, name, "a plan of this run")
    committer = open_committer(today)
    probe = committer.probe(token_of_finish(journal.identity, outcome))
    if probe is Probe.APPLIED:
        raise Refused(
            f"The target has taken {name}: there is nothing to abandon. Clear the task: its next try writes that down."
        )
    since = forgotten_before(journal.identity, committer, outcome) if today.mode is CommitMode.APPEND else None
    if since is not None:
        raise Refused(
            f"Expected the target to know whether it has taken {name}, found that it has forgotten what was before "
            f"{since.isoformat()}. Look for its rows there, and remove them; then say so with --not-applied.",
            code="target-forgot-what-was-before",
        )
    return Abandonable(region, prepared.number, epoch, spec, probe.value)


def abandon(journal: Journal, abandonable: Abandonable, who: str, why: str) -> None:
    """Write down that it will never be committed. Raises `Refused` where somebody has gone on meanwhile."""
    try:
        if abandonable.spec.kind is CommitKind.PROBE_ONLY:
            # Whoever else has seen the confirmation, and is about to commit, loses here.
            journal.take_commit(
                CommitterEpoch(abandonable.region, abandonable.attempt, abandonable.epoch + 1, journal.writer)
            )
        probe = f"{abandonable.target_says}; {why}"
        journal.commit(Committed(abandonable.region, abandonable.attempt, CommitEnd.ABANDONED, who, "", probe))
    except AttemptLost as error:
        raise Refused(
            f"A try has gone on with {abandonable.name} meanwhile, and nothing was abandoned: {error}",
            code="abandoned-too-late",
        ) from error
