"""What both of our operators add to the provider's `SparkSubmitOperator`: restarts, and one submission an attempt."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk.definitions.retry_policy import RetryPolicy

from airflow_recovery.attempt.drivers import DriverStatus
from airflow_recovery.attempt.restarts import Restarts
from airflow_recovery.checks import check_arguments
from airflow_recovery.driver.failure_enrichers import enrich, load_enrichers
from airflow_recovery.driver.memory_policy import RaiseMemory
from airflow_recovery.driver.process import die_with_parent
from airflow_recovery.driver.start_advice import MAX_LINES, keep_output, relevant
from airflow_recovery.hooks.settings import SECTION, job_recovery_in_effect
from airflow_recovery.model.job_recovery import DeclaredJobRecovery, declared_job_recovery
from airflow_recovery.planning.restart_strategy import RestartStrategy
from airflow_recovery.task.failures import airflow_errors
from airflow_recovery.task.lineage import NO_LINEAGE, lineage_of
from airflow_recovery.task.links import RecoveryTabLink, SparkHistoryLink
from airflow_recovery.task.notes import leave_note, note_of, noting_failure
from airflow_recovery.task.restart_options import advice_on_few_retries, check_delay, restart_options
from airflow_recovery.task.retry_policy import RecoveryRetryPolicy
from airflow_recovery.task.run_context import is_last_try, refuse_expand
from airflow_recovery.task.summary import summary_of

if TYPE_CHECKING:
    from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
    from airflow.sdk import Context

    from airflow_recovery.attempt.region_task import RegionResult
    from airflow_recovery.attempt.run import Run
    from airflow_recovery.attempt.runner import ClaimedAttempt
    from airflow_recovery.errors import Failure
    from airflow_recovery.task.subtask_batch import BatchResult

log = logging.getLogger(__name__)

RETRIES = 3
RETRY_DELAY = timedelta(0)
"""Of our tasks that run no region. One that waits for a producer is held by Airflow's trigger rule, not by a delay."""

_NOT_KNOWN = frozenset({"UNKNOWN", "NOTFOUND", "NOT_FOUND"})
"""A master that recovers, a pod that was collected: no answer about the job."""


