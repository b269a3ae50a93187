"""The reader as Spark uses it, without Spark: what it plans, what it hands over, and what it refuses."""

from __future__ import annotations

import pickle

import pytest
from expected_errors import fails_with
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows
from spark_streaming_run import HandFed, SparkStreamingRun

from airflow_recovery.errors import ChannelEvicted, ChannelInconsistent
from airflow_recovery.model.channel_options import Reconnect
from airflow_recovery.streaming import source
from airflow_recovery.streaming.checkpoint import Place, lineage_key, prepare_checkpoint
from airflow_recovery.streaming.consuming import commit_batch, create_view
from airflow_recovery.streaming.folder import CheckpointFolder
from airflow_recovery.streaming.ranges import size
from airflow_recovery.streaming.source import ChannelReader, ChannelReading

ALL = ReadAllAvailable()


@pytest.fixture
def spark_run(tmp_path) -> SparkStreamingRun:
    return SparkStreamingRun(tmp_path)


@pytest.fixture
def made(spark_run) -> HandFed:
    return spark_run.producer("raw")


def reader(spark_run: SparkStreamingRun, attempt: int = 1, *, generation: int = 1) -> ChannelReader:
    """A reader whose attempt has just taken the view."""
    client = spark_run.client("raw", generation)
    client.append(lambda state: create_view(state, attempt, Reconnect.REWIND))
    folder = CheckpointFolder(spark_run.identity, "scores")
    begins = Place(generation, client.state.done)
    prepare_checkpoint(spark_run.store, folder, str(attempt), earlier=(), completed=-1, may_begin=True, begins=begins)
    reading = ChannelReading(spark_run.results, client.identity, attempt, None, lineage_key(folder, str(attempt)))
    return ChannelReader(ChannelReading.of_options(reading.options()))


def rows(reader: ChannelReader, parts) -> list[int]:
    """As executors read: each part by a reader of its own."""
    batches = (batch for part in parts for batch in pickle.loads(pickle.dumps(reader)).read(part))
    return sorted(row for batch in batches for row in batch["id"].to_pylist())


def commit(spark_run: SparkStreamingRun, attempt: int, batch: int) -> None:
    def record(state):
        return commit_batch(state, attempt, batch, tuple(map(size, state.plan.read)))

    assert spark_run.client("raw").append(record) is not None


def step(reader: ChannelReader, start, limit=ALL):
    """Plan the next batch."""
    end = reader.latestOffset(start, limit)
    return end, reader.partitions(start, end)


def test_a_batch_is_what_is_there_one_part_a_subpartition(spark_run, made):
    found = reader(spark_run)
    made.emit(*range(10))
    made.emit(*range(10, 20))
    end, parts = step(found, found.initialOffset())
    assert end == {"generation": 1, "at": [10, 10]}
    assert len(parts) == 2
    assert rows(found, parts) == list(range(20))


def test_credit_cuts_a_batch_in_the_middle_of_a_segment(spark_run, made):
    made.emit(*range(20))
    found = reader(spark_run)
    start, read = found.initialOffset(), []
    for batch in range(4):
        start, parts = step(found, start, ReadMaxRows(6))
        read.append(rows(found, parts))
        commit(spark_run, 1, batch)
    assert [len(each) for each in read] == [6, 6, 6, 2]
    assert sorted(row for each in read for row in each) == list(range(20))


def test_a_batch_without_data_has_no_plan(spark_run, made):
    found = reader(spark_run)
    start = found.initialOffset()
    end, parts = step(found, start)
    assert (end, parts, spark_run.state("raw").plan) == (start, [], None)


def test_a_completed_batch_is_read_again_without_a_plan_until_it_is_released(spark_run, made):
    made.emit(*range(10))
    found = reader(spark_run)
    start = found.initialOffset()
    end, parts = step(found, start)
    commit(spark_run, 1, 0)
    assert rows(found, found.partitions(start, end)) == rows(found, parts) == list(range(10))
    assert spark_run.state("raw").plan is None
    found.commit(end)
    assert spark_run.state("raw").retained == {}
    with fails_with("records-released-already"):
        found.partitions(start, end)


def test_a_query_begins_where_the_log_was(spark_run, made):
    made.emit(*range(10))
    first = reader(spark_run)
    begun = first.initialOffset()
    end, _ = step(first, begun)
    commit(spark_run, 1, 0)
    assert first.initialOffset() == begun  # Spark repeats batch 0
    assert rows(first, first.partitions(begun, end)) == list(range(10))
    assert reader(spark_run, 2).initialOffset() == {"generation": 1, "at": [5, 5]}


def test_behind_the_end_of_another_generation_this_one_begins(spark_run, made):
    made.emit(*range(10))
    old = reader(spark_run)
    start = old.initialOffset()
    end, _ = step(old, start)
    commit(spark_run, 1, 0)
    spark_run.producer("raw", 2, generation=2).emit(1, 2)
    found = reader(spark_run, 2, generation=2)
    assert rows(found, found.partitions(start, end)) == list(range(10))  # Spark repeats its last batch
    after, parts = step(found, end)
    assert after == {"generation": 2, "at": [1, 1]}
    assert rows(found, parts) == [1, 2]


def test_an_evicted_reader_plans_nothing_and_reads_nothing_that_is_gone(spark_run, made):
    made.emit(*range(10))
    old = reader(spark_run)
    start = old.initialOffset()
    end, parts = step(old, start)
    reader(spark_run, 2)
    for call in (lambda: old.latestOffset(start, ALL), lambda: old.partitions(start, end)):
        with pytest.raises(ChannelEvicted):
            call()
    spark_run.store.delete([segment.key for part in parts for segment in part.segments])
    with pytest.raises(ChannelEvicted):
        rows(old, parts)


@pytest.mark.parametrize("cut", [0, 1, 64])
def test_a_torn_segment_is_an_error(spark_run, made, cut):
    """Whole records only, or none."""
    made.emit(*range(10))
    found = reader(spark_run)
    _, parts = step(found, found.initialOffset())
    key = parts[0].segments[0].key
    spark_run.store.put(key, spark_run.store.get(key).body[: -cut or None] + b"\0" * (cut == 0))
    with fails_with("segment-altered"):
        rows(found, parts)


def test_a_segment_with_other_records_than_the_log_says_is_an_error(spark_run, made):
    made.emit(*range(10))
    found = reader(spark_run)
    _, parts = step(found, found.initialOffset())
    for part in parts:
        object.__setattr__(part.segments[0], "count", 6)
    with fails_with("segment-altered"):
        rows(found, parts)


def test_control_of_a_segment_that_is_gone_a_reader_that_takes_it_for_empty(spark_run, made, monkeypatch):
    """Fewer rows, and nobody would know."""
    made.emit(*range(10))
    found = reader(spark_run)
    _, parts = step(found, found.initialOffset())
    spark_run.store.delete([parts[0].segments[0].key])
    with fails_with("segment-deleted"):
        rows(found, parts)
    table = source.ChannelReader._table

    def lenient(self, store, segment):
        try:
            return table(self, store, segment)
        except ChannelInconsistent:
            return table(self, store, parts[1].segments[0]).slice(0, 0)

    monkeypatch.setattr(source.ChannelReader, "_table", lenient)
    assert len(rows(found, parts)) == 5
