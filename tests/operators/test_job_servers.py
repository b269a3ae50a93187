"""The servers in `job_servers`, asked by HTTP as their services' own pages say."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import requests
from job_servers import WRITER, DatabricksServer, LivyServer, gated

from airflow_recovery.testing.patience import HANG_S, wait_until


def until(ask: Callable[[], Any], wanted: object) -> None:
    wait_until(lambda: ask() == wanted, repr(wanted), describe=lambda: f"The answer is {ask()!r}.")


def test_a_batch_of_livy_runs_and_says_what_it_said(tmp_path: Path) -> None:
    with LivyServer() as server:
        url = f"http://127.0.0.1:{server.port}/batches"
        posted = requests.post(
            url, json={"file": WRITER, "args": ["--out", f"{tmp_path}/out"], "name": "n"}, timeout=HANG_S
        )
        assert (posted.status_code, posted.json()["id"], posted.json()["name"]) == (201, 0, "n")
        until(lambda: requests.get(f"{url}/0/state", timeout=HANG_S).json(), {"id": 0, "state": "success"})
        assert (tmp_path / "out" / "part-0").read_text() == "rows"
        assert requests.get(url, timeout=HANG_S).json()["total"] == 1
        assert requests.get(f"{url}/0", timeout=HANG_S).json()["appId"] == "application_1_0000"
        failed = requests.post(url, json={"file": str(tmp_path / "none.py")}, timeout=HANG_S).json()["id"]
        until(lambda: requests.get(f"{url}/{failed}/state", timeout=HANG_S).json()["state"], "dead")

        def said() -> bool:
            page = requests.get(f"{url}/{failed}/log?from=0&size=100", timeout=HANG_S).json()
            return page["total"] == len(page["log"]) > 0 and "No such file" in page["log"][-1]

        until(said, True)


def test_a_batch_of_livy_is_killed_by_its_deletion_and_is_gone(tmp_path: Path) -> None:
    with LivyServer(needs_header=True) as server:
        url = f"http://127.0.0.1:{server.port}/batches"
        body, header = {"file": gated(tmp_path)}, {"X-Requested-By": "airflow"}
        assert requests.post(url, json=body, timeout=HANG_S).json() == {
            "msg": "Missing Required Header for CSRF protection."
        }
        number = requests.post(url, json=body, headers=header, timeout=HANG_S).json()["id"]
        process = server.jobs[number].process
        assert requests.get(f"{url}/{number}/state", timeout=HANG_S).json()["state"] == "running"
        assert requests.delete(f"{url}/{number}", headers=header, timeout=HANG_S).json() == {"msg": "deleted"}
        assert process.poll() == -9
        gone = requests.get(f"{url}/{number}/state", timeout=HANG_S)
        assert (gone.status_code, gone.json()) == (404, {"msg": "Session '0' not found."})
        assert requests.post(url, json={}, headers=header, timeout=HANG_S).status_code == 400
        assert requests.get(f"http://127.0.0.1:{server.port}/sessions", timeout=HANG_S).status_code == 404


def test_a_run_of_databricks_runs_is_canceled_and_is_submitted_once_a_token(tmp_path: Path) -> None:
    with DatabricksServer() as server:
        url = f"http://127.0.0.1:{server.port}/api/2.2/jobs/runs"
        assert requests.get(f"{url}/get?run_id=1", timeout=HANG_S).status_code == 403
        session = requests.Session()
        session.headers["Authorization"] = f"Bearer {server.TOKEN}"
        program = {"python_file": WRITER, "parameters": ["--out", f"{tmp_path}/out"]}
        body: dict[str, Any] = {"run_name": "r", "spark_python_task": program, "idempotency_token": "t"}
        number = session.post(f"{url}/submit", json=body, timeout=HANG_S).json()["run_id"]
        assert session.post(f"{url}/submit", json=body, timeout=HANG_S).json()["run_id"] == number

        def state(of: int) -> Any:
            found = session.get(f"{url}/get", params={"run_id": of}, timeout=HANG_S).json()["state"]
            return found["life_cycle_state"], found.get("result_state")

        until(lambda: state(number), ("TERMINATED", "SUCCESS"))
        body = {"tasks": [{"task_key": "main", "spark_python_task": {"python_file": gated(tmp_path)}}]}
        held = session.post(f"{url}/submit", json=body, timeout=HANG_S).json()["run_id"]
        assert state(held) == ("RUNNING", None)
        assert session.post(f"{url}/cancel", json={"run_id": held}, timeout=HANG_S).json() == {}
        assert state(held) == ("TERMINATED", "CANCELED")
        assert session.get(f"{url}/get?run_id=5", timeout=HANG_S).json()["error_code"] == "RESOURCE_DOES_NOT_EXIST"
        assert session.post(f"{url}/submit", json={}, timeout=HANG_S).status_code == 400
        assert session.post(f"{url}/delete", json={"run_id": held}, timeout=HANG_S).status_code == 404
