"""Back-pressure, drops, torn records, ledger and sweep."""

from __future__ import annotations

import pytest
from channel_steps import Channel
from expected_errors import fails_with

from airflow_recovery.errors import ChannelEvicted
from airflow_recovery.model.channel_options import LossBudget, Overflow, Reconnect
from airflow_recovery.streaming import channel_retention as retention
from airflow_recovery.streaming.channel_retention import Room, backlog_bytes, make_room, orphans
from airflow_recovery.streaming.ledger import BudgetVerdict, check_ledger, loss_report


def room(channel: Channel, incoming: int, max_bytes: int, overflow: Overflow = Overflow.BLOCK) -> Room:
    return make_room(channel.state, channel.state.producer, incoming, overflow=overflow, max_bytes=max_bytes).room


# --- block -----------------------------------------------------------------------------------------------------------


def test_a_producer_waits_until_the_consumer_has_committed():
    channel = Channel()
    channel.view(1)
    channel.emit(10)
    assert room(channel, 5, 15) is Room.YES
    assert room(channel, 6, 15) is Room.WAIT
    channel.batch()
    # Nothing is released before the next batch, which needs the next epoch: waiting for that would be for ever.
    assert len(channel.state.retained) == 1
    assert room(channel, 6, 15) is Room.YES


def test_an_epoch_that_is_larger_than_the_limit_goes_into_an_empty_channel():
    assert room(Channel(), 100, 15) is Room.YES


def test_an_old_producer_is_told_so_before_it_waits():
    channel = Channel()
    channel.open(2)
    with pytest.raises(ChannelEvicted):
        make_room(channel.state, 1, 1, overflow=Overflow.BLOCK, max_bytes=1)


# --- drop ------------------------------------------------------------------------------------------------------------


def test_the_oldest_are_dropped_and_never_what_the_pending_plan_reads():
    channel = Channel()
    channel.emit(10)
    channel.emit(10)
    channel.view(1)
    channel.plan(10)
    channel.emit(10)
    assert channel.overflow(20) == "after the drop"
    assert channel.state.subs[0].dropped == ((10, 20),)
    channel.commit(0)
    channel.batch()
    assert channel.lost() == [(10, 20, "overflow")]
    assert channel.state.subs[0].committed == ((0, 10), (20, 30))


def test_control_without_the_pin_the_pending_plan_loses_what_it_reads(monkeypatch):
    monkeypatch.setattr(retention, "_is_pinned", lambda state, segment: False)
    channel = Channel()
    channel.emit(10)
    channel.view(1)
    channel.plan(10)
    channel.emit(10)
    channel.overflow(10)
    assert "seg/1/0/0" not in channel.state.retained


def test_what_is_pinned_may_exceed_the_limit_by_one_batch():
    channel = Channel()
    channel.emit(10)
    channel.view(1)
    channel.plan()
    assert channel.overflow(5, incoming=10) == "yes"


def test_a_view_that_replaces_another_takes_its_pins_away():
    channel = Channel()
    channel.emit(10)
    channel.view(1)
    channel.plan()
    channel.view(2)
    assert channel.overflow(5, incoming=1) == "after the drop"


def test_a_budget_of_nothing_makes_the_producer_wait_instead_of_dropping():
    channel = Channel(budget=LossBudget(max_lost_records=10))
    for _ in range(3):
        channel.emit(10)
    assert channel.overflow(5) == "wait"
    assert channel.state.subs[0].dropped == ((0, 10),)
    # Dropped, and in no checkpoint yet: it counts already.
    assert channel.overflow(5) == "wait"
    assert channel.state.subs[0].dropped == ((0, 10),)


def test_a_fraction_is_held_in_the_worst_checkpoint_that_can_come():
    channel = Channel(budget=LossBudget(max_lost_fraction=0.25))
    channel.view(1)
    channel.emit(30)
    channel.batch()
    for _ in range(3):
        channel.emit(10)
    assert channel.overflow(5) == "wait"
    assert channel.state.subs[0].dropped == ((30, 40),)
    channel.batch(credit=1)
    check_ledger(channel.state)


def test_what_a_jump_will_lose_counts_before_it_is_in_the_ledger():
    channel = Channel(budget=LossBudget(max_lost_records=15))
    channel.emit(10)
    channel.view(1)
    channel.view(2, Reconnect.LATEST)
    channel.emit(10)
    assert channel.overflow(5) == "wait"
    assert channel.state.subs[0].dropped == ((0, 10),)  # lost by the jump already: dropping costs nothing


# --- records that span segments --------------------------------------------------------------------------------------


