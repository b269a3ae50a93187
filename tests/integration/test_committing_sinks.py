"""Sinks that commit to a real database: the task is killed between its finish and its commit.

rows --+--> added    a table that knows its tokens: rolled forward by the next try
       +--> told     two functions of a user's: in doubt, until a person confirms
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from pipeline import DagRun, Pipeline
from warehouse import Warehouse

from scripts.spark_drivers import kill_9

pytestmark = [pytest.mark.airflow, pytest.mark.spark, pytest.mark.s3]

SINKS = ("added", "told")
ROWS = [(0,), (1,), (2,)]


@pytest.fixture
def warehouse(pipeline: Pipeline) -> Iterator[Warehouse]:
    opened = Warehouse(pipeline.airflow, SINKS)
    yield opened
    opened.close()


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
        run.airflow.wait_until(found.is_gone, f"the end of {sink}'s process")
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


def test_fault_210_rows_that_were_removed_from_the_target_are_committed_again_without_spark(
    pipeline: Pipeline, warehouse: Warehouse
) -> None:
    run = pipeline.run("ledger")
    run.start()
    once = {"rows": 1, "added": 1, "told": 1}
    assert run.ends().executions() == once

    # As after a bad load: the table is emptied, and the whole run cleared.
    warehouse.ask("TRUNCATE added")
    run.clear()
    assert run.ends().executions() == once
    assert (warehouse.rows("added"), warehouse.rows("told")) == (ROWS, ROWS)
    assert "added@1 was committed again, without Spark" in run.log("added")

    # What is left of the rows would be there twice.
    warehouse.ask("DELETE FROM added WHERE id = 1")
    run.clear("added", downstream=True)
    run.ends("failed")
    log = run.log("added")
    assert "In doubt: its sink appends, and a part of the rows may still be there" in log
    assert f"airflow recovery restart ledger date-{run.day}T000000Z added --group g" in log
    assert warehouse.rows("added") == [(0,), (2,)]

    warehouse.ask("INSERT INTO added VALUES (1)")
    run.clear("added", downstream=True)
    journal = run.ends()
    journal.check()
    assert journal.executions() == once
    assert warehouse.rows("added") == ROWS
