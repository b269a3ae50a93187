"""A declared job as an Airflow task group: one task a region, wired by the region graph, and a publish at the end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from airflow.sdk import TaskGroup

from airflow_recovery.errors import JobDefinitionError
from airflow_recovery.job.loading import load_job
from airflow_recovery.operators.publish import PUBLISH_TASK, RecoveryPublishOperator
from airflow_recovery.operators.region import SparkRegionOperator

if TYPE_CHECKING:
    from airflow.sdk import Asset

    from airflow_recovery.topology.regions import Region

NOT_PASSED_THROUGH = ("application", "application_args", "java_class", "region", "task_id")
FOR_PUBLISH_TOO = ("executor", "executor_config", "pool", "queue", "retries", "retry_delay")
"""Where and how often a task of this group runs: the publish task needs the same workers as the regions."""


class SparkJobTaskGroup(TaskGroup):
    """Runs a job declared with `airflow_recovery.job`: one task is one recovery region is one Spark application.

    ::

        SparkJobTaskGroup(group_id="flights", job="jobs.flights:flights", conn_id="spark_default")

    Task ids are ``<group_id>.<region>``; the last task, ``<group_id>.publish``, publishes the results and carries
    ``outlets``. Every further argument goes to every region's operator: those of `SparkSubmitOperator` (``conf``,
    ``jars``, ``executor_memory``, ...) and Airflow's own (``pool``, ``retries``, ...); the publish task gets those that
    say where and how often a task runs. A region has ``retries=3`` and ``retry_delay=0`` unless the DAG's or the
    group's ``default_args`` or an argument say else.

    The job's module is imported while the DAG file is parsed: import pyspark inside the vertices, not at its top.
    Raises `JobDefinitionError` where the job is not what it must be; Airflow shows it as an import error of the DAG.

    :param group_id: the id of the group; part of the identity of the journal.
    :param job: ``package.module:name``.
    :param conn_id: a connection of type ``spark`` or ``spark_connect``; its type decides how regions run. Without it,
        that of ``default_args``, else ``spark_default``.
    :param outlets: assets that are updated when the results are published.
    """

    def __init__(
        self,
        group_id: str,
        *,
        job: str,
        conn_id: str | None = None,
        outlets: Sequence[Asset] | None = None,
        default_args: dict[str, Any] | None = None,
        tooltip: str = "",
        **operator_args: Any,
    ) -> None:
        refused = sorted(set(NOT_PASSED_THROUGH) & set(operator_args))
        if refused:
            raise JobDefinitionError(
                f"SparkJobTaskGroup {group_id!r}: {', '.join(refused)} can't be given, since the job decides it."
            )
        if conn_id is not None:
            operator_args["conn_id"] = conn_id
        defaults: Any = default_args or {}
        super().__init__(group_id=group_id, default_args=defaults, tooltip=tooltip or f"Spark job {job}")
        regions = load_job(job).regions()
        full_id = str(self.group_id)
        with self:
            operators = {
                region.name: SparkRegionOperator(
                    task_id=region.name,
                    job=job,
                    region=region.name,
                    group_id=full_id,
                    **{"doc_md": _doc_of(region), **operator_args},
                )
                for region in regions.regions
            }
            if PUBLISH_TASK in operators:
                raise JobDefinitionError(
                    f"Job {job}: a region is named {PUBLISH_TASK!r}, which is the id of the group's last task. Rename "
                    "that vertex."
                )
            publish = RecoveryPublishOperator(
                task_id=PUBLISH_TASK,
                job=job,
                group_id=full_id,
                outlets=list(outlets or ()),
                **{name: value for name, value in operator_args.items() if name in FOR_PUBLISH_TOO},
            )
            for region in regions.regions:
                for producer in region.upstream:
                    operators[producer] >> operators[region.name]
                if not regions.consumers(region.name):
                    operators[region.name] >> publish


def _doc_of(region: Region) -> str:
    return f"Vertices: {', '.join(region.vertices)}. Results: {', '.join(region.results)}."
