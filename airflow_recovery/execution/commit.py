"""From prepared to committed (PROTOCOL section 8): after FINISHED, whoever comes next rolls the attempt forward.

token sink        whoever comes commits, with the attempt's own token: the target applies it once
probe-only sink   one process at a time may commit. Turn 1 is that of the process that finished the attempt; turn t+1
                  is taken, by one process, once that of turn t is confirmed to be dead. Till then, where the target
                  says "not applied", it may still be applied at any moment: in doubt, so nothing is done
committed         is written down, whoever did it; nobody claims the next attempt before
what was prepared is gone, and was not applied
                  the attempt is abandoned: at once by a token sink in mode replace, whose target refuses a late one;
                  else once those who might still commit are confirmed to be dead

A finish without ``committed`` is thus the mark of a commit that may be in doubt; no other is needed (fault 12).
"""

from __future__ import annotations

import shlex

from airflow_recovery.errors import AppendedAlready, SinkInDoubt, SinkNotApplied
from airflow_recovery.execution.run import Run
from airflow_recovery.journal.records import CommitEnd, Committed, CommitterDead, CommitterTurn, Outcome, RunIdentity
from airflow_recovery.journal.run_state import Attempt, RunState
from airflow_recovery.sinks.committer import Committable, Committer, CommitToken, Probe
from airflow_recovery.topology.committing import CommitKind, CommitMode, CommitSpec


def commit_own(run: Run, outcome: Outcome) -> None:
    """Right after the finish, by the process that has claimed the attempt: whatever the sink, it is this one's turn."""
    if outcome.commit is not None:
        _Commit(run, Attempt(outcome.attempt, is_claimed=True, has_outcome=True, outcome=outcome)).begin()


def roll_forward(run: Run, prepared: Attempt) -> None:
    """By a process that has found a finish without a commit. Returns once the journal says how that has ended.

    Raises `SinkInDoubt` where that can't be decided, and what the committer raises.
    """
    _Commit(run, prepared).complete()


def check_not_appended(run: Run, region: str, state: RunState) -> None:
    """Before ``region`` runs again. Raises `AppendedAlready` where its sink appends and has taken an attempt over.

    The target is asked whether it still holds that: a person may have undone it.
    """
    spec = run.regions[region].commit
    if spec is None or spec.mode is not CommitMode.APPEND:
        return
    mine = state.of(region)
    # Of what was purged nothing is known but that it was: all of it is asked for.
    taken = [*range(1, mine.closed_at + 1), *(n for n, each in mine.attempts.items() if _has_taken(each, spec))]
    for n in taken:
        if run.open_committer(spec).probe(token_of(run.journal.identity, region, n)) is Probe.APPLIED:
            raise AppendedAlready(
                f"{region} must run again, and its sink appends and holds attempt {n} already: a second one would "
                f"double its rows, so nothing is run. Remove the rows of attempt {n} from the target, and its token, "
                "and clear this task; or declare the sink with mode='replace'."
            )


def _has_taken(attempt: Attempt, spec: CommitSpec) -> bool:
    committed, outcome = attempt.committed, attempt.outcome
    if committed is None or committed.end is not CommitEnd.COMMITTED or outcome is None or outcome.commit is None:
        return False
    return outcome.commit.has_same_target(spec)


def token_of(identity: RunIdentity, region: str, attempt: int) -> CommitToken:
    """The token of an attempt."""
    return CommitToken(identity.dag_id, identity.run_key, identity.group_id, region, attempt)


class _Commit:
    """The commit of one prepared attempt, by this process."""

    def __init__(self, run: Run, prepared: Attempt) -> None:
        outcome = prepared.outcome
        if outcome is None or outcome.commit is None:
            raise AssertionError(f"attempt {prepared.number} is not prepared for a commit")
        self._run = run
        self._prepared = prepared
        self._outcome = outcome
        self._spec: CommitSpec = outcome.commit
        self._token = token_of(run.journal.identity, outcome.region, outcome.attempt)
        self._committer: Committer = run.open_committer(self._spec)
        self._turn = max(prepared.turns, 1)

    def begin(self) -> None:
        self._apply(probed="")

    def complete(self) -> None:
        self._run.log.info("%s has finished and may not be committed: asking its sink.", self._name)
        probe = self._committer.probe(self._token)
        if probe is Probe.APPLIED:
            self._end(CommitEnd.COMMITTED, self._token.text, probe.value)
            return
        gone = self._why_gone()
        if not self._is_dead and not self._is_harmless(is_gone=gone is not None):
            raise self._in_doubt(gone)
        if self._spec.kind is CommitKind.PROBE_ONLY:
            # Whoever else has seen the confirmation loses here, and judges again.
            self._turn += 1
            turn = CommitterTurn(self._outcome.region, self._outcome.attempt, self._turn, self._run.journal.writer)
            self._run.journal.take_turn(turn)
        if gone is not None:
            self._end(CommitEnd.ABANDONED, "", f"{probe.value}; {gone}")
            return
        self._apply(probe.value)

    def _apply(self, probed: str) -> None:
        manifest = next(each for each in self._outcome.outputs if each.result == self._spec.result)
        try:
            commit_id = self._committer.commit(Committable(self._token, manifest))
        except SinkNotApplied as error:
            # Then this process needs nobody to confirm that it will not commit any more.
            dead = CommitterDead(self._outcome.region, self._outcome.attempt, self._turn, self._who, str(error))
            self._run.journal.confirm_dead(dead)
            raise
        self._end(CommitEnd.COMMITTED, commit_id, probed)

    def _end(self, end: CommitEnd, commit_id: str, probed: str) -> None:
        committed = Committed(self._outcome.region, self._outcome.attempt, end, self._who, commit_id, probed)
        self._run.journal.commit(committed)
        said = commit_id if end is CommitEnd.COMMITTED else probed
        self._run.log.info("%s: %s (%s).", self._name, end.value.lower(), said)

    @property
    def _name(self) -> str:
        return f"{self._outcome.region}@{self._outcome.attempt}"

    @property
    def _who(self) -> str:
        return f"process {self._run.journal.writer}"

    @property
    def _is_dead(self) -> bool:
        """Whoever might commit without this process is confirmed to be dead."""
        return self._prepared.dead_turns >= self._turn

    def _is_harmless(self, *, is_gone: bool) -> bool:
        """Nothing that another process may still do can be wrong: the target knows its token, or will refuse it."""
        if self._spec.kind is CommitKind.PROBE_ONLY:
            return False
        return not is_gone or self._spec.mode is CommitMode.REPLACE

    def _why_gone(self) -> str | None:
        if self._prepared.is_released:
            return "what was prepared was released"
        reason = self._run.available(self._outcome.region, self._prepared)
        return None if reason is None else reason.text()

    def _in_doubt(self, gone: str | None) -> SinkInDoubt:
        identity, outcome = self._run.journal.identity, self._outcome
        which = f"turn {self._turn} of the commit" if self._turn > 1 else f"process {outcome.writer}, which finished it"
        which_commit = (identity.dag_id, identity.run_key, outcome.region, "--group", identity.group_id)
        command = shlex.join(("airflow", "recovery", "confirm", *which_commit))
        lost = f", and what it had prepared is gone ({gone})" if gone is not None else ""
        return SinkInDoubt(
            f"{self._name}: expected its sink to be committed or its process to be known dead, found neither: the "
            f"target says NOT_APPLIED{lost}, and {which}, may still commit. In doubt, so nothing was done. Make sure "
            f"that this process does not run any more (worker, supervisor, pod), then: {command}"
        )
