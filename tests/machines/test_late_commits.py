"""A machine that is cut off from the API server, and not from sinks and S3, commits to sinks when it is too late.

rows --+--> added       a table that knows its tokens: the next try commits, and the late commit finds that it was done
       +--> told        two functions: in doubt, until the late commit is in
       +--> believed    the same, but a person says that the machine is dead, and is wrong: the control
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from machines_run import MachinesPipeline, machine_of, miss_heartbeat, start_worker
from warehouse import Warehouse

pytestmark = [pytest.mark.airflow, pytest.mark.spark, pytest.mark.s3, pytest.mark.drill]

SINKS = ("added", "told", "believed")
ROWS = [(0,), (1,), (2,)]
OUTLIVES = {
    "AIRFLOW__WORKERS__EXECUTION_API_TIMEOUT": "60",
    "AIRFLOW__WORKERS__EXECUTION_API_RETRIES": "3",
    "AIRFLOW__WORKERS__EXECUTION_API_RETRY_WAIT_MAX": "2",
}
"""Settings of a worker that is cut off: while a supervisor waits for an answer, it does not serve its task."""


@pytest.fixture
def warehouse(pipeline: MachinesPipeline) -> Iterator[Warehouse]:
    opened = Warehouse(pipeline.airflow, SINKS)
    yield opened
    opened.close()


def test_fault_160_a_machine_without_airflow_commits_late_and_nothing_is_there_twice(
    pipeline: MachinesPipeline, workers: list[str], warehouse: Warehouse
) -> None:
    airflow = pipeline.airflow
    run = pipeline.run("ledger")
    commits = run.gates / "commits"
    commits.mkdir()
    (commits / "hold").touch()
    own_way = {"AIRFLOW_CONN_WAREHOUSE": json.dumps(warehouse.connection)}
    env = {"COMMITS": str(commits), **own_way, **OUTLIVES}
    cut = start_worker(pipeline, workers, "ledger", concurrency=3, env=env)

    def reached(point: str) -> bool:
        return all((commits / f"{sink}.{point}").exists() for sink in SINKS)

    run.start()
    run.wait(lambda: reached("reached"), "three commits that are about to be made")
    assert {machine_of(run, sink) for sink in SINKS} == {cut}
    airflow.cut_off(cut)
    other = start_worker(pipeline, workers, "ledger", concurrency=3)
    for sink in SINKS:
        miss_heartbeat(run, sink)

    # The table is asked, and the rows committed. Of the others nobody knows whether they will be there in a minute.
    stopped = run.ends("failed")
    assert {sink: run.state(sink) for sink in SINKS} == {"added": "success", "told": "failed", "believed": "failed"}
    assert {machine_of(run, sink) for sink in SINKS} == {other}
    assert [warehouse.rows(sink) for sink in SINKS] == [ROWS, [], []]
    assert stopped.publishes == []
    run.recovery("confirm", "believed", "--why", "nobody has looked")
    run.wait(lambda: run.state("believed") == "success", "the commit that was believed to be the only one")
    assert run.ends("failed")
    assert warehouse.rows("believed") == ROWS

    (commits / "hold").unlink()
    run.wait(lambda: reached("done"), "the late commits")
    assert [warehouse.rows(sink) for sink in SINKS] == [ROWS, ROWS, sorted(ROWS * 2)]

    run.clear("told", downstream=True)
    journal = run.ends()
    journal.check()
    assert [warehouse.rows(sink) for sink in SINKS[:2]] == [ROWS, ROWS]
    assert journal.executions() == {"rows": 1, "added": 1, "told": 1, "believed": 1}
    assert {journal.attempts[sink][1].objects["committed"]["end"] for sink in SINKS} == {"COMMITTED"}
