"""How a failed attempt ends: fenced with its cause, and the error that makes Airflow do the right thing next.

an input is lost               -> LOST_INPUT: report it, clear its producer; this task waits for it
the task was cleared meanwhile -> SUPERSEDED: the try that Airflow has started since goes on
its code was replaced meanwhile -> SUPERSEDED: the next try runs with the code as it is then
else                           -> OWN_FAILURE: counts in the restart budget, which may end with it
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from airflow_recovery.attempt.attempt_outcome import fenced, own_finish
from airflow_recovery.attempt.commit import recovery_command
from airflow_recovery.attempt.restarts import Restarts, attach, with_budget_ended
from airflow_recovery.attempt.run import Run
from airflow_recovery.attempt.task_instances import Observation
from airflow_recovery.driver.failure import describe
from airflow_recovery.driver.failure_class import is_malformed
from airflow_recovery.errors import (
    AttemptLost,
    CodeReplaced,
    Failure,
    InputAltered,
    InputMalformed,
    InputReleased,
    InputUnreadable,
    NotMine,
    PagesDisagree,
    RegionFailed,
    StoreError,
)
from airflow_recovery.journal.run_state import RunState
from airflow_recovery.model.build_in_progress import BuiltElsewhere
from airflow_recovery.model.failover_strategy import FailoverStrategy
from airflow_recovery.model.keys import RegionKey
from airflow_recovery.model.records import Claim, FenceCause, Outcome
from airflow_recovery.planning.evaluation import Evaluation
from airflow_recovery.planning.reason import Reason
from airflow_recovery.planning.restart_budget import RestartDecision


@dataclass(frozen=True)
class _After:
    """What was found after a failure. The observation was made before the listing that was evaluated."""

    state: RunState
    evaluation: Evaluation
    observation: Observation
    lost: Mapping[str, Reason]


class FailedAttempt:
    """Ends the attempt of ``claim``. ``label`` says what kind of failure it was, ``restarts`` what becomes of it.

    ``are_as_claimed`` looks at the external inputs once more: False if one of them was altered meanwhile.
    """

    def __init__(
        self,
        run: Run,
        claim: Claim,
        restarts: Restarts,
        label: Callable[[Failure], Failure],
        are_as_claimed: Callable[[], bool],
    ) -> None:
        self._run = run
        self._claim = claim
        self._restarts = restarts
        self._label = label
        self._are_as_claimed = are_as_claimed

    def end(self, error: BaseException) -> Outcome:
        """Fence the attempt and raise ``error``, or what stands for it; returns the outcome if it had finished.

        A status that says "failed" or "unknown" proves nothing: the outcome object decides (fault 76).
        """
        run, claim = self._run, self._claim
        # Looked at before the fence, whose cause it is: what a lost input did is not the region's own failure.
        after = self._look_at_inputs(error)
        lost = after.lost if after is not None else {}
        if after is not None and not lost:
            error = self._malformed(error)
        is_input = bool(lost) or isinstance(error, InputReleased)
        cause = FenceCause.LOST_INPUT if is_input else self._own_or_superseded(error)
        detail = f"{type(error).__name__}: {error}"[:2000]
        failure = self._label((error.cause if isinstance(error, RegionFailed) else None) or describe(error))
        ended = fenced(run, claim.region, claim.attempt, cause, detail, failure)
        # What is wrong with the code or its place uses up no budget: it fails at once.
        uses_budget = not (isinstance(error, RegionFailed) and error.kind.is_final)
        decision = self._decide(after, ended, error) if cause is FenceCause.OWN_FAILURE and uses_budget else None
        try:
            run.journal.fence(with_budget_ended(ended, decision))
        except AttemptLost:
            outcome = own_finish(run, claim)
            if outcome is None:
                raise
            run.log.warning("%s, but attempt %d has finished: it counts.", error, claim.attempt)
            _forget(error)
            return outcome
        _forget(error)
        # Where a failure restarts everything, the next try does it.
        is_full = run.plan.failover_strategy is FailoverStrategy.FULL
        if after is not None and lost and not is_full:
            from airflow_recovery.attempt.clear_producers import clear_producers  # only a failover needs it

            raise clear_producers(run, after.evaluation, claim.region, lost, after.observation) from error
        if decision is not None:
            if not decision.allowed:
                raise self._restarts.exhausted(decision, error) from error
            run.log.info("%s.", decision.reason)
            attach(error, decision)
        raise error

    def _look_at_inputs(self, error: BaseException) -> _After | None:
        """A read error never restarts a producer by itself; it only makes us look (fault 46)."""
        if not isinstance(error, RegionFailed):
            return None
        try:
            observation = self._run.task_instances.observe()
            if observation is None:
                return None
            state = self._run.journal.load(self._run.list())
            # An optional input that this run does not have is not lost.
            evaluation = self._run.evaluate(state, absent={self._claim.region: self._claim.absent})
            return _After(state, evaluation, observation, evaluation.lost_inputs(self._claim.region))
        except Exception as second:
            # The failure itself is what is told, and the attempt is still to be fenced; the next try looks again.
            self._run.log.warning("Whether an input is lost could not be looked at: %s", second)
            return None

    def _malformed(self, error: BaseException) -> BaseException:
        """Replace the error of a malformed file: `InputAltered` if an input was altered, else `InputMalformed`."""
        if not isinstance(error, InputUnreadable) or not is_malformed(error.cause):
            return error
        try:
            if not self._are_as_claimed():
                altered = InputAltered(
                    f"{error} An input was altered meanwhile: the next try reads it.",
                    error.cause,
                    code="input-altered-meanwhile",
                )
                altered.forget = error.forget
                return altered
        except Exception as second:
            self._run.log.warning("Whether an input was altered could not be looked at: %s", second)
            return error
        restart = ""
        for name in sorted({ref.region for ref in self._claim.inputs})[:1]:
            command = recovery_command("restart", RegionKey.of(self._run.journal.identity, name))
            restart = f" If it is a result of {name}: {command}."
        malformed = InputMalformed(
            f"{error} No input was altered since it was registered, so a retry would read the same. Check the "
            "named file: is it complete, does it have the expected format (and is not a web page, for example), and "
            f"does it have the expected columns and types? Replace or exclude it, and clear this task.{restart}",
            error.cause,
            code="input-not-altered",
        )
        malformed.forget = error.forget
        return malformed

    def _own_or_superseded(self, error: BaseException) -> FenceCause:
        """An attempt has not failed by itself if its task was cleared, or if another run makes the shared result.

        Nor if its code was replaced.
        """
        if isinstance(error, (BuiltElsewhere, CodeReplaced, NotMine)):
            return FenceCause.SUPERSEDED
        try:
            self._run.task_instances.live_check()
        except NotMine:
            return FenceCause.SUPERSEDED
        except Exception as second:
            # Then it is not known; the failure is what is told.
            self._run.log.warning("Whether this task was cleared could not be asked: %s", second)
        return FenceCause.OWN_FAILURE

    def _decide(self, after: _After | None, ended: Outcome, error: BaseException) -> RestartDecision | None:
        """What becomes of the region after this failure; `None`: nothing is limited, or it could not be counted."""
        if not isinstance(error, Exception):
            return None  # this process is told to end
        try:
            state = after.state if after is not None else self._run.journal.load(self._run.list())
            return self._restarts.after_failure(state, ended)
        except (PagesDisagree, StoreError) as second:
            # The next try's pre-check asks again.
            self._run.log.warning("The restart budget could not be counted: %s", second)
            return None


def _forget(error: BaseException) -> None:
    if isinstance(error, RegionFailed):
        error.forget()
