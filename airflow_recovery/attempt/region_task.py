"""One try of one region's task: pre-check, then kept, run or failed over (docs/protocol.md#pre-check).

loop: list the journal
      an attempt of mine is open            -> it lives: wait for its end; else stop and fence it; look again
      a finish of mine is not committed     -> commit it to its sink, look again
      recompute asked for, not yet done     -> reset, look again
      I need not run                        -> final check, success; if my sink has lost the rows, commit them again
      others restart with me (strategy full,
      a coordinator without snapshots, or
      as the region's mode says)            -> reset them, clear their tasks, look again
      an input is lost                      -> report it, clear its producer, raise (this task retries)
      my restart budget has ended           -> raise, naming the budget; its pause is not over -> wait
      my sink has appended already          -> raise: it would append twice
      else                                  -> claim, run Spark, commit, final check, success

Each of these is a module of its own; here is only which of them it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from airflow_recovery.attempt.absent_inputs import absent_inputs
from airflow_recovery.attempt.application import ClaimedAttempt, SparkApplication
from airflow_recovery.attempt.attempt import claim_attempt, refs_of, run_claimed
from airflow_recovery.attempt.attempt_outcome import fenced
from airflow_recovery.attempt.builder import Builder
from airflow_recovery.attempt.commit import (
    check_not_appended,
    commit_own,
    keep_rows,
    number_in_target,
    roll_forward,
)
from airflow_recovery.attempt.data_interval import check_data_interval
from airflow_recovery.attempt.declarations import answer_declared, declared_otherwise
from airflow_recovery.attempt.failover_restart import failover_restart, restart_others
from airflow_recovery.attempt.final_check import final_check
from airflow_recovery.attempt.first_attempt import first_attempt_inputs
from airflow_recovery.attempt.mode import attempt_of
from airflow_recovery.attempt.owners import check_owner
from airflow_recovery.attempt.previous_attempt import fence_previous_attempt
from airflow_recovery.attempt.recompute import reset_for_epoch
from airflow_recovery.attempt.reconnect import is_worth_reconnecting, reconnect
from airflow_recovery.attempt.restarts import Restarts
from airflow_recovery.attempt.run import Run
from airflow_recovery.attempt.task_instances import Observation
from airflow_recovery.attempt.unseen_code import why_unseen_code_runs
from airflow_recovery.driver.failure_class import labelled
from airflow_recovery.driver.process_identity import own_process
from airflow_recovery.errors import AttemptLost, ClearNotConfigured, Failure, InputLost, NotMine, PagesDisagree
from airflow_recovery.journal.events import RegionKept
from airflow_recovery.journal.journal import LISTING_ROUNDS
from airflow_recovery.journal.run_state import Attempt, RunState
from airflow_recovery.locations import is_asset
from airflow_recovery.model.build_in_progress import BuiltElsewhere
from airflow_recovery.model.components import UnseenCode
from airflow_recovery.model.inputs import InputRef
from airflow_recovery.model.mode import RegionMode
from airflow_recovery.model.records import Claim, ExternalObject, FenceCause, Kept, Outcome
from airflow_recovery.planning.coordinators import coordinator_snapshots
from airflow_recovery.planning.evaluation import Evaluation
from airflow_recovery.planning.plan_making import why_kept
from airflow_recovery.planning.reason import Reason, Why


class Decision(str, Enum):
    """Whether a successful try kept the result that was there, or ran the region."""

    KEPT = "kept"
    RAN = "ran"


@dataclass(frozen=True)
class RegionResult:
    """How a try succeeded. ``seconds_saved`` is what the kept attempt had cost in Spark.

    ``cause``: why it had to run, where it did.
    """

    region: str
    decision: Decision
    attempt: int
    why: str
    outcome: Outcome
    files_checked: int = 0
    seconds_saved: float = 0.0
    cause: str = ""


@dataclass(frozen=True)
class Seen:
    """What only the region's own task sees: its external inputs, and which optional inputs this DAG run lacks.

    ``outdated``: the finish that counts, where it is not valid any more. ``after_clear``: as in `Claim`.
    """

    externals: tuple[ExternalObject, ...] = ()
    absent: tuple[str, ...] = ()
    outdated: int | None = None
    after_clear: bool = False


class RegionTask:
    """One try of the task of ``region``. ``epoch`` is set in recompute mode: everything runs again once an epoch.

    ``restarts`` is the region's budget, by default an unlimited one; ``label`` says what kind of failure it was.
    ``builder``: of a result that other runs may be building; raises `BuiltElsewhere` while one does. ``unseen_code``:
    whether a clear runs code again that can't be seen.
    """

    def __init__(  # noqa: PLR0913 - what a try is about
        self,
        run: Run,
        region: str,
        application: SparkApplication,
        *,
        epoch: str | None = None,
        prepare_journal: Callable[[], None] = lambda: None,
        restarts: Restarts | None = None,
        label: Callable[[Failure], Failure] = labelled,
        builder: Builder | None = None,
        unseen_code: UnseenCode = UnseenCode.KEEP,
    ) -> None:
        self._run = run
        self._region = region
        self._application = application
        self._epoch = epoch
        self._builder = builder
        self._unseen_code = unseen_code
        self._prepare_journal = prepare_journal
        self._restarts = restarts or Restarts(run, region, None)
        self._label = label
        self._observation: Observation | None = None

    def execute(self) -> RegionResult:
        """The whole try. Raises what the task shall fail with; whatever it raises, no open attempt of it is left."""
        externals = self._application.externals()
        is_checked = False
        for _ in range(LISTING_ROUNDS):
            absent = absent_inputs(self._run, self._region)
            listing = self._run.list()
            # What its coordinators are restored from is in other outcomes than those of its inputs.
            planned = self._run.regions[self._region]
            is_simple = self._epoch is None and not (planned.coordinators or attempt_of(planned).looks_at_others)
            inputs = first_attempt_inputs(self._run, self._region, listing, absent) if is_simple else None
            if inputs is not None:
                check_data_interval(self._run, self._region, inputs.values())
                result = self._run_attempt(listing.state, inputs, Seen(externals, absent))
                if result is not None:
                    return result
                continue
            state = self._run.load(listing=listing)
            if state.plans and not is_checked:
                self._run.check_owner()
                is_checked = True
            result = self._act_on(state, Seen(externals, absent))
            if result is not None:
                return result
        raise PagesDisagree(
            f"The journal of {self._region} was not coherent in {LISTING_ROUNDS} listings; this task retries."
        )

    def _act_on(  # noqa: C901 - what a listing asks for, in the order of the protocol
        self, state: RunState, seen: Seen
    ) -> RegionResult | None:
        """What one listing asks for. `None`: the journal was changed, or some time has passed; list it again."""
        opened = state.of(self._region).open_attempt
        if opened is not None:
            self._end_previous_attempt(state, opened, seen)
            return None
        prepared = state.of(self._region).prepared_attempt
        if prepared is not None:
            region_state = state.of(self._region)
            roll_forward(self._run, prepared, region_state, lambda: self._why_it_would_run(state, seen))
            return None
        if self._epoch is not None and reset_for_epoch(self._run, self._region, state, self._epoch):
            return None
        evaluation = self._evaluate(state, seen)
        why = evaluation.why_must_run(self._region)
        if why is None:
            unkept = self._why_not_kept(evaluation)
            if unkept is None:
                return self._keep(evaluation, state)
            self._run.log.warning("%s can't keep its result: %s.", self._region, unkept.text())
            evaluation = self._evaluate(state, seen, {self._region: unkept})
            why = evaluation.why_must_run(self._region) or unkept
        if why.why is Why.CODE_CHANGED:
            self._run.task_instances.live_check()
        self._check_data_interval(state)
        if not evaluation.is_undecided(self._region) and check_not_appended(self._run, self._region, state):
            return None
        inputs = [name for name in self._run.regions[self._region].inputs if name not in seen.absent]
        self._run.available.look_ahead(self._run.results_read(self._region, state))
        lost = evaluation.lost_inputs(self._region)
        restart = failover_restart(self._run, state, self._region, why, lost)
        mode = attempt_of(self._run.regions[self._region])
        others = mode.failover(self._run, evaluation, self._region) if restart is None else None
        if lost and restart is None and not (others is not None and others.comes_first):
            if self._observes_now():
                return None
            raise self._clear_producers(evaluation, lost)
        # Before every claim, not by Airflow's retry policy alone: that is not asked after a kill.
        if self._restarts.waited(state, why):
            return None
        if restart is not None:
            if not self._observes_now():
                restart_others(self._run, state, restart, self._observation)
            return None
        if others is not None and others.is_stuck:
            self._void_attempt(state)
            return None
        if others is not None and others.is_needed:
            if self._observes_now():
                return None
            # What is done next rests on a listing of its own, and that on an observation before it.
            observation, self._observation = self._observation, None
            if others.restart(self._run, observation):
                return None
        self._run.log.info("%s must run: %s.", self._region, why.text())
        outdated = outdated_finish(evaluation, self._region)
        seen = replace(seen, outdated=outdated, after_clear=why.why is Why.UNSEEN_CODE)
        return self._run_attempt(state, _inputs_of(evaluation, inputs), seen, why.text())

    def _observes_now(self) -> bool:
        """True for the first observation of the tries: what rests on one must be listed after it."""
        if self._observation is not None:
            return False
        self._observation = self._run.task_instances.observe()
        return self._observation is not None

    def _why_it_would_run(self, state: RunState, seen: Seen) -> Reason | None:
        self._run.task_instances.live_check()
        why = self._evaluate(state, seen).invalid_because(self._region)
        if why is not None:
            self._check_data_interval(state)
        return why

    def _evaluate(self, state: RunState, seen: Seen, unkept: Mapping[str, Reason] | None = None) -> Evaluation:
        externals = {self._region: self._as_today(state, seen.externals)}
        not_valid = {**declared_otherwise(self._run, state, self._run.above(self._region)), **(unkept or {})}
        return self._run.evaluate(state, externals, {self._region: seen.absent}, not_valid)

    def _as_today(self, state: RunState, externals: tuple[ExternalObject, ...]) -> tuple[ExternalObject, ...]:
        """``externals``, and what the attempt that counts has found by itself."""
        current = state.of(self._region).current
        if current is None or current.outcome is None:
            return externals
        return (*externals, *self._application.found_again(current.outcome))

    def _check_data_interval(self, state: RunState) -> None:
        """Before anything is reset, abandoned or claimed."""
        names = (self._region, *self._run.regions[self._region].inputs)
        counting = (state.of(name).current or state.of(name).prepared_attempt for name in names)
        check_data_interval(self._run, self._region, [attempt.outcome for attempt in counting if attempt is not None])

    # the ways a try can go

    def _kept_attempt(self, evaluation: Evaluation) -> tuple[Attempt, Outcome]:
        attempt = evaluation.current(self._region)
        if attempt is None or attempt.outcome is None:
            raise AssertionError(f"{self._region} is kept without a finished attempt")
        return attempt, attempt.outcome

    def _why_not_kept(self, evaluation: Evaluation) -> Reason | None:
        attempt, outcome = self._kept_attempt(evaluation)
        unseen = why_unseen_code_runs(self._run, self._region, attempt.number, self._unseen_code)
        if unseen is not None:
            return Reason(self._region, Why.UNSEEN_CODE, unseen)
        why = self._application.why_not_kept(outcome)
        return None if why is None else Reason(self._region, Why.XCOMS_LOST, f"attempt {attempt.number}: {why}")

    def _keep(self, evaluation: Evaluation, state: RunState) -> RegionResult | None:
        """`None`: the journal was changed; or its sink has lost its rows, and what was prepared is gone too."""
        attempt, outcome = self._kept_attempt(evaluation)
        rows = keep_rows(self._run, self._region, attempt, lambda: check_owner(self._run, self._region, state))
        if rows is None:
            return None
        checked = evaluation.files_checked(self._region)
        seconds = outcome.spark_seconds or 0.0
        why = "; ".join(filter(None, (why_kept(evaluation, self._region), rows)))
        if self._epoch is not None:
            why += (
                f"; epoch {self._epoch} has recomputed it already: a value of recovery.epoch that is new runs it again"
            )
        self._run.log.info("%s is kept: %s. No Spark is started; %.1f s of Spark saved.", self._region, why, seconds)
        if state.is_closed and self._run.plan_hash not in state.plans:
            self._run.journal.put_plan(self._run.plan)  # a purge took it away before the claim that names it
        outdated_since = state.of(self._region).outdated_since
        if outdated_since is not None:
            self._run.task_instances.live_check()
            self._run.journal.keep(Kept(self._region, outdated_since, attempt.number))
        if not answer_declared(self._run, attempt):
            return None
        final_check(self._run, self._region, attempt.number)
        self._run.journal.noticed(outcome)
        self._run.events.record(
            RegionKept(
                occurred_at=self._run.now(),
                region=self._region,
                attempt=attempt.number,
                why=why,
                files_checked=checked,
                seconds_saved=seconds,
            )
        )
        return RegionResult(self._region, Decision.KEPT, attempt.number, why, outcome, checked, seconds)

    def _run_attempt(
        self,
        state: RunState,
        inputs: Mapping[str, Outcome],
        seen: Seen,
        why: str = "it had not run yet",
    ) -> RegionResult | None:
        """`None`: the journal was changed before the claim."""
        externals = seen.externals
        self._run.journal.check_fits(self._region, externals)
        self._application.before_claim(state)
        # Read before the claim: nothing that can fail may stand between it and the end of the attempt.
        earlier = tuple(failure.failure for failure in self._restarts.failures(state) if failure.failure is not None)
        region = self._run.regions[self._region]
        refs = refs_of(self._run, self._region, inputs)
        work = attempt_of(region).work(self._run, region, state, refs, externals)
        check_owner(self._run, self._region, state)
        if check_not_appended(self._run, self._region, state):
            return None
        claimed = ClaimedAttempt(
            self._claim(state, refs, work.in_claim, seen),
            inputs,
            externals,
            fingerprint=region.fingerprint or "",
            earlier_failures=earlier,
            coordinators=coordinator_snapshots(self._run.today, state, region),
            commit=region.commit,
            work=work,
            comes_back=state.is_closed,
        )
        outcome = run_claimed(self._run, claimed, self._application, self._restarts, self._label)
        superseded = commit_own(self._run, outcome)
        if outcome.commit is not None:
            self._application.check_committed(outcome)
        final_check(self._run, self._region, outcome.attempt)
        how = "; ".join(filter(None, ("ran", work.taken_over, superseded)))
        return RegionResult(self._region, Decision.RAN, outcome.attempt, how, outcome, cause=why)

    def _clear_producers(self, evaluation: Evaluation, lost: Mapping[str, Reason]) -> InputLost | ClearNotConfigured:
        from airflow_recovery.attempt.clear_producers import (  # only a failover needs it
            clear_producers,
            refuse_without_clear_client,
        )

        if self._observation is None:
            return refuse_without_clear_client(self._run, evaluation, self._region, lost)
        return clear_producers(self._run, evaluation, self._region, lost, self._observation)

    # attempts

    def _end_previous_attempt(self, state: RunState, opened: Attempt, seen: Seen) -> None:
        if self._builder is not None and self._builder.takes_over(self._run, self._region, opened):
            self._fence_previous_attempt(state, opened)
            return
        if self._application.is_killed and self._application.outlives_task:
            raise NotMine(f"This process was told to end: the next try looks after attempt {opened.number}.")
        evaluation = self._evaluate(state, seen)
        if (
            opened.claim is not None
            and attempt_of(self._run.regions[self._region]).is_current(self._run, state, opened.claim)
            and is_worth_reconnecting(self._run, state, evaluation, opened, self._application, self._epoch)
            and reconnect(self._run, opened.claim, self._application, seen.externals)
        ):
            return
        self._fence_previous_attempt(state, opened)

    def _void_attempt(self, state: RunState) -> None:
        """An attempt in the name of the one before it, which can't be reset in another way a second time."""
        before = self._run.journal.read_claim(self._region, state.of(self._region).latest_attempt)
        claim = self._claim(state, before.inputs, before.mode, Seen(absent=before.absent))
        why = "it starts over"
        self._run.journal.fence(fenced(self._run, claim.region, claim.attempt, FenceCause.SUPERSEDED, why))

    def _fence_previous_attempt(self, state: RunState, opened: Attempt) -> None:
        fence_previous_attempt(self._run, state, self._region, opened, self._application, self._restarts, self._label)

    def _claim(self, state: RunState, inputs: Sequence[InputRef], mode: RegionMode, seen: Seen) -> Claim:
        try:
            return claim_attempt(
                self._run,
                self._region,
                state,
                inputs,
                mode=mode,
                epoch=self._epoch,
                owner=None if self._builder is None else self._builder.owner,
                process=None if self._application.can_be_asked else own_process(),
                commit_number=number_in_target(self._run, self._region, state),
                outdated=seen.outdated,
                absent=seen.absent,
                assets=tuple(external for external in seen.externals if is_asset(external.uri)),
                after_clear=seen.after_clear,
                prepare_journal=self._prepare_journal,
            )
        except AttemptLost as error:
            if self._builder is None:
                raise
            raise BuiltElsewhere(f"{self._region}: another run has claimed it first") from error


def outdated_finish(evaluation: Evaluation, region: str) -> int | None:
    """The finish that counts of a region whose own task evaluates it, if it is not valid any more.

    Not one whose rows are valid, and whose XComs alone can't be left in Airflow again.
    """
    current, why = evaluation.current(region), evaluation.invalid_because(region)
    return None if current is None or why is None or why.why is Why.XCOMS_LOST else current.number


def _inputs_of(evaluation: Evaluation, regions: Sequence[str]) -> dict[str, Outcome]:
    inputs: dict[str, Outcome] = {}
    for region in regions:
        attempt = evaluation.current(region)
        if attempt is None or attempt.outcome is None:
            raise AssertionError(f"{region} is neither lost nor finished")
        inputs[region] = attempt.outcome
    return inputs
