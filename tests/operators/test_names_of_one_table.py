"""One table under two names: two tasks of a DAG that commit to it are refused, however each of them writes it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import psycopg2
import pyarrow as pa
import pytest
from airflow.sdk import DAG
from airflow.sdk.exceptions import AirflowException
from expected_errors import fails_with
from iceberg_rest import IcebergRest
from paths import CODE
from pyiceberg.catalog import load_catalog
from tries import run_try

from airflow_recovery import Job
from airflow_recovery.errors import RecoveryError
from airflow_recovery.operators import RecoverableSparkSubmitOperator, SparkJobTaskGroup, drop_in, task_group
from airflow_recovery.sinks import DeltaTable, IcebergTable, PostgresTable, declaration
from airflow_recovery.sinks import postgres as postgres_sink

WRITER = str(CODE / "parquet_writer.py")


def delta(uri: str) -> DeltaTable:
    return DeltaTable(uri=uri, mode="replace")


def lake(uri: str) -> IcebergTable:
    return IcebergTable(uri=uri, mode="replace")


def mart(table: str, conn_id: str = "mart") -> PostgresTable:
    return PostgresTable(conn_id=conn_id, table=table, mode="replace")


def writing(where: Any, task_id: str) -> RecoverableSparkSubmitOperator:
    """An operator that commits to a sink, or by itself writes to the location ``where``."""
    is_sink = not isinstance(where, str)
    return RecoverableSparkSubmitOperator(
        task_id=task_id,
        application=WRITER,
        outputs=["o"] if is_sink else {"o": where},
        application_args=["--out", "{output:o}"],
        commit=where if is_sink else None,
    )


def job_with(where: Any) -> Job:
    """A job that commits to a sink, or whose result is a snapshot of the table ``where``."""
    made = Job("made")

    @made.source
    def rows(spark: Any) -> Any:
        return spark.range(1)

    if isinstance(where, str):

        @made.vertex(table=where)
        def kept(rows: Any) -> Any:
            return rows

        @made.sink
        def load(kept: Any) -> Any:
            return kept

        return made

    @made.sink(commit=where)
    def load_rows(rows: Any) -> Any:
        return rows

    return made


def new_dag() -> DAG:
    return DAG("d", schedule=None, start_date=datetime(2024, 1, 1, tzinfo=timezone.utc))


PAIRS = [
    (delta("s3://lake/t"), delta("s3a://lake/t/")),
    (delta("/lake/t"), delta("file:///lake/t")),
    (delta("/lake/t"), delta("file:/lake/t")),
    (delta("abfss://c@a.dfs.core.windows.net/t"), delta("abfs://c@A.dfs.core.windows.net/t")),
    (delta("s3://lake/t"), delta("s3://lake/t/inner")),
    (lake("iceberg://lake/db.t"), lake("iceberg://lake/db.t?branch=main")),
    (mart("t"), mart("t")),
    ("delta+s3://lake/t", delta("s3a://lake/t/")),
    ("s3://lake/t/day=1", delta("s3a://lake/t")),
    ("iceberg://lake/db.t", lake("iceberg://lake/db.t?branch=main")),
    ("delta+s3://lake/t", "delta+s3a://lake/t/"),
    ("abfs://c@A.dfs.core.windows.net/t", "abfss://c@a.dfs.core.windows.net/t"),
]
REFUSED = ("sinks-replace-each-other", "outputs-overlap", "sink-in-folder-of-table")


@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize("pair", PAIRS)
def test_fault_302_two_operators_are_refused_when_the_dag_is_parsed(pair: tuple[Any, Any], order: int) -> None:
    first, second = pair[::order]
    with new_dag():
        writing(first, "a")
        with fails_with(*REFUSED):
            writing(second, "b")


def _may_be_of_a_job(where: Any) -> bool:
    return not isinstance(where, str) or where.startswith(("delta+", "iceberg://"))


@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize("pair", [pair for pair in PAIRS if any(map(_may_be_of_a_job, pair))])
def test_fault_302_so_are_an_operator_and_a_declared_job(
    pair: tuple[Any, Any], order: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    of_operator, of_job = pair[::order]
    if not _may_be_of_a_job(of_job):
        of_operator, of_job = of_job, of_operator
    declared = job_with(of_job)
    monkeypatch.setattr(task_group, "load_job", lambda _: declared)
    with new_dag():
        writing(of_operator, "a")
        with fails_with(*REFUSED):
            SparkJobTaskGroup("g", job="jobs:made")
    with new_dag():
        SparkJobTaskGroup("g", job="jobs:made")
        with fails_with(*REFUSED):
            writing(of_operator, "a")


@pytest.mark.parametrize("pair", [("delta+s3://lake/t", "delta+s3a://lake/t"), (delta("/t"), "delta+file:///t")])
def test_fault_302_so_are_two_declared_jobs(pair: tuple[Any, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = map(job_with, pair)
    monkeypatch.setattr(task_group, "load_job", {"jobs:a": first, "jobs:b": second}.__getitem__)
    with new_dag():
        SparkJobTaskGroup("a", job="jobs:a")
        with fails_with(*REFUSED):
            SparkJobTaskGroup("b", job="jobs:b")


def test_tables_beside_each_other_are_not_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_group, "load_job", lambda _: job_with("delta+s3://lake/t2"))
    with new_dag():
        for number, where in enumerate(
            [delta("s3://lake/t"), delta("s3://lake/t1"), mart("T"), mart("t"), lake("iceberg://lake/db.t?branch=b")]
        ):
            writing(where, f"t{number}")
        SparkJobTaskGroup("g", job="jobs:made")


@pytest.mark.control
def test_fault_302_control_without_the_look_at_jobs_both_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_group, "load_job", lambda _: job_with("delta+s3://lake/t"))
    monkeypatch.setattr(drop_in, "outputs_of", lambda *_: {})
    with new_dag():
        SparkJobTaskGroup("g", job="jobs:made")
        writing("delta+s3a://lake/t", "a")


# --- what only the target knows: two catalogs, a schema, two connections ---------------------------------------------


COLUMNS = pa.schema([("carrier", pa.string()), ("delay", pa.float64())])


def connected(name: str, extra: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Any:
    connection = json.dumps({"conn_type": "generic", "extra": json.dumps(extra)})
    monkeypatch.setenv(f"AIRFLOW_CONN_{name.upper()}", connection)
    return load_catalog(name, **extra)


@pytest.fixture
def two_catalogs(recovery: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """One Iceberg catalog under the names ``lake`` and ``pond``."""
    with IcebergRest(recovery) as server:
        catalog, _ = (connected(name, server.properties, monkeypatch) for name in ("lake", "pond"))
        catalog.create_namespace("db")
        catalog.create_table("db.t", COLUMNS)
        yield


@pytest.fixture
def registered_twice(recovery: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One Iceberg table in the catalogs ``lake`` and ``pond``."""
    extra = {"type": "sql", "uri": f"sqlite:///{recovery}/catalog.db", "warehouse": f"file://{recovery}/warehouse"}
    lake, pond = (connected(name, extra, monkeypatch) for name in ("lake", "pond"))
    for catalog in (lake, pond):
        catalog.create_namespace("db")
    table = lake.create_table("db.t", COLUMNS)
    table.append(pa.table({"carrier": ["AA"], "delay": [1.5]}))
    pond.register_table("db.t", table.metadata_location)


