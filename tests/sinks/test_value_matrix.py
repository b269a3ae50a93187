"""The matrix of values: each Spark type with its values at the edges, through each sink, into each type of a column.

Spark writes the files. What a target holds is read by its own client. docs/values.md has the rules.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from value_cells import Staged, write_types
from value_ways import EQUAL, IN_PART, REFUSED, Cell, Delta, Iceberg, Postgres, Target, run_cell, targets_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.drill]


@pytest.fixture(scope="module")
def types(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Staged]]:
    zone = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    yield write_types(spark, tmp_path_factory.mktemp("types"))
    spark.conf.set("spark.sql.session.timeZone", str(zone))


def check(types: dict[str, Staged], way: str, make: Callable[[str], Target]) -> None:
    """Run each cell of ``way``: none may hold another value, or be refused without the names of column and types."""
    cells: list[Cell] = []
    for staged in types.values():
        cells += [run_cell(staged, way, target, partial(make, target)) for target in targets_of(way)]
    print(f"{way}: {len(cells)} cells, {dict(Counter(cell.outcome for cell in cells))}")
    assert [cell for cell in cells if cell.outcome not in (EQUAL, IN_PART, REFUSED)] == []
    assert {cell.outcome for cell in cells} >= {EQUAL, REFUSED}


@pytest.mark.postgres
def test_postgresql(types: dict[str, Staged], postgres: dict[str, str | int]) -> None:
    check(types, "PostgresTable", partial(Postgres, postgres))


def test_delta(types: dict[str, Staged], tmp_path: Path) -> None:
    check(types, "DeltaTable", partial(Delta, tmp_path))


def test_iceberg(types: dict[str, Staged], tmp_path: Path) -> None:
    properties = {"type": "sql", "uri": f"sqlite:///{tmp_path}/c.db", "warehouse": f"file://{tmp_path}/w"}
    check(types, "IcebergTable", partial(Iceberg, properties))
