"""``airflow recovery doctor --spark`` with a connection to a Spark Connect server."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from airflow_recovery.doctor.region import ROWS
from airflow_recovery.testing.patience import HANG_S
from airflow_recovery.testing.spark_cluster import ConnectServer

pytestmark = [pytest.mark.airflow, pytest.mark.spark]


def test_a_region_on_a_connect_server(connect: ConnectServer, tmp_path: Path) -> None:
    token = "a-token-of-the-server"
    server = {"conn_type": "spark_connect", "host": f"sc://127.0.0.1:{connect.port}"}
    env = {name: value for name, value in os.environ.items() if not name.startswith("AIRFLOW")}
    env |= {
        "AIRFLOW_HOME": str(tmp_path),
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": "sqlite:////nowhere/airflow.db",
        "AIRFLOW__RECOVERY__JOURNAL": f"file://{tmp_path}/journal",
        "AIRFLOW_CONN_WARM": json.dumps(server),
        "AIRFLOW_CONN_GONE": json.dumps({**server, "host": "sc://127.0.0.1:1", "password": token}),
    }

    def doctor(*arguments: str) -> dict[str, dict[str, str]]:
        command = [sys.executable, "-m", "airflow", "recovery", "doctor", "--json", "--timeout", "1800", *arguments]
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=HANG_S, check=False)
        assert token not in done.stdout + done.stderr
        return {load["check"]: load for load in json.loads(done.stdout)["results"]}

    found = doctor("--spark", "--conn", "warm")
    assert found["a region on warm"]["found"].startswith(f"{ROWS} rows"), found
    assert "spark-submit" not in found
    assert found["rights on the results"]["found"].startswith("list, delete below")  # its server writes them
    left = [path.name for path in (tmp_path / "journal").rglob("*") if path.is_file()]
    assert left in ([], ["raced"])  # the start-up probe's own note
    gone = doctor("--conn", "gone")["address of gone"]
    assert (gone["status"], "127.0.0.1:1" in gone["found"]) == ("wrong", True)
