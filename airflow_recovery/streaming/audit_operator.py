"""The last task of a job with channels: audits what was lost, and publishes. Asset outlets hang on it."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from airflow_recovery.operators.publish import RecoveryPublishOperator

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_recovery.streaming.audit import ChannelAudit
    from airflow_recovery.task.open_run import OpenRun

AUDIT_TASK = "audit"

log = logging.getLogger(__name__)


class RecoveryAuditOperator(RecoveryPublishOperator):
    """A `RecoveryPublishOperator` that reads the ledger of every channel first (``PIPELINED_APPROXIMATE``).

    `SparkJobTaskGroup` adds it to a job with channels, in place of ``publish``. Its log has one line a channel, and so
    has its note; its return value the numbers, under ``channels``. What nobody can know, since a source can't replay,
    is reported as unknown, and never as 0. It fails the run by name, and publishes nothing, where a channel has lost
    more than its budget allows over all of its generations, or where an account is not complete.
    """

    _audits: tuple[ChannelAudit, ...] = ()

    def publish(self, context: Context, opened: OpenRun) -> dict[str, Any]:
        """Audit the channels, then publish. Raises `ChannelFailed`, and publishes nothing, where a budget is spent."""
        from airflow_recovery.job.loading import load_job
        from airflow_recovery.streaming.audit import AuditTask
        from airflow_recovery.streaming.declaration import declared_of

        if self.job is None:
            raise ValueError(f"{self.task_id}: expected job and group_id, since only declared jobs have channels")
        declared = load_job(self.job)
        channels = {name: declared_of(vertex).channel for name, vertex in declared.vertices.items()}
        budgets = {name: channel.budget for name, channel in channels.items() if channel is not None}
        audits = AuditTask(opened.run, opened.stores.results, budgets).execute()
        self._audits = audits
        published = super().publish(context, opened)
        _count(context, audits)
        return {**published, "channels": {audit.edge: audit.to_json() for audit in audits}}

    def more_to_note(self) -> list[str]:
        """For each channel, one line with what it has committed and lost."""
        return [audit.text() for audit in self._audits]


LAST_TASK = (AUDIT_TASK, RecoveryAuditOperator)


def _count(context: Context, audits: tuple[ChannelAudit, ...]) -> None:
    """Send what was counted as gauges of Airflow's metrics: ``recovery.channel.<dag>.<channel>.<counter>``."""
    from airflow_recovery.airflow_compat import stats

    for audit in audits:
        for name, value in audit.counters().items():
            stats.gauge(f"recovery.channel.{context['dag_run'].dag_id}.{audit.edge}.{name}", value)
