"""The channels of a streaming region as its driver works with them, without Spark: old generations, and two logs."""

from __future__ import annotations

import logging

import pytest
from expected_errors import fails_with
from spark_streaming_run import RAW, SparkStreamingRun, channel_spec

from airflow_recovery.errors import ChannelEvicted, ChannelInconsistent, LossBudgetExceeded
from airflow_recovery.model.channel_options import LossBudget, Reconnect
from airflow_recovery.streaming.consuming import make_plan, next_end
from airflow_recovery.streaming.ends import ChannelInput, ChannelOutput, check_both_logs
from airflow_recovery.streaming.ranges import size

LOG = logging.getLogger("tests.stage_ends")


@pytest.fixture
def spark_run(tmp_path) -> SparkStreamingRun:
    return SparkStreamingRun(tmp_path)


def source(spark_run: SparkStreamingRun, attempt: int = 1, **options) -> ChannelInput:
    return ChannelInput(spark_run.store, spark_run.spec("scores", attempt), channel_spec("raw", **options), LOG)


def output(spark_run: SparkStreamingRun, attempt: int = 1, edge: str = "scores", **options) -> ChannelOutput:
    region = {"raw": "raw", "scores": "scores"}[edge]
    return ChannelOutput(spark_run.store, spark_run.spec(region, attempt), channel_spec(edge, **options))


def plan(spark_run: SparkStreamingRun, attempt: int, records: int | None = None) -> None:
    """As the reader's process does."""
    client = spark_run.client("raw")
    client.append(lambda state: make_plan(state, attempt, state.done, next_end(state, records)))


def commit(spark_run: SparkStreamingRun, end: ChannelInput, batch: int, records: int | None = None) -> None:
    plan(spark_run, end.attempt, records)
    planned = end.planned()
    assert planned is not None
    end.commit(batch, planned)


def reopened(spark_run: SparkStreamingRun, attempt: int, generation: int = 2) -> ChannelOutput:
    """The source's next attempt: three subpartitions, on a new generation."""
    made = output(spark_run, attempt, "raw", generation=generation, subpartitions=3)
    assert made.newest_of_earlier(1) is not None
    made.open(RAW, replays=True)
    return made


def test_an_altered_channel_is_told_from_an_evicted_attempt(spark_run):
    spark_run.producer("raw", 2)
    with fails_with("channel-cut-otherwise"):
        output(spark_run, 3, "raw", subpartitions=3).open(RAW, replays=True)
    with fails_with("channel-cut-otherwise"):
        output(spark_run, 3, "raw").open(RAW.replace("long", "string"), replays=True)
    with pytest.raises(ChannelEvicted):
        output(spark_run, 1, "raw", subpartitions=3).open(RAW, replays=True)


def test_who_opens_a_new_generation_fences_the_ones_before(spark_run):
    old = spark_run.producer("raw")
    old.emit(*range(10))
    old.emit(*range(10))
    made = output(spark_run, 2, "raw", generation=3)
    earlier = made.newest_of_earlier(1)
    assert earlier is not None
    assert earlier.epoch == 1
    with pytest.raises(ChannelEvicted):
        old.emit(1)
    assert spark_run.state("raw", 2).producer == 0  # nobody was there


def test_a_generation_that_was_read_to_its_end_is_left_without_a_word(spark_run):
    made = spark_run.producer("raw")
    made.emit(*range(10))
    end = source(spark_run)
    end.connect(None)
    commit(spark_run, end, 0)
    reopened(spark_run, 2)
    before = spark_run.state("raw").slots
    found = source(spark_run, 2, generation=2, drained=(1,)).begin_draining(1, None)
    assert (found.rest, found.completed, spark_run.state("raw").slots) == (0, 0, before)


@pytest.mark.parametrize("viewed", [True, False])
def test_what_was_not_read_of_a_generation_is_lost_and_counted_or_refused(spark_run, viewed):
    made = spark_run.producer("raw", budget=LossBudget(max_lost_records=20))
    made.emit(*range(20))
    if viewed:
        old = source(spark_run)
        old.connect(None)
        commit(spark_run, old, 0, 12)
    reopened(spark_run, 2)
    with fails_with("altered-channel-not-drained"):
        source(spark_run, 2, generation=2).begin_draining(1, None)
    found = source(spark_run, 3, generation=2, reconnect=Reconnect.LATEST).begin_draining(1, None)
    if viewed:
        with pytest.raises(ChannelEvicted):  # the old attempt lives, and is too late
            plan(spark_run, 1)
    assert (found.rest, found.completed) == ((8, 0) if viewed else (20, -1))
    found.discard_remaining(found.completed + 1)
    assert made.lost(spark_run) == ([*range(12, 20)] if viewed else [*range(20)])
    again = source(spark_run, 4, generation=2).begin_draining(1, None)
    assert (again.rest, again.completed) == (0, found.completed + 1)


def test_a_budget_holds_for_what_a_left_generation_loses(spark_run):
    spark_run.producer("raw", budget=LossBudget(max_lost_records=5)).emit(*range(20))
    made = output(spark_run, 2, "raw", generation=2, subpartitions=3)
    made.newest_of_earlier(1)
    found = source(spark_run, 2, generation=2, reconnect=Reconnect.LATEST).begin_draining(1, None)
    with pytest.raises(LossBudgetExceeded):
        found.discard_remaining(0)


@pytest.mark.parametrize("altered", [False, True])
def test_a_batch_that_is_published_and_not_committed_is_adopted(spark_run, altered):
    """Also where the next attempt publishes on a new generation of its output."""
    spark_run.producer("raw").emit(*range(10))
    old, made = source(spark_run), output(spark_run)
    made.open(RAW, replays=True)
    old.connect(made.client.state)
    plan(spark_run, 1)
    planned = old.planned()
    assert planned is not None
    made.publish(0, [], (planned.consumed,))

    again = output(spark_run, 2, generation=2 if altered else 1)
    earlier = again.newest_of_earlier(1)
    state = again.open(RAW, replays=True)
    published = earlier if altered else state
    found = source(spark_run, 2).connect(published)
    assert (found.checkpoint, found.done, found.plan) == (0, (5, 5), None)
    check_both_logs(found.checkpoint, published)
    with pytest.raises(ChannelEvicted):
        old.commit(0, planned)


def test_control_of_a_batch_that_is_published_a_view_that_does_not_know_it(spark_run):
    spark_run.producer("raw").emit(*range(10))
    old, made = source(spark_run), output(spark_run)
    made.open(RAW, replays=True)
    old.connect(made.client.state)
    plan(spark_run, 1)
    planned = old.planned()
    assert planned is not None
    made.publish(0, [], (planned.consumed,))
    found = source(spark_run, 2).connect(None)
    assert (found.checkpoint, found.done) == (-1, (0, 0))  # it would be read, and published, once more
    with fails_with("published-batch-unknown"):
        check_both_logs(found.checkpoint, made.client.state)


def test_a_commit_is_of_what_was_planned(spark_run):
    spark_run.producer("raw").emit(*range(10))
    end = source(spark_run)
    end.connect(None)
    plan(spark_run, 1)
    planned = end.planned()
    assert planned is not None
    assert sum(planned.records) == 10
    assert size(spark_run.state("raw").subs[0].committed) == 0
    end.commit(0, planned)
    assert end.planned() is None
    with pytest.raises(ChannelInconsistent):
        end.commit(1, planned)
