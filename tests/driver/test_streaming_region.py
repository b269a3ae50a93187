"""Stages on the tests' own session, one after the other: what each makes, how it restarts, and what it refuses."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace

import pytest
from spark_streaming_run import StageScene

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
def scene(tmp_path) -> StageScene:
    return StageScene(tmp_path)


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


def drop_files(scene: StageScene, *turns: int) -> None:
    for turn in turns:
        scene.drop(f"{turn}.csv", *range(10 * turn, 10 * turn + 10))


def rows_of(spark, done, *columns: str) -> list:
    (manifest,) = done.outputs
    return sorted(tuple(each) for each in read_manifest(spark, manifest).select(*columns or ("id",)).collect())


# --- what a stage makes ----------------------------------------------------------------------------------------------


def test_a_chain_of_three_stages_gives_what_a_batch_gives(spark, scene):
    drop_files(scene, 0, 1, 2)
    assert scene.run(spark, scene.spec("raw")).outputs == ()
    assert scene.run(spark, scene.spec("scores")).outputs == ()
    done = scene.run(spark, scene.spec("board"))
    assert rows_of(spark, done, "id", "score") == [(number, 10 * number) for number in range(30)]
    assert scene.committed() == list(range(30))
    assert dict(done.accumulators)["scores: records committed"] == 30
    again = scene.run(spark, scene.spec("board", 2))  # the first one died before its finish
    assert rows_of(spark, again) == rows_of(spark, done)


def test_equal_values_come_to_one_subpartition_in_their_order(spark, scene):
    scene.drop("0.csv", *(number % 5 for number in range(50)))
    scene.drop("1.csv", *(number % 5 for number in range(50)))
    scene.run(spark, scene.spec("raw", output={"partition_by": ("id",), "subpartitions": 3}))
    homes: dict[int, set[int]] = {}
    state = scene.state("raw")
    for each in state.retained.values():
        for value in scene.values("raw", each.key):
            homes.setdefault(value, set()).add(each.sub)
    assert sum(state.ends) == 100
    assert [len(home) for home in homes.values()] == [1] * 5


def test_a_source_that_runs_for_a_while_ends_between_two_batches(spark, scene):
    drop_files(scene, 0, 1)
    scene.run(spark, scene.spec("raw", run_for_s=4.0))
    state = scene.state("raw")
    assert state.is_finished
    assert scene.published("raw") == list(range(20))


def test_of_a_running_table_the_newest_batch_counts(spark, scene):
    made = scene.producer("scores")
    made.emit(1, 2, 3)
    made.emit(4, 5)
    made.finish()
    spec = scene.spec("board", params={"how": "running"}, output_mode="complete", stateful=True, max_rows=3)
    assert rows_of(spark, scene.run(spark, spec), "parity", "total") == [(0, 60), (1, 90)]


def test_a_side_input_is_there_as_a_whole(spark, scene):
    made = scene.producer("numbers")
    made.emit(1, 2, 3)
    made.finish()
    frame = spark.createDataFrame([(0, "even"), (1, "odd")], "parity long, name string")
    location = f"{scene.results.uri}/parities"
    side = write_result(spark, frame, result="parities", location=location, store=scene.store)
    done = scene.run(spark, scene.spec("matched", inputs=(side,)))
    assert rows_of(spark, done, "id", "name") == [(1, "odd"), (2, "even"), (3, "odd")]


# --- restarts --------------------------------------------------------------------------------------------------------


def test_a_sink_that_rewinds_loses_nothing(spark, scene, monkeypatch):
    made = scene.producer("scores")
    made.emit(*range(10))
    made.emit(*range(10, 20))
    with dying(monkeypatch, 1):
        scene.run(spark, scene.spec("board", max_rows=10))
    made.finish()
    assert rows_of(spark, scene.run(spark, scene.spec("board", 2))) == [(number,) for number in range(20)]
    assert scene.state("scores").ledger == []


def test_a_budget_stops_a_sink_before_the_commit(spark, scene, monkeypatch):
    """With its control: the same records without a budget."""
    made = scene.producer("scores", budget=LossBudget(max_lost_records=5))
    made.emit(*range(10))
    made.emit(*range(10, 20))
    with dying(monkeypatch, 1):
        scene.run(spark, scene.spec("board", max_rows=10, input=LATEST))
    made.finish()
    with pytest.raises(LossBudgetExceeded, match="10 lost records, max_lost_records is 5"):
        scene.run(spark, scene.spec("board", 2, input=LATEST))
    assert scene.committed() == list(range(10))
    assert scene.state("scores").checkpoint == 0

    scene.producer("scores", 2)
    done = scene.run(spark, scene.spec("board", 3, input=LATEST))
    assert rows_of(spark, done) == [(number,) for number in range(10)]
    assert dict(done.accumulators)["scores: records lost (reconnect)"] == 10
    assert made.lost(scene) == list(range(10, 20))


def test_a_late_attempt_gets_no_view(spark, scene, monkeypatch):
    made = scene.producer("scores")
    made.emit(*range(10))
    made.finish()
    with dying(monkeypatch, 0):
        scene.run(spark, scene.spec("board", 2))
    with pytest.raises(AttemptLost, match="evicted"):
        scene.run(spark, scene.spec("board", 1))
    assert scene.state("scores").view == 2


@pytest.mark.parametrize("batch", [0, 1])
def test_state_goes_on_where_the_log_is(spark, scene, monkeypatch, batch):
    """It dies with its batch in the log, and not in Spark's own checkpoint, so that Spark repeats it."""
    made = scene.producer("scores")
    made.emit(*range(10))
    made.emit(*range(10, 20))
    said = {"params": {"how": "state"}, "stateful": True, "max_rows": 10}
    with dying(monkeypatch, batch, after=True):
        scene.run(spark, scene.spec("board", **said))
    made.emit(*range(5, 25))  # fifteen of them were there before
    made.finish()
    done = scene.run(spark, scene.spec("board", 2, **said))
    assert rows_of(spark, done) == [(number,) for number in range(25)]
    assert dict(done.accumulators)["state rows"] == len(scene.committed()) == 25


