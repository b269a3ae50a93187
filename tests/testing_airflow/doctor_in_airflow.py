"""``doctor`` in real Airflow: as a task, and on the command line beside a running API server."""

from __future__ import annotations

import json
import subprocess
import sys

from airflow_recovery.testing.local_airflow import LocalAirflow
from airflow_recovery.testing.patience import HANG_S

BACKEND, PLUGIN = "API server's [state_store] backend", "API server's airflow-recovery"
STORE_DOOR, REST_DOOR = "clears by the state store", "clears over REST"
OUR_BACKEND = "airflow_recovery.api_server.state_backend.RecoveryStateBackend"


def doctor_command(airflow: LocalAirflow, *arguments: str, **settings: str) -> dict[str, dict[str, str]]:
    """The results by check, of ``airflow recovery doctor --json``."""
    command = [sys.executable, "-m", "airflow", "recovery", "doctor", "--json", "--timeout", "1800", *arguments]
    env = {**airflow.env, **settings}
    done = subprocess.run(
        command, env=env, cwd=airflow.home, capture_output=True, text=True, timeout=HANG_S, check=False
    )
    assert done.stdout, done.stderr
    document = json.loads(done.stdout)
    assert (done.returncode == 0) is document["ok"], done.stdout
    assert airflow.admin.password not in done.stdout + done.stderr
    return {load["check"]: load for load in document["results"]}


def doctor_task(airflow: LocalAirflow) -> tuple[str | None, str]:
    """How the task ended, and its log."""
    run_id = airflow.trigger("doctor")
    return airflow.wait_run("doctor", run_id), airflow.log("doctor", run_id, "doctor", 1)


def wrong(results: dict[str, dict[str, str]]) -> list[str]:
    """The checks with something that will not work."""
    return [name for name, each in results.items() if each["status"] == "wrong"]
