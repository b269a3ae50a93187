"""Real drivers that die, freeze, or run out of memory in the middle of a region that commits split by split."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from spark_split_run import DriverProcess, SparkSplitRun, driver_process

from airflow_recovery.driver import driver
from airflow_recovery.driver.failure_class import FailureClass, classify
from airflow_recovery.driver.region_spec import RegionSpec
from airflow_recovery.errors import OutOfMemory, RegionFailed, UserCodeError
from airflow_recovery.model.records import AttemptState
from airflow_recovery.splits.mode import AdoptedBatches, SplitClaim, SplitOutcome

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


class Stable:
    """A driver process that may be used again, and a new one where the last one is gone: each costs a JVM."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self._folder = folder
        self._stack = stack
        self._last: DriverProcess | None = None

    def driver(self) -> DriverProcess:
        if self._last is None or self._last.process.poll() is not None:
            name = f"{len([*self._folder.iterdir()])}"
            self._last = self._stack.enter_context(driver_process(self._folder / name))
        return self._last


@pytest.fixture(scope="module")
def stable(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stable]:
    with ExitStack() as stack:
        yield Stable(tmp_path_factory.mktemp("drivers"), stack)


def held(spark_run: SparkSplitRun, folder: Path, *, after: int) -> Path:
    """The batch after so many waits for the file that is returned, in the attempts of the driver process."""
    spark_run.params = {"wait_for": str(folder / "go"), "ready": str(folder / "ready"), "after": after}
    return folder / "go"


def stopped_at(
    process: DriverProcess, spark_run: SparkSplitRun, batches: int, stop: Callable[[], None]
) -> Callable[[RegionSpec], None]:
    """Drives an attempt until it has committed so many batches; then ``stop``, and the task gives it up."""

    def drive(spec: RegionSpec) -> None:
        process.begin(spec)
        process.wait(lambda: spark_run.batches(spec.attempt) == batches, f"batch {batches}")
        stop()
        raise RegionFailed("the driver is gone (Error code is: -9.)")

    return drive


@pytest.mark.drill
def test_fault_57_killed_after_700_of_1000_the_rest_is_read(
    spark: SparkSession, tmp_path: Path, stable: Stable
) -> None:
    """Beside the other tests with Airflow as well: `tests/integration/test_splits.py`."""
    spark_run = SparkSplitRun(tmp_path, spark, batch_bytes=600)
    spark_run.write_files(1000)
    go = held(spark_run, tmp_path, after=7)
    process = stable.driver()
    with pytest.raises(RegionFailed):
        spark_run.go(stopped_at(process, spark_run, 7, process.kill))
    go.touch()
    result = spark_run.go()
    assert result.why == "ran; 700 of 1000 splits kept"
    outcome = result.outcome
    batches = SplitOutcome.of(outcome).batches
    read = {attempt: sum(len(batch.splits) for batch in batches if batch.attempt == attempt) for attempt in (1, 2)}
    assert read == {1: 700, 2: 300}
    assert outcome.read is not None
    assert outcome.read.files == 300 + 2
    assert spark_run.numbers(outcome) == [*range(1000)]
    assert [output.digest for output in outcome.outputs] == [each.digest for each in spark_run.at_once()]


@pytest.mark.drill
def test_a_frozen_driver_wakes_up_to_fenced_and_what_was_adopted_stays(
    spark: SparkSession, tmp_path: Path, stable: Stable
) -> None:
    """Beside the other tests without Spark: `test_crash_kit.py`, where the process of a task with splits is frozen."""
    spark_run = SparkSplitRun(tmp_path, spark)
    spark_run.write_files(12)
    go = held(spark_run, tmp_path, after=3)
    process = stable.driver()
    with pytest.raises(RegionFailed):
        spark_run.go(stopped_at(process, spark_run, 3, lambda: process.signal(signal.SIGSTOP)))
    zombie = spark_run.specs[0]
    adopted = spark_run.data(1)
    driving = spark_run.in_process
    spark_run.params = {}
    outcome = spark_run.go(driving).outcome
    assert SplitClaim.of(spark_run.journal().read_claim(zombie.region, 2)).base == (AdoptedBatches(1, 3),)

    go.touch()
    process.signal(signal.SIGCONT)
    assert process.code(zombie) == driver.FENCED
    assert "was fenced after it had committed 3 batches" in process.log()
    assert spark_run.outcome(1).state is AttemptState.FENCED
    assert set(adopted) <= set(spark_run.data(1))
    assert spark_run.numbers(outcome) == [*range(12)]
    assert spark_run.again().outcome.attempt == 2  # it stands


@pytest.mark.drill
def test_a_split_for_which_no_heap_is_large_enough_is_found_by_its_deaths(
    spark: SparkSession, tmp_path: Path, stable: Stable
) -> None:
    """Beside the other tests without a heap (`test_poison.py`); a heap is exhausted in `test_out_of_memory.py`."""
    spark_run = SparkSplitRun(tmp_path, spark, batch_bytes=6)
    spark_run.write_files(4)
    spark_run.write_file("00001", 99999)
    for _ in range(3):
        with pytest.raises((OutOfMemory, RegionFailed)):
            spark_run.go(stable.driver().drive)
    failures = [spark_run.outcome(number).failure for number in (1, 2, 3)]
    assert {classify(failure) for failure in failures if failure is not None} <= {
        FailureClass.OUT_OF_MEMORY,
        FailureClass.DRIVER_LOST,
    }
    # All others were safe before the third driver died; none is started for the fourth.
    with pytest.raises(UserCodeError, match=r"(?s)00001\.csv can't be read.* 3 drivers were killed"):
        spark_run.go()
    assert [spark_run.batches(number) for number in (1, 2, 3, 4)][2:] == [0, 0]
    assert sum(spark_run.batches(number) for number in (1, 2)) == 3
