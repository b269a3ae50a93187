"""The demo's chain of streaming regions, with every strategy that there is for a region that has failed."""

from __future__ import annotations

import os
from datetime import datetime, timezone

from airflow.sdk import DAG, Param

from airflow_recovery import FailoverStrategy
from airflow_recovery.operators import SparkJobTaskGroup

CONF = {
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.shuffle.partitions": "1",
    "spark.log.level": "WARN",
}

for strategy in (FailoverStrategy.APPROXIMATE_SINGLE, FailoverStrategy.APPROXIMATE_DOWNSTREAM, FailoverStrategy.REGION):
    with DAG(
        dag_id=f"failure_{strategy.value}",
        schedule=None,
        start_date=datetime(2013, 1, 1, tzinfo=timezone.utc),
        params={
            "lake": Param(os.environ.get("FLIGHTS_LAKE", ""), type="string"),
            "model_load_s": Param(8.0, type="number"),
        },
    ) as dag:
        SparkJobTaskGroup(
            group_id="flights",
            job="jobs.live_flights:live_flights",
            conn_id="spark_default",
            conf=CONF,
            failover_strategy=strategy,
        )
