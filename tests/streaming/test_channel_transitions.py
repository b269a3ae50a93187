"""Records, transitions and fold: who may write what, and what it does."""

from __future__ import annotations

import random

import pytest
from channel_steps import Channel, consumed
from expected_errors import fails_with

from airflow_recovery.errors import ChannelEvicted
from airflow_recovery.model.channel_options import LossBudget, Reconnect
from airflow_recovery.model.records import RunIdentity
from airflow_recovery.streaming import channel_folding as folding
from airflow_recovery.streaming.channel_folding import apply
from airflow_recovery.streaming.channel_records import (
    BatchCommitted,
    ChannelIdentity,
    CheckpointPlanned,
    EpochPublished,
    Finished,
    Loss,
    LossCause,
    Released,
    Segment,
    SegmentsDropped,
    ViewCreated,
)
from airflow_recovery.streaming.channel_state import ChannelState
from airflow_recovery.streaming.consuming import commit_batch, create_view, make_plan, next_end, published_of, release
from airflow_recovery.streaming.ledger import check_ledger
from airflow_recovery.streaming.producing import WrittenSegment, finish, give_up, open_producer, publish
from airflow_recovery.streaming.ranges import size

LATEST, REWIND = Reconnect.LATEST, Reconnect.REWIND


def test_an_undisturbed_channel_commits_everything_once():
    channel = Channel(2)
    channel.view(1)
    for _ in range(3):
        channel.emit(3, 2)
        channel.batch()
        channel.release()
    channel.finish()
    assert channel.state.is_drained
    assert [sub.committed for sub in channel.state.subs] == [((0, 9),), ((0, 6),)]
    assert channel.state.retained == {}
    assert channel.state.ledger == []


# --- the producer's side ---------------------------------------------------------------------------------------------


def test_fault_13_of_two_producers_the_newer_one_owns_the_channel():
    channel = Channel()
    channel.open(2)
    for refused in (
        lambda: publish(channel.state, 1, 0, [WrittenSegment(0, 0, "seg/1/0/0", 1, 1)]),
        lambda: finish(channel.state, 1),
        lambda: give_up(channel.state, 1, "out of luck"),
        lambda: channel.open(2),
        lambda: channel.open(1),
    ):
        with fails_with("producer-evicted"):
            refused()


def test_an_epoch_that_was_published_is_adopted_and_not_published_twice():
    channel = Channel()
    channel.emit(10)
    channel.open(2)
    assert channel.emit(10, epoch=0) is None
    assert channel.state.ends == (10,)
    assert channel.emit(10, epoch=1) is not None


def test_a_batch_without_data_writes_nothing():
    assert Channel().emit(0) is None


def test_an_epoch_with_the_number_of_one_that_was_made_of_other_input_is_refused():
    channel = Channel()
    publish_of = lambda epoch, end: publish(  # noqa: E731
        channel.state, 1, epoch, [WrittenSegment(0, 0, f"seg/1/{epoch}/0", 1, 1)], (consumed("in", end),)
    )
    channel.wrote(publish_of(4, 10))
    assert publish_of(4, 10) is None
    with fails_with("epoch-from-other-batch", epoch=4):
        publish_of(4, 20)


@pytest.mark.parametrize(("subpartitions", "schema"), [(2, "v bigint"), (1, "v string")])
def test_a_changed_schema_or_number_of_subpartitions_needs_the_consumers_to_restart(subpartitions, schema):
    channel = Channel()
    with fails_with("subpartitions-changed"):
        open_producer(channel.state, 2, subpartitions=subpartitions, schema=schema)


def test_nothing_is_published_behind_the_end_and_a_retry_after_it_is_told_so():
    channel = Channel()
    channel.finish()
    channel.open(2)
    assert channel.state.is_finished
    assert finish(channel.state, 2) is None
    with fails_with("channel-finished"):
        channel.emit(1)


def test_who_gave_up_may_be_followed_by_another_attempt():
    channel = Channel()
    channel.wrote(give_up(channel.state, 1, "no licence"))
    assert channel.state.failed == "no licence"
    channel.open(2)
    assert channel.state.failed is None


@pytest.mark.parametrize(
    "segment", [WrittenSegment(1, 0, "a", 1, 1), WrittenSegment(0, 0, "a", -1, 1), WrittenSegment(0, 0, "a", 1, -1)]
)
def test_segments_that_cannot_exist_are_refused(segment):
    with fails_with("segment-unfit", segment="a"):
        publish(Channel().state, 1, 0, [segment])


def test_two_segments_with_one_key_are_refused():
    with fails_with("segment-key-reused"):
        publish(Channel().state, 1, 0, [WrittenSegment(0, 0, "a", 1, 1), WrittenSegment(0, 1, "a", 1, 1)])