def test_a_record_over_two_segments_is_read_from_both():
    channel = Channel()
    channel.emit_torn((0, 2, 3), (4, 2, 0))
    channel.view(1)
    channel.plan(2)
    channel.commit(0)
    channel.release()
    assert len(channel.state.retained) == 2  # the record 2 begins in the first one
    channel.batch()
    channel.release()
    assert channel.state.retained == {}
    assert channel.lost() == []


def test_fault_torn_a_record_whose_beginning_was_dropped_is_lost_and_counted():
    channel = Channel()
    channel.emit_torn((0, 2, 3), (4, 2, 0))
    channel.overflow(6)
    channel.view(1)
    channel.batch()
    assert channel.lost() == [(0, 2, "overflow"), (2, 3, "torn")]
    assert channel.state.subs[0].committed == ((3, 4),)


def test_a_record_is_torn_before_its_end_is_published():
    channel = Channel()
    channel.emit_torn((0, 2, 3), (5, 0, 5))
    channel.overflow(5)
    channel.emit_torn((4, 2, 0))
    channel.view(1)
    channel.batch()
    assert channel.lost() == [(0, 2, "overflow"), (2, 3, "torn")]


def test_the_unfinished_record_of_a_dead_producer_never_was_one():
    channel = Channel()
    channel.emit_torn((0, 2, 3))
    channel.overflow(1, incoming=4)
    channel.open(2)
    channel.emit_torn((0, 2, 0))
    channel.view(1)
    channel.batch()
    assert channel.lost() == [(0, 2, "overflow")]


def test_the_next_attempt_does_not_go_on_with_a_record_of_the_old_one():
    channel = Channel()
    channel.emit_torn((0, 2, 3))
    with fails_with("segment-cuts-record"):
        channel.emit_torn((0, 1, 0))
    channel.open(2)
    with fails_with("segment-cuts-record"):
        channel.emit_torn((3, 1, 0))


# --- what is known of the loss ---------------------------------------------------------------------------------------


def test_what_a_source_cannot_make_again_is_unknown_and_never_zero():
    channel = Channel(replays=False, budget=LossBudget(max_lost_records=5))
    channel.emit(10)
    channel.view(1)
    channel.batch()
    assert loss_report("raw", channel.state).total_lost == 0
    channel.open(2)
    report = loss_report("raw", channel.state)
    assert report.total_lost is None
    assert report.lost == 0
    assert report.verdict is BudgetVerdict.UNKNOWN
    assert report.text() == (
        "raw: 0 of 10 records lost, and an unknown number at the origin when producer attempt 2 began; unknown"
    )


def test_a_source_that_had_finished_has_lost_nothing_by_a_retry():
    channel = Channel(replays=False)
    channel.finish()
    channel.open(2)
    assert loss_report("raw", channel.state).total_lost == 0


def test_the_report_counts_by_cause():
    channel = Channel(budget=LossBudget(max_lost_records=100))
    channel.emit(10)
    channel.emit(10)
    channel.overflow(10)
    channel.view(1)
    channel.batch()
    channel.emit(5)
    channel.view(2, Reconnect.LATEST)
    channel.batch()
    channel.emit(3)
    report = loss_report("raw", channel.state)
    assert (report.records, report.lost, report.behind) == (25, 15, 3)
    assert report.text() == "raw: 15 of 25 records lost (reconnect 5, overflow 10); within the budget"


@pytest.mark.parametrize("values", [(-1, None), (None, 1.5), (None, -0.1), (None, float("nan"))])
def test_a_budget_that_is_none_is_refused(values):
    with fails_with("loss-budget-unfit"):
        LossBudget(*values)


@pytest.mark.parametrize("change", ["committed", "lost", "done"])
def test_an_account_that_does_not_add_up_is_seen(change):
    channel = Channel()
    channel.emit(10)
    channel.view(1)
    channel.batch()
    setattr(channel.state.subs[0], change, {"committed": ((0, 9),), "lost": ((3, 4),), "done": 11}[change])
    with fails_with("ledger-has-holes", "records-not-once"):
        check_ledger(channel.state)


# --- sweep -----------------------------------------------------------------------------------------------------------


def test_only_objects_that_no_record_will_ever_name_are_orphans():
    channel = Channel()
    channel.open(2)
    channel.emit(10)
    channel.view(2)
    channel.plan()
    channel.commit(0, outputs=["out/2/0"])
    keys = ["seg/2/0/0", "seg/1/x/0", "seg/2/y/0", "out/1/a", "out/2/0", "out/2/b", "log/00000000", "seg/x/0", "seg"]
    assert orphans(channel.state, keys) == ["seg/1/x/0", "out/1/a"]
    channel.finish()
    assert orphans(channel.state, keys) == ["seg/1/x/0", "seg/2/y/0", "out/1/a", "out/2/b"]
    assert backlog_bytes(channel.state) == 0
