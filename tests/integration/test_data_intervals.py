"""Runs of one date under a timetable with data intervals: which of them is the date's run (`dags/interval_dag.py`)."""

from __future__ import annotations

import json
from datetime import date, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from journal_objects import JournalObjects
from pipeline import Pipeline

pytestmark = [pytest.mark.airflow, pytest.mark.s3]

DAG_ID = "by_interval"
TASKS = ("load", "report", "publish")
DAYS = (date(2003, 1, day) for day in range(2, 32))
"""In winter Berlin's 02:00 is 01:00 in UTC."""


class Date:
    """A date of the DAG, and the run that it has now. The schedule's interval of it is from 02:00 to 02:00, Berlin."""

    def __init__(self, pipeline: Pipeline) -> None:
        self.day = next(DAYS)
        self.airflow, self.pipeline = pipeline.airflow, pipeline
        self.logical_date = f"{self.day}T01:00:00+00:00"
        self.end = f"{self.day + timedelta(days=1)}T01:00:00+00:00"
        self.before = f"{self.day - timedelta(days=1)}T01:00:00+00:00"
        self.gate = Path(pipeline.folder / f"gate-{self.day}")
        self.conf = {"gate": str(self.gate)}
        self.run_id = ""
        self.backfill: int | None = None

    def backfilled(self, reprocess: str = "none") -> None:
        """As the refusal advises."""
        self.airflow.run_cli(
            *("backfill", "create", "--dag-id", DAG_ID, "--reprocess-behavior", reprocess),
            *("--from-date", self.logical_date, "--to-date", self.logical_date),
            *("--dag-run-conf", json.dumps(self.conf)),
        )
        (run,) = (run for run in self.airflow.dag_runs(DAG_ID) if self.is_mine(run))
        self.run_id, self.backfill = str(run["dag_run_id"]), self.airflow.newest_backfill(DAG_ID)

    def triggered(self, name: str, **more: Any) -> None:
        self.run_id, self.backfill = f"{name}-{self.day}", None
        body = {"dag_run_id": self.run_id, "logical_date": self.logical_date, "conf": self.conf, **more}
        self.airflow.wait_dag(DAG_ID)
        self.airflow.api("POST", f"/dags/{DAG_ID}/dagRuns", body)

    def is_mine(self, run: dict[str, Any]) -> bool:
        return str(run["logical_date"]).startswith(f"{self.day}T01:00:00")

    def forget(self) -> None:
        """Airflow deletes the run, also one whose `report` is held at its gate. Its journal stays."""
        if self.gate.exists():
            self.airflow.wait_until(lambda: self.states().get("report") == "running", "report to run", self.story)
            report = self.airflow.task_processes(DAG_ID, self.run_id, "report")
            assert report is not None
            self.airflow.api("PATCH", f"/dags/{DAG_ID}/dagRuns/{quote(self.run_id)}", {"state": "failed"})
            self.ends("failed")
            self.airflow.wait_until(report.is_gone, "the end of report's process", self.story)
            self.gate.unlink()
        self.airflow.api("DELETE", f"/dags/{DAG_ID}/dagRuns/{quote(self.run_id)}")

    def pause(self, is_paused: bool) -> None:
        self.airflow.api("PATCH", f"/dags/{DAG_ID}", {"is_paused": is_paused})

    def ends(self, state: str = "success") -> JournalObjects:
        assert self.airflow.wait_run(DAG_ID, self.run_id) == state, self.story()
        if self.backfill is not None:
            self.airflow.wait_backfill(self.backfill)
        return self.journal()

    def journal(self) -> JournalObjects:
        return self.pipeline.journal(DAG_ID, "", "~28operators~29", f"date-{self.day}T010000Z")

    def story(self) -> str:
        return str(self.airflow.describe(DAG_ID, self.run_id))

    def states(self) -> dict[str, str]:
        return {each["task_id"]: str(each["state"]) for each in self.airflow.task_instances(DAG_ID, self.run_id)}

    def tries(self) -> list[int]:
        return [int(self.airflow.task_instance(DAG_ID, self.run_id, task)["try_number"]) for task in TASKS]

    def log(self, task: str, try_number: int = 1) -> str:
        return str(self.airflow.log(DAG_ID, self.run_id, task, try_number))

    def rows(self, result: str) -> str:
        (file,) = self.journal().files(result)
        return file.read_text().strip()

    @property
    def right(self) -> str:
        return f"{self.logical_date.replace('T', ' ')} to {self.end.replace('T', ' ')} by 7"


