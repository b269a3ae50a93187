"""From prepared to committed (docs/protocol.md#commits): after FINISHED, whoever comes next rolls the attempt forward.

token sink        whoever comes commits, with the attempt's own token: the target applies it once
probe-only sink   one process at a time may commit. Epoch 1 is that of the process that finished the attempt; epoch e+1
                  is taken, by one process, once that of epoch e is confirmed to be dead. Till then, where the target
                  says "not applied", it may still be applied at any moment: in doubt, so nothing is done
committed         is written down, whoever did it; nobody claims the next attempt before
what was prepared is gone or was reset, and was not applied; or its target refuses it for good, and it would run again
                  the attempt is abandoned: at once by a token sink in mode replace, whose target refuses a late one.
                  What is gone is abandoned by other sinks once those who might still commit are confirmed to be dead,
                  everything else by a person alone (`airflow_recovery.attempt.abandon`)
kept              the target is asked for the rows too. If they are gone and nobody has committed since, the attempt is
                  committed again from what it prepared; if that is gone as well, it is reset and the region runs
the target holds what this journal does not know
                  another journal has committed there: this one was lost, moved or emptied, or there are two. In mode
                  replace the next attempt is counted above that; in mode append nothing is run

A finish without ``committed`` is thus the mark of a commit that may be in doubt; no other is needed (fault 12).
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import datetime

from airflow_recovery.attempt.adopted import copy_adopted
from airflow_recovery.attempt.run import Run
from airflow_recovery.errors import (
    AppendedAlready,
    ConfigurationError,
    HoldsOther,
    Overtaken,
    RecoveryError,
    SinkInDoubt,
    SinkNotApplied,
    SinkRefused,
    SinkSuperseded,
    SinkUnavailable,
    SinkUnreadable,
)
from airflow_recovery.journal.run_state import Attempt, RegionState, RunState
from airflow_recovery.model.committing import CommitKind, CommitMode, CommitSpec
from airflow_recovery.model.keys import RegionKey
from airflow_recovery.model.manifest import PartitionManifest
from airflow_recovery.model.records import (
    CommitEnd,
    Committed,
    CommitterDead,
    CommitterEpoch,
    Outcome,
    Reset,
    RunIdentity,
)
from airflow_recovery.planning.reason import Reason
from airflow_recovery.sinks.committer import (
    ChecksRows,
    Committable,
    Committer,
    CommitToken,
    ForgetsAttempts,
    FoundRows,
    Held,
    Probe,
    RemembersAttempts,
    Rows,
)


def commit_own(run: Run, outcome: Outcome) -> str | None:
    """Right after the finish, by the process that has claimed the attempt, which may commit to any sink.

    Return which later date has superseded it, in words, if its sink keeps the latest one.
    """
    if outcome.commit is None:
        return None
    return _Commit(run, Attempt(outcome.attempt, is_claimed=True, has_outcome=True, outcome=outcome)).begin()


def roll_forward(run: Run, prepared: Attempt, region_state: RegionState, why_run: Callable[[], Reason | None]) -> None:
    """By a process that has found a finish without a commit. Returns once the journal says how that has ended.

    ``why_run``: why the region would run again with this finish committed, if it would. Raises `SinkInDoubt` where it
    can't be decided what the target has, and what the committer raises.
    """
    _Commit(run, prepared).complete(is_void=prepared.number <= region_state.invalid_up_to, why_run=why_run)


def check_not_appended(run: Run, region: str, state: RunState) -> bool:
    """Before ``region`` runs. Raises `AppendedAlready` where its sink appends and holds an attempt of this run.

    The target is asked whether it still does: a person may have undone it. That is recorded, for the code of the undone
    attempt may come back, and it would count as committed. So is what the target holds since the region has adopted its
    old name. Returns whether anything was recorded. Raises `Overtaken` where the target holds what was committed after
    ``state`` was listed.
    """
    spec = run.regions[region].commit
    if spec is None or spec.mode is not CommitMode.APPEND:
        return False
    region_state = state.of(region)
    taken = [n for n, attempt in region_state.attempts.items() if _has_taken(attempt, spec)]
    if _check_target(run, region, region_state, spec, taken):
        return True
    undone = max(taken, default=0)
    if undone <= region_state.invalid_up_to:
        return False
    _record_removal(run, region, undone)
    return True


def keep_rows(run: Run, region: str, attempt: Attempt, check_owner: Callable[[], None] = lambda: None) -> str | None:
    """Before ``attempt``, which is valid, is kept: ask its sink for the token and the rows, if it has one.

    If the rows were removed, commit them again from what was prepared. ``check_owner`` raises before that, if they are
    the rows of a task with another name by now. If the target gives no answer, the attempt is
    kept. Returns what people should know of that, and `None` if what was prepared is gone too: the attempt is reset
    then, and the region must run. Raises `SinkRefused` if somebody has written there since, and `AppendedAlready` if
    rows could be doubled.
    """
    spec = run.regions[region].commit
    if spec is None or not _has_taken(attempt, spec):
        return ""
    commit = _Commit(run, attempt)
    try:
        try:
            found = commit.rows()
        except (SinkUnavailable, SinkUnreadable) as error:
            run.log.warning("%s is kept, but its sink could not be asked for its rows: %s", region, error)
            return "its sink could not be asked for its rows"
        if found.rows is Rows.THERE:
            return ""
        run.task_instances.live_check()
        run.log.warning("The sink of %s@%d does not hold its rows any more: %s.", region, attempt.number, found.text)
        check_owner()
        return commit.again(found)
    except SinkSuperseded as newer:
        return str(newer)


def _record_removal(run: Run, region: str, undone: int) -> None:
    """By whoever has seen it, a task that was cleared meanwhile too: it is true of that attempt from now on."""
    why = _why_removed(undone)
    run.log.warning("%s: %s: it does not count from now on.", region, why)
    run.journal.reset(Reset(region, undone, run.task.airflow_run_id, why))


def _why_removed(attempt: int) -> str:
    return f"its sink does not hold attempt {attempt} any more"


def _check_target(run: Run, region: str, region_state: RegionState, spec: CommitSpec, taken: Sequence[int]) -> bool:
    """As `check_not_appended`. Returns whether the journal has a finish now that the region has adopted."""
    identity = run.journal.identity
    committer = run.open_committer(spec)
    if isinstance(committer, RemembersAttempts):
        held = _held(run, committer, region, must_answer=bool(taken))
        if held is not None and _take_out_removed(run, committer, region_state, taken):
            held = None
        if held is None:
            _check_not_forgotten(run, committer, region_state, taken)
            return False
        # A target may know its writers by a hash alone: it is asked.
        attempts = region_state.attempts.values()
        finished = (attempt for attempt in attempts if attempt.is_prepared or attempt.committed is not None)

        def is_held(outcome: Outcome) -> bool:
            token = token_of_finish(identity, outcome)
            return token.attempt == held.attempt and committer.probe(token) is Probe.APPLIED

        if not any(is_held(attempt.outcome) for attempt in finished if attempt.outcome is not None):
            _check_as_listed(run, region, region_state)
            if copy_adopted(run, region, region_state, is_held):
                return True
            raise AppendedAlready(
                f"{region} must run, and its sink appends and holds {held.text} of this run, which this journal does "
                "not know: it was purged, moved, emptied or lost since, or another deployment commits to the same "
                "target. A second one would double its rows, so nothing is run. Remove these rows from the target, and "
                "then the token, as the guide says of its sink; and clear this task: it appends them again.",
                code="appended-unknown-to-journal",
            )
        raise AppendedAlready(_appended(region, held.attempt), code="appended-other-attempt")
    # Of what was purged nothing is known but that it was: all of it is asked for.
    purged = [token_of(identity, region, n) for n in range(1, region_state.closed_at + 1)]
    outcomes = [region_state.attempts[n].outcome for n in taken]
    for token in [*purged, *(token_of_finish(identity, outcome) for outcome in outcomes if outcome is not None)]:
        if committer.probe(token) is Probe.APPLIED:
            raise AppendedAlready(_appended(region, token.attempt), code="appended-other-attempt")
    return False


def _take_out_removed(run: Run, committer: Committer, region_state: RegionState, taken: Sequence[int]) -> bool:
    """Take the token out of the target if that proves that its rows were removed. Returns whether it was."""
    if not taken or not isinstance(committer, ChecksRows):
        return False
    attempt = region_state.attempts[max(taken)]
    assert attempt.outcome is not None
    assert attempt.committed is not None
    token = token_of_finish(run.journal.identity, attempt.outcome)
    committable, commit_id = Committable(token, prepared_of(attempt.outcome)), attempt.committed.commit_id
    if committer.probe(token) is not Probe.APPLIED:
        return False
    try:
        found = committer.rows(committable, commit_id)
    except SinkUnavailable as error:
        run.log.warning("Whether the rows of %s were removed is not known: %s", token.text, error)
        return False
    if found.rows is not Rows.REMOVED:
        return False
    run.task_instances.live_check()
    committer.take_out(committable, commit_id)
    return True


def _check_not_forgotten(run: Run, committer: Committer, region_state: RegionState, taken: Sequence[int]) -> None:
    """Raise `AppendedAlready` where the token that the target does not hold may have gone by itself."""
    marks = [(n, attempt.reset) for n, attempt in region_state.attempts.items() if attempt.reset is not None]
    recorded = max((n for n, reset in marks if reset.why == _why_removed(n)), default=0)
    for number in taken:
        outcome = region_state.attempts[number].outcome
        since = forgotten_before(run.journal.identity, committer, outcome) if number > recorded else None
        if outcome is not None and since is not None:
            raise AppendedAlready(
                f"{outcome.region} must run again, and its sink appends, was given attempt {number} and has forgotten "
                f"what was committed before {since.isoformat()}: a second one would double its rows, unless a person "
                "has removed them, so nothing is run. Look for them in the target. If they are there, remove them; "
                "then take the token out, as the guide says of its sink, and clear this task."
            )


def forgotten_before(identity: RunIdentity, committer: Committer, outcome: Outcome | None) -> datetime | None:
    """Since when the target remembers, where it may have forgotten what this finish was committed as; else `None`."""
    if outcome is None or not isinstance(committer, ForgetsAttempts):
        return None
    since = committer.remembers_since(token_of_finish(identity, outcome))
    return since if since is not None and datetime.fromisoformat(outcome.ended_at) < since else None


def _check_as_listed(run: Run, region: str, region_state: RegionState) -> None:
    """What the target holds may have come since the journal was listed. Raises `Overtaken` where attempts have."""
    now = run.load([region]).of(region)
    if {n: (attempt.has_outcome, attempt.committed) for n, attempt in now.attempts.items()} != {
        n: (attempt.has_outcome, attempt.committed) for n, attempt in region_state.attempts.items()
    }:
        raise Overtaken(f"{region}: another process went on with it meanwhile; the next try evaluates again.")


def number_in_target(run: Run, region: str, state: RunState) -> int | None:
    """Before a claim: as which attempt the target of ``region`` is to count the next one; `None`: it commits nowhere.

    Its own number, unless another journal's attempts are there: then one above those, and above all that this journal
    has prepared so far.
    """
    spec = run.regions[region].commit
    if spec is None:
        return None
    region_state = state.of(region)
    earlier = [attempt.outcome.commit for attempt in region_state.attempts.values() if attempt.outcome is not None]
    least = max([region_state.latest_attempt, *(commit.number or 0 for commit in earlier if commit is not None)])
    if spec.kind is CommitKind.TOKEN and spec.mode is CommitMode.REPLACE:
        committer = run.open_committer(spec)
        if isinstance(committer, RemembersAttempts):
            held = _held(run, committer, region, must_answer=False)
            if held is not None and held.attempt > least:
                run.log.warning(
                    "The sink of %s holds %s, which this journal does not know: it was purged, moved, emptied or lost "
                    "since, or another deployment commits to the same target. This attempt is counted above it there.",
                    region,
                    held.text,
                )
                least = held.attempt
    return least + 1


def _held(run: Run, committer: RemembersAttempts, region: str, *, must_answer: bool) -> Held | None:
    """What the target holds. A target that gives no answer stops no Spark: its commit decides, too."""
    try:
        return committer.held(token_of(run.journal.identity, region, 0))
    except SinkUnavailable as error:
        if must_answer:
            raise
        run.log.warning("What the sink of %s holds could not be asked before the attempt: %s", region, error)
        return None


def _has_taken(attempt: Attempt, spec: CommitSpec) -> bool:
    committed, outcome = attempt.committed, attempt.outcome
    if committed is None or committed.end is not CommitEnd.COMMITTED or outcome is None or outcome.commit is None:
        return False
    return outcome.commit.has_same_target(spec)


def _appended(region: str, number: int) -> str:
    return (
        f"{region} must run again, and its sink appends and holds attempt {number} already: a second one would double "
        f"its rows, so nothing is run. Remove the rows of attempt {number}, and no others, from the target, and then "
        "its token, as the guide says of its sink; and clear this task."
    )


def token_of(identity: RunIdentity, region: str, attempt: int) -> CommitToken:
    """The token of an attempt, without its writer."""
    return CommitToken(*RegionKey.of(identity, region), attempt)


def token_of_finish(identity: RunIdentity, outcome: Outcome) -> CommitToken:
    """The token of a finish that is prepared for a commit, the same in whatever process.

    One of the version before has none of what was written down since, and is committed as that version would have.
    """
    number = outcome.commit.number if outcome.commit is not None else None
    token = token_of(identity, outcome.region, number or outcome.attempt)
    return token if number is None else replace(token, writer=outcome.writer)


def prepared_of(outcome: Outcome) -> PartitionManifest:
    """The objects that the finish has prepared for its sink."""
    assert outcome.commit is not None
    return next(output for output in outcome.outputs if output.result == outcome.commit.result)


def declared(prepared: CommitSpec, specs: Iterable[CommitSpec], name: str, where: str) -> CommitSpec:
    """What is declared of the place that ``prepared`` names. Raises `ConfigurationError` where nothing is.

    An outcome lies in a store: by it alone no module is imported, and nothing written into a target.
    """
    for spec in specs:
        if spec.has_same_place(prepared):
            return replace(spec, result=prepared.result, number=prepared.number)
    raise ConfigurationError(
        f"{name}: expected its sink to be one that {where} declares, found {prepared.sink} with {prepared.config}: "
        "nothing was asked of it. Bring the version of the code back that declares it, and clear the task"
    )


def recovery_command(verb: str, region: RegionKey, *more: str) -> str:
    """``airflow recovery abandon``, ``confirm`` or ``restart`` of a region, to be typed."""
    return shlex.join(("airflow", "recovery", verb, *region.arguments, *more))


class _Commit:
    """The commit of one prepared attempt, by this process."""

    def __init__(self, run: Run, prepared: Attempt) -> None:
        outcome = prepared.outcome
        if outcome is None or outcome.commit is None:
            raise AssertionError(f"attempt {prepared.number} is not prepared for a commit")
        self._run = run
        self._prepared = prepared
        self._outcome = outcome
        today = run.regions[outcome.region].commit
        try:
            self._spec = declared(outcome.commit, [] if today is None else [today], self._name, "this DAG's code")
        except ConfigurationError as error:
            raise ConfigurationError(
                f"{error}; or give it up: {self._abandon('--not-applied')}", code=error.code, **error.fields
            ) from error
        self._token = token_of_finish(run.journal.identity, outcome)
        self._committer: Committer = run.open_committer(self._spec)
        self._epoch = max(prepared.committer_epoch, 1)

    def begin(self) -> str | None:
        try:
            return self._apply(probed="")
        except HoldsOther as error:
            if not self._is_harmless(is_gone=True):
                raise self._with_way_out(error) from None
            self._end(CommitEnd.ABANDONED, "", str(error))
            raise Overtaken(f"{error} The next try is counted above it.", code="counted-above") from None
        except (SinkRefused, ConfigurationError) as error:
            raise self._with_way_out(error) from None
        except SinkUnavailable as error:
            raise self._if_it_stays(error) from error

    def complete(self, *, is_void: bool, why_run: Callable[[], Reason | None]) -> None:
        self._run.log.info("%s has finished and may not be committed: asking its sink.", self._name)
        try:
            probe = self._committer.probe(self._token)
        except SinkUnavailable as error:
            raise self._if_it_stays(error) from error
        except SinkUnreadable as error:
            raise self._with_way_out(error) from None
        if probe is Probe.APPLIED:
            self._end(CommitEnd.COMMITTED, self._token.text, probe.value)
            return
        self._check_not_forgotten()
        gone = self._why_gone()
        if gone is None and is_void and self._is_harmless(is_gone=True):
            gone = "it was reset"
        if not self._is_dead and not self._is_harmless(is_gone=gone is not None):
            raise self._in_doubt(gone)
        if self._spec.kind is CommitKind.PROBE_ONLY:
            # Whoever else has seen the confirmation loses here, and evaluates again.
            self._take_epoch()
        if gone is not None:
            self._end(CommitEnd.ABANDONED, "", f"{probe.value}; {gone}")
            return
        try:
            self._apply(probe.value)
        except (SinkRefused, ConfigurationError) as error:
            if not self._is_harmless(is_gone=True):
                raise self._with_way_out(error) from None
            reason = None if isinstance(error, HoldsOther) else why_run()
            if reason is None and not isinstance(error, HoldsOther):
                raise self._with_way_out(error) from None
            why = f"; {reason.text()}" if reason is not None else ""
            self._end(CommitEnd.ABANDONED, "", f"{probe.value}; {error}{why}")
        except SinkUnavailable as error:
            raise self._if_it_stays(error) from error

    def rows(self) -> FoundRows:
        """What the target holds of the rows that it has taken over. Raises `SinkUnavailable` if it can't tell."""
        if isinstance(self._committer, ChecksRows):
            assert self._prepared.committed is not None
            return self._committer.rows(self._committable, self._prepared.committed.commit_id)
        if self._committer.probe(self._token) is Probe.APPLIED:
            return FoundRows(Rows.THERE)
        since = forgotten_before(self._run.journal.identity, self._committer, self._outcome)
        if since is not None:
            raise SinkUnavailable(f"it has forgotten what was committed before {since.isoformat()}")
        held = self._committer.held(self._token) if isinstance(self._committer, RemembersAttempts) else None
        if held is not None:
            return FoundRows(Rows.OVERWRITTEN, f"it holds {held.text}")
        is_replaced = self._spec.mode is CommitMode.REPLACE
        return FoundRows(Rows.REMOVED if is_replaced else Rows.PARTLY, "it says that they were not applied")

    def again(self, found: FoundRows) -> str | None:
        """Commit rows that are not in the target any more once more, from what was prepared.

        Returns and raises as `keep_rows`.
        """
        if found.rows is Rows.OVERWRITTEN:
            raise SinkRefused(
                f"{self._name}: expected its rows in its sink, found that {found.text}: somebody has written there "
                "since, so nothing was changed. Look whose rows these are. To have them replaced by those of a new "
                f"attempt: {self._command('restart')}",
                code="sink-written-since",
            )
        if not found.may_be_committed_again(self._spec.mode):
            raise AppendedAlready(
                f"{self._name}: expected its rows in its sink, found that {found.text}. In doubt: its sink appends, "
                "and a part of the rows may still be there. A second commit would double that part, so nothing was "
                "done. Put the missing rows back and clear the task; or remove the rest of these rows and then the "
                f"token, as the guide says of its sink, and: {self._command('restart')}"
            )
        gone = self._why_gone()
        if gone is not None:
            self._take_out()
            _record_removal(self._run, self._outcome.region, self._outcome.attempt)
            self._run.log.warning("What %s had prepared is gone as well (%s), so it runs.", self._name, gone)
            return None
        if isinstance(self._committer, ChecksRows):
            assert self._prepared.committed is not None
            done = self._committer.commit_again(self._committable, self._prepared.committed.commit_id)
        else:
            self._take_next_epoch()
            done = self._committed()
        self._run.log.warning("%s was committed again, without Spark: %s.", self._name, done)
        return "its sink had lost the rows, which were committed again"

    def _take_out(self) -> None:
        """In mode append a target that holds the token would refuse the next attempt."""
        if self._spec.mode is CommitMode.APPEND and isinstance(self._committer, ChecksRows):
            assert self._prepared.committed is not None
            if self._committer.probe(self._token) is Probe.APPLIED:
                self._committer.take_out(self._committable, self._prepared.committed.commit_id)

    def _take_next_epoch(self) -> None:
        """For a probe-only sink: only one process commits again, and the one before it must have ended."""
        if self._spec.kind is not CommitKind.PROBE_ONLY:
            return
        if not self._is_dead:
            if self._epoch > 1:
                raise self._in_doubt(None)
            # Nobody has taken the commit since the process that finished the attempt, and it is recorded as committed.
            self._confirm_own_end("its commit is recorded")
        self._take_epoch()

    def _take_epoch(self) -> None:
        self._epoch += 1
        epoch = CommitterEpoch(self._outcome.region, self._outcome.attempt, self._epoch, self._run.journal.writer)
        self._run.journal.take_commit(epoch)

    @property
    def _committable(self) -> Committable:
        return Committable(self._token, prepared_of(self._outcome))

    def _check_not_forgotten(self) -> None:
        """What a target in mode replace has forgotten is replaced by the same rows."""
        if self._spec.mode is not CommitMode.APPEND:
            return
        since = forgotten_before(self._run.journal.identity, self._committer, self._outcome)
        if since is not None:
            raise SinkInDoubt(
                f"{self._name}: expected its sink to know whether it was committed, found that it has forgotten what "
                f"was before {since.isoformat()}: its rows may be there, so nothing was done. Look for them in the "
                "target, and remove them; then give up this commit, and it runs again: "
                f"{self._abandon('--not-applied')}",
                code="sink-has-forgotten",
            )

    def _apply(self, probed: str) -> str | None:
        """Commit, and record how that has ended. Returns which later date has superseded it, in words."""
        try:
            commit_id = self._committed()
        except SinkSuperseded as error:
            self._end(CommitEnd.SUPERSEDED, "", str(error))
            return str(error)
        self._end(CommitEnd.COMMITTED, commit_id, probed)
        return None

    def _committed(self) -> str:
        """Commit. Returns the target's name of the commit."""
        try:
            commit_id = self._committer.commit(self._committable)
        except SinkNotApplied as error:
            self._confirm_own_end(str(error))
            raise
        if self._spec.kind is CommitKind.PROBE_ONLY and self._epoch > 1:
            # Another commit of the same attempt, should its rows be removed, needs no person then.
            self._confirm_own_end(f"it has committed: {commit_id}")
        return commit_id

    def _confirm_own_end(self, why: str) -> None:
        """Record that this process commits no more: nobody else needs to confirm it."""
        dead = CommitterDead(self._outcome.region, self._outcome.attempt, self._epoch, self._who, why)
        self._run.journal.confirm_dead(dead)

    def _end(self, end: CommitEnd, commit_id: str, probed: str) -> None:
        committed = Committed(self._outcome.region, self._outcome.attempt, end, self._who, commit_id, probed)
        self._run.journal.commit(committed)
        what = commit_id if end is CommitEnd.COMMITTED else probed
        self._run.log.info("%s: %s (%s).", self._name, end.value.lower(), what)

    @property
    def _name(self) -> str:
        return f"{self._outcome.region}@{self._outcome.attempt}"

    @property
    def _who(self) -> str:
        return f"process {self._run.journal.writer}"

    @property
    def _is_dead(self) -> bool:
        """Whoever might commit without this process is confirmed to be dead."""
        return self._prepared.dead_epoch >= self._epoch

    def _is_harmless(self, *, is_gone: bool) -> bool:
        """Nothing that another process may still do can be wrong: the target knows its token, or will refuse it."""
        if self._spec.kind is CommitKind.PROBE_ONLY:
            return False
        return not is_gone or self._spec.mode is CommitMode.REPLACE

    def _with_way_out(self, error: RecoveryError) -> RecoveryError:
        """The same, with what a person may do where neither the target nor its rows can be put right."""
        if self._spec.kind is CommitKind.PROBE_ONLY:
            return error
        kind = ConfigurationError if isinstance(error, ConfigurationError) else SinkRefused
        return kind(
            f"{error} Until then every try commits these rows again, whatever the code says by now. To give them up "
            f"and run {self._outcome.region} again: {self._abandon(*self._unasked(error))}",
            code=error.code,
            **error.fields,
        )

    def _if_it_stays(self, error: SinkUnavailable) -> SinkUnavailable:
        """The same, with what a person may do if the target never answers again."""
        return SinkUnavailable(
            f"{error} If it never answers again: make sure that the target does not have these rows. Then give them up "
            f"and run {self._outcome.region} again: {self._abandon('--not-applied')}",
            code="sink-never-answers",
        )

    @staticmethod
    def _unasked(error: RecoveryError) -> Sequence[str]:
        """How a person gives rows up if the target can't be asked for them."""
        return ("--not-applied",) if isinstance(error, SinkUnreadable) else ()

    def _abandon(self, *more: str) -> str:
        return self._command("abandon", *more)

    def _command(self, verb: str, *more: str) -> str:
        return recovery_command(verb, RegionKey.of(self._run.journal.identity, self._outcome.region), *more)

    def _why_gone(self) -> str | None:
        if self._prepared.is_released:
            return "what was prepared was released"
        reason = self._run.available.why_gone(self._outcome.region, self._prepared)
        return None if reason is None else reason.text()

    def _in_doubt(self, gone: str | None) -> SinkInDoubt:
        identity, outcome = self._run.journal.identity, self._outcome
        which = (
            f"epoch {self._epoch} of the commit" if self._epoch > 1 else f"process {outcome.writer}, which finished it"
        )
        command = recovery_command("confirm", RegionKey.of(identity, outcome.region))
        lost = f", and what it had prepared is gone ({gone})" if gone is not None else ""
        return SinkInDoubt(
            f"{self._name}: expected its sink to be committed or its process to be known dead, found neither: the "
            f"target says NOT_APPLIED{lost}, and {which}, may still commit. In doubt, so nothing was done. Make sure "
            f"that this process does not run any more (worker, supervisor, pod), then: {command}",
            code="writer-may-commit",
        )
