"""A run that an asset triggers has no logical date: its run id is what its journal is known by."""

from __future__ import annotations

import pytest
from pipeline import DagRun, Pipeline

from airflow_recovery.model.names import encode

pytestmark = [pytest.mark.airflow, pytest.mark.spark, pytest.mark.s3]


def next_run(pipeline: Pipeline) -> DagRun:
    """The run that a new event of the asset triggers, once it has ended well."""
    airflow = pipeline.airflow
    airflow.wait_dag("listening")

    def runs() -> set[str]:
        found = airflow.dag_runs("listening", "asset_triggered")
        assert all(run["logical_date"] is None for run in found)
        return {str(run["dag_run_id"]) for run in found}

    before = runs()
    (asset,) = airflow.api("GET", "/assets?name_pattern=spoken")["assets"]
    airflow.api("POST", "/assets/events", {"asset_id": asset["id"]})
    airflow.wait_until(lambda: bool(runs() - before), "a run of listening")
    (run_id,) = runs() - before
    run = DagRun(pipeline, "listening", run_id, "", pipeline.folder)
    assert airflow.wait_run("listening", run_id) == "success", run.story()
    return run


def test_an_asset_triggered_run_finds_its_own_journal_and_no_other_run_does(pipeline: Pipeline) -> None:
    first, second = next_run(pipeline), next_run(pipeline)
    keys = [encode(f"run-{each.run_id}") for each in (first, second)]
    before, other = (pipeline.journal("listening", "", "g", key) for key in keys)
    assert before.executions() == other.executions() == {"made": 1, "total": 1}

    for file in (*before.files("made"), *before.files("total")):
        file.unlink()
    first.clear("total", downstream=True)
    assert pipeline.airflow.wait_run("listening", first.run_id) == "success", first.story()

    after = pipeline.journal("listening", "", "g", keys[0])
    assert after.ran_since(before) == {"made": 1, "total": 1}
    after.check()
    assert pipeline.journal("listening", "", "g", keys[1]).keys == other.keys
