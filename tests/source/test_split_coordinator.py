"""The coordinator of a dynamic assignment: limbo, retries, fall-back, snapshots. Explored whole in tests/testing."""

from __future__ import annotations

import pytest

from airflow_recovery.source.reconcile import SubtaskOutcome, Support, reconcile
from airflow_recovery.source.split import Split
from airflow_recovery.source.split_coordinator import MAX_RETRIES, SplitCoordinator, SplitState
from airflow_recovery.source.split_events import (
    Acked,
    Action,
    AttemptFailed,
    Claimed,
    Event,
    Fence,
    FenceAnswered,
    Finished,
    NoMoreSplits,
    PartCommitted,
    Ready,
    Requested,
    RetryDue,
    Send,
    SendFailed,
    Snapshot,
    SnapshotTimedOut,
    SnapshotWritten,
    SubtaskReset,
)
from airflow_recovery.source.split_log import Assign, Discovered, End, Reset, Return

SPLITS = tuple(Split.of(name) for name in "abc")
A, B, C = (each.key for each in SPLITS)
LISTED = Discovered(SPLITS)


def told(coordinator: SplitCoordinator, *events: Event) -> list[Action]:
    """What it asks for after the last of ``events``."""
    actions: list[Action] = []
    for each in events:
        actions = coordinator.on(each)
    return actions


@pytest.fixture
def two() -> SplitCoordinator:
    """Two subtasks that run, and three splits that nobody has."""
    coordinator = SplitCoordinator(2, min_pause_s=180.0)
    told(coordinator, LISTED, Ready(0, 1), Ready(1, 1))
    return coordinator


def test_a_split_goes_from_pending_to_counted(two: SplitCoordinator):
    def states() -> list[str]:
        return [two.state_of(each).value for each in (A, B)]

    assert states() == ["pending", "pending"]
    assert two.on(Requested(0, 1)) == [Send(Assign(0, 1, 0, (A,)))]
    assert states() == ["open", "pending"]
    told(two, Acked(0, 1, 0))
    assert states() == ["given", "pending"]
    told(two, PartCommitted(0, 1, (A,)))
    assert states() == ["committed", "pending"]
    told(two, Finished(0, 1, (A,)))
    assert states() == ["counted", "pending"]


def test_fault_56_what_is_in_limbo_is_sent_again_under_its_number_twice_then_the_attempt_is_fenced(
    two: SplitCoordinator,
):
    sent = told(two, Requested(0, 1))
    for _ in range(MAX_RETRIES):
        assert two.on(SendFailed(0, 1, 0)) == []
        assert two.state_of(A) is SplitState.LIMBO
        assert two.on(RetryDue(0, 1, 0)) == sent
    assert told(two, SendFailed(0, 1, 0), RetryDue(0, 1, 0)) == [Fence(0, 1)]


def test_fault_56_a_late_acknowledgement_settles_a_limbo(two: SplitCoordinator):
    told(two, Requested(0, 1), SendFailed(0, 1, 0), Acked(0, 1, 0))
    assert two.state_of(A) is SplitState.GIVEN
    assert two.on(RetryDue(0, 1, 0)) == []


def test_after_the_fence_an_acknowledgement_changes_nothing(two: SplitCoordinator):
    told(two, Requested(0, 1), AttemptFailed(0, 1))
    assert two.on(Acked(0, 1, 0)) == []
    assert two.state_of(A) is SplitState.LIMBO


def test_fault_56_fence_then_claim_then_return_and_what_the_claim_adopts_does_not_come_back(two: SplitCoordinator):
    told(two, Requested(0, 1), Acked(0, 1, 0), Requested(0, 1))
    assert two.on(AttemptFailed(0, 1)) == [Fence(0, 1)]
    assert two.on(FenceAnswered(0, 1)) == []
    assert two.on(Requested(1, 1)) == [Send(Assign(1, 1, 0, (C,)))]  # and not what may have been read
    assert two.on(Claimed(0, 2, frozenset({A}))) == [Return(0, 1, (B,))]
    assert [two.state_of(each) for each in (A, B)] == [SplitState.COMMITTED, SplitState.PENDING]
    assert told(two, Ready(0, 2), Requested(0, 2)) == [Send(Assign(0, 2, 0, (B,)))]


def test_a_successor_that_others_have_started_means_the_same(two: SplitCoordinator):
    told(two, Requested(0, 1))
    assert two.on(Claimed(0, 2)) == [Return(0, 1, (A,))]


def test_a_fence_that_finds_a_finish_takes_it_at_its_word(two: SplitCoordinator):
    told(two, Requested(0, 1), AttemptFailed(0, 1))
    two.on(FenceAnswered(0, 1, finished=(A,)))
    assert two.state_of(A) is SplitState.COUNTED
    assert two.on(Claimed(0, 2)) == []


def test_what_a_fenced_attempt_asks_for_or_finishes_changes_nothing(two: SplitCoordinator):
    told(two, Requested(0, 1), AttemptFailed(0, 1), FenceAnswered(0, 1), Claimed(0, 2), Ready(0, 2))
    for late in (Requested(0, 1), Finished(0, 1, (A,)), AttemptFailed(0, 1), Ready(0, 1), SendFailed(0, 1, 0)):
        assert two.on(late) == []


