"""What both of our operators add to the provider's `SparkSubmitOperator`: retries, and one submission an attempt."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator

from airflow_recovery.operators.failures import airflow_errors
from airflow_recovery.operators.summary import summary_of
from airflow_recovery.runtime.process import die_with_parent

if TYPE_CHECKING:
    from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
    from airflow.sdk import Context

    from airflow_recovery.execution.region_task import RegionResult

RETRIES = 3
RETRY_DELAY = timedelta(0)
"""A task that waits for the producer of a lost input is held by Airflow's trigger rule, not by a delay."""


class SubmittingOperator(SparkSubmitOperator):
    """A task that is one region: every try goes through the region protocol, which submits at most one attempt.

    The default of three retries without a delay gives way to the ``default_args`` of the DAG and of the task group, and
    to an argument.
    """

    def __init__(
        self, *, retries: int | None = RETRIES, retry_delay: timedelta | float = RETRY_DELAY, **kwargs: Any
    ) -> None:
        super().__init__(retries=retries, retry_delay=retry_delay, **kwargs)

    def execute(self, context: Context) -> dict[str, Any]:  # type: ignore[override]
        """One try. Returns `summary_of` it. Raises Airflow's fail and skip exceptions where a retry can't help."""
        with airflow_errors():
            return summary_of(self.execute_region(context))

    def execute_region(self, context: Context) -> RegionResult:
        """The protocol of one try. Raises our own errors."""
        raise NotImplementedError

    def submit_attempt(self, context: Context, attempt: int) -> None:
        """Submit what the operator's attributes say, and wait. Raises Airflow's exception where it failed.

        In cluster modes the provider's operator keeps the job's id in Airflow and connects to it again. Its keys
        outlive a clear and would hand the job of an old attempt to a new one: here they name the attempt.
        """
        self.external_id_key = f"spark_job_id/{attempt}"
        self._K8S_DRIVER_STATUS_KEY = f"k8s_driver_status/{attempt}"
        # The provider's operator makes its hook from the attributes, after it has added OpenLineage's settings.
        self._hook = None
        super().execute(context)

    def kill_attempt(self) -> None:
        """Kill what `submit_attempt` waits for: spark-submit, and the driver in cluster modes."""
        if self._hook is not None:
            super().on_kill()

    def on_kill(self) -> None:
        """Kill the Spark application, within Airflow's five seconds."""
        self.kill_attempt()

    def _get_hook(self) -> SparkSubmitHook:
        hook = super()._get_hook()
        # spark-submit dies with this process: its JVM would otherwise run on after kill -9.
        setattr(hook, "submit", partial(hook.submit, preexec_fn=die_with_parent))  # noqa: B010
        return hook
