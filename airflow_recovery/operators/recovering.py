"""What every operator of ours adds to another one, whatever that does: restarts, and what a try tells."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NoReturn

from airflow.sdk import BaseOperator, RetryPolicy

from airflow_recovery.attempt.region_task import Decision, RegionResult
from airflow_recovery.attempt.restarts import Restarts
from airflow_recovery.checks import check_arguments
from airflow_recovery.driver.failure_enrichers import enrich, load_enrichers
from airflow_recovery.errors import NotSetUp, RegionFailed, UserCodeError
from airflow_recovery.hooks.settings import SECTION, is_recovery_on
from airflow_recovery.model.job_recovery import DeclaredJobRecovery, declared_job_recovery
from airflow_recovery.planning.restart_strategy import RestartStrategy
from airflow_recovery.task.asset_events import ONCE, OnKeptAssets, mark_of_attempt, send_events
from airflow_recovery.task.failures import airflow_errors
from airflow_recovery.task.lineage import NO_LINEAGE, lineage_of
from airflow_recovery.task.links import RecoveryTabLink
from airflow_recovery.task.notes import how_to_run_again, leave_note, note_of, noting_failure
from airflow_recovery.task.restart_options import (
    BACKOFF,
    WAITING_TRIES,
    advice_on_few_retries,
    check_delay,
    restart_options,
)
from airflow_recovery.task.retry_policy import RecoveryRetryPolicy
from airflow_recovery.task.run_context import is_last_try, refuse_expand
from airflow_recovery.task.summary import summary_of

if TYPE_CHECKING:
    from airflow.sdk import BaseOperatorLink, Context

    from airflow_recovery.attempt.application import SparkApplication
    from airflow_recovery.attempt.run import Run
    from airflow_recovery.errors import Failure
    from airflow_recovery.planning.restart_budget import RestartLimits
    from airflow_recovery.task.subtask_batch import BatchResult

log = logging.getLogger(__name__)

RETRIES = WAITING_TRIES + 2
"""Of our tasks that run no region: as many as a region has by default."""


def retry_arguments(
    retries: int | None,
    retry_delay: timedelta | float | None,
    retry_exponential_backoff: float | None,
    max_retry_delay: timedelta | float | None,
    retry_policy: RetryPolicy | None,
) -> dict[str, Any]:
    """The retries of a task of ours that runs no region, and its pauses as those of a region; `None`: not given."""
    count = RETRIES if retries is None else retries
    given = {
        "retry_delay": retry_delay,
        "retry_exponential_backoff": retry_exponential_backoff,
        "max_retry_delay": max_retry_delay,
        "retry_policy": retry_policy,
    }
    return {"retries": count, **pauses(count, {name: value for name, value in given.items() if value is not None})}


def pauses(retries: int, given: Mapping[str, Any]) -> dict[str, Any]:
    """Airflow's arguments for the pauses between tries: ours, but for those that are ``given``."""
    delay_is_own = "retry_delay" in given
    own_policy = RecoveryRetryPolicy(retries=retries, delay_is_own=delay_is_own)
    return {"retry_policy": own_policy, **({} if delay_is_own else BACKOFF), **given}


