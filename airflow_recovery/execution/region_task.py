"""One try of one region's task: pre-check, then kept, run or failed over (PROTOCOL 5.1).

loop: list the journal
      an attempt of mine is open            -> stop what is left of it, fence it, judge again
      recompute asked for, not yet done     -> reset, judge again
      I need not run                        -> settle, success
      a failure, and the strategy is full   -> reset every region, clear their tasks, judge again
      an input is lost                      -> report it, wake its producer, raise (this task retries)
      my restart budget has ended           -> raise, naming the budget; its pause is not over -> wait
      else                                  -> claim, run Spark, settle, success
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Protocol

from airflow_recovery.errors import (
    AttemptLost,
    InputDenied,
    NotMine,
    PagesDisagree,
    RegionFailed,
    SharedMadeElsewhere,
    StoreError,
    UserCodeError,
)
from airflow_recovery.execution.full_restart import restart_all, why_restart_all
from airflow_recovery.execution.restarts import Restarts, attach
from airflow_recovery.execution.run import LISTING_ROUNDS, Run, is_untouched
from airflow_recovery.execution.scheduler import Observation
from airflow_recovery.execution.settle import settle
from airflow_recovery.failover.judgement import Judgement
from airflow_recovery.failover.plan_making import why_kept
from airflow_recovery.failover.reason import Why
from airflow_recovery.journal.events import (
    AttemptClaimed,
    AttemptFailed,
    ExecutionVertexFinished,
    ExecutionVertexReset,
    RegionKept,
)
from airflow_recovery.journal.journal import Listing
from airflow_recovery.journal.records import (
    AttemptState,
    AttemptTrace,
    Claim,
    ExternalObject,
    Failure,
    FenceCause,
    InputPin,
    Outcome,
    Reset,
    RunAttempt,
)
from airflow_recovery.journal.run_state import Attempt, RunState
from airflow_recovery.runtime.failure import describe
from airflow_recovery.runtime.failure_class import labelled
from airflow_recovery.topology.failover_strategy import FailoverStrategy


class Decision(str, Enum):
    """What a successful try did."""

    KEPT = "kept"
    RAN = "ran"


@dataclass(frozen=True)
class RegionResult:
    """How a try succeeded. ``seconds_saved`` is what the kept attempt had cost in Spark."""

    region: str
    decision: Decision
    attempt: int
    why: str
    outcome: Outcome
    files_checked: int = 0
    seconds_saved: float = 0.0


@dataclass(frozen=True)
class ClaimedAttempt:
    """What a runner is given: its claim, the outcomes of what it reads, and its external inputs."""

    claim: Claim
    inputs: Mapping[str, Outcome]
    externals: tuple[ExternalObject, ...]
    fingerprint: str
    earlier_failures: tuple[Failure, ...] = ()
    """Those that count in the region's restart budget, oldest first."""

    @property
    def trace(self) -> AttemptTrace:
        """What its outcome will say that it rests on."""
        claim = self.claim
        return AttemptTrace(claim.region, claim.attempt, claim.writer, self.fingerprint, claim.inputs, self.externals)


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


@dataclass(frozen=True)
class _After:
    """What was found after a failure. The observation was made before the listing that the judgement rests on."""

    state: RunState
    judged: Judgement
    observation: Observation


