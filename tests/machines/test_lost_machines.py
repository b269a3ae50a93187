"""A machine that is lost in the middle of a region, in four ways; and one of two schedulers.

numbers --> total, the second region by spark-submit, so that its driver is on its worker's machine
"""

from __future__ import annotations

import psutil
import pytest
from machines_run import MachinesPipeline, assert_total, machine_of, miss_heartbeat, start_held, start_worker
from pipeline import DagRun, is_gone

pytestmark = [pytest.mark.airflow, pytest.mark.spark, pytest.mark.s3, pytest.mark.drill]


def driver_and_task(run: DagRun) -> list[psutil.Process]:
    jvm = run.jvm("total", 1)
    return [jvm.parent(), jvm, *jvm.children(recursive=True)]


def test_a_worker_is_killed_with_its_drivers(pipeline: MachinesPipeline, workers: list[str]) -> None:
    """The next try is on another machine: that it knows no process of that id there says nothing to it."""
    run = start_held(pipeline, "killed")
    killed = machine_of(run, "total")
    processes = driver_and_task(run)

    pipeline.airflow.kill(killed)

    run.wait(lambda: all(is_gone(process) for process in processes), "the end of the machine's processes")
    miss_heartbeat(run)
    run.wait_called("total", 2)
    assert {killed, machine_of(run, "total")} == {"worker-1", "worker-2"}
    run.release("total")
    journal = run.ends()
    assert_total(pipeline, journal, {"numbers": 1, "total": 2})
    assert journal.fenced("total") == ["own failure"]
    log = run.log("total", 2)
    assert "total@1 has given no heartbeat for 20 s: it is ended." in log
    assert "has ended without an outcome" not in log


def test_a_driver_that_lives_on_a_machine_without_airflow_is_followed_from_another(
    pipeline: MachinesPipeline, workers: list[str]
) -> None:
    """Its worker is cut off from the API server, and not from S3: nobody ends it, and what it finishes is kept."""
    airflow = pipeline.airflow
    cut = start_worker(pipeline, workers, "followed")
    run = start_held(pipeline, "followed")
    assert machine_of(run, "total") == cut

    airflow.cut_off(cut)
    other = start_worker(pipeline, workers, "followed")
    miss_heartbeat(run)

    run.wait(lambda: run.tries("total") == 2 and "waiting for it" in run.log("total", 2), "the next try to follow")
    assert machine_of(run, "total") == other
    run.release("total")
    journal = run.ends()
    assert_total(pipeline, journal, {"numbers": 1, "total": 1})
    assert run.calls("total") == 1
    assert run.tries("total") == 2


def test_what_a_machine_without_airflow_does_after_its_attempt_was_ended_counts_for_nothing(
    pipeline: MachinesPipeline, workers: list[str]
) -> None:
    """As above, but nobody is waited for (previous-worker.recovery.timeout: 0 s)."""
    airflow = pipeline.airflow
    cut = start_worker(pipeline, workers, "fenced")
    run = start_held(pipeline, "fenced")
    task, *driver = driver_and_task(run)

    airflow.cut_off(cut)
    start_worker(pipeline, workers, "fenced")
    miss_heartbeat(run)

    run.wait_called("total", 2)
    assert machine_of(run, "total") != cut
    run.release("total")
    journal = run.ends()
    assert_total(pipeline, journal, {"numbers": 1, "total": 2})
    assert len(journal.fenced("total")) == 1
    run.wait(lambda: all(map(is_gone, driver)), "the driver, which reaches S3, to see that its attempt was ended")
    airflow.connect_again(cut)
    run.wait(lambda: is_gone(task), "the end of its task")
    after = run.journal()
    assert {key for key in after.keys if ".outcome" in key} == {key for key in journal.keys if ".outcome" in key}
    assert_total(pipeline, after, {"numbers": 1, "total": 2})
    assert run.state("total") == "success"


def test_a_run_goes_on_when_each_scheduler_is_killed_once(pipeline: MachinesPipeline, workers: list[str]) -> None:
    """One of them has queued the task: the other one adopts it, and its worker does not notice."""
    airflow = pipeline.airflow
    run = start_held(pipeline, "anywhere")

    airflow.restart("scheduler")
    airflow.restart("scheduler-2")
    run.release("total")

    journal = run.ends()
    assert_total(pipeline, journal, {"numbers": 1, "total": 1})
    assert run.tries("numbers") == run.tries("total") == 1