@pytest.fixture
def lost(pipeline: Pipeline) -> Date:
    """The date's own run: `load` has made its rows, `report` was at work when Airflow lost the run."""
    found = Date(pipeline)
    found.airflow.wait_dag(DAG_ID)
    found.gate.touch()
    found.backfilled()
    found.forget()
    assert found.rows("load.hours") == found.right
    return found


def test_fault_195_a_run_that_is_triggered_for_the_date_replaces_nothing_and_a_backfill_goes_on(lost: Date) -> None:
    before = lost.journal()
    lost.triggered("by-hand")
    assert lost.ends("failed").keys == before.keys
    assert (lost.states()["load"], lost.tries()[0]) == ("failed", 1)
    said = lost.log("load")
    assert f"data interval, from {lost.logical_date} to {lost.end}" in said
    assert f"found {lost.run_id} with the interval from {lost.before} to {lost.logical_date}" in said

    # A backfill that clears this run changes its type and keeps its interval.
    lost.backfilled("failed")
    assert lost.ends("failed").keys == before.keys
    assert "Delete this DAG run, and run the date by a backfill" in lost.log("load", 2)

    # What it advises.
    lost.forget()
    lost.backfilled()
    assert lost.ends().ran_since(before) == {"report": 1}
    assert (lost.rows("load.hours"), lost.rows("report.report")) == (lost.right, lost.right)
    assert lost.airflow.xcom(DAG_ID, lost.run_id, "load", "recovery")["decision"] == "kept"
    lost.journal().check()


def test_fault_195_the_recipes_for_a_lost_database_hold_under_data_intervals(lost: Date) -> None:
    """Of docs/guide.md: a run with its interval over the REST API; and one made paused, rebuilt, and unpaused."""
    before = lost.journal()
    lost.gate.touch()
    lost.triggered("with-its-interval", data_interval_start=lost.logical_date, data_interval_end=lost.end)
    lost.forget()
    middle = lost.journal()
    assert middle.ran_since(before) == {"report": 1}

    lost.pause(True)
    lost.backfilled()
    said = lost.airflow.run_cli("recovery", "rebuild", DAG_ID, lost.logical_date)
    assert "load" in said  # an operator outside a group is left to its own look
    assert (lost.states()["load"], lost.tries()[0]) == ("None", 0)
    lost.pause(False)
    assert lost.ends().ran_since(middle) == {"report": 1}
    assert lost.airflow.xcom(DAG_ID, lost.run_id, "load", "recovery")["decision"] == "kept"
    assert lost.rows("report.report") == lost.right


def test_fault_196_another_conf_runs_again_and_the_log_names_its_key_and_the_field(lost: Date) -> None:
    before = lost.journal()
    claim = before.attempts["load"][1].objects["claim"]["dag_run"]
    assert (claim["run_type"], claim["data_interval_start"]) == ("backfill", lost.logical_date)
    assert [name for name, _ in claim["conf"]] == ["gate"]
    assert str(lost.gate) not in json.dumps(claim)

    lost.conf["limit"] = "8"
    lost.backfilled()
    assert lost.ends().ran_since(before) == {"load": 1, "report": 1}
    assert "code or parameters changed (since attempt 1; other now: conf.limit, bash_command)" in lost.log("load")
    assert lost.rows("report.report") == lost.right.replace("by 7", "by 8")
