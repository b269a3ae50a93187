"""What a task leaves in Airflow besides its state, when its run is cleared: XComs, return values, asset events."""

from __future__ import annotations

import time
from typing import Any

import pytest
from pipeline import DagRun, Pipeline

pytestmark = [pytest.mark.airflow, pytest.mark.s3]

OPERATORS = "~28operators~29"
RESULTS = ("made", "words", "reads")


def new_run(pipeline: Pipeline, name: str) -> DagRun:
    run = pipeline.run("left", name=name)
    run.group_id = OPERATORS
    return run


def xcoms(run: DagRun, task: str) -> dict[str, Any]:
    """All XComs of a task, without links to pages and what recovery did."""
    keys = run.airflow.xcom_keys(run.dag_id, run.run_id, task) - {"recovery"}
    return {key: run.airflow.xcom(run.dag_id, run.run_id, task, key) for key in keys if not key.startswith("_link")}


def decisions(run: DagRun) -> dict[str, str]:
    return {task: str(run.said(task)["decision"]) for task in RESULTS}


def events(run: DagRun) -> dict[str, int]:
    """How many events each asset has from this run."""
    path = f"/assets/events?source_dag_id={run.dag_id}&source_run_id={run.run_id}"
    counts: dict[str, int] = {}
    for event in run.airflow.api("GET", path)["asset_events"]:
        counts[event["name"]] = counts.get(event["name"], 0) + 1
    return counts


def readers(pipeline: Pipeline) -> int:
    return len(pipeline.airflow.dag_runs("left_reader"))


def test_fault_190_fault_193_a_kept_task_leaves_its_xcoms_again_and_no_second_event(pipeline: Pipeline) -> None:
    pipeline.airflow.wait_dag("left_reader")
    run = new_run(pipeline, "kept")
    first = run.start().ends()
    left = {task: xcoms(run, task) for task in RESULTS}
    returned = {"day": run.day, "words": "(a,b)"}  # so Airflow's API writes a tuple
    assert left["made"] == {"watermark": 42, **returned, "return_value": returned}
    assert left["words"] == {"return_value": ["one", "two", "three"]}
    assert left["reads"] == {"return_value": f"42 b {run.day}"}
    once = {"left_published": 1, "left_made": 1, "left_found": 1}
    assert events(run) == once
    run.wait(lambda: readers(pipeline) == 1, "the run that the event starts")

    run.clear()
    cleared = run.ends()
    assert cleared.ran_since(first) == {}
    assert run.calls("made") == 1
    assert decisions(run) == dict.fromkeys(RESULTS, "kept")
    assert {task: xcoms(run, task) for task in RESULTS} == left
    lengths = [run.airflow.xcom(run.dag_id, run.run_id, "length", map_index=index) for index in range(3)]
    assert lengths == [3, 3, 5]
    assert events(run) == once
    time.sleep(2)  # Airflow starts such a run in a second.
    assert readers(pipeline) == 1
    cleared.check()

    # Only the consumer: what it is told is there.
    run.clear("reads")
    assert run.ends().ran_since(first) == {}
    assert run.said("reads")["decision"] == "kept"

    # Made again, and published: events for both.
    run.delete("made.rows")
    run.clear("made", downstream=True)
    run.ends()
    assert (decisions(run)["made"], run.calls("made")) == ("kept", 1)
    run.recovery("restart", "made")
    run.ends()
    assert run.calls("made") == 2
    assert events(run)["left_made"] == 2
