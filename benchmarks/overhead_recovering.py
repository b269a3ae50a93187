"""What the two recovering DAGs share: the same job and settings as the plain ones."""

from __future__ import annotations

from typing import Any

from airflow.sdk import DAG, Param

from airflow_recovery.operators import SparkJobTaskGroup
from benchmarks.overhead_settings import LAKE, SINCE


def recovering_dag(dag_id: str, conn_id: str, **arguments: Any) -> DAG:
    """The job as one task group."""
    lake = Param(f"file://{LAKE}", type="string")
    with DAG(dag_id=dag_id, schedule=None, start_date=SINCE, params={"lake": lake}) as dag:
        SparkJobTaskGroup(group_id="flights", job="benchmarks.whole_flights:flights", conn_id=conn_id, **arguments)
    return dag
