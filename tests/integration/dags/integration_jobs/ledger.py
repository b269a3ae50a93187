"""rows --+--> added    a table that knows its tokens
+--> told     a table that knows nothing: two functions of ours are all there is
"""

from __future__ import annotations

from typing import Any

from airflow_recovery import BLOCKING, job
from airflow_recovery.sinks import Committable, CommitToken, PostgresTable, ProbedSink, SinkResources
from airflow_recovery.sinks.staged import StagedRows
from integration_jobs.gates import pass_gate

WAREHOUSE = "warehouse"
GATES = {"gates": "{{ conf.get('gates', '') }}"}

ledger = job("ledger")


def connect(resources: SinkResources) -> Any:
    import psycopg2

    at = resources.database(WAREHOUSE)
    return psycopg2.connect(host=at.host, port=at.port, dbname=at.database, user=at.user, password=at.password)


def tell(committable: Committable, resources: SinkResources) -> None:
    staged = StagedRows(committable.manifest, resources.open_location)
    found = [tuple(each.values()) for batch in staged.batches() for each in batch.to_pylist()]
    with connect(resources) as connection, connection.cursor() as cursor:
        cursor.executemany("INSERT INTO told (id) VALUES (%s)", found)


def is_told(token: CommitToken, resources: SinkResources) -> bool:
    with connect(resources) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT EXISTS (SELECT FROM told)")
        return bool(cursor.fetchone()[0])


@ledger.source(result=BLOCKING, params=GATES)
def rows(spark: Any, gates: str) -> Any:
    pass_gate(gates, "rows")
    return spark.range(3)


@ledger.sink(params=GATES, commit=PostgresTable(conn_id=WAREHOUSE, table="added"))
def added(rows: Any, gates: str) -> Any:
    pass_gate(gates, "added")
    return rows


@ledger.sink(params=GATES, commit=ProbedSink(apply=tell, is_applied=is_told))
def told(rows: Any, gates: str) -> Any:
    pass_gate(gates, "told")
    return rows
