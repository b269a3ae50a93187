"""Streaming regions on the tests' own session, one after the other: what each makes, restarts with, and refuses."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace

import pytest
from spark_streaming_run import SparkStreamingRun

from airflow_recovery.driver.reader import read_manifest
from airflow_recovery.driver.writer import write_result
from airflow_recovery.errors import (
    AttemptLost,
    ChannelAltered,
    ChannelFailed,
    ChannelInconsistent,
    JobDefinitionError,
    LossBudgetExceeded,
    StoreUnsuitable,
    UserCodeError,
)
from airflow_recovery.model.channel_options import LossBudget, Overflow, Reconnect
from airflow_recovery.streaming import ends, region
from airflow_recovery.streaming import producer as producer_module
from airflow_recovery.streaming.channel_records import LossCause
from airflow_recovery.testing.faulty_store import Fault, FaultKind, FaultyStore, Verb

pytestmark = pytest.mark.spark

LATEST = {"reconnect": Reconnect.LATEST}


@pytest.fixture
def spark_run(tmp_path) -> SparkStreamingRun:
    return SparkStreamingRun(tmp_path)


class Died(Exception):
    """In place of a kill: where an attempt ends that a test runs on its own session."""


@contextmanager
def dying(monkeypatch, batch: int, *, after: bool = False, what: str = "commit"):
    """The attempt ends right before its input's commit of ``batch``, or right after it."""
    original = getattr(ends.ChannelInput, what)

    def commit(end, number, *given):
        if number == batch and not after:
            raise Died
        original(end, number, *given)
        if number == batch:
            raise Died

    with monkeypatch.context() as patched:
        patched.setattr(ends.ChannelInput, what, commit)
        with pytest.raises(Died):
            yield


def drop_files(spark_run: SparkStreamingRun, *turns: int) -> None:
    for turn in turns:
        spark_run.drop(f"{turn}.csv", *range(10 * turn, 10 * turn + 10))


def rows_of(spark, done, *columns: str) -> list:
    (manifest,) = done.outputs
    return sorted(tuple(each) for each in read_manifest(spark, manifest).select(*columns or ("id",)).collect())


# --- what a streaming region makes -----------------------------------------------------------------------------------


def test_a_chain_of_three_regions_gives_what_a_batch_gives(spark, spark_run):
    drop_files(spark_run, 0, 1, 2)
    assert spark_run.run(spark, spark_run.spec("raw")).outputs == ()
    assert spark_run.run(spark, spark_run.spec("scores")).outputs == ()
    done = spark_run.run(spark, spark_run.spec("board"))
    assert rows_of(spark, done, "id", "score") == [(number, 10 * number) for number in range(30)]
    assert spark_run.committed() == list(range(30))
    assert dict(done.accumulators)["scores: records committed"] == 30
    again = spark_run.run(spark, spark_run.spec("board", 2))  # the first one died before its finish
    assert rows_of(spark, again) == rows_of(spark, done)


def test_equal_values_come_to_one_subpartition_in_their_order(spark, spark_run):
    spark_run.drop("0.csv", *(number % 5 for number in range(50)))
    spark_run.drop("1.csv", *(number % 5 for number in range(50)))
    spark_run.run(spark, spark_run.spec("raw", output={"partition_by": ("id",), "subpartitions": 3}))
    homes: dict[int, set[int]] = {}
    state = spark_run.state("raw")
    for each in state.retained.values():
        for value in spark_run.values("raw", each.key):
            homes.setdefault(value, set()).add(each.sub)
    assert sum(state.ends) == 100
    assert [len(home) for home in homes.values()] == [1] * 5


def test_a_source_that_runs_for_a_while_ends_between_two_batches(spark, spark_run):
    drop_files(spark_run, 0, 1)
    spark_run.run(spark, spark_run.spec("raw", run_for_s=4.0))
    state = spark_run.state("raw")
    assert state.is_finished
    # A slow machine reads one of the two files, or none, in that time. It never reads a part of a file.
    assert spark_run.published("raw") in [list(range(rows)) for rows in (0, 10, 20)]


def test_of_a_running_table_the_newest_batch_counts(spark, spark_run):
    made = spark_run.producer("scores")
    made.emit(1, 2, 3)
    made.emit(4, 5)
    made.finish()
    spec = spark_run.spec("board", params={"how": "running"}, output_mode="complete", stateful=True, max_rows=3)
    assert rows_of(spark, spark_run.run(spark, spec), "parity", "total") == [(0, 60), (1, 90)]