def test_control_of_state_a_checkpoint_that_begins_anew(spark, scene, monkeypatch):
    made = scene.producer("scores")
    made.emit(*range(10))
    said = {"params": {"how": "state"}, "stateful": True}
    with dying(monkeypatch, 0, after=True):
        scene.run(spark, scene.spec("board", **said))
    made.emit(*range(5, 25))
    made.finish()
    with pytest.raises(ChannelInconsistent, match="begin anew"):
        scene.run(spark, scene.spec("board", 2, earlier=(), **said))
    prepare = region.prepare_checkpoint
    monkeypatch.setattr(
        region, "prepare_checkpoint", lambda *given, **named: prepare(*given, **{**named, "may_begin": True})
    )
    done = scene.run(spark, scene.spec("board", 3, earlier=(), **said))
    assert dict(done.accumulators)["state rows"] == 20
    assert len(scene.committed()) == 30  # five of them twice


def test_a_stateless_stage_without_its_checkpoint_goes_on_where_the_log_is(spark, scene, monkeypatch):
    made = scene.producer("scores")
    made.emit(*range(10))
    made.emit(*range(10, 20))
    with dying(monkeypatch, 1):
        scene.run(spark, scene.spec("board", max_rows=10))
    made.finish()
    done = scene.run(spark, scene.spec("board", 2, earlier=()))
    assert rows_of(spark, done) == [(number,) for number in range(20)]


def test_control_of_death_between_two_logs_a_view_that_does_not_know_the_output(spark, scene, monkeypatch):
    """See `test_streaming_processes`, where it knows it."""
    made = scene.producer("raw")
    made.emit(*range(10))
    with dying(monkeypatch, 0):
        scene.run(spark, scene.spec("scores"))
    made.finish()
    monkeypatch.setattr(ends, "published_of", lambda *given: None)
    with pytest.raises(ChannelInconsistent, match="which is published"):
        scene.run(spark, scene.spec("scores", 2))
    monkeypatch.setattr(region, "check_both_logs", lambda *given: None)
    prepare = region.prepare_checkpoint
    behind = {"completed": 0, "earlier": (), "may_begin": True}
    monkeypatch.setattr(region, "prepare_checkpoint", lambda *given, **named: prepare(*given, **{**named, **behind}))
    scene.run(spark, scene.spec("scores", 3))
    assert scene.published("scores") == sorted([*range(10)] * 2)