# --- the consumer's side ---------------------------------------------------------------------------------------------


def test_the_first_view_needs_an_open_channel():
    with fails_with("channel-closed"):
        create_view(ChannelState(), 1, REWIND)


def test_rewind_goes_on_at_the_checkpoint_and_loses_nothing():
    channel = Channel()
    channel.emit(10)
    channel.view(1)
    channel.batch()
    channel.emit(10)
    channel.plan()
    channel.view(2)
    assert channel.state.plan is None
    channel.batch()
    assert channel.state.subs[0].committed == ((0, 20),)
    assert channel.lost() == []


def test_latest_goes_on_at_the_head_and_counts_what_lies_between():
    channel = Channel()
    channel.emit(10)
    channel.view(1)
    channel.batch()
    channel.emit(20)
    channel.view(2, LATEST)
    channel.emit(10)
    channel.batch()
    assert channel.lost() == [(10, 30, "reconnect")]
    assert channel.state.subs[0].committed == ((0, 10), (30, 40))


def test_the_first_view_skips_nothing_since_it_is_no_reconnection():
    channel = Channel()
    channel.emit(10)
    channel.view(1, LATEST)
    channel.batch()
    assert channel.lost() == []


def test_a_batch_that_the_log_has_completed_has_nothing_to_read_when_spark_replays_it():
    channel = Channel()
    channel.emit(10)
    channel.view(1)
    channel.batch()
    channel.view(2)
    assert make_plan(channel.state, 2, (0,), (10,)) is None
    assert commit_batch(channel.state, 2, 0, (0,)) is None


def test_a_plan_that_is_asked_for_twice_is_one_plan():
    channel = Channel()
    channel.emit(10)
    channel.view(1)
    assert channel.plan() is not None
    assert channel.plan() is None


def test_a_batch_without_data_completes_without_a_plan():
    channel = Channel()
    channel.view(1)
    assert make_plan(channel.state, 1, (0,), (0,)) is None
    assert commit_batch(channel.state, 1, 0, (0,)) is None


@pytest.mark.parametrize(("start", "end"), [(11, 12), (10, 21)])
def test_a_batch_that_would_skip_records_without_counting_them_is_refused(start, end):
    channel = Channel()
    channel.emit(10)
    channel.view(1)
    channel.batch()
    channel.emit(10)
    with fails_with("batch-skips-records"):
        make_plan(channel.state, 1, (start,), (end,))


def test_a_batch_from_an_older_checkpoint_reads_only_what_is_not_committed():
    channel = Channel()
    channel.emit(10)
    channel.view(1)
    channel.batch()
    channel.emit(10)
    assert make_plan(channel.state, 1, (3,), (15,)).read == (((10, 15),),)


def test_other_rows_than_planned_are_not_committed():
    channel = Channel()
    channel.emit(10)
    channel.view(1)
    channel.plan()
    for read in (9, 11, 0):
        with fails_with("batch-not-as-planned"):
            commit_batch(channel.state, 1, 0, (read,))


def test_only_what_is_behind_the_checkpoint_is_released():
    channel = Channel()
    channel.emit(10)
    channel.emit(10)
    channel.view(1)
    channel.plan(10)
    channel.commit(0)
    channel.wrote(release(channel.state, 1, (20,)))
    assert list(channel.state.retained) == ["seg/1/1/0"]
    assert release(channel.state, 1, (10,)) is None


def test_fault_59_an_older_attempt_of_the_consumer_can_do_nothing():
    channel = Channel()
    channel.emit(10)
    channel.view(1)
    channel.plan()
    channel.view(3)
    for refused in (
        lambda: channel.view(2),
        lambda: channel.view(3),
        lambda: make_plan(channel.state, 1, (0,), (10,)),
        lambda: commit_batch(channel.state, 1, 0, (10,)),
        lambda: release(channel.state, 2, (10,)),
    ):
        with fails_with("consumer-evicted"):
            refused()


def test_credit_is_shared_by_the_subpartitions_that_have_records():
    channel = Channel(3)
    channel.emit(100, 1, 0)
    channel.view(1)
    assert next_end(channel.state, 10) == (9, 1, 0)
    assert next_end(channel.state, 1000) == (100, 1, 0)
    assert next_end(channel.state) == (100, 1, 0)


def test_less_credit_than_subpartitions_is_used_all_the_same():
    channel = Channel(3)
    channel.emit(5, 5, 5)
    channel.view(1)
    for _ in range(8):
        channel.batch(credit=2)
    assert channel.state.done == (5, 5, 5)


