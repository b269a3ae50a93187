"""What a task asks of a region that commits split by split: `airflow_recovery.task.mode` for the mode ``split``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from airflow_recovery.errors import JobDefinitionError
from airflow_recovery.splits.mode import SplitPlan
from airflow_recovery.task.mode import TaskMode
from airflow_recovery.task.spark_connection import CONNECT

if TYPE_CHECKING:
    from airflow.sdk import Connection

    from airflow_recovery.job import Vertex
    from airflow_recovery.model.region_plan import RegionPlan


class SplitTask(TaskMode):
    """The answers of the mode ``split``."""

    def check_connection(self, region: RegionPlan, vertices: Mapping[str, Vertex], connection: Connection) -> None:
        """Not over Connect: it does not show what Spark makes of each row."""
        source = SplitPlan.of(region).split_source
        if source is not None and connection.conn_type == CONNECT:
            raise JobDefinitionError(
                f"{vertices[source].where}: expected a region with commit='split' to run by spark-submit, found the "
                f"connection {connection.conn_id!r} of type {CONNECT}: whether its vertices treat every row by itself "
                "is seen in Spark's plans, which a Connect server does not show. Give this task a connection of type "
                "'spark', or declare its vertices without commit='split'",
                code="batches-over-connect",
                where=vertices[source].where,
                connection=connection.conn_id,
            )


MODE = SplitTask()
