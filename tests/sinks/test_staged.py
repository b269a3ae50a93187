"""Reading what Spark has written; here by pyarrow, which can write timestamps as Spark does (INT96)."""

from __future__ import annotations

import datetime
import io
from pathlib import Path

import pyarrow
import pyarrow.parquet
from expected_errors import fails_with

from airflow_recovery.model.manifest import PartitionManifest, ResultObject
from airflow_recovery.sinks.staged import StagedRows, _in_utc
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


def test_a_dot_in_the_name_of_a_column_makes_no_other_moment_of_it(tmp_path):
    """Without its zone, PostgreSQL would take the clock of its session."""
    moments = pyarrow.array([AT], pyarrow.timestamp("us"))
    (batch,) = staged(
        tmp_path, pyarrow.table({"at.utc": moments, "at": moments}), use_deprecated_int96_timestamps=True
    ).batches()
    assert batch.to_pylist() == [{"at.utc": AT.replace(tzinfo=UTC), "at": AT.replace(tzinfo=UTC)}]


def test_a_time_without_a_zone_beside_a_moment_in_one_struct_stays_one():
    both = pyarrow.struct([("moment", pyarrow.timestamp("us")), ("clock", pyarrow.timestamp("us"))])
    found = _in_utc(pyarrow.list_(both), iter(["INT96", "INT64"])).value_type
    assert [found.field(at).type.tz for at in range(2)] == ["UTC", None]


def test_a_time_without_a_zone_stays_one(tmp_path):
    (batch,) = staged(tmp_path, pyarrow.table({"t": pyarrow.array([AT], pyarrow.timestamp("us"))})).batches()
    assert batch.to_pylist() == [{"t": AT}]


def test_a_result_without_parquet_files_is_named(tmp_path):
    with fails_with("result-without-columns", result="r"):
        StagedRows(PartitionManifest("r", str(tmp_path), ()), LocalStore)
