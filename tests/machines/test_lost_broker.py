"""Tasks in Celery's broker: it is lost, gives one of them to two workers, or nobody is left who sends any.

numbers --> total, the second region by spark-submit
"""

from __future__ import annotations

import re
from typing import Any

import pytest
import redis
from kombu import Connection
from machines_run import MachinesPipeline, assert_total, machine_of, miss_heartbeat, start_held, start_worker
from pipeline import DagRun, is_gone

pytestmark = [pytest.mark.airflow, pytest.mark.spark, pytest.mark.s3, pytest.mark.drill]

ONCE = {"numbers": 1, "total": 1}
TWICE = {"numbers": 1, "total": 2}
SCHEDULERS = ("scheduler", "scheduler-2")


def start_queued(pipeline: MachinesPipeline, dag_id: str, waiting: int = 1) -> DagRun:
    """``total`` is the last of ``waiting`` in the broker, in a queue of the DAG's name that no worker looks at."""
    run = pipeline.run(dag_id)
    run.hold("total")
    run.start()
    broker = redis.Redis.from_url(broker_of(pipeline))
    run.wait(lambda: broker.llen(dag_id) == waiting, "the task in the broker")
    return run


def broker_of(pipeline: MachinesPipeline) -> str:
    return pipeline.airflow.env["AIRFLOW__CELERY__BROKER_URL"]


def send_again(pipeline: MachinesPipeline, queue: str) -> None:
    """What Celery does with a message that its worker has not confirmed within ``visibility_timeout``."""
    with Connection(broker_of(pipeline)) as connection:
        channel: Any = connection.default_channel
        (tag,) = [tag for tag, message in channel.client.hgetall("unacked").items() if f'"{queue}"'.encode() in message]
        channel.qos.restore_by_tag(tag.decode())


def received(pipeline: MachinesPipeline, worker: str) -> list[str]:
    """The ids of the messages that a worker was given, in order."""
    said = (pipeline.airflow.home / "log" / f"{worker}.log").read_text(errors="replace")
    return re.findall(r"Task execute_workload\[([\w-]+)\] received", said)


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


def test_fault_163_one_message_is_given_to_two_workers_while_the_machine_of_the_first_stands_still(
    pipeline: MachinesPipeline, workers: list[str]
) -> None:
    """The second is told that the task runs. Its try begins when Airflow has missed the first one's heartbeats."""
    airflow = pipeline.airflow
    frozen = start_worker(pipeline, workers, "twice")
    run = start_held(pipeline, "twice")
    jvm = run.jvm("total", 1)
    first = [jvm.parent(), jvm, *jvm.children(recursive=True)]

    with airflow.frozen(frozen):
        send_again(pipeline, "twice")
        other = start_worker(pipeline, workers, "twice")
        run.wait(lambda: received(pipeline, other) == received(pipeline, frozen), "the same message on both machines")
        miss_heartbeat(run)
        run.wait_called("total", 2)
        assert len(received(pipeline, other)) == 2
        assert (run.tries("total"), machine_of(run, "total")) == (2, other)

    run.wait(lambda: all(map(is_gone, first)), "the first one to see that its attempt was ended")
    run.release("total")
    journal = run.ends()
    assert_total(pipeline, journal, TWICE)
    assert len(journal.fenced("total")) == 1
    assert (run.calls("total"), run.tries("total")) == (2, 2)


def test_fault_164_all_schedulers_are_killed_while_tasks_wait_in_the_broker(
    pipeline: MachinesPipeline, workers: list[str]
) -> None:
    """A worker takes them all the same: one that fails is tried again by a scheduler that is started, the other not."""
    airflow = pipeline.airflow
    fails, runs = (start_queued(pipeline, "waiting", waiting) for waiting in (1, 2))
    fails.make_fail_once("total")
    fails.release("total")

    for scheduler in SCHEDULERS:
        airflow.kill(scheduler)
    start_worker(pipeline, workers, "waiting")
    runs.wait_called("total")
    assert (fails.state("total"), fails.calls("total")) == ("up_for_retry", 1)
    airflow.start(SCHEDULERS[0])
    runs.release("total")

    assert_total(pipeline, fails.ends(), TWICE)
    assert_total(pipeline, runs.ends(), ONCE)
    assert [(run.calls("total"), run.tries("total")) for run in (fails, runs)] == [(2, 2), (1, 1)]
    assert [run.tries("numbers") for run in (fails, runs)] == [1, 1]
