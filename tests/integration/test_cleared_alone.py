"""A consumer is cleared alone, and its producer has other code since (faults 240 and 241), in a real Airflow."""

from __future__ import annotations

import pytest
from pipeline import DagRun, Pipeline

from airflow_recovery.story.deploy_impact import DECLARED_OTHERWISE

pytestmark = [pytest.mark.airflow, pytest.mark.s3]

WRITTEN, OTHERWISE = '"bash $SCRIPT > {output:o}/o"', "\"bash $SCRIPT > {{ '{output:o}' }}/o\""


def begun(pipeline: Pipeline, dag_id: str) -> DagRun:
    run = pipeline.run(dag_id)
    run.group_id = "~28operators~29"
    return run


def content(run: DagRun, region: str) -> str:
    """What the newest attempt of an operator has written."""
    location = run.journal().manifest(f"{region}.o")["location"].removeprefix("file://")
    with open(f"{location}/o") as file:
        return file.read().strip()


def is_warned_of(run: DagRun, named: str) -> bool:
    """Whether the tab's plan of the run names what the DAG declares otherwise, now that Airflow has parsed its file."""
    plan = run.airflow.request("POST", f"/airflow-recovery/v1/dags/declared/runs/{run.run_id}/plan", {}).json()
    return f"{DECLARED_OTHERWISE.format(named)}." in plan["warnings"]


def test_fault_240_new_code_of_a_producer_runs_before_its_consumer_that_was_cleared_alone(pipeline: Pipeline) -> None:
    run = begun(pipeline, "declared")
    before = run.start().ends()
    script = pipeline.folder / "dags" / "declared_script" / "make.program"
    deployed = script.read_text()
    try:
        script.write_text('echo "new rows"\n')
        run.clear("read")
        journal = run.ends()
    finally:
        script.write_text(deployed)
    assert journal.ran_since(before) == {"make": 1, "read": 1}
    assert content(run, "read") == "new rows"
    assert "make: class, arguments or local files changed" in run.log("read", run.tries("read") - 1)
    journal.check()


def test_fault_240_arguments_that_are_only_written_otherwise_are_asked_about_once(pipeline: Pipeline) -> None:
    run = begun(pipeline, "declared")
    before = run.start().ends()
    file = pipeline.folder / "dags" / "declared_dag.py"
    deployed = file.read_text()
    assert WRITTEN in deployed
    try:
        file.write_text(deployed.replace(WRITTEN, OTHERWISE))
        run.airflow.wait_until(lambda: is_warned_of(run, "make (bash_command)"), "the tab's plan to name the deploy")
        run.clear("read")
        once = run.ends()
        tries = run.tries("make")
        run.clear("read")
        twice = run.ends()
    finally:
        file.write_text(deployed)
    assert once.ran_since(before) == twice.ran_since(before) == {}
    assert run.said("make")["decision"] == run.said("read")["decision"] == "kept"
    assert "only its own try can judge" in run.said("read")["why"]
    assert run.tries("make") == tries
    twice.check()


def test_fault_241_arguments_that_are_other_each_time_clear_nothing(pipeline: Pipeline) -> None:
    run = begun(pipeline, "declared_each_time")
    before = run.start().ends()
    assert before.executions() == {"make": 1, "read": 1}
    run.clear("read")
    journal = run.ends()
    assert journal.ran_since(before) == {}
    assert run.tries("make") == 1
    assert "is other each time the file is read" in run.log("read")
