"""What a vertex counts."""

from __future__ import annotations

import logging
import threading

import pytest
from expected_errors import fails_with

from airflow_recovery.errors import JobDefinitionError
from airflow_recovery.job import accumulators
from airflow_recovery.job.accumulators import MAX_NAMES, Accumulators
from airflow_recovery.job.context import RegionContext


def test_amounts_of_one_name_are_summed():
    found = Accumulators()
    found.add("b", 2)
    found.add("a")
    found.add("b", 0.5)
    assert found.totals() == (("a", 1), ("b", 2.5))


def test_what_is_known_later_is_asked_once_at_the_end():
    found, asked = Accumulators(), []
    found.add_later("a", lambda: asked.append(1) or 3)
    assert asked == []
    assert found.totals() == (("a", 3),)
    assert found.totals() == (("a", 3),)
    assert asked == [1]


@pytest.mark.parametrize("answer", [lambda: 1 / 0, lambda: float("nan"), lambda: None])
def test_what_can_not_be_counted_is_left_out_with_a_warning(answer, caplog):
    found = Accumulators()
    found.add("good", 1)
    found.add_later("bad", answer)
    with caplog.at_level(logging.WARNING):
        assert found.totals() == (("good", 1),)
    assert "'bad' is left out" in caplog.text


def test_an_observation_that_never_comes_does_not_stop_the_region(monkeypatch, caplog):
    monkeypatch.setattr(accumulators, "LATER_TIMEOUT_S", 0.01)
    found, never = Accumulators(), threading.Event()
    found.add_later("bad", never.wait)
    assert found.totals() == ()
    assert "no answer" in caplog.text
    never.set()


@pytest.mark.parametrize(
    ("name", "amount"), [("", 1), ("x" * 201, 1), (3, 1), ("a", "1"), ("a", True), ("a", float("inf"))]
)
def test_what_is_no_count_is_refused(name, amount):
    with pytest.raises(JobDefinitionError):
        Accumulators().add(name, amount)


def test_names_are_bounded():
    found = Accumulators()
    for number in range(MAX_NAMES):
        found.add(f"n{number}")
    with fails_with("too-many-accumulators"):
        found.add("one more")
    found.add("n0")


def test_every_context_has_its_own_and_is_the_same_value():
    one, other = RegionContext("j", "v", "r", 1), RegionContext("j", "v", "r", 1)
    one.accumulators.add("a")
    assert other.accumulators.totals() == ()
    assert one == other