def test_a_side_input_is_there_as_a_whole(spark, spark_run):
    made = spark_run.producer("numbers")
    made.emit(1, 2, 3)
    made.finish()
    frame = spark.createDataFrame([(0, "even"), (1, "odd")], "parity long, name string")
    location = f"{spark_run.results.uri}/parities"
    side = write_result(spark, frame, result="parities", location=location, store=spark_run.store)
    done = spark_run.run(spark, spark_run.spec("matched", inputs=(side,)))
    assert rows_of(spark, done, "id", "name") == [(1, "odd"), (2, "even"), (3, "odd")]


# --- restarts --------------------------------------------------------------------------------------------------------


def test_a_sink_that_rewinds_loses_nothing(spark, spark_run, monkeypatch):
    made = spark_run.producer("scores")
    made.emit(*range(10))
    made.emit(*range(10, 20))
    with dying(monkeypatch, 1):
        spark_run.run(spark, spark_run.spec("board", max_rows=10))
    made.finish()
    assert rows_of(spark, spark_run.run(spark, spark_run.spec("board", 2))) == [(number,) for number in range(20)]
    assert spark_run.state("scores").ledger == []


def test_a_budget_stops_a_sink_before_the_commit(spark, spark_run, monkeypatch):
    """With its control: the same records without a budget."""
    made = spark_run.producer("scores", budget=LossBudget(max_lost_records=5))
    made.emit(*range(10))
    made.emit(*range(10, 20))
    with dying(monkeypatch, 1):
        spark_run.run(spark, spark_run.spec("board", max_rows=10, input=LATEST))
    made.finish()
    with pytest.raises(LossBudgetExceeded, match="10 lost records, max_lost_records is 5"):
        spark_run.run(spark, spark_run.spec("board", 2, input=LATEST))
    assert spark_run.committed() == list(range(10))
    assert spark_run.state("scores").checkpoint == 0

    spark_run.producer("scores", 2)
    done = spark_run.run(spark, spark_run.spec("board", 3, input=LATEST))
    assert rows_of(spark, done) == [(number,) for number in range(10)]
    assert dict(done.accumulators)["scores: records lost (reconnect)"] == 10
    assert made.lost(spark_run) == list(range(10, 20))


def test_a_late_attempt_gets_no_view(spark, spark_run, monkeypatch):
    made = spark_run.producer("scores")
    made.emit(*range(10))
    made.finish()
    with dying(monkeypatch, 0):
        spark_run.run(spark, spark_run.spec("board", 2))
    with pytest.raises(AttemptLost, match="evicted"):
        spark_run.run(spark, spark_run.spec("board", 1))
    assert spark_run.state("scores").view == 2


@pytest.mark.parametrize("batch", [0, 1])
def test_state_goes_on_where_the_log_is(spark, spark_run, monkeypatch, batch):
    """It dies with its batch in the log, and not in Spark's own checkpoint, so that Spark repeats it."""
    made = spark_run.producer("scores")
    made.emit(*range(10))
    made.emit(*range(10, 20))
    said = {"params": {"how": "state"}, "stateful": True, "max_rows": 10}
    with dying(monkeypatch, batch, after=True):
        spark_run.run(spark, spark_run.spec("board", **said))
    made.emit(*range(5, 25))  # fifteen of them were there before
    made.finish()
    done = spark_run.run(spark, spark_run.spec("board", 2, **said))
    assert rows_of(spark, done) == [(number,) for number in range(25)]
    assert dict(done.accumulators)["state rows"] == len(spark_run.committed()) == 25


def test_control_of_state_a_checkpoint_that_starts_over(spark, spark_run, monkeypatch):
    made = spark_run.producer("scores")
    made.emit(*range(10))
    said = {"params": {"how": "state"}, "stateful": True}
    with dying(monkeypatch, 0, after=True):
        spark_run.run(spark, spark_run.spec("board", **said))
    made.emit(*range(5, 25))
    made.finish()
    with pytest.raises(ChannelInconsistent, match="start over"):
        spark_run.run(spark, spark_run.spec("board", 2, earlier=(), checkpoints=(), **said))
    prepare = region.prepare_checkpoint
    monkeypatch.setattr(
        region, "prepare_checkpoint", lambda *given, **named: prepare(*given, **{**named, "may_begin": True})
    )
    done = spark_run.run(spark, spark_run.spec("board", 3, earlier=(), checkpoints=(), **said))
    assert dict(done.accumulators)["state rows"] == 20
    assert len(spark_run.committed()) == 30  # five of them twice


def test_a_stateless_region_without_its_checkpoint_goes_on_where_the_log_is(spark, spark_run, monkeypatch):
    made = spark_run.producer("scores")
    made.emit(*range(10))
    made.emit(*range(10, 20))
    with dying(monkeypatch, 1):
        spark_run.run(spark, spark_run.spec("board", max_rows=10))
    made.finish()
    done = spark_run.run(spark, spark_run.spec("board", 2, earlier=(), checkpoints=()))
    assert rows_of(spark, done) == [(number,) for number in range(20)]