class RegionTask:
    """One try of the task of ``region``. ``epoch`` is set in recompute mode: everything runs again once an epoch.

    ``restarts`` is the region's budget, by default an unlimited one; ``label`` says what kind of failure it was.
    """

    def __init__(
        self,
        run: Run,
        region: str,
        runner: RegionRunner,
        *,
        epoch: str | None = None,
        prepare_journal: Callable[[], None] = lambda: None,
        restarts: Restarts | None = None,
        label: Callable[[Failure], Failure] = labelled,
    ) -> None:
        self._run = run
        self._region = region
        self._plan = run.regions[region]
        self._runner = runner
        self._epoch = epoch
        self._owner: RunAttempt | None = None
        self._prepare_journal = prepare_journal
        self._restarts = restarts or Restarts(run, region, None)
        self._label = label

    def execute(self) -> RegionResult:
        """The whole try. Raises what the task shall fail with; whatever it raises, no open attempt of it is left."""
        observation: Observation | None = None
        externals = self._runner.externals()
        for _ in range(LISTING_ROUNDS):
            listing = self._run.list()
            try:
                inputs = self._first_attempt_inputs(listing)
                state = listing.state if inputs is not None else self._run.journal.load(listing)
            except PagesDisagree:
                continue
            if inputs is not None:
                return self._run_attempt(state, inputs, externals)
            opened = state.of(self._region).open_attempt
            if opened is not None:
                self._fence_predecessor(opened)
                continue
            if self._epoch is not None and self._reset_for_epoch(state, self._epoch):
                continue
            judged = self._run.judge(state, {self._region: externals})
            why = judged.why_must_run(self._region)
            if why is None:
                return self._keep(judged)
            if why.why is Why.CODE_CHANGED:
                self._run.scheduler.live_check()
            lost = judged.lost_inputs(self._region)
            cause = why_restart_all(self._run, state, self._region, why, lost)
            if cause is not None:
                if self._restarts.waited(state, why):
                    continue
                if observation is None and (observation := self._run.scheduler.observe()) is not None:
                    continue
                restart_all(self._run, state, self._region, cause, observation)
                continue
            if not lost:
                # Before every claim, not by Airflow's retry policy alone: that is not asked after a kill.
                if self._restarts.waited(state, why):
                    continue
                self._run.log.info("%s must run: %s.", self._region, why.text())
                return self._run_attempt(state, self._inputs_of(judged), externals)
            from airflow_recovery.execution.wake import refuse_without_door, wake_producers  # only a failover needs it

            if observation is None:
                # The tries must be observed before the listing that the wake-up rests on.
                observation = self._run.scheduler.observe()
                if observation is None:
                    raise refuse_without_door(self._run, judged, self._region, lost)
                continue
            raise wake_producers(self._run, judged, self._region, lost, observation)
        raise PagesDisagree(
            f"The journal of {self._region} was not coherent in {LISTING_ROUNDS} listings; this task retries."
        )

    # the ways a try can go

    def _keep(self, judged: Judgement) -> RegionResult:
        attempt = judged.current(self._region)
        if attempt is None or attempt.outcome is None:
            raise AssertionError(f"{self._region} is kept without a finished attempt")
        outcome = attempt.outcome
        checked = judged.files_checked(self._region)
        seconds = outcome.spark_seconds or 0.0
        why = why_kept(judged, self._region)
        self._run.log.info("%s is kept: %s. No Spark is started; %.1f s of Spark saved.", self._region, why, seconds)
        settle(self._run, self._region, attempt.number)
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
        self, state: RunState, inputs: Mapping[str, Outcome], externals: tuple[ExternalObject, ...]
    ) -> RegionResult:
        self._runner.check_target(state)
        # Read before the claim: nothing that can fail may stand between it and the end of the attempt.
        earlier = tuple(each.failure for each in self._restarts.failures(state) if each.failure is not None)
        claim = self._claim(state, inputs)
        claimed = ClaimedAttempt(claim, inputs, externals, self._plan.fingerprint or "", earlier)
        check = threading.Thread(target=self._check_release, args=(claim,), name="release check", daemon=True)
        try:
            check.start()
            confirmed = self._runner.run(claimed)
        except BaseException as error:
            outcome = self._end_failed(claim, error)
        else:
            outcome = confirmed or self._look_for_outcome(claim)
        finally:
            check.join()
        self._run.events.record(
            ExecutionVertexFinished(
                occurred_at=self._run.now(),
                region=self._region,
                attempt=claim.attempt,
                rows=tuple((each.result, each.rows) for each in outcome.outputs if each.rows is not None),
                seconds=outcome.spark_seconds or 0.0,
            )
        )
        settle(self._run, self._region, claim.attempt)
        return RegionResult(self._region, Decision.RAN, claim.attempt, "ran", outcome)

    def _fence_predecessor(self, opened: Attempt) -> None:
        """End the attempt that an earlier try left open. Where it has finished meanwhile, all is judged again."""
        # It may be the present try's, and this process the earlier one.
        self._run.scheduler.live_check()
        if opened.claim is not None:
            self._runner.stop_orphan(opened.claim)
        cause = self._restarts.cause_of_open(opened)
        fenced = self._fenced(opened.number, cause, "the next try of the task")
        if cause is FenceCause.OWN_FAILURE:
            died = "the process of this attempt died without a word: killed, out of memory, or its worker was lost"
            fenced = replace(fenced, detail=died, failure=self._label(Failure("ProcessLost", died)))
        try:
            self._run.journal.fence(fenced)
            self._run.log.info("Attempt %d was left open by an earlier try: fenced (%s).", opened.number, cause.value)
        except AttemptLost:
            self._run.log.info("Attempt %d has ended by itself; judging again.", opened.number)

    def _reset_for_epoch(self, state: RunState, epoch: str) -> bool:
        """Recompute mode: a reset of everything so far, once an epoch. True where the state has changed by it."""
        mine = state.of(self._region)
        if any(each.reset is not None and each.reset.epoch == epoch for each in mine.attempts.values()):
            return False
        if any(
            n > mine.mark and each.is_claimed and self._run.journal.read_claim(self._region, n).epoch == epoch
            for n, each in mine.attempts.items()
        ):
            return False
        self._run.scheduler.live_check()
        why = f"recompute, epoch {epoch}"
        self._run.journal.reset(Reset(self._region, mine.top, self._run.task.airflow_run_id, why, epoch))
        self._run.events.record(
            ExecutionVertexReset(
                occurred_at=self._run.now(),
                region=self._region,
                attempt=mine.top,
                who=self._run.task.airflow_run_id,
                why=why,
            )
        )
        return mine.top > mine.mark

    # claim and outcome

    def _claim(self, state: RunState, inputs: Mapping[str, Outcome]) -> Claim:
        self._run.scheduler.live_check()
        if self._run.plan_hash not in state.plans:
            self._prepare_journal()
            self._run.journal.put_plan(self._run.plan)
        number = state.of(self._region).top + 1
        claim = Claim(
            region=self._region,
            attempt=number,
            writer=self._run.journal.writer,
            plan_hash=self._run.plan_hash,
            inputs=tuple(self._pin(region, outcome) for region, outcome in inputs.items()),
            airflow_run_id=self._run.task.airflow_run_id,
            try_number=self._run.task.try_number,
            ti_id=self._run.task.ti_id,
            tag=f"airflow-recovery-{uuid.uuid5(uuid.NAMESPACE_OID, f'{self._run.journal.writer}/{number}')}",
            claimed_at=self._run.now(),
            epoch=self._epoch,
            owner=self._owner,
            max_tries=self._run.task.grant.max_tries if self._run.task.grant is not None else None,
        )
        # A process claims once. One that loses never fights back: the winner is the present task, or will be fenced.
        self._run.journal.claim(claim)
        self._run.log.info(
            "Attempt %d of %s claimed; it reads %s.",
            number,
            self._region,
            ", ".join(f"{pin.region}@{pin.attempt}" for pin in claim.inputs) or "no other region",
        )
        self._run.events.record(
            AttemptClaimed(
                occurred_at=self._run.now(),
                region=self._region,
                attempt=number,
                writer=claim.writer,
                try_number=claim.try_number,
                inputs=claim.inputs,
            )
        )
        return claim

    def _check_release(self, claim: Claim) -> None:
        """Reader: claim, *then* look for release markers. Sweeper: marker, then look for claims. One sees the other.

        Runs beside Spark's start. Where it can't ask, nothing is unsafe: Spark reads exactly the files of the manifests
        and fails on the first one that is gone.
        """
        if not claim.inputs:
            return
        try:
            state = self._run.list().state
            released = [pin for pin in claim.inputs if state.of(pin.region).is_let_go(pin.attempt)]
            if released:
                detail = ", ".join(f"{pin.region}@{pin.attempt}" for pin in released) + " was released"
                self._run.log.warning("%s after attempt %d was claimed; stopping it.", detail, claim.attempt)
                self._run.journal.fence(self._fenced(claim.attempt, FenceCause.LOST_INPUT, detail))
                self._runner.stop()
        except AttemptLost:
            self._run.log.info("Attempt %d had ended before it could be stopped; its outcome counts.", claim.attempt)
        except StoreError as error:
            self._run.log.warning("The release markers of the inputs could not be looked at: %s", error)

    def _look_for_outcome(self, claim: Claim) -> Outcome:
        outcome = self._run.journal.read_outcome(self._region, claim.attempt)
        if outcome is None:
            error = RegionFailed(
                f"{self._region}@{claim.attempt}: the Spark application ended without an error, and without an outcome "
                "in the journal. Look into its log above; was it stopped, or did it call sys.exit()?"
            )
            return self._end_failed(claim, error)
        return self._accept(claim, outcome)

    def _end_failed(self, claim: Claim, error: BaseException) -> Outcome:
        """Fence the own attempt and raise ``error``; but where the attempt has finished all the same, that counts.

        A status that says "failed" or "unknown" proves nothing: the outcome object decides (fault 76).
        """
        detail = f"{type(error).__name__}: {error}"[:2000]
        # Looked at before the fence, whose cause it is: what a lost input did is not the region's own failure.
        after = self._look_at_inputs(error)
        lost = after.judged.lost_inputs(self._region) if after is not None else {}
        cause = FenceCause.LOST_INPUT if lost else self._own_or_superseded(error)
        fenced = self._fenced(claim.attempt, cause, detail, error)
        try:
            self._run.journal.fence(fenced)
        except AttemptLost:
            outcome = self._run.journal.read_outcome(self._region, claim.attempt)
            if outcome is None:
                raise
            accepted = self._accept(claim, outcome)
            self._run.log.warning("%s, but attempt %d has finished: it counts.", error, claim.attempt)
            return accepted
        self._run.events.record(
            AttemptFailed(
                occurred_at=self._run.now(),
                region=self._region,
                attempt=claim.attempt,
                failure=fenced.failure or Failure(type(error).__name__, str(error)),
            )
        )
        # Where a failure restarts everything, the next try does it.
        is_full = self._run.plan.failover_strategy is FailoverStrategy.FULL
        if after is not None and lost and not is_full:
            from airflow_recovery.execution.wake import wake_producers

            raise wake_producers(self._run, after.judged, self._region, lost, after.observation) from error
        if cause is FenceCause.OWN_FAILURE and not isinstance(error, (UserCodeError, InputDenied)):
            self._check_budget(after, fenced, error)
        raise error

    def _own_or_superseded(self, error: BaseException) -> FenceCause:
        """An attempt has not failed by itself if its task was cleared, or if another run makes the shared result."""
        if isinstance(error, SharedMadeElsewhere):
            return FenceCause.SUPERSEDED
        try:
            self._run.scheduler.live_check()
        except NotMine:
            return FenceCause.SUPERSEDED
        except Exception as second:
            # Then it is not known; the failure is what is told.
            self._run.log.warning("Whether this task was cleared could not be asked: %s", second)
        return FenceCause.OWN_FAILURE

    def _check_budget(self, after: _After | None, fenced: Outcome, error: BaseException) -> None:
        """Raises `RestartsExhausted` where that was the last failure; else ``error`` carries the pause."""
        if not isinstance(error, Exception):
            return  # this process is told to end
        try:
            state = after.state if after is not None else self._run.journal.load(self._run.list())
            decision = self._restarts.after_failure(state, fenced)
        except (PagesDisagree, StoreError) as second:
            # The next try's pre-check asks again.
            self._run.log.warning("The restart budget could not be counted: %s", second)
            return
        if decision is None:
            return
        if not decision.allowed:
            raise self._restarts.exhausted(decision, error) from error
        self._run.log.info("%s.", decision.reason)
        attach(error, decision)

    def _accept(self, claim: Claim, outcome: Outcome) -> Outcome:
        if outcome.state is AttemptState.FINISHED and outcome.writer == claim.writer:
            return outcome
        raise AttemptLost(
            f"{self._region}@{claim.attempt} of process {claim.writer} was fenced by process {outcome.writer} "
            f"({outcome.detail or 'no reason given'}) while it ran; nothing that it wrote counts."
        )

    def _look_at_inputs(self, error: BaseException) -> _After | None:
        """A read error never restarts a producer by itself; it only makes us look (fault 46)."""
        if not isinstance(error, RegionFailed):
            return None
        try:
            observation = self._run.scheduler.observe()
            if observation is None:
                return None
            state = self._run.journal.load(self._run.list())
            judged = self._run.judge(state)
            judged.lost_inputs(self._region)
        except Exception as second:
            # The failure itself is what is told, and the attempt is still to be fenced; the next try looks again.
            self._run.log.warning("Whether an input is lost could not be looked at: %s", second)
            return None
        return _After(state, judged, observation)

    def _fenced(self, attempt: int, cause: FenceCause, detail: str, error: BaseException | None = None) -> Outcome:
        return Outcome(
            region=self._region,
            attempt=attempt,
            state=AttemptState.FENCED,
            writer=self._run.journal.writer,
            ended_at=self._run.now(),
            cause=cause,
            detail=detail,
            fingerprint=self._plan.fingerprint if cause is FenceCause.OWN_FAILURE else None,
            failure=self._label(_failure_of(error)) if error is not None else None,
        )

    # what it reads

    def _first_attempt_inputs(self, listing: Listing) -> dict[str, Outcome] | None:
        """The inputs, where nothing has ever failed in this run: then only their outcomes need to be fetched.

        One plan, attempts 1 only and no marker: all finished regions stand. `None` where that is not so.
        """
        state = listing.state
        if self._epoch is not None or state.of(self._region).attempts:
            return None
        if not self._plan.inputs:
            is_first = not state.is_closed and state.plans <= {self._run.plan_hash}
            return {} if is_first else None
        if not is_untouched(state, self._run.plan_hash):
            return None
        loaded = self._run.journal.load(listing, self._plan.inputs)
        inputs: dict[str, Outcome] = {}
        for region in self._plan.inputs:
            attempt = loaded.of(region).current
            if attempt is None or attempt.outcome is None or self._run.available(region, attempt) is not None:
                return None
            today = self._run.regions[region].fingerprint
            if today is not None and attempt.outcome.fingerprint != today:
                return None
            inputs[region] = attempt.outcome
        return inputs

    def _pin(self, region: str, outcome: Outcome) -> InputPin:
        """What is read of ``region``, with the digests by which a later attempt of it may turn out to be the same."""
        reads = self._plan.reads
        digests = ((each.result, each.digest) for each in outcome.outputs if not reads or each.result in reads)
        return InputPin(region, outcome.attempt, tuple((result, digest) for result, digest in digests if digest))

    def _inputs_of(self, judged: Judgement) -> dict[str, Outcome]:
        inputs: dict[str, Outcome] = {}
        for region in self._plan.inputs:
            attempt = judged.current(region)
            if attempt is None or attempt.outcome is None:
                raise AssertionError(f"{region} is neither lost nor finished")
            inputs[region] = attempt.outcome
        return inputs


def _failure_of(error: BaseException) -> Failure:
    return (error.cause if isinstance(error, RegionFailed) else None) or describe(error)