def test_only_the_splits_of_the_subtask_that_is_reset_come_back_and_home(two: SplitCoordinator):
    told(two, Requested(0, 1), Requested(1, 1), Acked(0, 1, 0), Acked(1, 1, 0), Finished(0, 1, (A,)))
    assert two.on(SubtaskReset(0, 1))[0] == Reset(0, 1)
    assert [two.state_of(each) for each in (A, B)] == [SplitState.PENDING, SplitState.GIVEN]
    assert two.book.next_batch(1, 100 * SPLITS[0].weight) == (C,)


def test_a_finish_that_is_reset_before_it_is_heard_of_does_not_count(two: SplitCoordinator):
    told(two, Requested(0, 1), Acked(0, 1, 0), SubtaskReset(0, 1), Finished(0, 1, (A,)))
    assert two.state_of(A) is SplitState.PENDING


def test_nobody_is_told_that_there_is_nothing_more_before_the_enumerator_has_said_so():
    coordinator = SplitCoordinator(1, is_drained=False)
    assert told(coordinator, Ready(0, 1), Requested(0, 1)) == []
    assert coordinator.on(Discovered(SPLITS[:1])) == [Send(Assign(0, 1, 0, (A,)))]
    assert coordinator.on(Requested(0, 1)) == []
    assert coordinator.on(NoMoreSplits()) == [Send(End(0, 1, 1))]


# snapshots


def finish(subtask: int, at_s: float, *splits: str) -> Finished:
    return Finished(subtask, 1, splits, at_s)


def test_a_snapshot_waits_until_nothing_is_in_flight_and_meanwhile_requests_queue(two: SplitCoordinator):
    told(two, Requested(0, 1), Acked(0, 1, 0), Requested(1, 1))
    assert two.on(finish(0, 5.0, A)) == []  # subtask 1 has something open
    assert two.on(Requested(1, 1)) == []
    (snapshot,) = two.on(Acked(1, 1, 0))
    assert isinstance(snapshot, Snapshot)
    assert snapshot.state.counted == ((0, 1),)
    assert two.on(SnapshotWritten(snapshot.number)) == [Send(Assign(1, 1, 1, (C,)))]


def test_flink_23233_what_is_in_limbo_is_open_until_it_was_dealt_with(two: SplitCoordinator):
    told(two, Requested(0, 1), Acked(0, 1, 0), Requested(1, 1), finish(0, 5.0, A))
    assert two.on(SendFailed(1, 1, 0)) == []
    assert two.on(RetryDue(1, 1, 0)) == [Send(Assign(1, 1, 0, (B,)))]
    assert isinstance(two.on(Acked(1, 1, 0))[0], Snapshot)


def test_no_snapshot_while_an_attempt_is_fenced_and_not_returned(two: SplitCoordinator):
    told(two, Requested(0, 1), Acked(0, 1, 0), AttemptFailed(1, 1))
    assert two.on(finish(0, 5.0, A)) == []
    assert two.on(FenceAnswered(1, 1)) == []
    assert [type(each) for each in two.on(Claimed(1, 2))] == [Return, Snapshot]


def test_a_snapshot_that_takes_too_long_is_given_up_and_the_queue_goes_on(two: SplitCoordinator):
    told(two, Requested(0, 1), Acked(0, 1, 0), Requested(1, 1), finish(0, 5.0, A), Requested(1, 1))
    assert two.on(SnapshotTimedOut(0)) == [Send(Assign(1, 1, 1, (C,)))]
    assert two.on(SnapshotWritten(0)) == []


def test_between_snapshots_there_is_a_pause_but_the_last_finish_asks_at_once():
    coordinator = SplitCoordinator(3, min_pause_s=180.0)
    told(coordinator, *(Ready(each, 1) for each in range(3)))
    assert isinstance(coordinator.on(finish(0, 1000.0))[0], Snapshot)
    coordinator.on(SnapshotWritten(0))
    assert coordinator.on(finish(1, 1179.0)) == []
    assert isinstance(coordinator.on(finish(2, 1179.0))[0], Snapshot)
    assert coordinator.is_done


def test_after_the_pause_a_finish_asks_for_the_next_snapshot():
    coordinator = SplitCoordinator(3, min_pause_s=180.0)
    told(coordinator, *(Ready(each, 1) for each in range(3)), finish(0, 1000.0), SnapshotWritten(0))
    assert isinstance(coordinator.on(finish(1, 1180.0))[0], Snapshot)


# another process


def test_a_restored_coordinator_gives_nothing_before_it_knows_what_every_successor_adopts(two: SplitCoordinator):
    told(two, Requested(0, 1), Acked(0, 1, 0))
    (snapshot,) = told(two, finish(0, 0.0, A))
    assert isinstance(snapshot, Snapshot)
    told(two, SnapshotWritten(0), Requested(1, 1), Acked(1, 1, 0))  # B is given after the snapshot, and then it dies
    plan = reconcile(snapshot.state, [_finished(0, A), _open(1)], Support.STABLE_KEYS, LISTED)
    restored = SplitCoordinator(2)
    assert restored.restore(plan) == [Fence(1, 1)]
    assert restored.on(Requested(0, 2)) == []
    assert told(restored, FenceAnswered(1, 1), Claimed(1, 2, frozenset({B})), Ready(1, 2))[-1:] == []
    assert restored.state_of(B) is SplitState.COMMITTED
    assert told(restored, Requested(1, 2)) == [Send(Assign(1, 2, 0, (C,)))]


def _finished(subtask: int, *splits: str) -> SubtaskOutcome:
    return SubtaskOutcome(subtask, 1, splits)


def _open(subtask: int) -> SubtaskOutcome:
    return SubtaskOutcome(subtask, 1)