class SubmittingOperator(SparkSubmitOperator):
    """A task that is one region: every try goes through the region protocol, which submits at most one attempt.

    **Restarts.** A region may fail three times, with pauses of 1 s, 1.5 s, ... between (``exponential-delay``); Flink's
    own default for batch jobs is no restart at all. The budget is counted in the journal, so a kill counts too, and a
    try that only waits for the producer of a lost input does not. A clear by hand begins the count anew. Airflow's
    ``retries`` are the tries for all of that: by default ten more than restarts, with ``retry_delay`` 0. A
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
    :param memory_policy: `RaiseMemory`, for the attempt after one that ran out of memory; spark-submit only.

    Raises `JobDefinitionError` where these contradict each other, ``retries``, or the retention of results.
    """

    operator_extra_links = (RecoveryTabLink(), SparkHistoryLink())

    def __init__(
        self,
        *,
        retries: int | None = None,
        retry_delay: timedelta | float | None = None,
        retry_policy: RetryPolicy | None = None,
        restart_strategy: RestartStrategy | Mapping[str, Any] | None = None,
        maximum_per_task_failures: int | None = None,
        maximum_total_task_failures: int | None = None,
        memory_policy: RaiseMemory | None = None,
        job_recovery: Mapping[str, object] | DeclaredJobRecovery | None = None,
        **kwargs: Any,
    ) -> None:
        where = str(kwargs.get("task_id"))
        check_arguments(SubmittingOperator.__init__, locals(), where)
        of_submit: dict[str, object] = {name: kwargs[name] for name in ("conf", "conn_id") if name in kwargs}
        check_arguments(SparkSubmitOperator.__init__, of_submit, where, templated=self.template_fields)
        self.job_recovery = declared_job_recovery(job_recovery, where)
        self.recovers = job_recovery_in_effect(self.job_recovery).enabled
        self.restart_options = restart_options(
            where,
            strategy=restart_strategy,
            maximum_per_task_failures=maximum_per_task_failures,
            maximum_total_task_failures=maximum_total_task_failures,
            retries=retries if self.recovers else None,
            retry_delay=retry_delay,
        )
        self.memory_policy = memory_policy
        self.is_killed = False
        self._lineage = NO_LINEAGE
        self.spark_application_id: str | None = None
        self._output: deque[str] = deque(maxlen=MAX_LINES)
        if not self.recovers:
            # What is not given is Airflow's own default, also that of the DAG.
            given = {"retries": retries, "retry_delay": retry_delay, "retry_policy": retry_policy}
            kwargs.update({name: value for name, value in given.items() if value is not None})
            super().__init__(**kwargs)
            return
        options = self.restart_options
        self._pauses = retry_policy is None and not options.delay_is_own
        super().__init__(
            retries=options.retries,
            retry_delay=options.retry_delay,
            retry_policy=retry_policy
            or RecoveryRetryPolicy(retries=options.retries, delay_is_own=options.delay_is_own),
            **kwargs,
        )

    @classmethod
    def partial(cls, **kwargs: Any) -> NoReturn:
        """Refused: each task is one entry of the journal."""
        refuse_expand(cls.__name__, kwargs.get("task_id"))

    def execute(self, context: Context) -> dict[str, Any]:  # type: ignore[override]
        """One try. Returns `summary_of` it. Raises Airflow's fail and skip exceptions where a retry can't help."""
        if not self.recovers:
            return summary_of(self.execute_region(context))
        instance = context["ti"]
        advice = advice_on_few_retries(self.restart_options)
        if advice is not None and int(instance.try_number) <= 1:
            log.warning("%s: %s", self.task_id, advice)
        with noting_failure(context), airflow_errors(is_last_try=is_last_try(context)):
            result = self.execute_region(context)
        leave_note(context, "; ".join(filter(None, (note_of(result), self.more_to_note()))))
        return summary_of(result)

    def more_to_note(self) -> str | None:
        """What is to be told with the end of a try in the task instance's note."""
        return None

    def restarts(self, run: Run, region: str) -> Restarts:
        """The budget of this task's region. Raises `JobDefinitionError` where the job's own retention is too short."""
        check_delay(self.task_id, self.restart_options, run.plan.retention)
        return Restarts(run, region, self.restart_options.limits, pauses=self._pauses)

    def labeller(self) -> Callable[[Failure], Failure]:
        """What says what kind a failure was: our classes, and ``[recovery] failure_enrichers``."""
        from airflow.sdk.configuration import conf

        names = (conf.get(SECTION, "failure_enrichers", fallback="") or "").split(",")
        enrichers = load_enrichers(each.strip() for each in names if each.strip())
        return lambda failure: enrich(failure, enrichers, log)

    def raise_memory(self, attempt: ClaimedAttempt, *, is_local: bool = False, is_fixed: bool = False) -> None:
        """Apply `memory_policy` for ``attempt``. ``is_fixed``: over Spark Connect, where it can only be said."""
        if self.memory_policy is None:
            return
        conf = self.conf or {}
        memory = self.memory_policy.raised(
            attempt.earlier_failures,
            driver=self._driver_memory or conf.get("spark.driver.memory"),
            executor=self._executor_memory or conf.get("spark.executor.memory"),
            is_local=is_local,
        )
        for side, size in (("driver", memory.driver), ("executor", memory.executor)):
            if size is None:
                continue
            if is_fixed:
                log.warning(
                    "An earlier attempt ran out of %s memory, and memory_policy would raise it to %s; a Spark Connect "
                    "server keeps the memory that it was started with. Start it with more, or run by spark-submit.",
                    side,
                    size,
                )
                continue
            log.info("An earlier attempt ran out of %s memory: this one gets %s.", side, size)
            setattr(self, f"_{side}_memory", size)
            self.conf = {**(self.conf or {}), f"spark.{side}.memory": size}

    def remember_lineage(self, run: Run, result: RegionResult) -> None:
        """For OpenLineage, which asks when the task has succeeded: what this region has read and made."""
        self._lineage += lineage_of(run, result)
        self.spark_application_id = result.outcome.application_id

    def get_openlineage_facets_on_complete(self, task_instance: Any) -> Any:
        """What `apache-airflow-providers-openlineage` asks for, where it is installed: an ``OperatorLineage``."""
        from airflow_recovery.task.openlineage import operator_lineage

        return operator_lineage(self._lineage)

    def execute_region(self, context: Context) -> RegionResult | BatchResult:
        """The protocol of one try. Raises our own errors."""
        raise NotImplementedError

    def submit_attempt(self, context: Context, attempt: int | str) -> None:
        """Submit what the operator's attributes say, and wait. Raises Airflow's exception where it failed.

        ``attempt`` is a name for the attempt that no other of this task instance has.

        In cluster modes the provider's operator keeps the job's id in Airflow and connects to it again. Its keys
        outlive a clear and would hand the job of an old attempt to a new one: here they name the attempt.
        """
        self._name_job(attempt)
        # The provider's operator makes its hook from the attributes, after it has added OpenLineage's settings.
        self._hook = None
        self._output.clear()
        try:
            super().execute(context)
        except Exception as error:
            keep_output(error, self._output)
            raise

    def submits_to_cluster(self) -> bool:
        """The driver runs on the cluster, and not in a process of this machine (deploy mode ``cluster``)."""
        if self._deploy_mode is not None:
            return self._deploy_mode == "cluster"
        return bool(self._get_hook()._connection["deploy_mode"] == "cluster")

    def driver_status(self, context: Context, attempt: str) -> DriverStatus:
        """What the cluster manager says of the job that `submit_attempt` has submitted under this name, in any try.

        `kill_attempt` kills that job from now on. Never raises: a cluster manager that can't be asked is no answer.
        """
        try:
            external_id = self._find_job(context, attempt)
            if external_id is None:
                return DriverStatus.UNKNOWN
            status = self.get_job_status(external_id, context)
            if status.upper() in _NOT_KNOWN:
                return DriverStatus.UNKNOWN
            if self.is_job_active(status):
                return DriverStatus.ACTIVE
            return DriverStatus.SUCCEEDED if self.is_job_succeeded(status) else DriverStatus.OVER
        except Exception as error:
            log.warning("The cluster manager could not be asked about attempt %s: %s", attempt, error)
            return DriverStatus.UNKNOWN

    def kill_driver(self, context: Context, attempt: str) -> None:
        """Kill the job that was submitted under this name, if it is known. Best effort."""
        try:
            if self._find_job(context, attempt) is not None:
                self.kill_attempt()
        except Exception as error:
            log.warning("The driver of attempt %s could not be killed: %s", attempt, error)

    def _name_job(self, attempt: int | str) -> None:
        self.external_id_key = f"spark_job_id/{attempt}"
        self._K8S_DRIVER_STATUS_KEY = f"k8s_driver_status/{attempt}"

    def _find_job(self, context: Context, attempt: str) -> str | None:
        """The id that the cluster manager gave it; the hook knows it then. `None` where none was kept."""
        self._name_job(attempt)
        kept = context["task_state_store"].get(self.external_id_key)
        if not isinstance(kept, str):
            return None
        if self._hook is None:
            self._hook = self._get_hook()
        hook = self._hook
        if hook._is_yarn_cluster_mode:
            hook._yarn_application_id = kept
        elif hook._is_kubernetes:
            hook._kubernetes_driver_pod = self._parse_k8s_external_id(kept)[1]
        else:
            hook._driver_id = kept
        return kept

    def kill_attempt(self) -> None:
        """Kill what `submit_attempt` waits for: spark-submit, and the driver in cluster modes."""
        if self._hook is not None:
            super().on_kill()

    def on_kill(self) -> None:
        """Kill the Spark application, within Airflow's five seconds."""
        self.is_killed = True
        self.kill_attempt()

    def _get_hook(self) -> SparkSubmitHook:
        hook = super()._get_hook()
        # spark-submit dies with this process: its JVM would otherwise run on after kill -9.
        setattr(hook, "submit", partial(hook.submit, preexec_fn=die_with_parent))  # noqa: B010
        # The provider's error ends with the last twenty lines, which may all be frames of one stack.
        process = hook._process_spark_submit_log
        setattr(hook, "_process_spark_submit_log", lambda lines: process(self._overheard(lines)))  # noqa: B010
        return hook

    def _overheard(self, lines: Iterable[str]) -> Iterator[str]:
        for each in lines:
            self._output += relevant([each])
            yield each
