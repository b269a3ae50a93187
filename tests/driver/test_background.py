from __future__ import annotations

import threading

import pytest

from airflow_recovery.driver.background import in_background
from airflow_recovery.testing.patience import HANG_S


def test_the_caller_goes_on_and_gets_the_result_later() -> None:
    go = threading.Event()
    wait = in_background(lambda: go.wait(HANG_S), "work")
    assert "work" in {each.name for each in threading.enumerate()}
    go.set()  # would never come if the caller had waited
    assert wait() is True
    assert wait() is True


def test_a_failure_is_raised_where_the_result_is_needed() -> None:
    def fail() -> None:
        raise LookupError("gone")

    wait = in_background(fail, "work")
    with pytest.raises(LookupError, match="gone"):
        wait()
