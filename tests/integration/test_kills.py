"""``kill -9`` of the task, and what ends it in order; of the scheduler and the triggerer. No process and no result is
left behind.

All of it in one run, with two schedulers, and the JVM and the database besides: tests/kills, in `make drill`.

made --> (shared ~ first, second)      the second region by spark-submit
"""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest
from journal_objects import JournalObjects
from pipeline import DagRun, Pipeline, is_gone

from scripts.spark_drivers import kill_9

pytestmark = [pytest.mark.airflow, pytest.mark.spark, pytest.mark.s3]

REGION = "first.second"


@pytest.fixture
def held(pipeline: Pipeline) -> DagRun:
    """`first` is written, `second` is not."""
    return start_held(pipeline, "pair")


def start_held(pipeline: Pipeline, dag_id: str) -> DagRun:
    run = pipeline.run(dag_id)
    run.hold("second")
    run.start()
    run.wait_called("second")
    return run


def processes_of(jvm: psutil.Process) -> list[psutil.Process]:
    return [jvm, *jvm.children(recursive=True)]


def task_of(run: DagRun) -> psutil.Process:
    found = run.airflow.task_processes(run.dag_id, run.run_id, run.task(REGION))
    assert found is not None
    return found.task


def wait_gone(run: DagRun, processes: list[psutil.Process]) -> None:
    run.wait(lambda: all(is_gone(process) for process in processes), f"the end of {processes}")


def assert_result(journal: JournalObjects, executions: dict[str, int]) -> None:
    journal.check()
    assert journal.executions() == executions
    assert journal.rows("first") == [(sum(number * number for number in range(20)),)]
    assert journal.rows("second") == [(number, number * number) for number in range(3)]


def written_by(journal: JournalObjects, attempt: int) -> list[Path]:
    """Data files below the prefix of an attempt, registered or not."""
    location = journal.manifest("first")["location"].removeprefix("file://")
    return sorted(Path(location).parents[1].glob(f"{attempt:08d}-*/**/*.parquet"))


@pytest.mark.smoke
def test_fault_4_kill_9_of_the_task_after_a_result_was_written(held: DagRun) -> None:
    jvm = held.jvm(REGION, 1)
    keeper, task, processes = jvm.parent(), task_of(held), processes_of(jvm)

    kill_9(task)
    kill_9(keeper)

    # No hook ran in the task: the kernel ended the JVM with its keeper, and the driver saw its parent go.
    wait_gone(held, [task, keeper, *processes])
    held.wait_called("second", 2)
    held.release("second")
    journal = held.ends()
    assert_result(journal, {"made": 1, REGION: 2})
    # Told by its successor.
    assert journal.fenced(REGION) == ["own failure"]
    # What the dead attempt had written is still there, and is no part of any manifest.
    left_over = written_by(journal, 1)
    assert left_over
    assert not set(left_over) & {*journal.files("first"), *journal.files("second")}


def test_fault_3_a_jvm_that_outlives_its_task_is_followed_and_its_result_is_kept(held: DagRun) -> None:
    run = held
    jvm = run.jvm(REGION, 1)
    task = task_of(run)

    kill_9(task)

    # Airflow has noticed the death, and the next try finds the application alive.
    run.wait(lambda: run.tries(REGION) == 2 and "waiting for it" in run.log(REGION, 2), "the next try to follow")
    assert is_gone(task)
    assert not is_gone(jvm)
    run.release("second")
    assert_result(run.ends(), {"made": 1, REGION: 1})
    assert run.calls("second") == 1
    wait_gone(run, [jvm])


def test_a_running_task_that_is_cleared_ends_its_application(held: DagRun) -> None:
    jvm = held.jvm(REGION, 1)
    processes = processes_of(jvm)

    held.clear(REGION)

    wait_gone(held, processes)
    held.wait_called("second", 2)
    held.release("second")
    journal = held.ends()
    assert_result(journal, {"made": 1, REGION: 2})
    assert len(journal.fenced(REGION)) == 1


@pytest.mark.drill
def test_fault_66_a_running_task_that_is_marked_failed_ends_its_application(held: DagRun) -> None:
    """Airflow tells it so as it tells one that was cleared."""
    processes = processes_of(held.jvm(REGION, 1))

    held.mark(REGION, "failed")

    wait_gone(held, processes)
    held.ends("failed")
    held.release("second")
    assert REGION in {each.removeprefix("g.") for each in held.clear(only_failed=True)}
    assert_result(held.ends(), {"made": 1, REGION: 2})
    assert held.tries("made") == 1


def test_fault_9_fault_10_the_scheduler_and_the_triggerer_are_killed_in_the_middle_of_a_run(pipeline: Pipeline) -> None:
    """`made` has finished, `total` is at work, and a sensor of its result is deferred."""
    airflow, run = pipeline.airflow, pipeline.run("chain")
    run.hold("total")
    run.start()
    waiting = airflow.trigger("waiting", logical_date=f"{run.day}T00:00:00Z")
    run.wait_called("total")
    run.wait(lambda: airflow.task_instance("waiting", waiting, "wait")["state"] == "deferred", "the sensor to defer")

    airflow.restart("scheduler", "triggerer")
    run.release("total")

    journal = run.ends()
    journal.check()
    assert journal.executions()["made"] == run.tries("made") == 1
    assert [attempt.is_finished for attempt in journal.attempts["total"].values()].count(True) == 1
    assert journal.rows("total") == [(sum(range(50)),)]
    assert airflow.wait_run("waiting", waiting) == "success"
    sensor = airflow.tries("waiting", waiting, "wait")
    assert [one["state"] for one in sensor] == ["success"]