def test_control_of_death_between_two_logs_a_view_that_does_not_know_the_output(spark, spark_run, monkeypatch):
    """See `test_streaming_processes`, where it knows it."""
    made = spark_run.producer("raw")
    made.emit(*range(10))
    with dying(monkeypatch, 0):
        spark_run.run(spark, spark_run.spec("scores"))
    made.finish()
    monkeypatch.setattr(ends, "published_of", lambda *given: None)
    with pytest.raises(ChannelInconsistent, match="which is published"):
        spark_run.run(spark, spark_run.spec("scores", 2))
    monkeypatch.setattr(region, "check_both_logs", lambda *given: None)
    prepare = region.prepare_checkpoint
    behind = {"completed": 0, "earlier": (), "may_begin": True}
    monkeypatch.setattr(region, "prepare_checkpoint", lambda *given, **named: prepare(*given, **{**named, **behind}))
    spark_run.run(spark, spark_run.spec("scores", 3))
    assert spark_run.published("scores") == sorted([*range(10)] * 2)


def test_a_source_goes_on_at_its_checkpoint(spark, spark_run, monkeypatch):
    drop_files(spark_run, 0, 1, 2)
    publish = ends.ChannelOutput.publish

    def dies(output, batch, *given):
        publish(output, batch, *given)
        if batch == 1:
            raise Died

    with monkeypatch.context() as patched:
        patched.setattr(ends.ChannelOutput, "publish", dies)
        with pytest.raises(Died):
            spark_run.run(spark, spark_run.spec("raw"))
    with pytest.raises(ChannelInconsistent, match="place in its source"):
        spark_run.run(spark, spark_run.spec("raw", 2, earlier=(), checkpoints=()))
    spark_run.run(spark, spark_run.spec("raw", 3))
    assert spark_run.published("raw") == list(range(30))


# --- a full channel --------------------------------------------------------------------------------------------------


def test_a_full_channel_drops_the_oldest_and_counts_them(spark, spark_run):
    drop_files(spark_run, *range(6))
    spark_run.run(spark, spark_run.spec("raw", output={"overflow": Overflow.DROP, "max_bytes": 1500}))
    spark_run.run(spark, spark_run.spec("scores", input={"overflow": Overflow.DROP}))
    kept = spark_run.published("scores")
    lost = sorted(set(range(60)) - set(kept))
    ledger = spark_run.state("raw").ledger
    assert 0 < len(lost) < 60
    assert sum(each.records for each in ledger) == len(lost)
    assert {each.cause for each in ledger} == {LossCause.OVERFLOW}
    assert max(lost) // 10 <= min(kept) // 10


def test_control_of_overflow_a_channel_that_blocks_fails_by_name(spark, spark_run):
    drop_files(spark_run, *range(6))
    with pytest.raises(ChannelFailed, match="behind"):
        spark_run.run(spark, spark_run.spec("raw", output={"max_bytes": 1500, "block_timeout_s": 0.2}))


# --- new generations -------------------------------------------------------------------------------------------------


def test_regions_that_start_over_know_nothing_of_what_was(spark, spark_run, monkeypatch):
    """A failure of a non-sink under approximate-sink; and its control, the old generation counted as well."""
    drop_files(spark_run, 0, 1)
    spark_run.run(spark, spark_run.spec("raw"))
    spark_run.run(spark, spark_run.spec("scores", max_rows=10))
    with dying(monkeypatch, 1, after=True):
        spark_run.run(spark, spark_run.spec("board", max_rows=10))
    for name in ("raw", "scores"):
        spark_run.run(spark, spark_run.spec(name, 2, generation=2, earlier=(), checkpoints=()))
    done = spark_run.run(spark, spark_run.spec("board", 2, generation=2, earlier=(), checkpoints=()))
    assert rows_of(spark, done) == [(number,) for number in range(20)]
    wrong = spark_run.spec("board", 3, generation=2, input={"drained": (1,)})
    assert len(rows_of(spark, spark_run.run(spark, wrong))) > 20


def altered(spark_run: SparkStreamingRun, spark, monkeypatch, max_rows: int | None) -> None:
    """The source is cut into three now; of its first generation the scorer has read twenty numbers, or ten."""
    drop_files(spark_run, 0, 1)
    spark_run.run(spark, spark_run.spec("raw"))
    with dying(monkeypatch, 0, after=True):
        spark_run.run(spark, spark_run.spec("scores", max_rows=max_rows))
    drop_files(spark_run, 2)
    with pytest.raises(ChannelAltered, match="3 of"):
        spark_run.run(spark, spark_run.spec("raw", 2, output={"subpartitions": 3}))
    spark_run.run(spark, spark_run.spec("raw", 3, generation=2, output={"subpartitions": 3}))


