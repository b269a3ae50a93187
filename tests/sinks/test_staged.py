"""Reading what Spark has written; here by pyarrow, which can write timestamps as Spark does (INT96)."""

from __future__ import annotations

import datetime
import io
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest

from airflow_recovery.errors import ConfigurationError
from airflow_recovery.model.manifest import PartitionManifest, ResultObject
from airflow_recovery.sinks.staged import StagedRows
from airflow_recovery.store.local import LocalStore

AT = datetime.datetime(2026, 1, 2, 3, 4, 5, 678901)
LATE = datetime.datetime(9999, 12, 31)
UTC = datetime.timezone.utc


def staged(folder: Path, table: pyarrow.Table, **options: object) -> StagedRows:
    body = io.BytesIO()
    pyarrow.parquet.write_table(table, body, **options)
    store = LocalStore(str(folder))
    info = store.put("r/part-0.parquet", body.getvalue())
    manifest = PartitionManifest("r", f"{store.base_uri}/r", (ResultObject("part-0.parquet", info.size, info.etag),))
    return StagedRows(manifest, lambda location: store)


def test_sparks_timestamps_are_moments_in_utc_at_any_depth(tmp_path):
    moment = pyarrow.timestamp("us")
    table = pyarrow.table(
        {
            "t": pyarrow.array([AT, LATE, None], moment),
            "s": pyarrow.array([{"a": AT}, None, None], pyarrow.struct([("a", moment)])),
            "l": pyarrow.array([[AT, None], [], None], pyarrow.list_(moment)),
            "m": pyarrow.array([[("k", AT)], [], None], pyarrow.map_(pyarrow.string(), moment)),
            "n": [1, 2, 3],
        }
    )
    found = staged(tmp_path, table, use_deprecated_int96_timestamps=True)
    (batch,) = found.batches()
    assert batch.schema == found.schema
    first, second, third = batch.to_pylist()
    at = AT.replace(tzinfo=UTC)
    assert first == {"t": at, "s": {"a": at}, "l": [at, None], "m": [("k", at)], "n": 1}
    assert second["t"] == LATE.replace(tzinfo=UTC)
    assert third == {"t": None, "s": None, "l": None, "m": None, "n": 3}


def test_a_time_without_a_zone_stays_one(tmp_path):
    (batch,) = staged(tmp_path, pyarrow.table({"t": pyarrow.array([AT], pyarrow.timestamp("us"))})).batches()
    assert batch.to_pylist() == [{"t": AT}]


def test_a_result_without_parquet_files_is_named(tmp_path):
    with pytest.raises(ConfigurationError, match="Expected Parquet files of r"):
        StagedRows(PartitionManifest("r", str(tmp_path), ()), LocalStore)
