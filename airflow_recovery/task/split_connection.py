"""Where a region that commits split by split can run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_recovery.errors import JobDefinitionError
from airflow_recovery.task.cached import CONNECT

if TYPE_CHECKING:
    from airflow.sdk import Connection

    from airflow_recovery.job import Vertex


def check_split_connection(source: Vertex, connection: Connection) -> None:
    """Raise `JobDefinitionError` where the region of ``source`` would run over Spark Connect. Before it is claimed."""
    if connection.conn_type != CONNECT:
        return
    raise JobDefinitionError(
        f"{source.where}: expected a region with commit='split' to run by spark-submit, found the connection "
        f"{connection.conn_id!r} of type {CONNECT}: whether its vertices treat every row by itself is seen in Spark's "
        "plans, which a Connect server does not show. Give this task a connection of type 'spark', or declare its "
        "vertices without commit='split'"
    )
