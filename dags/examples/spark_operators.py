"""Every operator of the Spark provider as a recoverable task.

carriers (a table of a database) ------------+
                                             v
flights (a declarative pipeline) --> late --> worst --> export (to the database)
                                 +-> totals
"""

from __future__ import annotations

import os
from datetime import datetime, timezone
from typing import Any

from airflow.providers.apache.spark.operators.spark_pipelines import SparkPipelinesOperator
from airflow.providers.apache.spark.operators.spark_pyspark import PySparkOperator
from airflow.providers.apache.spark.operators.spark_sql import SparkSqlOperator
from airflow.sdk import DAG, task

from airflow_recovery.operators import RecoverableSparkJDBCOperator, RecoveryPublishOperator, recoverable

CODE = os.environ.get("EXAMPLE_CODE", "file:///code").removeprefix("file://")
LAKE = os.environ.get("FLIGHTS_LAKE", "file:///lake")
DATABASE: dict[str, Any] = {
    "spark_conn_id": "spark_default",
    "jdbc_conn_id": "warehouse_jdbc",  # its extra: {"conn_prefix": "jdbc:postgresql://"}
    "jdbc_driver": "org.postgresql.Driver",
    "spark_jars": f"{CODE}/postgresql.jar",
    "save_mode": "overwrite",
}


def count_of_each(rows: str, out: str, spark: Any) -> None:
    spark.read.parquet(rows).groupBy("carrier").count().write.parquet(out)


with DAG(
    dag_id="spark_operators",
    schedule=None,
    start_date=datetime(2013, 1, 1, tzinfo=timezone.utc),
    tags=["airflow-recovery"],
    doc_md=__doc__,
) as dag:
    carriers = RecoverableSparkJDBCOperator(
        task_id="carriers",
        cmd_type="jdbc_to_spark",
        jdbc_table="carriers",
        metastore_table="names",
        save_format="parquet",
        spark_conf={"spark.sql.warehouse.dir": "{output:*}"},
        outputs=["names"],
        **DATABASE,
    )
    # Its materialized views `arrived` and `cancelled` read the file that the variable names.
    flights = recoverable(SparkPipelinesOperator)(
        task_id="flights",
        conn_id="spark_default",
        pipeline_spec=f"{CODE}/flights.yml",
        inputs={"flights": f"{LAKE}/flights.csv"},
        env_vars={"FLIGHTS": "{input:flights}"},
        conf={"spark.sql.warehouse.dir": "{output:*}"},
        outputs=["arrived", "cancelled"],
    )
    late = recoverable(SparkSqlOperator)(
        task_id="late",
        inputs={"arrived": flights.result("arrived")},
        sql="INSERT OVERWRITE DIRECTORY '{output:late}' USING parquet "
        "SELECT carrier, arr_delay FROM parquet.`{input:arrived}` WHERE arr_delay > 15",
        outputs=["late"],
    )
    totals = recoverable(PySparkOperator)(
        task_id="totals",
        conn_id="spark_default",
        inputs={"cancelled": flights.result("cancelled")},
        python_callable=count_of_each,
        op_kwargs={"rows": "{input:cancelled}", "out": "{output:totals}"},
        outputs=["totals"],
    )

    @recoverable(task.pyspark)(  # type: ignore[untyped-decorator]
        conn_id="spark_default",
        inputs={"late": late.result("late"), "names": carriers.result("names")},
        outputs=["worst"],
    )
    def worst(late: str, names: str, out: str, spark: Any) -> None:
        delays = spark.read.parquet(late).groupBy("carrier").agg({"arr_delay": "max"})
        named = delays.join(spark.read.parquet(names), "carrier")
        named.selectExpr("name", "`max(arr_delay)` AS minutes").coalesce(1).write.parquet(out)

    made = worst(late="{input:late}", names="{input:names}", out="{output:worst}")
    # The table is emptied, and filled partition by partition: whoever reads it in between sees less.
    export = RecoverableSparkJDBCOperator(
        task_id="export",
        inputs={"worst": made.operator.result("worst")},
        metastore_table="parquet.`{input:worst}`",
        jdbc_table="worst",
        jdbc_truncate=True,
        **DATABASE,
    )
    [export, totals] >> RecoveryPublishOperator(task_id="publish")
