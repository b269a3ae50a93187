"""Dataproc's jobs and batches, found again after a lost worker."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from airflow.providers.google.cloud.hooks.dataproc import DataprocHook  # type: ignore[import-not-found]
from airflow.providers.google.cloud.operators.dataproc import (  # type: ignore[import-not-found]
    DataprocCreateBatchOperator,
    DataprocSubmitJobOperator,
)

from airflow_recovery.operators.resumable import SubmitsThenAsks


class ResumableDataprocSubmitJobOperator(SubmitsThenAsks, DataprocSubmitJobOperator):  # type: ignore[misc]
    """A job on a cluster. It is ended by the provider's own ``on_kill``, unless ``cancel_on_kill=False``."""

    external_id_key = "dataproc_job"
    does_not_wait = ("asynchronous", True)
    ends = ("DONE", "ERROR", "CANCELLED")
    success = "DONE"
    interval = "polling_interval_seconds"

    def names_its_job(self) -> str | None:
        """The job's ``reference``, where it has an id."""
        reference = self.job.get("reference") if isinstance(self.job, Mapping) else None
        return f"job_id={reference['job_id']!r}" if reference and reference.get("job_id") else None

    def id_of(self, answer: Any) -> str:
        """The job's id."""
        return str(answer)

    def get_job_status(self, external_id: Any, context: Any) -> str:
        """As Dataproc names it."""
        return str(self._fetch(external_id).status.state.name)

    def why(self, external_id: str) -> str:
        """As Dataproc says it."""
        return f"Job failed: {self._fetch(external_id).status.details}"

    def give_up_after_s(self) -> float | None:
        """``wait_timeout``."""
        return None if self.wait_timeout is None else float(self.wait_timeout)

    def on_kill(self) -> None:
        """As the provider's, which finds the job by ``job_id``."""
        self.hook = self._hook()
        DataprocSubmitJobOperator.on_kill(self)

    def _fetch(self, external_id: Any) -> Any:
        return self._hook().get_job(job_id=str(external_id), project_id=self.project_id, region=self.region)

    def _hook(self) -> DataprocHook:
        return DataprocHook(gcp_conn_id=self.gcp_conn_id, impersonation_chain=self.impersonation_chain)


class ResumableDataprocCreateBatchOperator(SubmitsThenAsks, DataprocCreateBatchOperator):  # type: ignore[misc]
    """A batch without a cluster."""

    external_id_key = "dataproc_batch"
    does_not_wait = ("asynchronous", True)
    ends = ("SUCCEEDED", "FAILED", "CANCELLED")
    success = "SUCCEEDED"
    interval = "polling_interval_seconds"

    def names_its_job(self) -> str | None:
        """``batch_id``; a ``batch_id_prefix`` is followed by what is another in each attempt."""
        return f"batch_id={self.batch_id!r}" if self.batch_id else None

    def id_of(self, answer: Any) -> str:
        """The last part of the batch's name."""
        return str(answer["name"]).rpartition("/")[2]

    def get_job_status(self, external_id: Any, context: Any) -> str:
        """As Dataproc names it."""
        return str(self._fetch(external_id).state.name)

    def why(self, external_id: str) -> str:
        """As Dataproc says it."""
        return f"Batch failed: {self._fetch(external_id).state_message}"

    def on_kill(self) -> None:
        """As the provider's, which has the operation that made the batch; in another process that is asked for."""
        if self.operation is not None:
            DataprocCreateBatchOperator.on_kill(self)
        elif self.remote_job:
            operation = self._fetch(self.remote_job).operation
            self.hook.get_operations_client(self.region).cancel_operation(name=operation)

    def _fetch(self, external_id: Any) -> Any:
        return self.hook.get_batch(batch_id=str(external_id), project_id=self.project_id, region=self.region)
