"""Fault 74 with a heap that is really exhausted: the driver of the next spark-submit gets a larger one."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from job_tasks import GROUP, job_dag
from tries import run_try, state_in, task_context

from airflow_recovery.driver.failure_class import CLASS_LABEL, label_of
from airflow_recovery.driver.memory_policy import Memory, RaiseMemory
from airflow_recovery.errors import Failure, OutOfMemory, RegionFailed
from airflow_recovery.task.region_program import region_failed

DECLARED = "512m"
ENOUGH = "1500m"
"""The vertex makes an array of 800 MB, and the old generation of the tests' collector has two thirds of a heap."""
POLICY = RaiseMemory(factor=4, max_driver_memory=ENOUGH)


@pytest.fixture(autouse=True)
def serial_collector(monkeypatch: pytest.MonkeyPatch) -> None:
    """How much fits into a heap depends on who collects the garbage."""
    monkeypatch.setenv("JDK_JAVA_OPTIONS", f"{os.environ['JDK_JAVA_OPTIONS']} -XX:+UseSerialGC")


def attempt(where: str, number: int, policy: RaiseMemory | None) -> dict[str, Any]:
    """The try of that number; ``where``: what needs the memory, the driver itself or a task in it."""
    task = job_dag("dagjobs.hungry:hungry", driver_memory=DECLARED, memory_policy=policy).get_task(f"{GROUP}.told")
    return run_try(task, task_context(task.task_id, try_number=number, conf={"where": where}))


def failure_of(folder: Path, number: int) -> Failure:
    outcome = state_in(folder, GROUP, "told").of("told").attempts[number].outcome
    assert outcome is not None
    assert outcome.failure is not None
    return outcome.failure


@pytest.mark.spark
def test_fault_74_the_attempt_after_an_exhausted_heap_has_more_memory_up_to_the_cap(
    recovery: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(OutOfMemory, match=r"java\.lang\.OutOfMemoryError: Java heap space"):
        attempt("driver", 1, POLICY)
    assert label_of(failure_of(recovery, 1), CLASS_LABEL) == "out of memory"

    # The control: without the policy the same heap is exhausted again.
    with pytest.raises(OutOfMemory):
        attempt("driver", 2, None)

    # Four times four times as much would be 8 GiB.
    with caplog.at_level(logging.INFO):
        assert attempt("driver", 3, POLICY)["decision"] == "ran"
    assert f"An earlier attempt ran out of driver memory: this one gets {ENOUGH}." in caplog.text


@pytest.mark.drill
@pytest.mark.spark
def test_fault_74_in_local_mode_a_task_that_exhausts_the_heap_ends_the_driver_and_its_exit_code_tells_why(
    recovery: Path,
) -> None:
    """Beside the other tests by the exit code alone: below, and in `tests/driver/test_exit_code_52.py`."""
    # What the driver still says is an internal error of a Spark that is shutting down.
    with pytest.raises(OutOfMemory):
        attempt("task", 1, POLICY)
    failure = failure_of(recovery, 1)
    assert POLICY.raised([failure], driver=DECLARED, executor=None, is_local=True) == Memory(ENOUGH, None)


def test_fault_74_an_internal_error_of_a_driver_that_ends_for_its_memory_is_told_by_the_exit_code() -> None:
    spec: Any = SimpleNamespace(region="told", attempt=1)
    broken = Failure("Py4JJavaError", "[INTERNAL_ERROR] Executed command failed", "INTERNAL_ERROR", vertex="told")
    for code, raised in (("52", OutOfMemory), ("1", RegionFailed)):
        found = region_failed(spec, broken, RuntimeError(f"Cannot execute: spark-submit. Error code is: {code}."))
        assert type(found) is raised