def test_what_is_lost_costs_no_credit():
    channel = Channel()
    channel.emit(10)
    channel.emit(10)
    channel.emit(10)
    channel.view(1)
    channel.wrote(SegmentsDropped(1, ("seg/1/1/0",)))
    assert next_end(channel.state, 15) == (25,)
    channel.view(2, LATEST)
    assert next_end(channel.state, 15) == (30,)


# --- death between two logs ------------------------------------------------------------------------------------------


def between_two_logs(end: int) -> Channel:
    channel = Channel()
    channel.emit(10)
    channel.view(1)
    channel.plan(end)
    return channel


def test_an_output_that_holds_the_pending_plan_completes_it_at_the_next_view():
    channel = between_two_logs(10)
    assert channel.view(2, published=(7, consumed("in", 10))).adopt == 7
    assert channel.state.done == (10,)
    assert channel.state.checkpoint == 7


def test_an_output_that_is_older_than_the_pending_plan_completes_nothing():
    channel = between_two_logs(10)
    assert channel.view(2, published=(7, consumed("in", 0))).adopt is None
    assert channel.state.done == (0,)


def test_an_output_of_another_generation_completes_nothing_though_its_offsets_are_the_same():
    output = Channel()
    segment = WrittenSegment(0, 0, "seg/1/0/0", 10, 10)
    output.wrote(publish(output.state, 1, 7, [segment], (consumed("in", 10, generation=1),)))
    run = RunIdentity("dag", "2024-01-01", "group")
    assert published_of(output.state, ChannelIdentity(run, "in", 1)) == (7, consumed("in", 10))
    assert published_of(output.state, ChannelIdentity(run, "in", 2)) is None
    assert published_of(output.state, ChannelIdentity(run, "other", 1)) is None


# --- budget ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("budget", "code"),
    [
        ({"budget": LossBudget(max_lost_records=9)}, "checkpoint-over-budget"),
        ({"budget": LossBudget(max_lost_fraction=0.4)}, "checkpoint-over-budget"),
        ({"restart_budget": LossBudget(max_lost_records=9)}, "checkpoint-over-budget"),
    ],
)
def test_fault_58_a_budget_stops_before_the_checkpoint_that_would_exceed_it(budget, code):
    channel = Channel(**budget)
    channel.emit(10)
    channel.view(1)
    channel.batch()
    channel.emit(10)
    channel.view(2, LATEST)
    with fails_with(code):
        channel.plan()
    assert channel.state.done == (10,)
    assert channel.state.plan is None


def test_control_of_fault_58_without_the_budget_the_loss_is_committed(monkeypatch):
    monkeypatch.setattr(LossBudget, "excess", lambda self, lost, records: None)
    channel = Channel(budget=LossBudget(max_lost_records=9))
    channel.emit(10)
    channel.view(1)
    channel.batch()
    channel.emit(10)
    channel.view(2, LATEST)
    channel.batch()
    assert channel.state.lost == 10


def test_a_budget_of_each_restart_starts_over_with_the_restart():
    channel = Channel(restart_budget=LossBudget(max_lost_records=10))
    channel.view(1)
    for attempt in (2, 3, 4):
        channel.emit(10)
        channel.view(attempt, LATEST)
        channel.batch()
    assert channel.state.lost == 30


# --- void records ----------------------------------------------------------------------------------------------------


def zombies(state: ChannelState) -> list:
    """What attempt 1 of both sides could still write while attempt 2 is at work."""
    return [
        EpochPublished(1, 99, (Segment(0, "seg/1/zombie/0", state.subs[0].end, 5, 5),)),
        SegmentsDropped(1, tuple(state.retained)),
        Finished(1),
        ViewCreated(1, LATEST, state.ends, 99),
        CheckpointPlanned(1, state.done, state.ends, (((state.subs[0].done, state.subs[0].end),),)),
        BatchCommitted(1, 99, state.ends, ("zombie",)),
        Released(1, state.ends),
    ]


def with_two_attempts() -> Channel:
    channel = Channel()
    channel.emit(10)
    channel.view(1)
    channel.batch()
    channel.open(2)
    channel.view(2)
    channel.emit(10)
    channel.plan()
    return channel


@pytest.mark.parametrize("number", range(7))
def test_fault_59_a_record_of_a_former_owner_is_void_even_if_it_has_won_a_slot(number):
    channel = with_two_attempts()
    record = zombies(channel.state)[number]
    untouched = with_two_attempts().state
    apply(channel.state, record)
    assert channel.state.void == [channel.state.slots - 1]
    untouched.slots, untouched.void = channel.state.slots, channel.state.void
    assert channel.state == untouched