def test_a_source_goes_on_at_its_checkpoint(spark, scene, monkeypatch):
    drop_files(scene, 0, 1, 2)
    publish = ends.ChannelOutput.publish

    def dies(output, batch, *given):
        publish(output, batch, *given)
        if batch == 1:
            raise Died

    with monkeypatch.context() as patched:
        patched.setattr(ends.ChannelOutput, "publish", dies)
        with pytest.raises(Died):
            scene.run(spark, scene.spec("raw"))
    with pytest.raises(ChannelInconsistent, match="place in its source"):
        scene.run(spark, scene.spec("raw", 2, earlier=()))
    scene.run(spark, scene.spec("raw", 3))
    assert scene.published("raw") == list(range(30))


# --- a full channel --------------------------------------------------------------------------------------------------


def test_a_full_channel_drops_the_oldest_and_counts_them(spark, scene):
    drop_files(scene, *range(6))
    scene.run(spark, scene.spec("raw", output={"overflow": Overflow.DROP, "max_bytes": 1500}))
    scene.run(spark, scene.spec("scores", input={"overflow": Overflow.DROP}))
    kept = scene.published("scores")
    lost = sorted(set(range(60)) - set(kept))
    ledger = scene.state("raw").ledger
    assert 0 < len(lost) < 60
    assert sum(each.records for each in ledger) == len(lost)
    assert {each.cause for each in ledger} == {LossCause.OVERFLOW}
    assert max(lost) // 10 <= min(kept) // 10


def test_control_of_overflow_a_channel_that_blocks_fails_by_name(spark, scene):
    drop_files(scene, *range(6))
    with pytest.raises(ChannelFailed, match="behind"):
        scene.run(spark, scene.spec("raw", output={"max_bytes": 1500, "block_timeout_s": 0.2}))


# --- new generations -------------------------------------------------------------------------------------------------


def test_stages_that_begin_anew_know_nothing_of_what_was(spark, scene, monkeypatch):
    """A failure of a non-sink under approximate-sink; and its control, the old generation counted as well."""
    drop_files(scene, 0, 1)
    scene.run(spark, scene.spec("raw"))
    scene.run(spark, scene.spec("scores", max_rows=10))
    with dying(monkeypatch, 1, after=True):
        scene.run(spark, scene.spec("board", max_rows=10))
    for name in ("raw", "scores"):
        scene.run(spark, scene.spec(name, 2, generation=2, earlier=()))
    done = scene.run(spark, scene.spec("board", 2, generation=2, earlier=()))
    assert rows_of(spark, done) == [(number,) for number in range(20)]
    wrong = scene.spec("board", 3, generation=2, input={"drained": (1,)})
    assert len(rows_of(spark, scene.run(spark, wrong))) > 20


def altered(scene: StageScene, spark, monkeypatch, max_rows: int | None) -> None:
    """The source is cut into three now; of its first generation the scorer has read twenty numbers, or ten."""
    drop_files(scene, 0, 1)
    scene.run(spark, scene.spec("raw"))
    with dying(monkeypatch, 0, after=True):
        scene.run(spark, scene.spec("scores", max_rows=max_rows))
    drop_files(scene, 2)
    with pytest.raises(ChannelAltered, match="3 of"):
        scene.run(spark, scene.spec("raw", 2, output={"subpartitions": 3}))
    scene.run(spark, scene.spec("raw", 3, generation=2, output={"subpartitions": 3}))


def test_an_altered_channel_goes_on_as_a_new_generation(spark, scene, monkeypatch):
    """Who is downstream restarts with it, and keeps its work."""
    altered(scene, spark, monkeypatch, None)
    assert scene.published("raw", 2) == list(range(20, 30))
    scene.run(spark, scene.spec("scores", 2, input={"generation": 2, "drained": (1,)}))
    assert rows_of(spark, scene.run(spark, scene.spec("board"))) == [(number,) for number in range(30)]


