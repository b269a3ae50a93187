"""The restart strategy as an Airflow `RetryPolicy`: when the next try starts, and why it does.

The budget itself is counted from the journal by the region task, which is in the same process: the exception carries
its decision here. Airflow asks no policy after a kill or a lost heartbeat; the next try's pre-check then asks the
budget again. So this class may be left out (by a ``retry_policy`` of your own) without anything being restarted too
often; only the pauses are then yours.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk import RetryAction, RetryDecision, RetryPolicy

from airflow_recovery import errors
from airflow_recovery.attempt.restarts import decision_of
from airflow_recovery.hooks.masking import mask_secrets
from airflow_recovery.planning.restart_strategy import ExponentialDelay

if TYPE_CHECKING:
    from airflow.sdk import Context

_ELSE = ExponentialDelay()


class RecoveryRetryPolicy(RetryPolicy):
    """Delays by the region's restart strategy, stops where its budget has ended.

    ``retries``: the task's, from which the tries since the last clear are counted. ``delay_is_own``: the user's
    ``retry_delay`` is kept for failures. What failed outside an attempt (a store or Airflow that is away) is no failure
    of the region; it is retried after 1 s, 1.5 s, ... up to one minute, as long as Airflow's ``retries`` last. A
    template that no retry can render fails at once.
    """

    def __init__(self, *, retries: int, delay_is_own: bool = False) -> None:
        self.retries = retries
        self.delay_is_own = delay_is_own

    def evaluate(
        self, exception: BaseException, try_number: int, max_tries: int, context: Context | None = None
    ) -> RetryDecision:
        """Whether and when Airflow starts the next try after ``exception``, and the reason that its page shows."""
        if isinstance(exception, errors.SubtasksFailed):
            return self._of_several(exception, try_number, max_tries, context)
        if isinstance(exception, errors.RestartsExhausted):
            return RetryDecision.fail(reason=mask_secrets(str(exception)))
        if isinstance(exception, errors.RestartPending):
            return self._retry(exception.delay_s, str(exception))
        decision = decision_of(exception)
        if decision is not None:
            if not decision.allowed:
                return RetryDecision.fail(reason=decision.reason)
            return RetryDecision.default() if self.delay_is_own else self._retry(decision.delay_s, decision.reason)
        if errors.kind_of(exception) is errors.Kind.FENCED:
            return self._retry(0.0, str(exception))
        unrenderable = _why_unrenderable(exception)
        if unrenderable is not None:
            return RetryDecision.fail(reason=unrenderable)
        if self.delay_is_own:
            return RetryDecision.default()
        tries = max(1, try_number - max(0, max_tries - self.retries))
        delay = min(_ELSE.initial_backoff_s * _ELSE.backoff_multiplier ** min(tries - 1, 50), _ELSE.max_backoff_s)
        return self._retry(delay, f"{type(exception).__name__}, outside an attempt: no failure of the region")

    def _of_several(
        self, exception: errors.SubtasksFailed, try_number: int, max_tries: int, context: Context | None
    ) -> RetryDecision:
        """The longest pause of those that may be retried: none of them starts before its own is over."""
        asked = [error for error in exception.errors.values() if not errors.kind_of(error).is_final]
        decisions = [self.evaluate(error, try_number, max_tries, context) for error in asked]
        retried = [decision for decision in decisions if decision.action is not RetryAction.FAIL]
        if not retried:
            return RetryDecision.fail(reason=mask_secrets(str(exception)))
        if any(decision.action is RetryAction.DEFAULT for decision in retried):
            return RetryDecision.default()
        return self._retry(
            max(decision.retry_delay or timedelta(0) for decision in retried).total_seconds(), str(exception)
        )

    def serialize(self) -> dict[str, Any]:
        """The arguments of this policy as plain JSON, for the serialized DAG."""
        return {"retries": self.retries, "delay_is_own": self.delay_is_own}

    @classmethod
    def deserialize(cls, data: dict[str, Any]) -> RecoveryRetryPolicy:
        """The policy of a serialized DAG: the inverse of `serialize`."""
        return cls(retries=int(data["retries"]), delay_is_own=bool(data["delay_is_own"]))

    @staticmethod
    def _retry(delay_s: float, reason: str) -> RetryDecision:
        return RetryDecision.retry(timedelta(seconds=delay_s), mask_secrets(reason)[:500])


def _why_unrenderable(exception: BaseException) -> str | None:
    """Why no retry can render the task's templates; `None` where that is not what has failed.

    Of Jinja's own errors alone, and not of a template's file, which may come: what a filter or a connection raises may
    be gone with the next try.
    """
    from jinja2 import TemplateSyntaxError, UndefinedError

    if not isinstance(exception, (TemplateSyntaxError, UndefinedError)):
        return None
    text = mask_secrets(f"{type(exception).__name__}: {exception}")[:300]
    return (
        f"A template of this task can't be rendered in this run, and a retry would find the same: {text}. The task's "
        "log names the argument. Give the run what the template names, or change the template, and clear this task"
    )
