"""Flink's event gateways and coordinator checkpoints, rule by rule (FLINK.md section 4)."""

from __future__ import annotations

import pytest

from airflow_recovery.errors import CheckpointRefused
from airflow_recovery.source.event_gateway import CheckpointState, CoordinatorCheckpoints, EventGateway


@pytest.fixture
def gateway() -> EventGateway:
    return EventGateway(0, 1)


@pytest.fixture
def gateways() -> list[EventGateway]:
    return [EventGateway(subtask, 1) for subtask in range(3)]


@pytest.fixture
def checkpoints(gateways: list[EventGateway]) -> CoordinatorCheckpoints:
    return CoordinatorCheckpoints(gateways)


def test_a_closed_gateway_queues_and_an_opened_one_sends_in_order(gateway: EventGateway):
    assert gateway.send("a") == ["a"]
    gateway.mark(1)
    assert gateway.send("b") == ["b"]  # marked is not closed
    assert gateway.try_close(1)
    assert (gateway.send("c"), gateway.send("d")) == ([], [])
    assert gateway.reopen(1) == ["c", "d"]
    assert not gateway.is_closed


def test_sending_before_the_task_runs_is_an_error():
    with pytest.raises(CheckpointRefused, match="expected a task that runs"):
        EventGateway(0, 1, is_running=False).send("a")


def test_ids_only_grow(gateway: EventGateway):
    gateway.mark(2)
    for old in (1, 2):
        with pytest.raises(CheckpointRefused, match="ids only grow"):
            gateway.mark(old)


def test_opening_for_a_future_id_is_an_error_and_for_an_old_or_aborted_one_nothing(gateway: EventGateway):
    gateway.mark(5)
    gateway.try_close(5)
    gateway.send("a")
    with pytest.raises(CheckpointRefused, match="never begun"):
        gateway.reopen(6)
    assert gateway.reopen(4) == []
    assert gateway.is_closed
    assert gateway.reopen(5) == ["a"]
    assert gateway.reopen(5) == []


def test_an_unmarked_checkpoint_closes_nothing(gateway: EventGateway):
    assert not gateway.try_close(1)
    assert gateway.send("a") == ["a"]


def closed_for_two(gateway: EventGateway) -> EventGateway:
    for checkpoint in (1, 2):
        gateway.mark(checkpoint)
        gateway.try_close(checkpoint)
        gateway.send(f"in {checkpoint}")
    return gateway


def test_with_two_under_way_the_newer_one_acknowledged_first_passes_its_queue_to_the_older(gateway: EventGateway):
    closed_for_two(gateway)
    assert gateway.reopen(2) == []
    assert gateway.is_closed
    assert gateway.reopen(1) == ["in 1", "in 2"]


def test_with_two_under_way_the_older_one_acknowledged_first_sends_its_own(gateway: EventGateway):
    closed_for_two(gateway)
    assert gateway.reopen(1) == ["in 1"]
    assert gateway.send("later") == []
    assert gateway.reopen(2) == ["in 2", "later"]


def test_abort_opens_the_newest_and_completion_all(gateway: EventGateway):
    closed_for_two(gateway)
    assert gateway.open_newest() == []  # passed to the older one
    assert gateway.open_all() == ["in 1", "in 2"]
    assert not gateway.is_closed


def test_a_checkpoint_is_complete_when_what_was_open_as_the_gateways_closed_has_arrived(
    checkpoints: CoordinatorCheckpoints, gateways: list[EventGateway]
):
    gateways[0].send("a")
    checkpoints.begin(1)
    gateways[1].send("b")
    assert checkpoints.snapshot_taken(1) is CheckpointState.WAITING
    checkpoints.confirmed(0, "a")
    assert checkpoints.state(1) is CheckpointState.WAITING
    checkpoints.confirmed(1, "b")
    assert checkpoints.state(1) is CheckpointState.COMPLETE


def test_flink_23233_a_failed_send_is_open_until_it_is_handled_and_fails_the_checkpoint_and_its_task(
    checkpoints: CoordinatorCheckpoints, gateways: list[EventGateway]
):
    gateways[0].send("a")  # the call fails, and nobody has dealt with it yet
    checkpoints.begin(1)
    assert checkpoints.snapshot_taken(1) is CheckpointState.WAITING
    assert checkpoints.failure_handled(0, "a")
    assert checkpoints.state(1) is CheckpointState.FAILED


def test_a_send_to_a_task_that_is_gone_fails_no_task_but_the_checkpoint(
    checkpoints: CoordinatorCheckpoints, gateways: list[EventGateway]
):
    gateways[0].send("a")
    checkpoints.begin(1)
    checkpoints.snapshot_taken(1)
    gateways[0].is_running = False
    assert not checkpoints.failure_handled(0, "a")
    assert checkpoints.state(1) is CheckpointState.FAILED


def test_a_snapshot_that_completes_after_its_abort_closes_nothing_and_fails(
    checkpoints: CoordinatorCheckpoints, gateways: list[EventGateway]
):
    checkpoints.begin(1)
    checkpoints.aborted()
    assert checkpoints.snapshot_taken(1) is CheckpointState.FAILED
    assert not any(each.is_closed for each in gateways)


def test_some_gateways_closable_and_others_not_is_an_error(
    checkpoints: CoordinatorCheckpoints, gateways: list[EventGateway]
):
    checkpoints.begin(1)
    gateways[1].open_newest()
    with pytest.raises(CheckpointRefused, match="expected all gateways to close, found 1"):
        checkpoints.snapshot_taken(1)


def test_queues_are_released_by_subtask_as_it_acknowledges_and_for_all_on_abort_completion_and_reset(
    checkpoints: CoordinatorCheckpoints, gateways: list[EventGateway]
):
    for checkpoint, release in ((1, checkpoints.aborted), (2, checkpoints.completed), (3, checkpoints.reset)):
        checkpoints.begin(checkpoint)
        checkpoints.snapshot_taken(checkpoint)
        for each in gateways:
            each.send(f"{checkpoint} to {each.subtask}")
        assert checkpoints.acknowledged(checkpoint, 1) == [f"{checkpoint} to 1"]
        assert release() == [f"{checkpoint} to 0", f"{checkpoint} to 2"]


def test_a_gateway_belongs_to_one_attempt_whose_failure_is_heard_before_the_next_is_ready(
    checkpoints: CoordinatorCheckpoints, gateways: list[EventGateway]
):
    gateways[0].send("to attempt 1")
    with pytest.raises(CheckpointRefused, match="has failed before attempt 2"):
        checkpoints.ready(EventGateway(0, 2))
    checkpoints.failed(0)
    checkpoints.ready(EventGateway(0, 2))
    checkpoints.begin(1)
    assert checkpoints.snapshot_taken(1) is CheckpointState.COMPLETE  # nothing is open to attempt 2


def test_failing_the_job_counts_once_until_the_reset(checkpoints: CoordinatorCheckpoints):
    assert [checkpoints.fail_job(), checkpoints.fail_job()] == [True, False]
    checkpoints.reset()
    assert checkpoints.fail_job()


def test_with_several_attempts_at_once_checkpoints_are_off(gateways: list[EventGateway]):
    checkpoints = CoordinatorCheckpoints(gateways, has_concurrent_attempts=True)
    checkpoints.ready(EventGateway(0, 2))
    with pytest.raises(CheckpointRefused, match="speculative execution"):
        checkpoints.begin(1)