@pytest.fixture
def database(recovery: Path, postgres: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """One database under the names ``mart`` and ``market``, whose search path begins with another schema."""
    server = psycopg2.connect(**postgres)
    server.autocommit = True
    with server.cursor() as cursor:
        cursor.execute("DROP SCHEMA IF EXISTS sales CASCADE")
        cursor.execute("CREATE SCHEMA sales")
        cursor.execute("CREATE TABLE sales.t (carrier text, delay double precision)")
    server.close()
    address = {"conn_type": "postgres", "host": postgres["host"], "port": postgres["port"], "login": postgres["user"]}
    extra = json.dumps({"options": "-c search_path=nowhere,sales"})
    for name in ("MART", "MARKET"):
        connection = {**address, "password": postgres["password"], "schema": postgres["dbname"], "extra": extra}
        monkeypatch.setenv(f"AIRFLOW_CONN_{name}", json.dumps(connection))


def second_of(first: Any, second: Any) -> None:
    """The first of two tasks commits, then the second has its try."""
    with new_dag():
        one, other = writing(first, "a"), writing(second, "b")
    run_try(one)
    run_try(other)


IN_ONE_DATABASE = [
    pytest.param(mart("t"), mart("sales.t"), id="a schema"),
    pytest.param(mart("sales.t"), mart("t"), id="the search path"),
    pytest.param(mart("t"), mart("t", "market"), id="two connections"),
]
CLASH = "sinks-of-two-owners"


@pytest.mark.parametrize(("first", "second"), IN_ONE_DATABASE)
def test_fault_302_what_one_database_has_under_two_names_is_refused_at_the_claim(
    first: Any, second: Any, postgres: dict[str, Any], database: None, submitted: Path
) -> None:
    with fails_with(CLASH, by=(RecoveryError, AirflowException)):
        second_of(first, second)


@pytest.mark.slow
@pytest.mark.control
@pytest.mark.parametrize(("first", "second"), IN_ONE_DATABASE)
def test_fault_302_control_without_owners_the_second_one_replaces_the_rows(
    first: Any, second: Any, database: None, submitted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_sink, "check_owners", lambda *_, **__: None)
    second_of(first, second)


@pytest.mark.drill
def test_fault_302_so_is_what_one_catalog_has_under_two_names(two_catalogs: None, submitted: Path) -> None:
    with pytest.raises((RecoveryError, AirflowException), match=CLASH):
        second_of(lake("iceberg://lake/db.t"), lake("iceberg://pond/db.t"))


def test_fault_302_a_table_that_is_read_by_one_name_and_replaced_by_another_is_refused(
    recovery: Path, submitted: Path, registered_twice: None
) -> None:
    """By one name its version before the task's own commits would be read."""
    with new_dag():
        both = RecoverableSparkSubmitOperator(
            task_id="a",
            application=WRITER,
            inputs={"before": "iceberg://lake/db.t"},
            outputs=["o"],
            application_args=["--out", "{output:o}", "{version:before}"],
            commit=lake("iceberg://pond/db.t"),
        )
    with fails_with("table-of-two-names", by=(RecoveryError, AirflowException)):
        run_try(both)


def test_the_comparison_of_sinks_is_one_of_their_places() -> None:
    with fails_with("sink-in-folder-of-table"):
        declaration.check_sinks_apart([("a", delta("/t/u")), ("b", delta("/t"))])
