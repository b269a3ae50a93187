"""Declaring channels: what a job with ``result=APPROXIMATE`` is, and what is refused before anything runs."""

from __future__ import annotations

from typing import Any

import pytest
from expected_errors import fails_with

from airflow_recovery import BLOCKING, Job, JobDefinitionError, files, job
from airflow_recovery.model.channel_options import LossBudget, Overflow, Reconnect
from airflow_recovery.model.failover_strategy import FailoverStrategy
from airflow_recovery.sinks import PostgresTable
from airflow_recovery.streaming import APPROXIMATE, ApproximateResult, OutputMode, Streaming
from airflow_recovery.streaming.declaration import check_refusals

LATEST = APPROXIMATE(reconnect="latest", max_lost_records=100)


def chain(
    first: Any = APPROXIMATE,
    second: Any = APPROXIMATE,
    *,
    source: dict[str, Any] | None = None,
    scorer: dict[str, Any] | None = None,
    sink: dict[str, Any] | None = None,
    **options: Any,
) -> Job:
    found = job("scoring", **options)

    @found.source(result=first, **(source or {}))
    def events(spark): ...

    @found.vertex(result=second, **(scorer or {}))
    def scores(events): ...

    @found.sink(**(sink or {}))
    def table(scores): ...

    return found


def refused(found: Job, *words: str) -> None:
    with pytest.raises(JobDefinitionError) as raised:
        found.validate()
    for word in words:
        assert word in str(raised.value)


def test_a_channel_is_neither_an_input_nor_a_result() -> None:
    regions = chain().regions()
    assert [region.name for region in regions.regions] == ["events", "scores", "table"]
    scores = regions.region("scores")
    assert (scores.inputs, scores.results, scores.upstream) == ((), (), ())
    assert [(each.result, each.region) for each in scores.channels_in] == [("events", "events")]
    assert scores.channels_out == ("scores",)
    assert [region.is_streaming for region in regions.regions] == [True, True, True]
    assert regions.region("table").results == ("table",)
    assert regions.consumers("events") == ()


def test_a_region_may_read_what_a_batch_region_made_and_be_read_by_one() -> None:
    found = job("mixed")

    @found.source(result=BLOCKING)
    def model(spark): ...

    @found.source(result=APPROXIMATE)
    def events(spark): ...

    @found.vertex(result=BLOCKING)
    def scores(events, model): ...

    @found.sink
    def report(scores): ...

    regions = found.regions()
    assert regions.region("scores").upstream == ("model",)
    assert [each.result for each in regions.region("scores").channels_in] == ["events"]
    assert (regions.region("report").upstream, regions.region("report").is_streaming) == (("scores",), False)


def test_without_a_word_a_region_restarts_alone_and_loses_nothing() -> None:
    found = chain()
    assert found.failover_strategy is FailoverStrategy.APPROXIMATE_SINGLE
    assert (APPROXIMATE.reconnect, APPROXIMATE.overflow) == (Reconnect.REWIND, Overflow.BLOCK)
    assert chain(failover_strategy="region").failover_strategy is FailoverStrategy.REGION


def test_the_options_of_a_channel() -> None:
    found = APPROXIMATE(
        reconnect="latest",
        overflow="drop",
        max_lost_records=10,
        max_lost_fraction=0.1,
        max_lost_records_per_restart=5,
        subpartitions=8,
        partition_by="carrier",
    )
    assert (found.reconnect, found.overflow) == (Reconnect.LATEST, Overflow.DROP)
    assert (found.budget, found.restart_budget) == (LossBudget(10, 0.1), LossBudget(5))
    assert (found.subpartitions, found.partition_by) == (8, ("carrier",))
    assert ApproximateResult() == APPROXIMATE, "the one without options is left as it is"


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"reconnect": "oldest"}, "rewind, latest"),
        ({"overflow": "spill"}, "block, drop"),
        ({"budget": 3}, "found ['budget']"),
        ({"max_lost_fraction": 1.5}, "between 0 and 1"),
        ({"subpartitions": 0}, "between 1 and 1024"),
        ({"subpartitions": 2.0}, "expected subpartitions= as a whole number"),
        ({"block_timeout_s": 0}, "above 0 seconds"),
        ({"partition_by": [1]}, "names of columns"),
    ],
)
def test_impossible_options_of_a_channel(options: dict[str, Any], told: str) -> None:
    with pytest.raises(JobDefinitionError) as raised:
        APPROXIMATE(**options)
    assert told in str(raised.value)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"output": "update"}, "which row replaces which"),
        ({"max_rows": 0}, "max_rows of at least 1"),
        ({"trigger_s": -1}, "trigger_s of at least 0"),
        ({"run_for_s": 0}, "above 0 seconds"),
    ],
)
def test_impossible_options_of_a_region(options: dict[str, Any], told: str) -> None:
    with pytest.raises(JobDefinitionError) as raised:
        Streaming(**options)
    assert told in str(raised.value)


