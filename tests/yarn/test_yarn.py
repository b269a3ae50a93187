"""Regions on a real YARN (`yarn_cluster`), with journal and results on S3 over HTTP."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from pyiceberg.catalog import load_catalog
from yarn_cluster import YarnCluster
from yarn_tasks import MEMORY_MB, TRACKED, YarnTask

from airflow_recovery.driver.failure_class import CLASS_LABEL, label_of
from airflow_recovery.model.records import AttemptState, FenceCause
from airflow_recovery.testing import S3Server
from airflow_recovery.testing.patience import HANG_S, NEVER_S
from airflow_recovery.testing.s3_server import ACCESS_KEY, SECRET_KEY

pytestmark = [pytest.mark.spark, pytest.mark.s3]
MakeTask = Callable[..., YarnTask]


def test_a_region_runs_on_the_cluster_and_is_kept_by_the_next_try(yarn_task: MakeTask) -> None:
    task = yarn_task("declared", **TRACKED)
    task.open_gate()

    first = task.start()
    answer = first.answer()

    (app,) = task.applications()
    assert (answer["decision"], answer["attempt"], app["finalStatus"]) == ("ran", 1, "SUCCEEDED")
    outcome = task.outcome_of(1)
    assert (outcome.application_id, outcome.outputs[0].rows) == (app["id"], 10)
    assert f"State and logs: {task.cluster.url}/cluster/app/{app['id']}" in first.log
    assert task.start().answer()["decision"] == "kept"
    assert len(task.applications()) == 1


@pytest.mark.drill
def test_a_region_runs_in_client_mode(yarn_task: MakeTask) -> None:
    task = yarn_task("declared", deploy_mode="client")
    task.open_gate()

    answer = task.start().answer()

    (app,) = task.applications()
    assert (answer["decision"], answer["attempt"], app["finalStatus"]) == ("ran", 1, "SUCCEEDED")
    assert task.outcome_of(1).outputs[0].rows == 10


@pytest.mark.drill
def test_an_application_that_yarn_kills_in_client_mode_is_a_lost_driver_too(yarn_task: MakeTask) -> None:
    task = yarn_task("declared", deploy_mode="client")
    first = task.start()
    application_id = task.until_waiting()

    task.cluster.kill(application_id)
    task.until_ended(application_id)
    task.open_gate()

    said = first.said()
    assert ("DriverLost" in said["error"], said["application_id"]) == (True, application_id), said
    assert label_of(task.outcome_of(1).failure, CLASS_LABEL) == "driver lost"


@pytest.mark.drill
@pytest.mark.parametrize("kind", ["declared", "drop-in"])
def test_an_application_that_yarn_kills_is_a_lost_driver_and_another_attempt_runs(
    yarn_task: MakeTask, kind: str
) -> None:
    task = yarn_task(kind, **TRACKED)
    first = task.start()
    application_id = task.until_waiting()

    task.cluster.kill(application_id)

    said = first.said()
    assert "DriverLost" in said["error"], said
    assert said["application_id"] == application_id
    outcome = task.outcome_of(1)
    assert (outcome.state, outcome.cause) == (AttemptState.FENCED, FenceCause.OWN_FAILURE)
    assert label_of(outcome.failure, CLASS_LABEL) == "driver lost"
    task.open_gate()
    answer = task.start().answer()
    assert (answer["decision"], answer["attempt"]) == ("ran", 2)
    assert len(task.applications()) == 2


@pytest.mark.drill
def test_a_driver_that_dies_on_its_node_is_started_by_the_next_try_and_not_by_yarn(yarn_task: MakeTask) -> None:
    task = yarn_task("declared", **TRACKED)
    first = task.start()
    application_id = task.until_waiting()

    task.kill_driver(application_id)

    assert "DriverLost" in first.said()["error"], first.said()
    assert task.waiting() == [application_id]
    assert task.cluster.application(application_id)["state"] == "FAILED"
    assert label_of(task.outcome_of(1).failure, CLASS_LABEL) == "driver lost"


@pytest.mark.drill
@pytest.mark.parametrize("kind", ["declared", "drop-in"])
def test_the_next_try_adopts_what_the_application_of_a_killed_task_finishes(yarn_task: MakeTask, kind: str) -> None:
    task = yarn_task(kind, **TRACKED)
    first = task.start()
    application_id = task.until_waiting()
    first.lose()

    second = task.start()
    task.until(lambda: "left by an earlier try, lives: waiting for it" in second.log, "the second try waits")
    task.open_gate()

    answer = second.answer()
    assert (answer["decision"], answer["attempt"]) == ("kept", 1)
    assert [app["id"] for app in task.applications()] == [application_id]
    outcome = task.outcome_of(1)
    assert (outcome.state, outcome.application_id) == (AttemptState.FINISHED, application_id)


@pytest.mark.drill
@pytest.mark.parametrize("kind", ["declared", "drop-in"])
def test_an_application_that_nobody_could_kill_finishes_nothing(yarn_task: MakeTask, kind: str) -> None:
    task = yarn_task(kind, **TRACKED)
    task.settings["AIRFLOW__RECOVERY__PREVIOUS_WORKER_TIMEOUT"] = "0 s"
    first = task.start()
    zombie = task.until_waiting()
    first.lose()

    # The connection does not say where the resource manager is asked, so the old application is not killed.
    task.is_found = False
    second = task.start(yarn_track_via_rm_api=False, durable=False)
    task.until(lambda: len(task.waiting()) == 2, "both drivers have come to the gate")
    task.open_gate()

    answer = second.answer()
    assert (answer["decision"], answer["attempt"]) == ("ran", 2)
    task.until_ended(zombie)
    assert [task.outcome_of(n).state for n in (1, 2)] == [AttemptState.FENCED, AttemptState.FINISHED]
    assert task.outcome_of(2).application_id not in (None, zombie)
    if kind == "declared":
        # Its driver has noticed. A user's own application can't; nobody reads what it writes.
        assert task.cluster.application(zombie)["finalStatus"] == "FAILED"
        assert task.data_of(1) == []


@pytest.mark.drill
def test_a_full_queue_ends_no_attempt_that_waits_and_one_that_is_timed_out(
    yarn_task: MakeTask, yarn: YarnCluster
) -> None:
    task = yarn_task("drop-in", **TRACKED)
    hog = yarn.occupy(MEMORY_MB - 256)
    try:
        # Airflow's own time-out kills what has not begun to run.
        first = task.start(execution_timeout_s=NEVER_S)
        task.until(lambda: task.applications("ACCEPTED"), "the first application is in the queue")
        task.until(task.is_known, "Airflow knows the first application's id")
        # Airflow's clock for that is this signal.
        first.process.send_signal(signal.SIGALRM)
        assert "AirflowTaskTimeout" in first.said()["error"], first.said()
        (app,) = task.applications()
        assert (task.until_ended(app["id"]), task.waiting()) == ("KILLED", [])

        # A kill by hand, likewise.
        second = task.start()
        task.until(lambda: task.applications("ACCEPTED"), "the second application is in the queue")
        task.until(task.is_known, "Airflow knows the second application's id")
        second.process.send_signal(signal.SIGTERM)
        second.process.wait(HANG_S)
        assert task.until_ended(task.applications()[1]["id"]) == "KILLED"

        # One whose task is lost goes on to wait, and so does the next try.
        third = task.start()
        task.until(lambda: task.applications("ACCEPTED"), "the third application is in the queue")
        task.until(task.is_known, "Airflow knows the third application's id")
        third.lose()
        fourth = task.start()
        task.until(lambda: "left by an earlier try, lives: waiting for it" in fourth.log, "the fourth try waits")
    finally:
        yarn.kill(hog)
    task.open_gate()
    answer = fourth.answer()
    assert (answer["decision"], answer["attempt"], len(task.applications())) == ("kept", 3, 3)


@pytest.mark.drill
@pytest.mark.airflow
def test_a_result_that_a_driver_finds_lost_is_made_again_on_the_cluster(yarn_task: MakeTask) -> None:
    task = yarn_task("declared", **TRACKED)

    said = task.run_dag()

    assert (said["run"], set(said["states"].values())) == ("success", {"success"})
    for name in ("made", "total"):
        attempts = task.region_of(name, "g").attempts
        assert {n: attempt.is_finished for n, attempt in attempts.items()} == {1: name == "made", 2: True}


@pytest.mark.drill
def test_a_driver_on_the_cluster_commits_to_an_iceberg_table_whose_password_no_command_line_has(
    yarn_task: MakeTask, yarn_s3: S3Server, postgres: dict[str, str | int], tmp_path: Path
) -> None:
    task = yarn_task("tabled", **TRACKED)
    uri = "postgresql+psycopg2://{user}:{password}@{host}:{port}/{dbname}".format(**postgres)
    properties = {"type": "sql", "uri": uri, "warehouse": task.uri("warehouse")}
    task.settings["AIRFLOW_CONN_LAKE"] = json.dumps({"conn_type": "generic", "extra": json.dumps(properties)})
    s3 = {"s3.endpoint": yarn_s3.endpoint_url, "s3.access-key-id": ACCESS_KEY, "s3.secret-access-key": SECRET_KEY}
    catalog = load_catalog("lake", **properties, **s3)
    catalog.create_namespace("cluster")
    try:
        # The connection is the worker's alone: its driver, on the cluster, is told all of it but the address.
        first = task.start()
        said = first.said()
        assert (
            "Expected the catalog 'lake' as an Airflow connection of that id, or in pyiceberg's own" in said["message"]
        )
        assert label_of(task.outcome_of(1).failure, CLASS_LABEL) == "not set up"
        assert not catalog.table_exists("cluster.kept")

        (tmp_path / ".pyiceberg.yaml").write_text(f"catalog:\n  lake:\n    uri: {uri}\n")
        second = task.start(files=str(tmp_path / ".pyiceberg.yaml"))
        answer = second.answer()
        assert (answer["decision"], answer["attempt"]) == ("ran", 2)
        table = catalog.load_table("cluster.kept")
        made = task.outcome_of(2).outputs[0]
        assert (made.objects[0].path, made.rows) == (str(table.metadata.current_snapshot_id), 10)
        assert sorted(table.scan().to_arrow()["id"].to_pylist()) == list(range(10))
        assert task.start().answer()["decision"] == "kept"
        logs = [first.log, second.log, *(task.cluster.logs(app["id"]) for app in task.applications())]
        assert not [log for log in logs if str(postgres["password"]) in log]
    finally:
        if catalog.table_exists("cluster.kept"):
            catalog.drop_table("cluster.kept")
        catalog.drop_namespace("cluster")