class RecoveringOperator(BaseOperator):
    """A task that is one region: every try goes through the region protocol, which starts at most one attempt.

    **Restarts.** A region may fail three times, with pauses of 1 s, 1.5 s, ... between (``exponential-delay``); Flink's
    own default for batch jobs is no restart at all. The budget is counted in the journal, so a kill counts too, and a
    try that only waits for the producer of a lost input does not. A clear by hand begins the count anew. Airflow's
    ``retries`` are the tries for all of that: by default ten more than restarts. A try that was killed, or
    that never began because the API server is away, is followed by the next one after 1 s, 2 s, 4 s, ... up to 5 min. A
    ``retry_delay`` or ``retry_policy`` of your own is used instead of the strategy's pauses; the budget holds anyway.

    :param restart_strategy: `NoRestart`, `FixedDelay`, `FailureRate`, `ExponentialDelay`, or a mapping of Flink's keys.
        Without it, ``[recovery] restart_strategy``. One that ends by itself replaces the default number of failures.
    :param maximum_per_task_failures: the n-th failure of the region ends it. Results that are lost again and again are
        counted apart, up to the same number.
    :param maximum_total_task_failures: the n-th failure of all regions of the run ends every region that has failed;
        failures of one moment count once. Give all tasks of a DAG the same.
    :param job_recovery: FLIP-383's options by their names, such as ``{"job-event.store.write-buffer.size": "4 mb"}``;
        for the rest, ``[recovery]``. With ``"execution.batch.job-recovery.enabled": False`` this is plain Airflow:
        every try runs, Airflow's own ``retries`` hold and no restart strategy does, and the journal is not touched.

    :param on_kept_assets: which events the assets in ``outlets`` get from a try that keeps its result. ``"once"``: none
        if Airflow has this task's event of this run for that result; ``"emit"``: one from each try that succeeds.

    Raises `JobDefinitionError` where these contradict each other, ``retries``, or the retention of results.
    """

    operator_extra_links: Collection[BaseOperatorLink] = (RecoveryTabLink(),)

    def __init__(  # noqa: PLR0913 - the arguments of a recovering task
        self,
        *,
        retries: int | None = None,
        retry_delay: timedelta | float | None = None,
        retry_exponential_backoff: float | None = None,
        max_retry_delay: timedelta | float | None = None,
        retry_policy: RetryPolicy | None = None,
        restart_strategy: RestartStrategy | Mapping[str, Any] | None = None,
        maximum_per_task_failures: int | None = None,
        maximum_total_task_failures: int | None = None,
        job_recovery: Mapping[str, object] | DeclaredJobRecovery | None = None,
        on_kept_assets: OnKeptAssets = ONCE,
        **kwargs: Any,
    ) -> None:
        where = str(kwargs.get("task_id"))
        check_arguments(RecoveringOperator.__init__, locals(), where)
        self.job_recovery = declared_job_recovery(job_recovery, where)
        self.recovers = is_recovery_on(self.job_recovery)
        self.restart_options = restart_options(
            where,
            strategy=restart_strategy,
            maximum_per_task_failures=maximum_per_task_failures,
            maximum_total_task_failures=maximum_total_task_failures,
            retries=retries if self.recovers else None,
            retry_delay=retry_delay,
        )
        retry_arguments = {
            "retry_delay": retry_delay,
            "retry_exponential_backoff": retry_exponential_backoff,
            "max_retry_delay": max_retry_delay,
            "retry_policy": retry_policy,
        }
        given: dict[str, Any] = {name: value for name, value in retry_arguments.items() if value is not None}
        self.on_kept_assets = on_kept_assets
        self.is_killed = False
        self.xcoms_counted: Mapping[str, bool] = {}
        """As in `Run`."""
        self._params_as_written: list[Any] = []
        self._settings_as_written: dict[str, dict[str, Any]] = {}
        self._lineage = NO_LINEAGE
        self.spark_application_id: str | None = None
        self._application: SparkApplication | None = None
        self._limits: RestartLimits | None = None
        self._pauses = False
        if not self.recovers:
            # What is not given is Airflow's own default, also that of the DAG.
            super().__init__(**kwargs, **given | ({} if retries is None else {"retries": retries}))
            return
        options = self.restart_options
        self._limits = options.limits
        self._pauses = retry_policy is None and not options.delay_is_own
        super().__init__(**kwargs, **pauses(options.retries, given), retries=options.retries)

    def render_template_fields(self, context: Context, jinja_env: Any = None) -> None:
        """As Airflow's, by `reading_xcoms`."""
        in_task = self._airflow_errors(context) if "ti" in context else nullcontext()
        with in_task, self.reading_xcoms(context):
            super().render_template_fields(context, jinja_env)

    @contextmanager
    def reading_xcoms(self, context: Mapping[str, Any]) -> Iterator[None]:
        """Render meanwhile without XComs of recoverable tasks that are no success in this run.

        Raises as `XComsOfRun.reading`.
        """
        if not self.recovers or "ti" not in context:
            yield
            return
        from airflow_recovery.task.rendered_xcoms import XComsOfRun

        xcoms = XComsOfRun(self, context["ti"])
        with xcoms.reading():
            yield
        self.xcoms_counted = {**self.xcoms_counted, **xcoms.counted}

    @classmethod
    def partial(cls, **kwargs: Any) -> NoReturn:
        """Refused: each task is one entry of the journal."""
        refuse_expand(cls.__name__, kwargs.get("task_id"))

    def resolve_template_files(self) -> None:
        """As Airflow's, which calls it when it has read the DAG file: no run has replaced the defaults of params yet.

        Airflow puts the values of ``conf`` into the params of the DAG itself, so they are kept here
        (`airflow_recovery.task.written_places`).
        """
        super().resolve_template_files()
        dag = self.get_dag()
        params: list[Any] = [self.params, *([dag.params] if dag is not None else [])]
        self._params_as_written = [getattr(param, "value", None) for each in params for param in each.values()]
        settings = {name: getattr(self, name, None) for name in ("conf", "env_vars")}
        self._settings_as_written = {
            name: dict(given) for name, given in settings.items() if isinstance(given, Mapping)
        }

    def execute(self, context: Context) -> Any:
        """One try. Returns `summary_of` it. Raises Airflow's fail and skip exceptions where a retry can't help."""
        if not self.recovers:
            return self._execute_without_recovery(context)
        instance = context["ti"]
        advice = advice_on_few_retries(self.restart_options)
        if advice is not None and int(instance.try_number) <= 1:
            log.warning("%s: %s", self.task_id, advice)
        try:
            with noting_failure(context), self._airflow_errors(context):
                result = self.execute_region(context)
                answer = self.leave_in_airflow(context, result)
        finally:
            # A driver that has died, or never ran, has told nobody.
            if self.spark_application_id is None and self._application is not None:
                self.spark_application_id = self._application.application_id
        parts = note_of(result), self.more_to_note(), how_to_run_again(context, result)
        leave_note(context, "; ".join(filter(None, parts)))
        return answer

    @staticmethod
    def _airflow_errors(context: Mapping[str, Any]) -> AbstractContextManager[None]:
        return airflow_errors(is_last_try=is_last_try(context))

    def leave_in_airflow(self, context: Context, result: RegionResult | BatchResult) -> Any:
        """Leave in Airflow what a try leaves there besides its state. Returns the task's return value: a summary."""
        from airflow_recovery.task.recovery_off import WHY

        if self.recovers and isinstance(result, RegionResult):
            asks_first = result.decision is Decision.KEPT and self.on_kept_assets == ONCE
            send_events(context, self, mark_of_attempt(result.outcome), asks_first=asks_first)
        summary = summary_of(result)
        return summary if self.recovers else {**summary, "why": WHY}

    def _execute_without_recovery(self, context: Context) -> Any:
        """Airflow's retries are all there is: whatever the failure was, they hold."""
        try:
            return self.leave_in_airflow(context, self.execute_region(context))
        except (NotSetUp, UserCodeError) as error:
            raise RegionFailed(str(error), error.cause, code=error.code, **error.fields) from error

    def more_to_note(self) -> str | None:
        """What a subclass adds to the note on a try that has succeeded; `None` for nothing."""
        return None

    def restarts(self, run: Run, region: str) -> Restarts:
        """The budget of this task's region. Raises `JobDefinitionError` where the job's own retention is too short."""
        if self._limits is not None:
            check_delay(self.task_id, self.restart_options, run.plan.retention)
        return Restarts(run, region, self._limits, pauses=self._pauses)

    def labeller(self) -> Callable[[Failure], Failure]:
        """What says what kind a failure was: our classes, and ``[recovery] failure_enrichers``."""
        from airflow.sdk import conf

        names = (conf.get(SECTION, "failure_enrichers", fallback="") or "").split(",")
        enrichers = load_enrichers(name.strip() for name in names if name.strip())
        return lambda failure: enrich(failure, enrichers, log)

    def remember_lineage(self, run: Run, result: RegionResult) -> None:
        """For OpenLineage, which asks when the task has succeeded: what this region has read and made."""
        self._lineage += lineage_of(run, result)
        self.spark_application_id = result.outcome.application_id

    def get_openlineage_facets_on_complete(self, task_instance: Any) -> Any:
        """What `apache-airflow-providers-openlineage` asks for, where it is installed: an ``OperatorLineage``."""
        from airflow_recovery.task.openlineage import operator_lineage

        return operator_lineage(self._lineage)

    def execute_region(self, context: Context) -> RegionResult | BatchResult:
        """Go through the region protocol once. Raises our own errors, which `execute` turns into Airflow's."""
        raise NotImplementedError

    def on_kill(self) -> None:
        """End this try within Airflow's five seconds: leave a driver that lives on to the next try, kill any other.

        Airflow calls it when it ends the process, for whatever reason, and when ``execution_timeout`` is over. After
        that no other subtask of a batch is started.
        """
        self.is_killed = True
        if self._application is not None and not self._application.leave():
            self._application.stop()
