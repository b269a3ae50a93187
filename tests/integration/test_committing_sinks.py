"""Sinks that commit to a real database: the task is killed between its finish and its commit.

rows --+--> added    a table that knows its tokens: rolled forward by the next try
       +--> told     two functions of a user's: in doubt, until a person confirms
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import psycopg2
import pytest
from pipeline import STEP_TIMEOUT_S, DagRun, Pipeline

from airflow_recovery.testing.spark_drivers import kill_9

pytestmark = [pytest.mark.airflow, pytest.mark.spark, pytest.mark.s3]

SINKS = ("added", "told")
ROWS = [(0,), (1,), (2,)]


class Warehouse:
    """A database of its own in the server that holds Airflow's."""

    def __init__(self, pipeline: Pipeline) -> None:
        server = pipeline.airflow.database_address
        self._server = connected(server)
        ask(self._server, "CREATE DATABASE warehouse")
        self._ours = connected({**server, "dbname": "warehouse"})
        for sink in SINKS:
            ask(self._ours, f"CREATE TABLE {sink} (id bigint)")
        connection = {"connection_id": "warehouse", "conn_type": "postgres", "schema": "warehouse"}
        where = {"host": server["host"], "port": server["port"], "login": server["user"]}
        pipeline.airflow.api("POST", "/connections", {**connection, **where, "password": server["password"]})

    def lock(self) -> None:
        """Nobody else gets any further with either table."""
        ask(self._ours, "BEGIN")
        ask(self._ours, "LOCK TABLE added, told IN ACCESS EXCLUSIVE MODE")

    def unlock(self) -> None:
        ask(self._ours, "COMMIT")

    def waiting(self) -> int:
        """How many are inside their commits, and wait for the lock."""
        waits = "SELECT count(*) FROM pg_stat_activity WHERE datname = 'warehouse' AND wait_event_type = 'Lock'"
        return int(ask(self._server, waits)[0][0])

    def rows(self, table: str) -> list[tuple[Any, ...]]:
        return ask(self._ours, f"SELECT id FROM {table} ORDER BY id")

    def close(self) -> None:
        self._ours.close()
        self._server.close()


def connected(address: dict[str, str | int]) -> Any:
    # The server ends transactions that do nothing: ours holds a lock for as long as it is needed.
    found = psycopg2.connect(**address, options="-c idle_in_transaction_session_timeout=0")
    found.autocommit = True
    return found


def ask(connection: Any, statement: str) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(statement)
        return cursor.fetchall() if cursor.description else []


@pytest.fixture
def warehouse(pipeline: Pipeline) -> Iterator[Warehouse]:
    found = Warehouse(pipeline)
    yield found
    found.close()


def kill_inside_the_commits(run: DagRun, warehouse: Warehouse) -> None:
    """``kill -9`` of both tasks: they have finished, and no row is visible yet."""
    warehouse.lock()
    run.start()
    run.wait(lambda: warehouse.waiting() == 2, "two commits that wait for the tables")
    journal = run.journal()
    for sink in SINKS:
        assert journal.attempts[sink][1].is_finished
        found = run.airflow.task_processes(run.dag_id, run.run_id, run.task(sink))
        assert found is not None
        kill_9(found.task)
        run.airflow.wait_until(found.is_gone, STEP_TIMEOUT_S, f"the end of {sink}'s process")
    assert [warehouse.rows(sink) for sink in SINKS] == [[], []]
    warehouse.unlock()


def test_fault_12_killed_between_finish_and_commit_the_rows_are_there_once(
    pipeline: Pipeline, warehouse: Warehouse
) -> None:
    run = pipeline.run("ledger")
    kill_inside_the_commits(run, warehouse)

    # The table was asked, and the rows committed, without Spark. Of the other one nobody knows.
    stopped = run.ends("failed")
    assert {sink: run.state(sink) for sink in SINKS} == {"added": "success", "told": "failed"}
    assert (warehouse.rows("added"), warehouse.rows("told")) == (ROWS, [])
    assert stopped.executions() == {"rows": 1, "added": 1, "told": 1}
    log = run.log("told")
    assert "the target says NOT_APPLIED" in log
    assert f"airflow recovery confirm ledger date-{run.day}T000000Z told --group g" in log

    said = json.loads(run.recovery("confirm", "told", "--why", "killed it myself", "--json"))
    assert (said["region"], said["attempt"]) == ("told", 1)
    assert "g.told" in said["cleared"]

    journal = run.ends()
    journal.check()
    assert (warehouse.rows("added"), warehouse.rows("told")) == (ROWS, ROWS)
    assert journal.executions() == {"rows": 1, "added": 1, "told": 1}
    assert {sink: run.calls(sink) for sink in ("rows", *SINKS)} == {"rows": 1, "added": 1, "told": 1}
    ends = {sink: journal.attempts[sink][1].objects["committed"]["end"] for sink in SINKS}
    assert set(ends.values()) == {"COMMITTED"}
