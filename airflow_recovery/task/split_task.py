"""What a task asks of a region that commits split by split."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from airflow_recovery.splits.mode import SplitPlan
from airflow_recovery.task.mode import TaskMode
from airflow_recovery.task.spark_connection import check_split_connection

if TYPE_CHECKING:
    from airflow.sdk import Connection

    from airflow_recovery.job import Vertex
    from airflow_recovery.model.records import RegionPlan


class SplitTask(TaskMode):
    """See the module."""

    def check_connection(self, region: RegionPlan, vertices: Mapping[str, Vertex], connection: Connection) -> None:
        """Not over Connect: it does not show what Spark makes of each row."""
        source = SplitPlan.of(region).split_source
        if source is not None:
            check_split_connection(vertices[source], connection)


MODE = SplitTask()
