"""The Spark Connect server of an Airflow connection, as the keeper of cached results."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_recovery.errors import JobDefinitionError
from airflow_recovery.job.cached import cached_results

if TYPE_CHECKING:
    from airflow.sdk import Connection

    from airflow_recovery.driver.cached import CacheServer
    from airflow_recovery.job import Job
    from airflow_recovery.planning.regions import Region

CONNECT = "spark_connect"
"""The type of connection that runs regions over Spark Connect."""


def connect_url(connection: Connection) -> str:
    """``sc://...`` of a connection of type `CONNECT`; holds its token."""
    from airflow.providers.apache.spark.hooks.spark_connect import SparkConnectHook

    hook = SparkConnectHook(connection.conn_id)
    setattr(hook, "get_connection", lambda conn_id: connection)  # noqa: B010 - it would ask again
    return str(hook.get_connection_url())


def cache_server(connection: Connection) -> CacheServer:
    """Of a connection of type `CONNECT`. Asks nobody anything yet."""
    from airflow_recovery.driver.cached import CacheServer

    return CacheServer(connect_url(connection), user_id=user_of(connection))


def user_of(connection: Connection) -> str:
    """Whose sessions ours are: one user for all attempts."""
    return connection.login or "airflow-recovery"


def check_cached_connection(job: Job, region: Region, connection: Connection) -> None:
    """Raise `JobDefinitionError` where ``region``, which makes or reads cached results, would run in another way."""
    if connection.conn_type == CONNECT:
        return
    name = cached_results(region, job.vertices)[0]
    vertex = job.vertices[name]
    raise JobDefinitionError(
        f"{vertex.where}: is {vertex.result.value}, and region {region.name!r} runs with the connection "
        f"{connection.conn_id!r} of type {connection.conn_type!r}, whose applications end with their region, and what "
        f"they keep with them. Give the group a connection of type {CONNECT}, or declare {name!r} with result=BLOCKING"
    )
