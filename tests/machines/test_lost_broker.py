"""Tasks that wait in Celery's broker when it is lost.

numbers --> total, the second region by spark-submit
"""

from __future__ import annotations

import pytest
import redis
from machines_run import MachinesPipeline, assert_total, start_held, start_worker
from pipeline import DagRun

pytestmark = [pytest.mark.airflow, pytest.mark.spark, pytest.mark.s3, pytest.mark.drill, pytest.mark.timeout(1800)]

ONCE = {"numbers": 1, "total": 1}


def start_queued(pipeline: MachinesPipeline, dag_id: str) -> DagRun:
    """``total`` waits in the broker, in a queue of the DAG's name that no worker looks at."""
    run = pipeline.run(dag_id)
    run.hold("total")
    run.start()
    broker = redis.Redis.from_url(pipeline.airflow.env["AIRFLOW__CELERY__BROKER_URL"])
    run.wait(lambda: broker.llen(dag_id) == 1, "the task in the broker")
    return run


def test_fault_162_the_broker_is_lost_with_the_tasks_that_waited_in_it(
    pipeline: MachinesPipeline, workers: list[str]
) -> None:
    """What runs goes on. What waited is sent again after a time-out, and what became ready meanwhile is tried again."""
    running = start_held(pipeline, "anywhere")
    waiting = start_queued(pipeline, "lost")

    with pipeline.airflow.broker_down():
        ready = pipeline.run("anywhere").start()
        ready.wait(lambda: ready.tries("numbers") > 1, "a task that could not be sent to be tried again")
    start_worker(pipeline, workers, "lost")
    for run in (running, waiting):
        run.release("total")

    for run in (running, waiting, ready):
        assert_total(pipeline, run.ends(), ONCE)
        assert run.calls("total") == 1
    assert running.tries("total") == waiting.tries("total") == 1
