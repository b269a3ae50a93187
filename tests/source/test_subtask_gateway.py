"""One attempt's end of the numbered messages."""

from __future__ import annotations

import pytest

from airflow_recovery.source.split_log import Assign, End, Message
from airflow_recovery.source.subtask_gateway import Ack, Apply, SubtaskGateway


def sent(seq: int, *splits: str) -> Message:
    return Assign(0, 2, seq, splits) if splits else End(0, 2, seq)


@pytest.fixture
def gateway() -> SubtaskGateway:
    return SubtaskGateway(0, 2)


def test_what_arrives_is_applied_and_acknowledged(gateway: SubtaskGateway):
    assert gateway.on(sent(0, "a", "b")) == [Apply(("a", "b")), Ack(0, 2, 0)]


def test_fault_56_what_arrives_twice_is_acknowledged_twice_and_applied_once(gateway: SubtaskGateway):
    gateway.on(sent(0, "a"))
    assert gateway.on(sent(0, "a")) == [Ack(0, 2, 0)]


def test_it_may_not_finish_before_it_is_told_that_there_is_nothing_more(gateway: SubtaskGateway):
    gateway.on(sent(0, "a"))
    assert gateway.missing() is None
    assert not gateway.may_finish


def test_fault_56_it_may_not_finish_while_a_number_below_the_last_is_missing(gateway: SubtaskGateway):
    gateway.on(sent(0, "a"))
    gateway.on(sent(2))
    assert gateway.missing() == (1,)
    assert not gateway.may_finish
    gateway.on(sent(1, "b"))
    assert gateway.may_finish


@pytest.mark.parametrize("message", [Assign(0, 1, 0, ("a",)), Assign(0, 3, 0, ("a",)), Assign(1, 2, 0, ("a",))])
def test_what_is_for_another_attempt_or_subtask_is_not_even_acknowledged(gateway: SubtaskGateway, message: Message):
    assert gateway.on(message) == []


def test_after_its_attempt_it_does_nothing(gateway: SubtaskGateway):
    gateway.on(sent(0))
    gateway.close()
    assert gateway.on(sent(0)) == []
    assert not gateway.may_finish