def test_what_nobody_has_read_of_an_altered_channel_is_lost_and_counted_or_refused(spark, scene, monkeypatch):
    altered(scene, spark, monkeypatch, 10)
    with pytest.raises(ChannelInconsistent, match="10 records"):
        scene.run(spark, scene.spec("scores", 2, input={"generation": 2, "drained": (1,)}))
    scene.run(spark, scene.spec("scores", 3, input={"generation": 2, "drained": (1,), **LATEST}))
    done = scene.run(spark, scene.spec("board"))
    assert len(rows_of(spark, done)) == 20
    assert sum(each.records for each in scene.state("raw").ledger) == 10


# --- the store -------------------------------------------------------------------------------------------------------


def test_fault_25_a_weak_store_is_refused(spark, scene, monkeypatch):
    """With its control."""
    drop_files(scene, 0)
    weak = FaultyStore(scene.store, ignores_if_none_match=True)
    with pytest.raises(StoreUnsuitable, match="conditional writes"):
        scene.run(spark, scene.spec("raw"), store=weak)
    monkeypatch.setattr(producer_module, "probe", lambda store: None)
    scene.run(spark, scene.spec("raw"), store=weak)


def test_fault_24_lost_replies_of_the_driver_change_nothing(spark, scene):
    """Of what the driver writes itself; the reader's are in `test_streaming_s3`."""
    made = scene.producer("scores")
    made.emit(*range(10))
    made.emit(*range(10, 20))
    made.finish()
    faults = [Fault(Verb.PUT_IF_ABSENT, FaultKind.LOST_REPLY, key="/log/", times=3)]
    store = FaultyStore(scene.store, [*faults, Fault(Verb.PUT, FaultKind.LOST_REPLY, key="/out/", times=None)])
    scene.run(spark, scene.spec("board", max_rows=10), store=store)
    assert scene.committed() == list(range(20))


def test_a_segment_that_was_deleted_from_outside_is_an_error_and_never_fewer_rows(spark, scene):
    """Its control is in `test_streaming_source`."""
    made = scene.producer("scores")
    made.emit(*range(10))
    made.finish()
    client = made.producer.client
    scene.store.delete([client.folder.object(next(iter(client.state.retained)))])
    with pytest.raises(ChannelInconsistent, match="deleted from outside"):
        scene.run(spark, scene.spec("board"))
    assert scene.committed() == []


# --- refusals --------------------------------------------------------------------------------------------------------


def test_what_can_not_run_as_a_stage_is_refused(spark, scene):
    made = scene.producer("raw")
    made.emit(1, 2)
    made.finish()
    scores = scene.producer("scores")
    scores.finish()
    for spec, said in (
        (scene.spec("scores", params={"how": "batch"}), "expected a streaming DataFrame"),
        (scene.spec("scores", output_mode="complete"), "expected the output mode 'append'"),
        (scene.spec("scores", output={"partition_by": ("other",)}), "columns of partition_by"),
        (scene.spec("board", params={"how": "state"}, input=LATEST), "expected a stage without state"),
    ):
        with pytest.raises(UserCodeError, match=said):
            scene.run(spark, spec)


def test_a_stage_is_not_for_spark_connect(spark, scene, monkeypatch):
    monkeypatch.setattr(region, "is_remote", lambda session: True)
    with pytest.raises(JobDefinitionError, match="spark-submit"):
        scene.run(spark, scene.spec("raw"))


def test_a_consumer_waits_for_its_producer_and_not_for_ever(spark, scene):
    with pytest.raises(ChannelFailed, match="nobody opened it"):
        scene.run(spark, scene.spec("board", input={"block_timeout_s": 0.1}))


def test_a_producer_that_gave_up_ends_its_consumer_by_name(spark, scene):
    made = scene.producer("scores")
    made.emit(*range(10))
    made.producer.give_up("no retry is left")
    with pytest.raises(ChannelFailed, match="no retry is left"):
        scene.run(spark, replace(scene.spec("board")))
    assert scene.committed() == list(range(10))
