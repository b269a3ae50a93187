"""A run that an asset triggers has no logical date: its run id is what its journal is known by."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pipeline import DagRun, Pipeline, environment

from airflow_recovery.model.names import encode
from airflow_recovery.testing import S3Server
from airflow_recovery.testing.local_airflow import LocalAirflow
from airflow_recovery.testing.s3_server import SECRET_KEY

HERE = Path(__file__).parent
pytestmark = [pytest.mark.airflow, pytest.mark.spark, pytest.mark.s3]


@pytest.fixture(scope="module")
def scheduling(
    s3_server_names: list[str],
    tmp_path_factory: pytest.TempPathFactory,
    start_s3_server: Callable[[str], S3Server],
    connect_url: str,
) -> Iterator[Pipeline]:
    """An Airflow that starts runs by itself, with the one DAG of this file."""
    folder, server = tmp_path_factory.mktemp("scheduling"), start_s3_server(s3_server_names[0])
    bucket = f"assets-{uuid.uuid4().hex[:8]}"
    server.create_bucket(bucket)
    env = environment(folder, bucket, connect_url) | {"AIRFLOW__SCHEDULER__USE_JOB_SCHEDULE": "True"}
    dags = folder / "dags"
    shutil.copytree(HERE / "dags_scheduled", dags)
    shutil.copytree(HERE / "dags" / "integration_jobs", dags / "integration_jobs")
    with LocalAirflow(folder / "airflow", dags, env=env) as airflow:
        pipeline = Pipeline(airflow, server, bucket, folder)
        pipeline.set_aws_password(SECRET_KEY)
        yield pipeline


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
    airflow.wait_until(lambda: bool(runs() - before), 60.0, "a run of listening")
    (run_id,) = runs() - before
    run = DagRun(pipeline, "listening", run_id, "", pipeline.folder)
    assert airflow.wait_run("listening", run_id) == "success", run.story()
    return run


def test_an_asset_triggered_run_finds_its_own_journal_and_no_other_run_does(scheduling: Pipeline) -> None:
    first, second = next_run(scheduling), next_run(scheduling)
    keys = [encode(f"run-{each.run_id}") for each in (first, second)]
    before, other = (scheduling.journal("listening", "", "g", key) for key in keys)
    assert before.executions() == other.executions() == {"made": 1, "total": 1}

    for file in (*before.files("made"), *before.files("total")):
        file.unlink()
    first.clear("total", downstream=True)
    assert scheduling.airflow.wait_run("listening", first.run_id) == "success", first.story()

    after = scheduling.journal("listening", "", "g", keys[0])
    assert after.ran_since(before) == {"made": 1, "total": 1}
    after.check()
    assert scheduling.journal("listening", "", "g", keys[1]).keys == other.keys
