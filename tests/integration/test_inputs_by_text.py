"""Inputs that no file shows, in a real Airflow: a Variable, and an asset by its events (`dags/stated_dag.py`)."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from pipeline import DagRun, Pipeline, fresh_day

from airflow_recovery.model.names import encode

pytestmark = [pytest.mark.airflow, pytest.mark.s3]

OPERATORS = "~28operators~29"


def told(run: DagRun, key: str = "") -> str:
    """What the newest attempt of ``load`` was told."""
    (file,) = run.pipeline.journal(run.dag_id, run.day, OPERATORS, key).files("load.loaded")
    return file.read_text().strip()


def decision(run: DagRun, task: str = "load") -> tuple[str, int]:
    """How the newest try has ended, once the run has."""
    assert run.airflow.wait_run(run.dag_id, run.run_id) == "success", run.story()
    said = run.said(task)
    return said["decision"], said["attempt"]


@pytest.fixture
def count(pipeline: Pipeline) -> Any:
    """Sets the Variable by which the input ``orders`` is known."""
    airflow, path = pipeline.airflow, "/variables/stated_count"
    airflow.api("POST", "/variables", {"key": "stated_count", "value": "41"})
    yield lambda value: airflow.api("PATCH", path, {"key": "stated_count", "value": value})
    airflow.api("DELETE", path)


def sent(pipeline: Pipeline) -> tuple[DagRun, str]:
    """A new event of the asset: the run that it triggers, once that has ended, and when it was sent."""
    airflow = pipeline.airflow
    airflow.wait_dag("stated")
    before = {run["dag_run_id"] for run in airflow.dag_runs("stated", "asset_triggered")}
    (asset,) = airflow.api("GET", "/assets?name_pattern=stated_feed")["assets"]
    event = airflow.api("POST", "/assets/events", {"asset_id": asset["id"]})

    def new() -> set[str]:
        return {run["dag_run_id"] for run in airflow.dag_runs("stated", "asset_triggered")} - before

    airflow.wait_until(lambda: bool(new()), "a run of stated")
    (run_id,) = new()
    run = DagRun(pipeline, "stated", run_id, "", Path(pipeline.folder), group_id=OPERATORS)
    assert airflow.wait_run("stated", run_id) == "success", run.story()
    return run, str(event["timestamp"]).replace("Z", "")


def test_fault_300_fault_301_a_run_reads_the_event_that_triggered_it_and_runs_again_for_another_text(
    pipeline: Pipeline, count: Any
) -> None:
    run, sent_at = sent(pipeline)
    key = encode(f"run-{run.run_id}")
    first = told(run, key)
    assert first.startswith(f"41|stated://feed/rows|event of {sent_at}")
    sent(pipeline)

    run.clear()
    assert decision(run) == ("kept", 1)

    count("42")
    run.clear()
    assert decision(run) == ("ran", 2)
    assert told(run, key) == first.replace("41|", "42|")
    assert "input orders was '41', is now '42'" in run.log("load")


def test_fault_301_a_run_that_no_event_triggered_stays_with_the_last_one_at_its_first_claim(
    pipeline: Pipeline, count: Any
) -> None:
    _, sent_at = sent(pipeline)
    day = fresh_day()
    run = DagRun(pipeline, "stated", f"manual-{day}", day, Path(pipeline.folder), group_id=OPERATORS).start()
    assert decision(run) == ("ran", 1)
    first = told(run)
    assert first.startswith(f"41|stated://feed/rows|event of {sent_at}")
    sent(pipeline)

    run.clear()
    assert decision(run) == ("kept", 1)

    count("42")
    run.clear()
    assert decision(run) == ("ran", 2)
    assert told(run) == first.replace("41|", "42|")


def test_fault_305_a_field_over_another_runs_state_is_named_when_that_state_changes(pipeline: Pipeline) -> None:
    airflow = pipeline.airflow
    airflow.wait_dag("over_others")
    days = sorted(fresh_day() for _ in range(2))
    before, run = (
        DagRun(pipeline, "over_others", f"manual-{day}", day, Path(pipeline.folder), group_id=OPERATORS) for day in days
    )
    for each in (before, run):
        each.start()
        assert decision(each, "last") == ("ran", 1)
    run.clear()
    assert decision(run, "last") == ("kept", 1)

    airflow.api("PATCH", f"/dags/over_others/dagRuns/{quote(before.run_id)}", {"state": "failed"})
    run.clear()
    assert decision(run, "last") == ("ran", 2)
    log = run.log("last")
    assert "bash_command is a template over the states of other runs (prev_start_date_success)" in log
    assert "other now: bash_command" in log
