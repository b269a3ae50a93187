"""A run's own Spark where tasks run on several machines: it begins on one of them, and the others use it.

start_spark --> numbers --> total --> publish --> stop_spark
"""

from __future__ import annotations

import re
import socket

import psutil
import pytest
from machines_run import MachinesPipeline, assert_total, start_worker
from pipeline import DagRun

pytestmark = [pytest.mark.airflow, pytest.mark.spark, pytest.mark.s3, pytest.mark.drill]


def common_address() -> str:
    """An address of this computer that is not the loopback's: on all of its machines it leads to the same place."""
    addresses = (address for of_one in psutil.net_if_addrs().values() for address in of_one)
    return next(
        address.address
        for address in addresses
        if address.family == socket.AF_INET and not address.address.startswith("127.")
    )


def server_of(run: DagRun, region: str) -> str:
    """The server that the newest try says it uses."""
    (server,) = set(re.findall(r"Spark Connect server: (\S+),", run.log(region)))
    return str(server)


def test_fault_161_the_machine_of_a_runs_own_spark_is_lost_and_the_next_attempt_starts_it_on_its_own(
    pipeline: MachinesPipeline, workers: list[str]
) -> None:
    """What it had written stays: it is on S3."""
    address = common_address()
    env = {"SPARK_LOCAL_IP": address}
    first, _ = (start_worker(pipeline, workers, queue, env=env) for queue in ("spark-1", "spark-2"))
    run = pipeline.run("own")
    run.hold("total")
    run.start()
    run.wait_called("total")
    began = run.said("start_spark")["server"]
    assert began.startswith(f"{address}:")
    assert server_of(run, "numbers") == server_of(run, "total") == began

    pipeline.airflow.kill(first)
    run.release("total")

    journal = run.ends()
    assert_total(pipeline, journal, {"numbers": 1, "total": 2})
    assert "or its worker is gone" in run.log("total", 1)
    after = server_of(run, "total")
    assert after.startswith(f"{address}:")
    assert after != began
    run.wait(lambda: run.state("stop_spark") == "success", "the teardown")


def test_a_runs_own_spark_on_an_address_that_each_machine_takes_for_itself_is_refused(
    pipeline: MachinesPipeline,
) -> None:
    """Before any region runs: the others would each start one, and end the one before."""
    run = pipeline.run("own_on_each").start()

    journal = run.ends("failed")

    assert journal.executions() == {}
    assert (run.calls("numbers"), run.tries("start_spark")) == (0, 1)
    assert "expected the run's Spark to listen where every worker reaches it, found '127.0.0.1'" in run.log(
        "start_spark"
    )
