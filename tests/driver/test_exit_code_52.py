"""Fault 74 where nothing is left but an exit code: in local mode a task that runs out of memory takes the driver along.

With a heap that is really exhausted: `tests/task/test_out_of_memory.py`.
"""

from __future__ import annotations

import pytest

from airflow_recovery.driver.failure_class import FailureClass, MemoryOf, classify, memory_of
from airflow_recovery.errors import Failure


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("52", FailureClass.OUT_OF_MEMORY),
        ("-9", FailureClass.DRIVER_LOST),
        ("1", FailureClass.DRIVER_LOST),
        ("521", FailureClass.DRIVER_LOST),
    ],
)
def test_fault_74_an_exit_code_tells_an_exhausted_heap_from_a_kill(code: str, found: FailureClass) -> None:
    said = Failure(
        "DriverLost", f"It ended without an outcome. (Cannot execute: spark-submit x. Error code is: {code}.)"
    )
    assert classify(said) is found
    assert memory_of(said) is (MemoryOf.DRIVER if found is FailureClass.OUT_OF_MEMORY else None)
