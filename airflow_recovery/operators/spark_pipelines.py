"""The Spark provider's operator of declarative pipelines, as one recoverable vertex."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, cast

from airflow.providers.apache.spark.hooks.spark_pipelines import SparkPipelinesHook
from airflow.providers.apache.spark.operators.spark_pipelines import SparkPipelinesOperator

from airflow_recovery.errors import JobDefinitionError
from airflow_recovery.operators.any_operator import RecoverableOperator
from airflow_recovery.task.references import placeholders


class LocalPipelinesOperator(SparkPipelinesOperator):
    """As the provider's, but for what ``spark-pipelines`` refuses: a local ``--master`` is its ``--remote``."""

    @cached_property
    def hook(self) -> SparkPipelinesHook:
        """What starts it."""
        hook: Any = cast("Any", SparkPipelinesOperator.hook).func(self)
        hook._name = None  # it takes no --name either
        build = hook._build_spark_common_args
        hook._build_spark_common_args = lambda: ["--remote" if word == "--master" else word for word in build()]
        return cast("SparkPipelinesHook", hook)


class RecoverableSparkPipelinesOperator(RecoverableOperator, SparkPipelinesOperator):
    """A `SparkPipelinesOperator` whose pipeline is one vertex: ``recoverable(SparkPipelinesOperator)``.

    Spark runs pipelines over Spark Connect alone: with a connection of type ``spark_connect``, or in a process of their
    own where a ``spark`` connection has a local master. To the first the provider passes no ``conf``. How a dataset
    comes to its place is in docs/operators.md.
    """

    operator_class = LocalPipelinesOperator
    paths = "spark"
    template_fields: Sequence[str] = (*SparkPipelinesOperator.template_fields, "inputs", "outputs")
    placeholder_fields = tuple(SparkPipelinesOperator.template_fields)

    def check_rendered(self) -> None:
        """As `RecoverableOperator.check_rendered`, and whether Spark, and its connection, take what is declared."""
        super().check_rendered()
        connection = SparkPipelinesHook(conn_id=self._conn_id)._connection
        if not connection.get("spark_remote") and not connection["master"].startswith("local"):
            raise JobDefinitionError(
                f"{self.task_id}: expected conn_id= of a connection of type spark_connect, or with a local master, "
                f"found {self._conn_id!r} with {connection['master']!r}: Spark runs pipelines over Spark Connect "
                "alone. Start a Spark Connect server there, and make a connection to that.",
                code="pipelines-without-connect",
                task=self.task_id,
            )
        if connection.get("spark_remote") and placeholders(self.conf):
            raise JobDefinitionError(
                f"{self.task_id}: expected placeholders in env_vars= with the Spark Connect connection "
                f"{self._conn_id!r}, found some in conf=, which Airflow's provider does not pass to it: put "
                "{output:*} into an environment variable, and have the datasets take their location from that.",
                code="pipelines-placeholder-in-conf",
                task=self.task_id,
            )