def test_an_altered_channel_goes_on_as_a_new_generation(spark, spark_run, monkeypatch):
    """Who is downstream restarts with it, and keeps its work."""
    altered(spark_run, spark, monkeypatch, None)
    assert spark_run.published("raw", 2) == list(range(20, 30))
    spark_run.run(spark, spark_run.spec("scores", 2, input={"generation": 2, "drained": (1,)}))
    assert rows_of(spark, spark_run.run(spark, spark_run.spec("board"))) == [(number,) for number in range(30)]


def test_what_nobody_has_read_of_an_altered_channel_is_lost_and_counted_or_refused(spark, spark_run, monkeypatch):
    altered(spark_run, spark, monkeypatch, 10)
    with pytest.raises(ChannelInconsistent, match="10 records"):
        spark_run.run(spark, spark_run.spec("scores", 2, input={"generation": 2, "drained": (1,)}))
    spark_run.run(spark, spark_run.spec("scores", 3, input={"generation": 2, "drained": (1,), **LATEST}))
    done = spark_run.run(spark, spark_run.spec("board"))
    assert len(rows_of(spark, done)) == 20
    assert sum(each.records for each in spark_run.state("raw").ledger) == 10


# --- the store -------------------------------------------------------------------------------------------------------


def test_fault_25_a_weak_store_is_refused(spark, spark_run, monkeypatch):
    """With its control."""
    drop_files(spark_run, 0)
    weak = FaultyStore(spark_run.store, ignores_if_none_match=True)
    with pytest.raises(StoreUnsuitable, match="conditional writes"):
        spark_run.run(spark, spark_run.spec("raw"), store=weak)
    monkeypatch.setattr(producer_module, "probe", lambda store: None)
    spark_run.run(spark, spark_run.spec("raw"), store=weak)


def test_fault_24_lost_replies_of_the_driver_change_nothing(spark, spark_run):
    """Of what the driver writes itself; the reader's are in `test_streaming_s3`."""
    made = spark_run.producer("scores")
    made.emit(*range(10))
    made.emit(*range(10, 20))
    made.finish()
    faults = [Fault(Verb.PUT_IF_ABSENT, FaultKind.LOST_REPLY, key="/log/", times=3)]
    store = FaultyStore(spark_run.store, [*faults, Fault(Verb.PUT, FaultKind.LOST_REPLY, key="/out/", times=None)])
    spark_run.run(spark, spark_run.spec("board", max_rows=10), store=store)
    assert spark_run.committed() == list(range(20))


def test_a_segment_that_was_deleted_from_outside_is_an_error_and_never_fewer_rows(spark, spark_run):
    """Its control is in `test_streaming_source`."""
    made = spark_run.producer("scores")
    made.emit(*range(10))
    made.finish()
    client = made.producer.client
    spark_run.store.delete([client.folder.object(next(iter(client.state.retained)))])
    with pytest.raises(ChannelInconsistent, match="deleted from outside"):
        spark_run.run(spark, spark_run.spec("board"))
    assert spark_run.committed() == []


# --- refusals --------------------------------------------------------------------------------------------------------


def test_what_can_not_run_on_streams_is_refused(spark, spark_run):
    made = spark_run.producer("raw")
    made.emit(1, 2)
    made.finish()
    scores = spark_run.producer("scores")
    scores.finish()
    for spec, said in (
        (spark_run.spec("scores", params={"how": "batch"}), "expected a streaming DataFrame"),
        (spark_run.spec("scores", output_mode="complete"), "expected the output mode 'append'"),
        (spark_run.spec("scores", output={"partition_by": ("other",)}), "columns of partition_by"),
        (spark_run.spec("board", params={"how": "state"}, input=LATEST), "expected a region without state"),
    ):
        with pytest.raises(UserCodeError, match=said):
            spark_run.run(spark, spec)


def test_a_streaming_region_is_not_for_spark_connect(spark, spark_run, monkeypatch):
    monkeypatch.setattr(region, "is_remote", lambda session: True)
    with pytest.raises(JobDefinitionError, match="spark-submit"):
        spark_run.run(spark, spark_run.spec("raw"))


def test_a_consumer_waits_for_its_producer_and_not_for_ever(spark, spark_run):
    with pytest.raises(ChannelFailed, match="nobody opened it"):
        spark_run.run(spark, spark_run.spec("board", input={"block_timeout_s": 0.1}))


def test_a_producer_that_gave_up_ends_its_consumer_by_name(spark, spark_run):
    made = spark_run.producer("scores")
    made.emit(*range(10))
    made.producer.give_up("no retry is left")
    with pytest.raises(ChannelFailed, match="no retry is left"):
        spark_run.run(spark, replace(spark_run.spec("board")))
    assert spark_run.committed() == list(range(10))
