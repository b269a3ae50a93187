"""Iceberg tables as results: a table that is rolled back is a lost result, made again with its readers and no other."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

from airflow.providers.standard.operators.python import PythonOperator
from airflow.sdk import DAG, BaseHook

from airflow_recovery.operators import RecoveryPublishOperator, recoverable

Python = recoverable(PythonOperator)


def table(name: str) -> Any:
    """``lake.db.flights``: the table ``db.flights`` of the catalog that the connection ``lake`` describes."""
    from pyiceberg.catalog import load_catalog

    catalog, _, inside = name.partition(".")
    return load_catalog(catalog, **BaseHook.get_connection(catalog).extra_dejson).load_table(inside)


def select(source: str, version: str, target: str, token: str, rows: str, columns: list[str]) -> None:
    """Put the ``rows`` of one snapshot in place of all that ``target`` has. The commit carries the attempt's token."""
    read = table(source).scan(row_filter=rows, selected_fields=columns, snapshot_id=int(version)).to_arrow()
    table(target).overwrite(read, snapshot_properties={"airflow-recovery.token": token})


def selecting(task_id: str, source: Any, rows: str, columns: list[str]) -> Any:
    """A task that makes the table of its name. All tables are there before."""
    told = {
        "source": "{input:source}",
        "version": "{version:source}",
        "target": f"{{output:{task_id}}}",
        "token": f"{{token:{task_id}}}",
    }
    return Python(
        task_id=task_id,
        python_callable=select,
        op_kwargs={**told, "rows": rows, "columns": columns},
        inputs={"source": source},
        outputs={task_id: f"iceberg://lake/db.{task_id}"},
    )


with DAG(
    dag_id="tables",
    schedule=None,
    start_date=datetime(2013, 1, 1, tzinfo=timezone.utc),
    tags=["airflow-recovery"],
    doc_md=__doc__,
) as dag:
    # The newest snapshot when the task looks: another one there means that it runs again.
    arrived = selecting("arrived", "iceberg://lake/db.flights", "delay is not null", ["carrier", "delay"])
    cancelled = selecting("cancelled", "iceberg://lake/db.flights", "delay is null", ["carrier"])
    late = selecting("late", arrived.result("arrived"), "delay > 15", ["carrier", "delay"])
    [cancelled, late] >> RecoveryPublishOperator(task_id="publish")
