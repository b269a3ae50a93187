from __future__ import annotations

import pytest

from airflow_recovery.driver.failure_class import labelled
from airflow_recovery.driver.memory_policy import Memory, RaiseMemory, mebibytes
from airflow_recovery.errors import ConfigurationError, Failure

DRIVER = labelled(Failure("Py4JJavaError", "java.lang.OutOfMemoryError: Java heap space"))
EXECUTOR = labelled(
    Failure("SparkException", "Lost task 0.3 (executor 1): java.lang.OutOfMemoryError: Java heap space")
)
OTHER = labelled(Failure("RuntimeError", "x"))
POLICY = RaiseMemory(factor=2, max_driver_memory="6g", max_executor_memory="16g")


@pytest.mark.parametrize(
    ("failures", "expected"),
    [
        ([], Memory(None, None)),
        ([OTHER], Memory(None, None)),
        ([DRIVER], Memory("4096m", None)),
        ([OTHER, EXECUTOR], Memory(None, "2048m")),
        ([EXECUTOR, EXECUTOR, DRIVER], Memory("4096m", "4096m")),
        ([DRIVER, DRIVER], Memory("6144m", None)),
        ([DRIVER] * 9, Memory("6144m", None)),
    ],
)
def test_fault_74_memory_is_raised_for_the_next_attempt_up_to_its_cap(
    failures: list[Failure], expected: Memory
) -> None:
    assert POLICY.raised(failures, driver="2g", executor=None) == expected


def test_in_local_mode_an_executor_is_the_driver() -> None:
    assert POLICY.raised([EXECUTOR], driver="1g", executor="1g", is_local=True) == Memory("2048m", None)


def test_without_a_cap_that_side_stays_and_a_cap_below_takes_nothing_away() -> None:
    policy = RaiseMemory(max_driver_memory="1g")
    assert policy.raised([DRIVER, EXECUTOR], driver="2g", executor="1g") == Memory("2048m", None)


@pytest.mark.parametrize(
    ("size", "expected"), [("512m", 512), ("2G", 2048), ("1gb", 1024), ("700", 700), ("1t", 2**20)]
)
def test_sparks_sizes(size: str, expected: float) -> None:
    assert mebibytes(size) == expected


@pytest.mark.parametrize("options", [{}, {"factor": 1, "max_driver_memory": "1g"}, {"max_driver_memory": "much"}])
def test_what_makes_no_sense_is_refused(options: dict[str, object]) -> None:
    with pytest.raises(ConfigurationError):
        RaiseMemory(**options)  # type: ignore[arg-type]
