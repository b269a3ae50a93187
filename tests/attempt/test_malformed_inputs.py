"""Fault 335: a file of an input is no data of its format, or has other columns, and nothing was altered."""

from __future__ import annotations

from typing import Any

import pytest
from expected_errors import fails_with
from fakes import PAIR, FakeApplication, World

from airflow_recovery.attempt import failed_attempt
from airflow_recovery.driver.failure_class import ERRORS, classify
from airflow_recovery.errors import Failure, InputLost, InputUnreadable, kind_of
from airflow_recovery.model.records import ExternalObject

FILE = "s3a://lake/flights/part-3.parquet"
MALFORMED = Failure(
    "SparkException",
    f"[FAILED_READ_FILE.CANNOT_READ_FILE_FOOTER] Encountered error while reading file {FILE}. Could not read footer.",
    "FAILED_READ_FILE.CANNOT_READ_FILE_FOOTER",
    "KD001",
)


def fails(failure: Failure = MALFORMED) -> Any:
    def fail() -> None:
        raise ERRORS[classify(failure)](failure.message, failure)

    return fail


@pytest.fixture
def world() -> World:
    world = World(PAIR)
    world.go("P")
    return world


def test_fault_335_it_fails_once_with_the_file_and_what_to_do(world: World) -> None:
    with fails_with("input-not-altered") as error:
        world.go("C", on_read=fails())
    assert kind_of(error.value).is_final
    assert "InputMalformed" in str(world.state().of("C").attempts[1].outcome.detail)


def test_fault_335_an_input_that_is_lost_is_made_again(world: World) -> None:
    def lose() -> None:
        world.delete_results("P", 1)
        fails()()

    with pytest.raises(InputLost):
        world.go("C", on_read=lose)
    world.until_green()
    assert world.ran == [("P", 1), ("C", 1), ("P", 2), ("C", 2)]


def test_fault_335_an_external_input_that_was_altered_meanwhile_is_tried_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = [ExternalObject("C", FILE, 1, "before"), ExternalObject("C", FILE, 1, "after")]
    monkeypatch.setattr(FakeApplication, "externals", lambda self: (seen.pop(0),))
    with fails_with("input-altered-meanwhile") as error:
        world.go("C", on_read=fails())
    assert not kind_of(error.value).is_final


def test_fault_335_what_spark_has_no_reason_for_is_tried_again(world: World) -> None:
    nothing_known = Failure("SparkException", f"Encountered error while reading {FILE}", "FAILED_READ_FILE.NO_HINT")
    with pytest.raises(InputUnreadable) as error:
        world.go("C", on_read=fails(nothing_known))
    assert not kind_of(error.value).is_final


@pytest.mark.control
def test_fault_335_control_taken_for_a_passing_trouble_it_is_read_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(failed_attempt, "is_malformed", lambda failure: False)
    for number in (1, 2):
        with pytest.raises(InputUnreadable):
            world.go("C", on_read=fails())
        assert ("C", number) in world.ran
