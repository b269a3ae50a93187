"""Checks go on after a failed one, none is waited for without end, and what they say reads well."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from itertools import chain, repeat
from types import SimpleNamespace

import pytest

from airflow_recovery.doctor import checking
from airflow_recovery.doctor.checking import Check, run_checks
from airflow_recovery.doctor.clocks import check_clock
from airflow_recovery.doctor.result import CheckResult, Status, is_wrong, not_checked, ok, summary, wrong
from airflow_recovery.errors import ConfigurationError, NothingRecorded
from airflow_recovery.testing.patience import HANG_S


def fine() -> Iterator[CheckResult]:
    yield ok("fine", "as it should be")


def broken() -> Iterator[CheckResult]:
    yield ok("half of it", "there")
    raise ConfigurationError("Expected a journal, found none. Set one.")


def surprising() -> Iterator[CheckResult]:
    raise KeyError("what")
    yield


def test_the_others_go_on() -> None:
    checks = [Check("broken", broken), Check("surprising", surprising), Check("fine", fine)]
    found = list(run_checks(checks))
    assert [(check.check, check.status) for check in found] == [
        ("half of it", Status.OK),
        ("broken", Status.WRONG),
        ("surprising", Status.WRONG),
        ("fine", Status.OK),
    ]
    assert found[1].found == "Expected a journal, found none. Set one."
    assert found[2].found == "KeyError: 'what'"


def test_one_that_hangs_is_left_behind_and_what_it_said_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    # By this clock the time is over as soon as the first result is there.
    moments = chain([0.0, 0.0], repeat(1e9))
    monkeypatch.setattr(checking, "time", SimpleNamespace(monotonic=lambda: next(moments)))
    gate, stopped = threading.Event(), threading.Event()

    def hanging() -> Iterator[CheckResult]:
        yield ok("half of it", "there")
        gate.wait()

    def stop() -> None:
        stopped.set()
        gate.set()

    checks = list(run_checks([Check("hanging", hanging, stop=stop), Check("fine", fine)], timeout_s=HANG_S))
    assert [check.check for check in checks] == ["half of it", "hanging", "fine"]
    assert (checks[1].status, checks[1].expected) == (Status.WRONG, f"an answer within {HANG_S:.0f} s")
    assert stopped.is_set()


def test_control_one_that_hangs_for_less_is_waited_for() -> None:
    gate = threading.Event()

    def slow() -> Iterator[CheckResult]:
        gate.wait(HANG_S)
        yield ok("slow", "there")

    threading.Timer(0.05, gate.set).start()
    assert [check.status for check in run_checks([Check("slow", slow, timeout_s=HANG_S)], timeout_s=0.01)] == [
        Status.OK
    ]


def test_the_line_says_what_was_expected_found_and_what_to_do() -> None:
    told = wrong("Java", expected="Java 17", found="11", next_step="Install it.")
    assert told.text() == "Java: expected Java 17, found 11. Install it."
    assert ok("Java", "17").text() == "Java: 17"
    assert not_checked("API server", "nobody asked", "Ask.").text() == "API server: not checked: nobody asked. Ask."
    assert is_wrong([told])
    assert not is_wrong([ok("a", "b"), not_checked("a", "b")])
    assert summary([told, ok("a", "b")]) == "1 ok, 0 warning, 0 not checked, 1 wrong."
    assert wrong("a", expected="b", found=NothingRecorded("it's gone"), next_step="c").found == "it's gone"


@pytest.mark.parametrize(
    ("told_s", "status"),
    [(100.0, Status.OK), (89.5, Status.OK), (113.0, Status.WRONG), (85.0, Status.WRONG), (111.0, Status.OK)],
)
def test_clocks_apart(told_s: float, status: Status) -> None:
    (found,) = [check_clock("clock", "the store", 100.0, 102.0, told_s, unit_s=1.0)]
    assert found.status is status


def test_a_slow_answer_is_no_clock_that_is_wrong() -> None:
    began_s = time.time()
    assert check_clock("clock", "it", began_s, began_s + 600, began_s + 300, unit_s=0.0).status is Status.OK
