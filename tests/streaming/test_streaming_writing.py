"""What one task of a streaming region's batch writes, without Spark."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from spark_streaming_run import RAW, SparkStreamingRun

from airflow_recovery.errors import AttemptLost, ChannelEvicted, ChannelInconsistent, StoreTimeout
from airflow_recovery.streaming import writing
from airflow_recovery.streaming.query_errors import cause_of
from airflow_recovery.streaming.writing import SUB, Body, Target, arrow_schema, empty_file, run_task


@pytest.fixture
def spark_run(tmp_path) -> SparkStreamingRun:
    return SparkStreamingRun(tmp_path)


def target(spark_run: SparkStreamingRun, **options) -> Target:
    return Target(
        **{"store": spark_run.results, "folder": "f", "name": "seg/1", "schema": RAW, "body": Body.ARROW, **options}
    )


def batch(*ids: int, **columns) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"id": pa.array(ids, pa.int64()), **columns})


def written(found) -> list[dict]:
    return [row for each in found for row in each.to_pylist()]


def rows(spark_run: SparkStreamingRun, key: str) -> list[int]:
    return pa.ipc.open_stream(spark_run.store.get(f"f/{key}").body).read_all()["id"].to_pylist()


def test_rows_are_dealt_out_in_slices(spark_run):
    parts = written(run_task(target(spark_run, subpartitions=3), [batch(*range(4)), batch(*range(4, 7))]))
    assert [(part["sub"], rows(spark_run, part["key"])) for part in parts] == [(0, [0, 1, 2]), (1, [3, 4, 5]), (2, [6])]
    assert all(part["bytes"] == len(spark_run.store.get(f"f/{part['key']}").body) for part in parts)


def test_keyed_rows_go_where_they_say_in_their_order(spark_run):
    keyed = batch(5, 6, 7, 8, **{SUB: pa.array([1, 0, 1, 0], pa.int32())})
    parts = written(run_task(target(spark_run, subpartitions=2, is_keyed=True), [keyed]))
    assert {part["sub"]: rows(spark_run, part["key"]) for part in parts} == {0: [6, 8], 1: [5, 7]}


def test_no_rows_are_no_object(spark_run):
    assert written(run_task(target(spark_run, subpartitions=2), [batch()])) == []
    assert list(spark_run.store.list()) == []


def test_much_is_written_bit_by_bit(spark_run, monkeypatch):
    monkeypatch.setattr(writing, "FLUSH_BYTES", 16)
    parts = written(run_task(target(spark_run, body=Body.PARQUET), [batch(1, 2), batch(3, 4), batch(5)]))
    assert [part["count"] for part in parts] == [2, 2, 1]
    assert len({part["key"] for part in parts}) == 3


def test_a_task_that_fails_deletes_what_it_has_written(spark_run, monkeypatch):
    monkeypatch.setattr(writing, "FLUSH_BYTES", 16)

    def batches():
        yield batch(1, 2)
        assert len(list(spark_run.store.list())) == 1
        raise StoreTimeout("no answer")

    with pytest.raises(StoreTimeout):
        written(run_task(target(spark_run), batches()))
    assert list(spark_run.store.list()) == []


def test_times_and_types_are_those_of_the_schema(spark_run):
    schema = RAW.replace('"long"', '"timestamp"')
    times = pa.RecordBatch.from_pydict({"id": pa.array([1_000_000], pa.timestamp("us", "Europe/Berlin"))})
    (part,) = written(run_task(target(spark_run, schema=schema), [times]))
    found = pa.ipc.open_stream(spark_run.store.get(f"f/{part['key']}").body).read_all()
    assert found.schema == arrow_schema(schema)
    assert found.schema.field("id").type == pa.timestamp("us", "UTC")


def test_an_empty_file_has_the_schema(spark_run):
    key = empty_file(spark_run.store, target(spark_run, body=Body.PARQUET))
    assert pq.read_table(pa.BufferReader(spark_run.store.get(f"f/{key}").body)).schema.names == ["id"]


def test_our_own_errors_are_found_in_what_spark_says():
    told = (
        "[STREAM_FAILED] Query [id = 1] terminated with exception: Traceback (most recent call last):\n"
        '  File "stage_source.py", line 1, in read\n'
        "airflow_recovery.errors.ObjectMissing: the key is not there\n"
        "airflow_recovery.errors.ChannelInconsistent: segment x was deleted from outside\n\tat org.apache.spark"
    )
    cause = cause_of(RuntimeError(told))
    assert type(cause) is ChannelInconsistent
    assert str(cause) == "segment x was deleted from outside"
    assert type(cause_of(RuntimeError("airflow_recovery.errors.ChannelEvicted: attempt 2"))) is AttemptLost
    assert type(cause_of(RuntimeError("told"), ChannelEvicted("here"))) is AttemptLost
    other = ValueError("airflow_recovery.errors.NoSuchThing: x")
    assert cause_of(other) is other
