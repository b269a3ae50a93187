"""A PostgreSQL server for this folder's tests, and results as Spark would leave them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import psycopg2
import pytest
from staging import Warehouse

from airflow_recovery.testing.local_airflow.postgres import PostgresDatabase
from airflow_recovery.testing.local_airflow.processes import Processes

_names = itertools.count()


@pytest.fixture(scope="session")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str | int]]:
    server, processes = PostgresDatabase(), Processes(tmp_path_factory.mktemp("postgres"))
    processes.guard(server.make_folder())
    try:
        server.start(processes)
        yield server.address
    finally:
        processes.stop()
        server.remove()


@pytest.fixture
def warehouse(postgres: dict[str, str | int], tmp_path: Path) -> Warehouse:
    """A schema of the test's own."""
    schema = f"test_{next(_names)}"
    found = Warehouse(postgres, schema, tmp_path / "results")
    with psycopg2.connect(**postgres) as connection, connection.cursor() as cursor:
        cursor.execute(f"CREATE SCHEMA {schema}")
        cursor.execute(f"CREATE TABLE {found.table} (carrier text, delay double precision, run_key text, ord serial)")
    return found
