"""The restart budget of one region, counted from the journal; asked before each claim, since no policy is after a kill.

What counts as a failure of a region: an attempt that was fenced because it failed by itself, its process's death
included (then its successor says so). What does not: an attempt stopped by a clear or by a lost input, a try that only
waited for a producer, and an error in the user's code that a retry would meet again.

Since when: in the run, since the last clear by a person (`airflow_recovery.attempt.run.RetryGrant`) or reset by one,
and with today's code. So clearing a task by hand, or a fix of its code, starts its count anew.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime

from airflow_recovery.attempt.run import Run
from airflow_recovery.driver.failure_class import RECOVERABLE_LABEL, label_of
from airflow_recovery.errors import Failure, ObjectMissing, RestartPending, RestartsExhausted, UserCodeError
from airflow_recovery.journal.run_state import Attempt, RegionState, RunState
from airflow_recovery.model.records import AttemptState, Claim, FenceCause, Outcome
from airflow_recovery.planning.reason import LOST_DATA, Reason
from airflow_recovery.planning.restart_budget import (
    Budget,
    RestartDecision,
    RestartLimits,
    decide_remake,
    decide_restart,
)

WAITED_FOR_HERE_S = 10.0
"""A pause up to this is slept in the process: giving the task back to Airflow and starting it again costs as much."""


@dataclass(frozen=True)
class OwnFailure:
    """One failed attempt that counts in a restart budget. ``at_s``: when it ended, in seconds since 1970."""

    region: str
    attempt: int
    at_s: float
    failure: Failure | None


class Restarts:
    """The budget of ``region``. ``limits=None``: nothing is limited, and nothing read.

    ``clock_s`` is compared with what other workers' clocks wrote: it can only lengthen or shorten a pause, up to the
    strategy's own (fault 33). ``wait`` sleeps. ``pauses=False``: the pauses are somebody else's (a ``retry_delay``).
    """

    def __init__(
        self,
        run: Run,
        region: str,
        limits: RestartLimits | None,
        *,
        pauses: bool = True,
        clock_s: Callable[[], float] = time.time,
        wait: Callable[[float], None] = time.sleep,
    ) -> None:
        self._run = run
        self._region = region
        self._limits = limits
        self._pauses = pauses
        self._clock_s = clock_s
        self._wait = wait
        self._claims: dict[tuple[str, int], Claim | None] = {}

    def waited(self, state: RunState, why: Reason) -> bool:
        """May the region run, which it must because of ``why``? True where a pause was slept: look at all again.

        Raises `RestartsExhausted` naming the budget that has ended, `RestartPending` where the pause is long.
        """
        if self._limits is None:
            return False
        if why.why in LOST_DATA:
            remake = decide_remake(self._limits, self._region, self._losses(state))
            if not remake.allowed:
                raise self.exhausted(remake)
        decision = self._decide(state, self._limits)
        if not decision.allowed:
            raise self.exhausted(decision, told=_last_failure(state, self._region))
        if decision.delay_s <= 0 or not self._pauses:
            return False
        self._run.log.info("%s.", decision.reason)
        if decision.delay_s > WAITED_FOR_HERE_S:
            raise RestartPending(
                f"{decision.reason}. Airflow starts this task again then.", decision.delay_s, code="restart-pauses"
            )
        self._wait(decision.delay_s)
        return True

    def after_failure(self, state: RunState, failed: Outcome) -> RestartDecision | None:
        """What becomes of the region after ``failed``, whether ``state`` has it or not. `None`: nothing is limited."""
        if self._limits is None:
            return None
        return self._decide(state, self._limits, failed)

    def exhausted(
        self, decision: RestartDecision, last: BaseException | None = None, told: str = ""
    ) -> RestartsExhausted:
        """The error to raise: which budget has ended, and how to go on."""
        ended = decision.ended or Budget.STRATEGY
        what = {
            Budget.PER_TASK: "raise maximum_per_task_failures",
            Budget.LOSSES: "find out what deletes it (a lifecycle rule, a clean-up job)",
            Budget.TOTAL: "raise maximum_total_task_failures",
            Budget.STRATEGY: "declare another restart_strategy",
        }[ended]
        told = f"{type(last).__name__}: {last}" if last is not None else told
        failure = f" The last failure: {told}." if told else ""
        return RestartsExhausted(
            f"{decision.reason}: it is not restarted, although Airflow's own retries may not be used up.{failure} "
            "Repair the cause, then clear this task: a clear by hand starts its count anew, as changed code does. Or "
            f"{what}.",
            code="budget-ended",
        )

    def cause_of_open(self, opened: Attempt) -> FenceCause:
        """Why the attempt that an earlier try left open has ended: its process died, unless the task was cleared."""
        claim, task = opened.claim, self._run.task
        if (
            claim is not None
            and task.grant is not None
            and claim.airflow_run_id == task.airflow_run_id
            and claim.max_tries == task.grant.max_tries
            and claim.try_number < task.try_number
            and claim.try_number not in task.grant.cancelled
        ):
            return FenceCause.OWN_FAILURE
        return FenceCause.SUPERSEDED

    def failures(self, state: RunState) -> tuple[OwnFailure, ...]:
        """The failed attempts of this region that count, oldest first."""
        # The newest first: of two claims, the later one shows whether the earlier one is of this run.
        failed = reversed(list(self._failed(state, self._region)))
        return tuple(reversed([failure for failure in failed if self._is_mine(failure.attempt)]))

    def check_not_in_vain(self, state: RunState) -> None:
        """Raises `UserCodeError` where the newest attempt failed in a way that the same code would meet again.

        A task of one region fails at once then. Where a task runs several, it may be retried for another's sake.
        """
        region_state = state.of(self._region)
        newest = region_state.attempts.get(region_state.latest_attempt)
        outcome = newest.outcome if newest is not None and newest.number > _forgiven(region_state) else None
        if outcome is None or outcome.cause is not FenceCause.OWN_FAILURE:
            return
        if label_of(outcome.failure, RECOVERABLE_LABEL) != "no":
            return
        if outcome.fingerprint == self._run.regions[self._region].fingerprint and self._is_mine(outcome.attempt):
            raise UserCodeError(
                f"{self._region}@{outcome.attempt} failed, and the same code would fail again, so it is not retried: "
                f"{outcome.detail or 'no reason given'}",
                outcome.failure,
                code="fails-again",
                region=self._region,
                attempt=outcome.attempt,
            )

    def _decide(self, state: RunState, limits: RestartLimits, failed: Outcome | None = None) -> RestartDecision:
        own = [failure.at_s for failure in self.failures(state) if failed is None or failure.attempt != failed.attempt]
        if failed is not None:
            own.append(_seconds(failed.ended_at))
        everything = own if limits.maximum_total_task_failures is None else own + self._of_others(state)
        return decide_restart(
            limits,
            self._region,
            own_s=own,
            all_s=everything,
            now_s=self._clock_s(),
            # One seed a region: every process that asks draws the same pauses for the same failures.
            uniform=random.Random(f"{self._run.journal.identity}/{self._region}").uniform,
        )

    def _of_others(self, state: RunState) -> list[float]:
        """When the other regions failed: in this run, and since this region began again where a person cleared it."""
        grant = self._run.task.grant
        since = 0.0
        if grant is not None and grant.is_renewed:
            own_claims = [self._claim(self._region, n) for n in state.of(self._region).attempts if self._is_mine(n)]
            since = min(
                (_seconds(claim.claimed_at) for claim in own_claims if claim is not None), default=self._clock_s()
            )
        failed_at = []
        for region in self._run.regions:
            for failure in self._failed(state, region) if region != self._region else ():
                claim = self._claim(region, failure.attempt)
                is_this_run = claim is not None and claim.airflow_run_id == self._run.task.airflow_run_id
                if is_this_run and failure.at_s >= since:
                    failed_at.append(failure.at_s)
        return failed_at

    def _failed(self, state: RunState, region: str) -> Iterator[OwnFailure]:
        region_state = state.of(region)
        forgiven = _forgiven(region_state)
        today = self._run.regions[region].fingerprint
        for n, attempt in sorted(region_state.attempts.items()):
            outcome = attempt.outcome
            if n <= forgiven or outcome is None or outcome.state is not AttemptState.FENCED:
                continue
            if outcome.cause is not FenceCause.OWN_FAILURE or label_of(outcome.failure, RECOVERABLE_LABEL) == "no":
                continue
            if outcome.is_of_other_code(today):
                continue
            yield OwnFailure(region, n, _seconds(outcome.ended_at), outcome.failure)

    def _losses(self, state: RunState) -> int:
        region_state = state.of(self._region)
        forgiven = _forgiven(region_state)
        return sum(
            1 for n, attempt in region_state.attempts.items() if attempt.is_lost and n > forgiven and self._is_mine(n)
        )

    def _is_mine(self, attempt: int) -> bool:
        """Was the attempt of this region made under the present grant?

        A run that was deleted and made again has the run id and the tries of the one before it. Within one run, a later
        try has a higher number; so a claim is of an earlier run if its try does not come before the present one, or
        before that of a later claim that was read.
        """
        claim, task = self._claim(self._region, attempt), self._run.task
        if claim is None or claim.airflow_run_id != task.airflow_run_id:
            return False
        later = [(task.try_number, task.ti_id)]
        later += [
            (other.try_number, other.ti_id)
            for (region, number), other in self._claims.items()
            if region == self._region and number > attempt and other is not None
        ]
        if not all(
            claim.try_number < number or (claim.try_number, claim.ti_id) == (number, ti) for number, ti in later
        ):
            return False
        return task.grant is None or claim.max_tries == task.grant.max_tries

    def _claim(self, region: str, attempt: int) -> Claim | None:
        key = region, attempt
        if key not in self._claims:
            try:
                self._claims[key] = self._run.journal.read_claim(region, attempt)
            except ObjectMissing:
                self._claims[key] = None
        return self._claims[key]


def _forgiven(region: RegionState) -> int:
    """The highest attempt that a person's reset names; a strategy that restarts whole jobs must end all the same."""
    return max((n for n, attempt in region.attempts.items() if attempt.is_reset_by_hand), default=0)


