"""The matrix of values: each Spark type with its values at the edges, through each sink, into each type of a column.

Spark writes the files. What a target holds is read by its own client. docs/values.md has the rules.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator
from functools import partial
from pathlib import Path

import pytest
from delta_spark import delta_conf
from pyspark.sql import SparkSession
from value_cells import Staged, write_types
from value_ways import (
    EQUAL,
    IN_PART,
    REFUSED,
    WRONG,
    Cell,
    Delta,
    Files,
    Iceberg,
    Jdbc,
    Postgres,
    Target,
    VertexDelta,
    VertexIceberg,
    run_cell,
    targets_of,
)

from airflow_recovery.testing.spark_cluster import connect_server
from scripts.jars import fetched_jars

pytestmark = [pytest.mark.spark, pytest.mark.drill]


@pytest.fixture(scope="module")
def types(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Staged]]:
    zone = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    yield write_types(spark, tmp_path_factory.mktemp("types"))
    spark.conf.set("spark.sql.session.timeZone", str(zone))


@pytest.fixture(scope="module")
def with_jars() -> Iterator[SparkSession]:
    """A Spark that has the jars of Delta and of PostgreSQL's driver."""
    conf = delta_conf()
    jars = fetched_jars("jdbc", "PostgreSQL's JDBC driver", "postgresql", "--drill")
    paths = {name: f"{value}:{jars}/*" for name, value in conf.items() if name.endswith("extraClassPath")}
    with connect_server(master="local[1]", conf={**conf, **paths}) as running:
        session = SparkSession.builder.remote(running.url).create()
        session.conf.set("spark.sql.session.timeZone", "UTC")
        yield session
        session.stop()


FEW = ("int", "float", "decimal(10,2)", "string", "binary", "date", "timestamp_ntz", "interval day", "variant")
"""Types that go into each type of a column where Spark writes each cell, which takes a second."""
FEWER = ("int", "decimal(10,2)", "timestamp_ntz")
"""As `FEW`, where Spark commits each cell, which takes some seconds."""


def tried(
    types: dict[str, Staged], way: str, make: Callable[[str], Target], few: Collection[str] | None = None
) -> list[Cell]:
    """Run each cell of ``way``. ``few``: the types that go into each type of a column; others go into the first."""
    cells: list[Cell] = []
    for name, staged in types.items():
        targets = list(targets_of(way))
        targets = targets if few is None or name in few else targets[:1]
        cells += [run_cell(staged, way, target, partial(make, target)) for target in targets]
    print(f"{way}: {len(cells)} cells, {dict(Counter(cell.outcome for cell in cells))}")
    return cells


def check(
    types: dict[str, Staged], way: str, make: Callable[[str], Target], few: Collection[str] | None = None
) -> None:
    """As `tried`: no cell may hold another value, or be refused without the names of column and types."""
    cells = tried(types, way, make, few)
    assert [cell for cell in cells if cell.outcome not in (EQUAL, IN_PART, REFUSED)] == []
    assert EQUAL in {cell.outcome for cell in cells}


@pytest.mark.postgres
def test_postgresql(types: dict[str, Staged], postgres: dict[str, str | int]) -> None:
    check(types, "PostgresTable", partial(Postgres, postgres))


def test_delta(types: dict[str, Staged], tmp_path: Path) -> None:
    check(types, "DeltaTable", partial(Delta, tmp_path))


def test_iceberg(types: dict[str, Staged], tmp_path: Path) -> None:
    properties = {"type": "sql", "uri": f"sqlite:///{tmp_path}/c.db", "warehouse": f"file://{tmp_path}/w"}
    check(types, "IcebergTable", partial(Iceberg, properties))


def test_files_of_vertices(spark: SparkSession, types: dict[str, Staged], tmp_path: Path) -> None:
    check(types, "files of a vertex", partial(Files, spark, tmp_path))


def test_iceberg_tables_of_vertices(spark: SparkSession, types: dict[str, Staged], tmp_path: Path) -> None:
    properties = {"type": "sql", "uri": f"sqlite:///{tmp_path}/c.db", "warehouse": f"file://{tmp_path}/w"}
    check(types, "table=iceberg", partial(VertexIceberg, spark, properties), FEW)


def test_delta_tables_of_vertices(with_jars: SparkSession, types: dict[str, Staged], tmp_path: Path) -> None:
    check(types, "table=delta", partial(VertexDelta, with_jars, tmp_path), FEWER)


CHANGED_BY_JDBC = {"tinyint", "string that is not UTF-8", "timestamp_ntz"}
"""Types that Spark's own jdbc changes without an error (docs/values.md)."""


@pytest.mark.postgres
def test_sparks_own_jdbc(with_jars: SparkSession, types: dict[str, Staged], postgres: dict[str, str | int]) -> None:
    cells = tried(types, "Spark's jdbc", partial(Jdbc, with_jars, postgres))
    assert {cell.type for cell in cells if cell.outcome == WRONG} == CHANGED_BY_JDBC
