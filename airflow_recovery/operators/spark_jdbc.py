"""The Spark provider's transfer between tables of Spark and of a database, as one recoverable vertex."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from airflow.providers.apache.spark.hooks.spark_jdbc import SparkJDBCHook
from airflow.providers.apache.spark.operators.spark_jdbc import SparkJDBCOperator

from airflow_recovery.errors import JobDefinitionError
from airflow_recovery.operators.any_operator import RecoverableOperator

TO_DATABASE = "spark_to_jdbc"
OWN_METASTORE = {
    "spark.hadoop.hive.metastore.uris": "",
    "spark.hadoop.javax.jdo.option.ConnectionURL": "jdbc:derby:memory:metastore;create=true",
}
"""The provider's program always enables Hive, whose metastore has one table of a name, at the place of its database."""


class NamedSparkJDBCOperator(SparkJDBCOperator):
    """As the provider's, which tells its program no ``-name``: Spark 4.2 refuses an application without one."""

    def _get_hook(self) -> SparkJDBCHook:
        hook: Any = super()._get_hook()
        build = hook._build_jdbc_application_arguments
        hook._build_jdbc_application_arguments = lambda to: ["-name", self._spark_app_name, *build(to)]
        return cast("SparkJDBCHook", hook)


class RecoverableSparkJDBCOperator(RecoverableOperator, SparkJDBCOperator):
    """A `SparkJDBCOperator` whose transfer is one vertex; also as ``recoverable(SparkJDBCOperator)``.

    ::

        export = RecoverableSparkJDBCOperator(
            task_id="export", inputs={"report": report.result("report")},
            metastore_table="parquet.`{input:report}`", jdbc_table="report", save_mode="overwrite",
        )

    Placeholders stand in ``metastore_table`` and ``spark_conf``.

    **To a database** (``cmd_type="spark_to_jdbc"``): a sink that commits elsewhere, by itself. It has no outputs, since
    nobody here can look at the table: the transfer is kept while what it reads and how it is declared stay the same.
    Spark writes to the table partition by partition, so that an attempt which dies leaves half of it. So
    ``save_mode="overwrite"`` is expected; any other mode needs ``allow_duplicates=True``, or ``idempotent=True`` if you
    know better. A worker that is lost may leave its transfer running beside the next one: rows that must be there
    once want ``commit=PostgresTable(...)`` on the operator before.

    **From a database** (``"jdbc_to_spark"``): its table is an output, at your own URI, or managed with
    ``spark_conf={"spark.sql.warehouse.dir": "{output:*}"}``. Each attempt of a managed one has a metastore of its own,
    in memory: in another the table would lie where that says, and a second run would replace the first one's.

    Raises `JobDefinitionError` where that does not fit together.
    """

    operator_class = NamedSparkJDBCOperator
    declared_class = SparkJDBCOperator
    paths = "spark"
    writes_elsewhere = True
    template_fields: Sequence[str] = (*SparkJDBCOperator.template_fields, "inputs", "outputs")
    placeholder_fields = ("_metastore_table", "_spark_conf")
    fingerprint_fields = (
        "_cmd_type",
        "_jdbc_table",
        "_jdbc_conn_id",
        "_jdbc_driver",
        "_metastore_table",
        "_jdbc_truncate",
        "_save_mode",
        "_save_format",
        "_partition_column",
        "_lower_bound",
        "_upper_bound",
        "_create_table_column_types",
    )

    def __init__(self, *, outputs: Any = (), **kwargs: Any) -> None:
        super().__init__(outputs=outputs, **kwargs)
        if (self._cmd_type == TO_DATABASE) is bool(self.outputs):
            found = ", ".join(self.outputs) or "none"
            raise JobDefinitionError(
                f"{self.task_id}: expected outputs= with cmd_type='jdbc_to_spark' alone, found {found} with "
                f"{self._cmd_type!r}: what goes to a database is not looked at, and what comes from it is a table of "
                "Spark, whose place is to be named.",
                code="jdbc-outputs",
                task=self.task_id,
            )
        if None in self.outputs.values():
            self._spark_conf = {**OWN_METASTORE, **(self._spark_conf or {})}

    def how_it_appends(self) -> str | None:
        """Any mode but overwrite: a second transfer adds to what the first one has left, or does nothing."""
        is_over = self._cmd_type != TO_DATABASE or str(self._save_mode).lower() == "overwrite"
        return None if is_over else f"save_mode={self._save_mode!r}"