def with_budget_ended(ended: Outcome, decision: RestartDecision | None) -> Outcome:
    """``ended``, and that its failure has ended a restart budget, where ``decision`` says so."""
    return ended if decision is None or decision.allowed else replace(ended, budget_ended=decision.reason)


def attach(error: BaseException, decision: RestartDecision) -> None:
    """Let ``error`` carry the decision to Airflow's retry policy, which is asked in this process."""
    setattr(error, _ATTRIBUTE, decision)


def decision_of(error: BaseException) -> RestartDecision | None:
    """What was attached to ``error`` or to one of its causes."""
    seen: BaseException | None = error
    for _ in range(20):
        if seen is None:
            return None
        decision = getattr(seen, _ATTRIBUTE, None)
        if isinstance(decision, RestartDecision):
            return decision
        seen = seen.__cause__
    return None


_ATTRIBUTE = "_airflow_recovery_restart"


def _seconds(moment: str) -> float:
    """Seconds since 1970 of an ISO 8601 time; 0 for what is none, since a damaged time must not stop a recovery."""
    try:
        return datetime.fromisoformat(moment).timestamp()
    except ValueError:
        return 0.0


def _last_failure(state: RunState, region: str) -> str:
    """Return the error of the newest attempt of ``region`` that failed by itself; empty if there is none."""
    attempts = sorted(state.of(region).attempts.items(), reverse=True)
    outcomes = (attempt.outcome for _, attempt in attempts if attempt.outcome is not None)
    return next((one.detail for one in outcomes if one.cause is FenceCause.OWN_FAILURE and one.detail), "")
