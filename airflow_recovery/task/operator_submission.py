"""One run of any operator an attempt: a copy of it is executed, watched, stopped, and found again.

The job is the operator's affair: its `execute` starts it and waits for it, its `on_kill` ends it. One that waits by
Airflow's `ResumableJobMixin` names its job, and can ask about it: such a job outlives its task, and the next try of the
task waits for it. Any other's is over with the task, as far as anybody here can tell.

What `execute_resumable` decides by itself is passed over, as for spark-submit
(`airflow_recovery.task.spark_submission`): an attempt starts its job once, and the journal tells whether another one is
needed. The job's id is kept under the operator's own key, followed by the claim's tag; beside it, what `submit_job` has
set on the operator, by which `on_kill` finds the job in another process.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from airflow.sdk import ResumableJobMixin
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException, TaskDeferred

from airflow_recovery.airflow_compat import execute_operator
from airflow_recovery.driver.failure import MAX_MESSAGE_CHARACTERS
from airflow_recovery.errors import Failure, NotSetUp, RegionFailed, UserCodeError
from airflow_recovery.task.outliving_job import OutlivingJob, key_of

if TYPE_CHECKING:
    from airflow.sdk import BaseOperator, Context


REQUEST_TOKENS = ("client_request_token", "idempotency_token", "request_id")
"""Attributes whose texts make a service answer a second request with the first job: each attempt has its own."""
_BODY = "json"
"""The attribute with a request as a whole (Databricks), in which such a text may stand as well."""


def is_resumable(operator_class: type[BaseOperator]) -> bool:
    """Whether its `execute` waits by `ResumableJobMixin`. One that has replaced `execute` alone is taken not to."""
    if not issubclass(operator_class, ResumableJobMixin):
        return False
    return _definer(operator_class, "execute") is _definer(operator_class, "submit_job")


class OperatorSubmission(OutlivingJob):
    """Runs copies of ``operator``, each as an ``operator_class``, which is what the user's operator is by itself."""

    def __init__(
        self,
        operator: BaseOperator,
        operator_class: type[BaseOperator],
        context: Context,
        *,
        is_killed: Callable[[], bool] = lambda: False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(operator, context, is_killed=is_killed, clock=clock)
        self._operator_class = operator_class

    @property
    def outlives_task(self) -> bool:
        """It is started and named by `ResumableJobMixin`, and its operator is ``durable``."""
        return is_resumable(self._operator_class) and bool(getattr(self.operator, "durable", True))

    def copy_for(self, name: str) -> Any:
        """A copy of the operator for the attempt of that ``name``, which is the user's own operator again.

        What identifies a request is made from the operator's and the name, so that another attempt is another job.
        """
        job: Any = object.__new__(self._operator_class)
        vars(job).update(vars(self.operator))
        vars(job).update(_tokens_of(vars(job), name))
        body = vars(job).get(_BODY)
        if isinstance(body, Mapping):
            setattr(job, _BODY, {**body, **_tokens_of(body, name)})
        if isinstance(job, ResumableJobMixin):
            job.external_id_key = self._key(name)  # else it would take the job of another attempt for its own
        return job

    def submit(self, job: Any, name: str) -> Any:
        """Start it, and wait. Returns what its ``execute`` returns.

        Raises if it failed: `UserCodeError` if the operator says that a retry is in vain.

        Raises `NotSetUp` where it defers, once its job is ended: the attempt could not be found again.
        """
        self._job = job
        if self.outlives_task:
            job.submit_job = lambda context: self._submit_remembered(job, name, context)
        try:
            with self.submitting(job):
                return execute_operator(job, self._context)
        except TaskDeferred as deferred:
            self.stop()
            raise NotSetUp(
                f"{job.task_id}: expected a {type(job).__name__} that waits in the worker, found that it defers (to "
                f"{type(deferred.trigger).__name__}), and its job was ended: set deferrable=False.",
                code="operator-deferred",
                task=job.task_id,
            ) from None
        except AirflowSkipException:
            raise
        except AirflowFailException as error:
            failure = Failure(type(error).__name__, str(error)[:MAX_MESSAGE_CHARACTERS])
            raise UserCodeError(f"{job.task_id}: {error}", failure) from error

    def end_previous(self, name: str) -> Any:
        """Execute the operator once more, with the job of that ``name``, which has succeeded. It starts no other."""
        external_id = self._find_job(name)
        job = self._job

        def refuse(context: Context) -> None:
            raise RegionFailed(f"{job.task_id}: expected no other job beside {external_id}, found that it starts one")

        # Airflow's own takes a job with the id 0, Livy's first, for none, and starts another.
        job.execute_resumable = lambda context: job.get_job_result(external_id, context)
        job.submit_job = refuse
        return execute_operator(job, self._context)

    def stop(self) -> None:
        """End what `submit` waits for, or `status` has found: the operator's own `on_kill`."""
        if self._job is not None:
            self._job.on_kill()

    def _submit_remembered(self, job: Any, name: str, context: Context) -> Any:
        before = dict(vars(job))
        external_id = type(job).submit_job(job, context)
        changed = {key: value for key, value in vars(job).items() if key not in before or before[key] is not value}
        plain: Any = {key: value for key, value in changed.items() if isinstance(value, (str, int, float))}
        self._context["task_state_store"].set(_set_key(name), plain)
        return external_id

    def _find_job(self, name: str) -> Any:
        """The id of the job of this name, in any try; `None` where it is not known."""
        store = self._context["task_state_store"]
        external_id = store.get(self._key(name))
        if external_id is not None and getattr(self._job, "external_id_key", None) != self._key(name):
            job = self.copy_for(name)
            submitted: Any = store.get(_set_key(name)) or {}
            vars(job).update(submitted)
            self._job = job
        return external_id

    def _key(self, name: str) -> str:
        return key_of(self._operator_class.external_id_key, name)  # type: ignore[attr-defined]


def _tokens_of(request: Mapping[str, Any], name: str) -> dict[str, str]:
    """The tokens among the values of ``request``, as the attempt of that ``name`` has them."""
    given = {token: request.get(token) for token in REQUEST_TOKENS}
    return {
        token: str(uuid.uuid5(uuid.NAMESPACE_OID, f"{value}/{name}"))
        for token, value in given.items()
        if isinstance(value, str) and value
    }


def _set_key(name: str) -> str:
    return key_of("spark_job_set", name)


def _definer(operator_class: type, name: str) -> type:
    return next(parent for parent in operator_class.__mro__ if name in vars(parent))
