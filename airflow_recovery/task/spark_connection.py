"""An Airflow connection to Spark: the application that it makes of a region, and what can't run with it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final, Literal

from airflow_recovery.errors import ConfigurationError, JobDefinitionError
from airflow_recovery.job.cached import cached_results

if TYPE_CHECKING:
    from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
    from airflow.sdk import Connection, Context

    from airflow_recovery.attempt.application import ClaimedAttempt, SparkApplication
    from airflow_recovery.driver.cached import CacheServer
    from airflow_recovery.driver.memory_policy import RaiseMemory
    from airflow_recovery.job import Job
    from airflow_recovery.planning.regions import Region
    from airflow_recovery.task.attempt_sessions import ServerChoice
    from airflow_recovery.task.region_program import RegionProgram
    from airflow_recovery.task.spark_submission import Keeping

log = logging.getLogger(__name__)

CONNECT = "spark_connect"
"""The type of connection that runs regions over Spark Connect."""

PER_REGION: Final = "per-region"
PER_RUN: Final = "per-run"
SparkScope = Literal["per-region", "per-run"]
"""What has a Spark of its own: each region, or each run."""

SUBMIT = ("spark", "k8s", "local", "mesos", "yarn")
"""Connection types that the provider's hook submits to: a connection given as a URI has the master's scheme as type."""


def region_application(
    program: RegionProgram,
    operator: SparkSubmitOperator,
    connection: Connection,
    context: Context,
    *,
    is_killed: Callable[[], bool] = lambda: False,
    memory_policy: RaiseMemory | None = None,
    own_server: ServerChoice | None = None,
    keeping: Keeping | None = None,
) -> SparkApplication:
    """What runs ``program`` with ``connection``, and with the settings of ``operator``. Raises `ConfigurationError`.

    ``own_server``: the run's own Spark, which has been started with these settings. ``keeping``: see `SparkSubmission`.
    """
    if connection.conn_type == CONNECT or own_server is not None:
        from airflow_recovery.task.attempt_sessions import ServerChoice
        from airflow_recovery.task.region_session import RegionSession

        conf = {} if own_server is not None else operator.conf or {}
        return RegionSession(
            program,
            own_server or ServerChoice(connect_url(connection)),
            user_id=user_of(connection),
            conf={str(key): str(value) for key, value in conf.items()},
            log=log,
            on_claim=partial(tell_of_memory, operator, memory_policy),
        )
    if connection.conn_type in SUBMIT:
        from airflow_recovery.task.region_submission import RegionSubmission

        return RegionSubmission(
            program,
            operator,
            context,
            program.identity,
            program.stores.results,
            is_killed=is_killed,
            memory_policy=memory_policy,
            connection=connection,
            keeping=keeping,
        )
    raise ConfigurationError(
        f"Connection {connection.conn_id!r}: expected type spark (spark-submit) or {CONNECT}, found "
        f"{connection.conn_type!r}. Give the task group a conn_id of one of these types.",
        code="connection-type-unfit",
        connection=connection.conn_id,
    )


def tell_of_memory(operator: SparkSubmitOperator, policy: RaiseMemory | None, attempt: ClaimedAttempt) -> None:
    """Where an earlier attempt ran out of memory: what ``policy`` would do about it, if the server could be changed."""
    from airflow_recovery.task.spark_submission import raised_memory

    raised = raised_memory(operator, policy, attempt)
    for side, size in (("driver", raised.driver), ("executor", raised.executor)):
        if size is not None:
            log.warning(
                "An earlier attempt ran out of %s memory, and memory_policy would raise it to %s; a Spark Connect "
                "server keeps the memory that it was started with. Start it with more, or run by spark-submit.",
                side,
                size,
            )


def connect_url(connection: Connection) -> str:
    """``sc://...`` of a connection of type `CONNECT`; holds its token."""
    from airflow.providers.apache.spark.hooks.spark_connect import SparkConnectHook

    hook = SparkConnectHook(connection.conn_id)
    setattr(hook, "get_connection", lambda conn_id: connection)  # noqa: B010 - it would ask again
    return str(hook.get_connection_url())


def cache_server(connection: Connection) -> CacheServer:
    """The server of a connection of type `CONNECT`, which keeps cached results. Asks it nothing yet."""
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
        f"{vertex.where}: is {vertex.result.name}, and region {region.name!r} runs with the connection "
        f"{connection.conn_id!r} of type {connection.conn_type!r}, whose applications end with their region, and what "
        f"they keep with them. Give the group a connection of type {CONNECT} or spark='per-run', or declare "
        f"{name!r} with result=BLOCKING"
    )


def check_streaming_connection(region: str, connection: Connection) -> None:
    """Raise `ConfigurationError` where a region at a channel would run over Connect."""
    if connection.conn_type == CONNECT:
        raise ConfigurationError(
            f"{region}: expected a connection of type spark (spark-submit), since it is a streaming region, which "
            f"is an application of its own; found {connection.conn_id!r} of type {CONNECT}. Give the task group "
            "another conn_id; regions over Connect can be a job of their own, behind the audit.",
            code="streaming-over-connect",
        )
