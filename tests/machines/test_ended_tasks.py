"""Celery's executor: the process of a task ends, while its driver works on the same machine.

numbers --> total, the second region by spark-submit, so that its driver is on its worker's machine
"""

from __future__ import annotations

import signal

import psutil
import pytest
from machines_run import MachinesPipeline, assert_total, start_held, start_worker
from pipeline import DagRun, is_gone

from airflow_recovery.testing.patience import HANG_S
from scripts.spark_drivers import kill_9

pytestmark = [pytest.mark.airflow, pytest.mark.spark, pytest.mark.s3, pytest.mark.drill]


@pytest.fixture
def run(pipeline: MachinesPipeline) -> DagRun:
    return start_held(pipeline, "anywhere")


def test_fault_235_a_task_of_celery_is_killed_and_its_driver_is_followed(
    pipeline: MachinesPipeline, run: DagRun
) -> None:
    """By a try on the same machine, or on the other one."""
    jvm = run.jvm("total", 1)
    found = run.airflow.task_processes(run.dag_id, run.run_id, run.task("total"))
    assert found is not None
    kill_9(found.task)
    run.wait(lambda: run.tries("total") == 2 and "waiting for it" in run.log("total", 2), "the next try to follow")
    assert not is_gone(jvm)
    run.release("total")
    assert_total(pipeline, run.ends(), {"numbers": 1, "total": 1})
    assert run.calls("total") == 1


def test_fault_236_a_person_clears_a_running_task_of_celery(pipeline: MachinesPipeline, run: DagRun) -> None:
    """On another machine, the next try ends the attempt in the journal, and the keeper sees that."""
    jvm = run.jvm("total", 1)
    run.clear("total")
    run.wait(lambda: is_gone(jvm), "the end of the driver")
    run.wait_called("total", 2)
    run.release("total")
    assert_total(pipeline, run.ends(), {"numbers": 1, "total": 2})


def test_fault_237_a_running_task_of_celery_that_is_marked_failed_ends_its_driver(run: DagRun) -> None:
    jvm = run.jvm("total", 1)
    run.mark("total", "failed")
    run.wait(lambda: is_gone(jvm), "the end of the driver")
    assert run.ends("failed").fenced("total") == ["superseded"]


def test_a_worker_that_shuts_down_waits_for_its_tasks(pipeline: MachinesPipeline, workers: list[str]) -> None:
    """Celery's warm shutdown."""
    name = start_worker(pipeline, workers, "followed")
    run = start_held(pipeline, "followed")
    machine = psutil.Process(pipeline.airflow.processes[name].pid)
    (first,) = machine.children()
    (celery,) = first.children()
    celery.send_signal(signal.SIGTERM)
    log = pipeline.airflow.home / "log" / f"{name}.log"
    run.wait(lambda: "Warm shutdown" in log.read_text(errors="replace"), "the worker to begin its shutdown")
    run.release("total")
    pipeline.airflow.processes[name].wait(HANG_S)
    assert_total(pipeline, run.ends(), {"numbers": 1, "total": 1})
    assert run.tries("total") == 1