def test_the_output_may_be_written_as_sparks_word() -> None:
    assert Streaming(output="complete").output is OutputMode.COMPLETE


@pytest.mark.parametrize("strategy", ["approximate-sink", "approximate-downstream", "approximate-single"])
def test_a_batch_job_is_refused_with_advice(strategy: Any) -> None:
    found = chain(BLOCKING, BLOCKING, failover_strategy=strategy)
    refused(found, strategy, "streaming regions, which run at the same time", "use the strategy 'region'")
    chain(failover_strategy=strategy).validate()


# docs/approximate.md#what-is-refused, at parse


def test_two_consumers_of_a_channel() -> None:
    found = chain()

    @found.sink
    def other(events): ...

    refused(found, "events", "expected one consumer, found scores, other")


def test_latest_or_drop_without_a_budget() -> None:
    refused(chain(APPROXIMATE(reconnect="latest")), "events", "expected a loss budget, found none")
    refused(chain(APPROXIMATE(overflow="drop")), "events", "expected a loss budget, found none")
    refused(chain(APPROXIMATE(overflow="drop", max_lost_records=0)), "nothing could ever be dropped")
    chain(LATEST).validate()


def test_latest_into_state() -> None:
    stateful = {"streaming": Streaming(stateful=True)}
    refused(chain(second=LATEST, sink=stateful), "table, scores", "allow_stateful_loss=True")
    chain(second=LATEST, sink={"streaming": Streaming(stateful=True, allow_stateful_loss=True)}).validate()
    chain(LATEST, sink=stateful).validate()


def test_a_source_that_can_not_replay() -> None:
    refused(chain(source={"streaming": Streaming(replays=False)}), "events", "allow_unknown_loss=True")
    chain(source={"streaming": Streaming(replays=False, allow_unknown_loss=True)}).validate()


def test_a_sink_that_must_not_miss_or_repeat() -> None:
    table = PostgresTable(conn_id="warehouse", table="scores", mode="append")
    refused(chain(sink={"commit": table}), "table", "exactly once", "allow_approximate=True")
    refused(chain(sink={"allow_duplicates": True, "idempotent": False}), "foreign", "allow_approximate=True")
    chain(sink={"commit": table, "streaming": Streaming(allow_approximate=True)}).validate()


def test_more_regions_than_the_dag_runs_at_a_time() -> None:
    found = chain()
    with fails_with("channels-refused"):
        check_refusals(found.regions(), found.vertices, found.graph(), max_active_tasks=2)
    check_refusals(found.regions(), found.vertices, found.graph(), max_active_tasks=3)


# what a streaming region can't be


def test_a_streaming_region_has_one_channel_at_each_end() -> None:
    found = chain()

    @found.source(result=APPROXIMATE)
    def more(spark): ...

    @found.sink
    def joined(more, second): ...

    @found.source(result=APPROXIMATE)
    def second(spark): ...

    refused(found, "it reads ['more', 'second']", "union them before the channel")


def test_a_region_that_feeds_a_channel_makes_nothing_else() -> None:
    found = job("scoring")

    @found.source
    def events(spark): ...

    @found.vertex(result=APPROXIMATE)
    def scores(events): ...

    @found.sink
    def raw(events): ...

    @found.sink
    def table(scores): ...

    refused(found, "feeds a channel", "found raw")


def test_the_last_region_makes_one_result() -> None:
    found = chain(second=BLOCKING)

    @found.vertex
    def copied(scores): ...

    @found.sink
    def copy(copied): ...

    found.validate()
    assert found.regions().region("scores").results == ("scores",)
    two = job("two")

    @two.source(result=APPROXIMATE)
    def events(spark): ...

    @two.vertex
    def both(events): ...

    @two.sink
    def left(both): ...

    @two.sink
    def right(both): ...

    refused(two, "expected the last streaming region to make one result, found left, right")


def test_what_is_of_batches_is_refused_in_a_streaming_region() -> None:
    found = job("scoring")

    @found.source(result=APPROXIMATE, splits=files("s3://lake/*.csv"))
    def events(splits): ...

    @found.sink
    def table(events): ...

    refused(found, "found splits=", "spark.readStream")
    refused(chain(source={"parallelism": 2}, scorer={"parallelism": 2}, sink={"parallelism": 2}), "subpartitions=")


def test_streaming_is_of_streaming_regions_and_said_once() -> None:
    refused(chain(BLOCKING, BLOCKING, sink={"streaming": Streaming()}), "table", "leave streaming= out")
    found = job("scoring")

    @found.source(streaming=Streaming())
    def events(spark): ...

    @found.vertex(result=APPROXIMATE, streaming=Streaming())
    def scores(events): ...

    @found.sink
    def table(scores): ...

    refused(found, "scores", "found it at 'events' as well")
    with fails_with("streaming-unfit"):
        chain(source={"streaming": {"trigger_s": 1}})
