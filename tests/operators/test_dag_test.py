"""`dag.test()`: the whole DAG in one process, with Airflow's in-process API server and its own state backend."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from paths import CODE

from airflow_recovery.testing.local_airflow.sqlite import template_database
from airflow_recovery.testing.patience import HANG_S

pytestmark = pytest.mark.airflow

BACKEND = "airflow_recovery.api_server.state_backend.RecoveryStateBackend"


@pytest.fixture(scope="module")
def migrated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty metadata database."""
    return template_database(environment(tmp_path_factory.mktemp("airflow")))


def environment(home: Path, **settings: str) -> dict[str, str]:
    env = {name: value for name, value in os.environ.items() if not name.startswith("AIRFLOW")}
    (home / "dags").mkdir(exist_ok=True)
    return env | {
        "AIRFLOW_HOME": str(home),
        "AIRFLOW__CORE__DAGS_FOLDER": str(home / "dags"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__UNIT_TEST_MODE": "False",
        "AIRFLOW_CONN_SPARK_DEFAULT": json.dumps({"conn_type": "spark", "host": "local[1]"}),
        "AIRFLOW__RECOVERY__JOURNAL": f"file://{home}/journal",
        "AIRFLOW__RECOVERY__RESULTS": f"file://{home}/results",
        "PYTHONPATH": os.pathsep.join(each for each in (str(CODE), env.get("PYTHONPATH")) if each),
        **settings,
    }


def dag_test(folder: Path, database: Path, what: str, **settings: str) -> dict[str, Any]:
    (folder / "airflow.db").write_bytes(database.read_bytes())
    lake = folder / "lake"
    lake.mkdir()
    (lake / "a.csv").write_text("1")
    env = environment(folder, **settings)
    file = shutil.copy(CODE / "dag_run_in_process.py", folder / "dags")
    command = [sys.executable, file, what, str(lake)]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=HANG_S, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    answer["log"] = done.stdout + done.stderr
    return answer


def test_a_failed_region_runs_again_and_no_other(tmp_path: Path, migrated: Path) -> None:
    found = dag_test(tmp_path, migrated, "fail")
    assert found["run"] == "success", found["log"][-3000:]
    assert sorted(found["events"]) == ["aside@1", "cleaned@1", "joined@1", "left@1", "left@2", "right@1"]
    assert set(found["states"].values()) == {"success"}


def test_a_lost_input_is_made_again_with_our_state_backend(tmp_path: Path, migrated: Path) -> None:
    found = dag_test(tmp_path, migrated, "lose", AIRFLOW__STATE_STORE__BACKEND=BACKEND)
    assert found["run"] == "success", found["log"][-3000:]
    assert {"cleaned@2", "left@2"} <= set(found["events"])
    assert "aside@2" not in found["events"]


@pytest.mark.drill
def test_without_a_clear_client_a_lost_input_names_both_settings(tmp_path: Path, migrated: Path) -> None:
    """Beside the other tests in a running Airflow: `tests/integration/test_without_protection.py`."""
    found = dag_test(tmp_path, migrated, "lose")
    assert found["run"] == "failed"
    assert found["states"]["g.left"] == "failed"
    for setting in ("[state_store] backend", "[recovery] api_conn_id"):
        assert setting in found["log"]
