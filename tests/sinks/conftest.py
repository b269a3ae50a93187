"""A table in PostgreSQL, and results as Spark would leave them."""

from __future__ import annotations

import itertools
from pathlib import Path

import psycopg2
import pytest
from staging import Warehouse

_names = itertools.count()


@pytest.fixture
def warehouse(postgres: dict[str, str | int], tmp_path: Path) -> Warehouse:
    """A schema of the test's own."""
    schema = f"test_{next(_names)}"
    found = Warehouse(postgres, schema, tmp_path / "results")
    with psycopg2.connect(**postgres) as connection, connection.cursor() as cursor:
        cursor.execute(f"CREATE SCHEMA {schema}")
        cursor.execute(f"CREATE TABLE {found.table} (carrier text, delay double precision, run_key text, ord serial)")
    return found