@pytest.mark.parametrize("number", range(7))
def test_control_of_fault_59_without_the_check_it_counts(number, monkeypatch):
    monkeypatch.setattr(folding, "is_void", lambda state, record: False)
    channel = with_two_attempts()
    record = zombies(channel.state)[number]
    before = with_two_attempts().state
    before.slots += 1
    apply(channel.state, record)
    assert channel.state != before


def test_a_commit_of_another_plan_than_the_pending_one_is_void():
    channel = with_two_attempts()
    apply(channel.state, BatchCommitted(2, 5, (15,)))
    assert channel.state.done == (10,)


@pytest.mark.parametrize(
    ("read", "lost"),
    [
        (((10, 19),), ()),
        (((10, 20),), (Loss(0, 12, 13, LossCause.TORN),)),
        (((9, 20),), ()),
        ((), (Loss(0, 10, 15, LossCause.OVERFLOW), Loss(0, 14, 20, LossCause.OVERFLOW))),
    ],
)
def test_a_checkpoint_that_misses_or_repeats_a_record_is_never_completed(read, lost):
    channel = with_two_attempts()
    apply(channel.state, CheckpointPlanned(2, (10,), (20,), (read,), lost))
    with fails_with("checkpoint-not-once"):
        apply(channel.state, BatchCommitted(2, 1, (20,)))


def test_an_epoch_that_leaves_a_gap_was_written_by_nobody_of_ours():
    channel = Channel()
    with fails_with("segment-out-of-order"):
        apply(channel.state, EpochPublished(1, 0, (Segment(0, "a", 1, 1, 1),)))


@pytest.mark.parametrize(
    "record",
    [
        EpochPublished(2, 9, (Segment(1, "a", 0, 1, 1),)),
        SegmentsDropped(2, ("seg/of/nobody",)),
        SegmentsDropped(2, ("seg/2/1/0", "seg/of/nobody")),
        ViewCreated(3, LATEST, (1, 2), 0),
        CheckpointPlanned(2, (10,), (20,), ()),
        CheckpointPlanned(2, (10, 0), (20, 0), (((10, 20),),)),
        CheckpointPlanned(2, (10,), (20,), (((10, 20),),), (Loss(1, 0, 1, LossCause.TORN),)),
        Released(2, ()),
    ],
)
def test_a_record_that_does_not_fit_the_channel_is_refused_before_it_does_anything(record):
    channel, untouched = with_two_attempts(), with_two_attempts()
    with fails_with("slot-names-others"):
        apply(channel.state, record)
    assert channel.state == untouched.state


# --- any order -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(60))
def test_any_order_of_steps_keeps_the_ledger_exact(seed):
    """Two attempts alive on either side, drops, replays and zombies: what each step refuses, and what it leaves."""
    rng = random.Random(seed)
    channel = Channel(2)
    state, consumer = channel.state, 0
    for _ in range(120):
        old = rng.random() < 0.2
        step = rng.choice(["emit", "emit", "emit", "plan", "plan", "commit", "commit", "view", "drop", "open", "free"])
        try:
            if step == "emit":
                attempt = max(1, state.producer - old)
                epoch = state.epoch + rng.randint(0, 1)
                written = [
                    WrittenSegment(i, 0, f"seg/{rng.random()}/{i}", n, n) for i in range(2) if (n := rng.randint(0, 5))
                ]
                channel.wrote(publish(state, attempt, max(epoch, 0), written))
            elif step == "open":
                channel.open(state.producer + 1)
            elif step == "view":
                consumer += 1
                channel.view(consumer, rng.choice([REWIND, LATEST]))
            elif step == "plan" and consumer:
                end = tuple(rng.randint(sub.done, sub.end) for sub in state.subs)
                channel.wrote(make_plan(state, consumer - old, state.done, end))
            elif step == "commit" and state.plan:
                read = tuple(map(size, state.plan.read))
                channel.wrote(commit_batch(state, consumer - old, state.checkpoint + 1, read))
            elif step == "drop":
                channel.overflow(rng.randint(5, 20))
            elif step == "free" and consumer:
                channel.wrote(release(state, consumer - old, state.done))
        except ChannelEvicted:
            assert old
        if old and state.producer > 1 and consumer > 1:
            apply(state, rng.choice(zombies_of(state)))
            check_ledger(state)
    assert "zombie" not in state.outputs


def zombies_of(state: ChannelState) -> list:
    read = tuple(((sub.done, sub.end),) if sub.done < sub.end else () for sub in state.subs)
    return [
        CheckpointPlanned(state.view - 1, state.done, state.ends, read),
        BatchCommitted(state.view - 1, 10**6, state.ends, ("zombie",)),
        Released(state.view - 1, state.ends),
        SegmentsDropped(state.producer - 1, tuple(state.retained)),
    ]
