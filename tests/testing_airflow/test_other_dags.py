"""A DAG that reads what another one has published, in a real Airflow: corrected, withdrawn, and read by URI."""

from __future__ import annotations

import subprocess
import sys
from urllib.parse import quote

import pytest

from airflow_recovery.testing.local_airflow import LocalAirflow

pytestmark = pytest.mark.airflow


@pytest.fixture
def airflow(airflow_without_backend: LocalAirflow) -> LocalAirflow:
    return airflow_without_backend


class Dags:
    """One date of ``upstream`` and ``downstream``."""

    def __init__(self, airflow: LocalAirflow, day: str) -> None:
        self.airflow = airflow
        self.date = f"{day}T00:00:00+00:00"
        self._source = airflow.home / "out" / "source"
        self._source.mkdir(parents=True, exist_ok=True)
        self.runs: dict[str, str] = {}

    def correct(self, rows: str) -> None:
        (self._source / "part-0").write_text(rows)

    def start(self, dag_id: str) -> None:
        """Trigger the DAG, or clear its run."""
        if dag_id in self.runs:
            self.airflow.clear(dag_id, self.runs[dag_id])
        else:
            self.runs[dag_id] = self.airflow.trigger(dag_id, logical_date=self.date)

    def ends(self, dag_id: str) -> None:
        run_id = self.runs[dag_id]
        state = self.airflow.wait_run(dag_id, run_id)
        tasks = self.airflow.task_instances(dag_id, run_id)
        last = {
            task["task_id"]: self.airflow.log(dag_id, run_id, task["task_id"], task["try_number"]) for task in tasks
        }
        assert state == "success", last

    def run(self, dag_id: str) -> None:
        self.start(dag_id)
        self.ends(dag_id)

    def rows(self, task_id: str, dag_id: str = "downstream") -> str:
        """What the newest attempt has written."""
        folder = self.airflow.home / "journal" / "_results" / dag_id / f"date-{self.date[:10]}T000000Z"
        (newest, *_) = sorted(folder.glob(f"*/{task_id}/*/o/part-0"), reverse=True)
        return newest.read_text()


def test_fault_204_fault_206_who_has_read_another_dag_runs_again_when_that_publishes_other_rows(
    airflow: LocalAirflow,
) -> None:
    dags = Dags(airflow, "2024-04-01")
    dags.correct("old")
    dags.run("upstream")
    dags.run("downstream")
    assert (dags.rows("declared"), dags.rows("asked")) == ("old", "old")
    dags.run("downstream")
    log = airflow.log("downstream", dags.runs["downstream"], "declared", 2)
    assert "declared is kept: attempt 1 is valid" in log

    dags.correct("new")
    dags.run("upstream")
    dags.run("downstream")
    assert (dags.rows("declared"), dags.rows("asked")) == ("new", "new")


def test_fault_203_a_withdrawn_result_is_not_given_to_other_dags(airflow: LocalAirflow) -> None:
    dags = Dags(airflow, "2024-04-02")
    dags.correct("bad")
    dags.run("upstream")
    path = f"/airflow-recovery/v1/dags/upstream/runs/{quote(dags.runs['upstream'])}/withdraw"
    answer = airflow.request("POST", path, {"reason": "the prices are wrong"})
    assert answer.ok, answer.text
    dags.start("downstream")
    run_id = dags.runs["downstream"]
    airflow.wait_until(
        lambda: airflow.task_instance("downstream", run_id, "ready")["state"] == "deferred", "the sensor to be deferred"
    )
    airflow.wait_until(
        lambda: "the prices are wrong" in airflow.log("downstream", run_id, "ready", 1), "the sensor to say why"
    )
    command = [sys.executable, "-m", "airflow", "recovery"]
    shown = subprocess.run(
        [*command, "show", "upstream", dags.date[:10]], env=airflow.env, capture_output=True, text=True, check=True
    )
    assert "Withdrawn, so that other DAGs are not given it: a@1, by admin: the prices are wrong." in shown.stdout

    # A clear alone makes nothing new.
    dags.run("upstream")
    log = airflow.log("upstream", dags.runs["upstream"], "publish", 2)
    assert "Still withdrawn, since no newer attempt was made: a@1, by admin" in log
    assert airflow.task_instance("downstream", run_id, "ready")["state"] == "deferred"

    dags.correct("right")
    dags.run("upstream")
    dags.ends("downstream")
    assert (dags.rows("declared"), dags.rows("asked")) == ("right", "right")


def test_fault_207_who_reads_by_uri_runs_after_who_writes_there(airflow: LocalAirflow) -> None:
    dags = Dags(airflow, "2024-04-03")
    folder = airflow.home / "out" / "by_uri" / "2024-04-03"
    folder.mkdir(parents=True)
    (folder / "part-0").write_text("old\n")
    dags.run("by_uri")
    assert dags.rows("reads", "by_uri") == "new\n"
