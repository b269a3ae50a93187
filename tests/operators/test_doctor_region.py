"""The region that ``doctor --spark`` runs: what becomes of it, and that nothing of it is left."""

from __future__ import annotations

import json
import os
import queue
import socket
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException
from expected_errors import fails_with
from job_tasks import Drivers

from airflow_recovery.console.exit_codes import ExitCode
from airflow_recovery.doctor import checking
from airflow_recovery.doctor.checking import run_checks
from airflow_recovery.doctor.region import ROWS
from airflow_recovery.doctor.result import CheckResult, Status, ok, wrong
from airflow_recovery.errors import Failure, RegionFailed
from airflow_recovery.hooks.settings import RecoverySettings
from airflow_recovery.operators import doctor as module
from airflow_recovery.operators.doctor import RecoveryDoctorOperator
from airflow_recovery.task.region_trial import RegionTrial, region_check
from airflow_recovery.testing.patience import HANG_S

CHECK = "a region on spark_default"


def checked(timeout_s: float = HANG_S) -> dict[str, CheckResult]:
    check = region_check(timeout_s)(RecoverySettings.load(), "spark_default")
    return {candidate.check: candidate for candidate in run_checks([check])}


def files_below(folder: Path) -> list[Path]:
    paths = [path for name in ("journal", "results") for path in (folder / name).rglob("*") if path.is_file()]
    return [path for path in paths if path.name != "raced"]  # the start-up probe's own note


def test_rows_that_are_not_there_are_missed(recovery: Path, drivers: Drivers) -> None:
    found = checked()[CHECK]
    assert (found.status, found.expected, found.found) == (Status.WRONG, f"{ROWS} rows", "[0]")
    (spec,) = drivers.specs
    assert spec.location.startswith(f"file://{recovery}/results/_doctor/")
    assert spec.journal.uri.startswith(f"file://{recovery}/journal/_doctor/")
    assert files_below(recovery) == []


def test_a_region_that_fails_is_told_with_its_cause(recovery: Path, drivers: Drivers) -> None:
    def fail() -> None:
        raise RegionFailed("no jar", Failure("ClassNotFoundException", "no jar"))

    drivers.meanwhile = fail
    found = checked()[CHECK]
    assert (found.status, "no jar" in found.found) == (Status.WRONG, True)
    assert found.next_step
    assert files_below(recovery) == []


def test_a_region_that_takes_too_long_is_stopped(
    recovery: Path, drivers: Drivers, monkeypatch: pytest.MonkeyPatch
) -> None:
    hangs, killed = threading.Event(), threading.Event()
    drivers.stop = killed.set

    class Over(queue.SimpleQueue[Any]):
        """The time for an answer is over as soon as the driver hangs."""

        def get(self, block: bool = True, timeout: float | None = None) -> Any:
            assert hangs.wait(HANG_S)
            raise queue.Empty

    monkeypatch.setattr(checking, "queue", SimpleNamespace(SimpleQueue=Over, Empty=queue.Empty))

    def hang() -> None:
        hangs.set()
        assert killed.wait(HANG_S)
        raise RegionFailed("killed", Failure("Killed", "killed"))

    drivers.meanwhile = hang
    found = checked(timeout_s=1.0)[CHECK]
    assert (found.expected, killed.is_set()) == ("an answer within 1 s", True)
    assert files_below(recovery) == []


def test_what_may_not_be_deleted_is_told(recovery: Path, drivers: Drivers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("airflow_recovery.store.local.LocalStore.delete", lambda self, keys: None)
    assert "which nobody reads" in checked()["what the region has written"].found
    assert files_below(recovery) != []


def test_the_environment_is_as_it_was(recovery: Path, drivers: Drivers, monkeypatch: pytest.MonkeyPatch) -> None:
    before = dict(os.environ)
    trial = RegionTrial(RecoverySettings.load(), "spark_default")
    seen: list[str | None] = []
    monkeypatch.setattr(type(trial._stores), "driver_env", lambda self: {"AWS_SECRET_ACCESS_KEY": "hunter2"})
    drivers.meanwhile = lambda: seen.append(os.environ.get("AWS_SECRET_ACCESS_KEY"))
    results = list(trial.results())
    assert seen == ["hunter2"]
    assert dict(os.environ) == before
    assert "hunter2" not in repr(results)


@pytest.mark.airflow
@pytest.mark.spark
def test_a_real_region_by_the_command_line(tmp_path: Path) -> None:
    """On the connection that a DAG would use, with a function that runs on the executors."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("AIRFLOW")}
    env |= {
        "AIRFLOW_HOME": str(tmp_path),
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": "sqlite:////nowhere/airflow.db",
        "AIRFLOW__RECOVERY__JOURNAL": f"file://{tmp_path}/journal",
        "AIRFLOW__RECOVERY__RESULTS": f"file://{tmp_path}/results",
        "AIRFLOW_CONN_SPARK_DEFAULT": json.dumps({"conn_type": "spark", "host": "local[1]"}),
    }
    command = [sys.executable, "-m", "airflow", "recovery", "doctor", "--spark", "--json", "--timeout", "1800"]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=HANG_S, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    loads = {load["check"]: load for load in json.loads(done.stdout)["results"]}
    assert loads[CHECK]["found"].startswith(f"{ROWS} rows in ")
    assert files_below(tmp_path) == []


@pytest.mark.airflow
def test_a_server_that_says_nothing_does_not_hold_the_command(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        server = {"conn_type": "spark_connect", "host": f"sc://127.0.0.1:{silent.getsockname()[1]}"}
        env = {name: value for name, value in os.environ.items() if not name.startswith("AIRFLOW")}
        env |= {
            "AIRFLOW_HOME": str(tmp_path),
            "AIRFLOW__RECOVERY__JOURNAL": f"file://{tmp_path}/journal",
            "AIRFLOW_CONN_SILENT": json.dumps(server),
        }
        command = [sys.executable, "-m", "airflow", "recovery", "doctor", "--spark", "--conn", "silent"]
        done = subprocess.run(
            [*command, "--spark-timeout", "3"], env=env, capture_output=True, text=True, timeout=HANG_S, check=False
        )
    assert done.returncode == ExitCode.UNFIT, done.stdout + done.stderr
    assert "WRONG a region on silent: expected an answer within 3 s, found none." in done.stdout


# The operator


def executed(monkeypatch: pytest.MonkeyPatch, *results: CheckResult) -> Any:
    monkeypatch.setattr(module, "run_checks", lambda checks, timeout_s: iter(results))
    return RecoveryDoctorOperator(task_id="doctor").execute({})


def test_a_secret_that_airflow_knows_is_in_no_result(recovery: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from airflow.sdk.log import mask_secret

    mask_secret("correct-horse-battery")
    (found,) = executed(monkeypatch, ok("Java", "at correct-horse-battery"))
    assert found["found"] == "at ***"


def test_the_task_fails_where_anything_is_wrong(recovery: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fine = ok("Java", "17")
    assert executed(monkeypatch, fine) == [fine.to_json()]
    with pytest.raises(AirflowFailException, match=r"1 wrong\. Spark: expected 4.2, found 3.5\. Install it\."):
        executed(monkeypatch, fine, wrong("Spark", expected="4.2", found="3.5", next_step="Install it."))


@pytest.mark.parametrize("given", [{"conn_id": None}, {"spark": "yes"}, {"timeout_s": "20"}, {"spark_timeout_s": None}])
def test_an_argument_of_another_type_is_refused_at_parse(given: dict[str, Any]) -> None:
    with fails_with("argument-unfit", where="doctor"):
        RecoveryDoctorOperator(task_id="doctor", **given)
