"""What Spark has written, as a committer reads it and a table holds it."""

from __future__ import annotations

import datetime
import decimal
from pathlib import Path
from typing import TYPE_CHECKING

import deltalake
import pytest

from airflow_recovery.model.manifest import PartitionManifest, ResultObject
from airflow_recovery.sinks import Committable, CommitToken, DeltaTable
from airflow_recovery.sinks.postgres import _csv
from airflow_recovery.sinks.staged import StagedRows
from airflow_recovery.store.local import LocalStore
from airflow_recovery.store.object_store import ObjectStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.smoke]

ROWS = (
    "SELECT * FROM VALUES (1L, 'a \"b\"', TIMESTAMP '2026-01-02 03:04:05.678901 UTC', DATE '2026-01-02', 12.34BD, "
    "true, 1.5D), (2L, '', NULL, NULL, NULL, NULL, NULL) AS t(i, s, t, d, m, b, f) ORDER BY i"
)


class Local:
    def database(self, conn_id: str) -> None: ...

    def open_location(self, location: str) -> ObjectStore:
        return LocalStore(location)

    def catalog_properties(self, name: str) -> dict[str, str]:
        return {}

    def storage_options(self, location: str) -> dict[str, str]:
        return {}


@pytest.fixture
def manifest(spark: SparkSession, tmp_path: Path) -> PartitionManifest:
    spark.sql(ROWS).coalesce(1).write.parquet(f"{tmp_path}/delays")
    store = LocalStore(f"{tmp_path}/delays")
    objects = tuple(
        ResultObject(each.key, each.size, each.etag) for each in store.list() if each.key.endswith(".parquet")
    )
    return PartitionManifest("delays", store.base_uri, objects)


@pytest.mark.slow
def test_for_copy_a_null_is_nothing_and_an_empty_string_is_quoted(manifest: PartitionManifest) -> None:
    (batch,) = StagedRows(manifest, LocalStore).batches()
    first, second = _csv(batch).read().decode().splitlines()
    assert first == '1,"a ""b""",2026-01-02 03:04:05.678901Z,2026-01-02,12.34,true,1.5'
    assert second == '2,"",,,,,'


@pytest.mark.slow
def test_in_a_delta_table(manifest: PartitionManifest, tmp_path: Path) -> None:
    into = DeltaTable(uri=f"{tmp_path}/table").open(Local())
    into.commit(Committable(CommitToken("d", "k", "g", "delays", 1), manifest))
    first, second = deltalake.DeltaTable(f"{tmp_path}/table").to_pyarrow_table().sort_by("i").to_pylist()
    at = datetime.datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=datetime.timezone.utc)
    assert first == {
        "i": 1,
        "s": 'a "b"',
        "t": at,
        "d": datetime.date(2026, 1, 2),
        "m": decimal.Decimal("12.34"),
        "b": True,
        "f": 1.5,
    }
    assert second == {"i": 2, "s": "", **dict.fromkeys("tdmbf")}
