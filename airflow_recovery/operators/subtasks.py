"""The task that decides, once a run, which subtasks a parallel vertex has, and records it."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator, RetryPolicy

from airflow_recovery.job.chains import batch_label
from airflow_recovery.operators.recovering import retry_arguments
from airflow_recovery.task.failures import airflow_errors
from airflow_recovery.task.run_context import refuse_mapped

if TYPE_CHECKING:
    from airflow.sdk import Context


class RecoverySubtasksOperator(BaseOperator):
    """Decides the subtasks of a mapped task group, and returns what is mapped: their keys, or a label for each batch.

    Made by `SparkJobTaskGroup` where ``parallelism=`` is a template or `per_file`. It goes through the same protocol as
    a region: what it has recorded is kept while the rendered keys, or the names of the files, are the same. Where they
    differ, keys that were recorded keep their order, new ones come after them, and those that are gone are left out and
    reported; each subtask is known by its key, so that its result is kept wherever it stands in the list.

    :param job: ``package.module:name`` of the job.
    :param group_id: the full id of the task group.
    :param initializer: the name in the journal, ``<region>.subtasks``.
    """

    def __init__(
        self,
        *,
        job: str,
        group_id: str,
        initializer: str,
        retries: int | None = None,
        retry_delay: timedelta | float | None = None,
        retry_exponential_backoff: float | None = None,
        max_retry_delay: timedelta | float | None = None,
        retry_policy: RetryPolicy | None = None,
        **kwargs: Any,
    ) -> None:
        of_retries = retry_arguments(retries, retry_delay, retry_exponential_backoff, max_retry_delay, retry_policy)
        super().__init__(**of_retries, **kwargs)
        self.job = job
        self.group_id = group_id
        self.initializer = initializer

    def execute(self, context: Context) -> list[str]:
        """One try: keep what is recorded, or decide anew and record it. Returns the keys, or labels of batches."""
        from airflow_recovery.task.subtask_keys import decide_subtasks

        with airflow_errors():
            refuse_mapped(context)
            batches = decide_subtasks(context, self.get_dag(), self.task_id, self.job, self.group_id, self.initializer)
            return [batch_label(batch) for batch in batches]
