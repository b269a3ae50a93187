"""`LocalAirflow` leaves no process behind, also where a task is running and where the whole thing is killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from airflow_recovery.testing import local_airflow
from airflow_recovery.testing.local_airflow import LocalAirflow, reap
from airflow_recovery.testing.patience import wait_until

pytestmark = pytest.mark.airflow

DAGS = Path(__file__).parent / "dags"
OWNER = """
import json, sys, time
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from test_nothing_is_left import run_a_lasting_task
home = Path(sys.argv[1])
airflow, pids = run_a_lasting_task(home)
(home / "pids.partial").write_text(json.dumps(pids))
(home / "pids.partial").rename(home / "pids.json")
time.sleep(86400)
"""


def run_a_lasting_task(home: Path) -> tuple[LocalAirflow, list[int]]:
    """An Airflow with a task that lasts, and every process that it consists of."""
    (home / "out").mkdir(parents=True)
    airflow = LocalAirflow(home, DAGS, env={"CLEAR_CLIENTS_OUT": str(home / "out")})
    airflow.start("api-server", "scheduler", "dag-processor")  # what a task needs
    airflow.trigger("lasting", run_id="lasting")
    noted = home / "out" / "lasting"
    airflow.wait_until(lambda: noted.exists() and len(noted.read_text().split()) == 2, "the task to run")
    sessions = {process.pid for process in airflow.processes.values()}
    detached = [int(piece) for piece in noted.read_text().split()]
    return airflow, sorted({*members(sessions), *detached})


def members(sessions: set[int]) -> list[int]:
    return [pid for pid in psutil.pids() if session_of(pid) in sessions]


def session_of(pid: int) -> int | None:
    try:
        return os.getsid(pid)
    except OSError:
        return None


def living(pids: list[int]) -> list[int]:
    return [pid for pid in pids if is_living(pid)]


def is_living(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def test_stop_ends_a_running_task_and_the_orphans_of_a_killed_scheduler(tmp_path: Path) -> None:
    airflow, pids = run_a_lasting_task(tmp_path / "home")
    try:
        assert len(living(pids)) > 5
        airflow.kill("scheduler")
    finally:
        airflow.stop()

    assert living(pids) == []


def test_nothing_outlives_the_process_that_started_it(tmp_path: Path) -> None:
    home = tmp_path / "home"
    owner = subprocess.Popen([sys.executable, "-c", OWNER, str(home), str(Path(__file__).parent)])
    try:
        wait_until((home / "pids.json").exists, "the task to run", is_over=lambda: owner.poll() is not None)
        pids = json.loads((home / "pids.json").read_text())
        assert len(living(pids)) > 5
    finally:
        owner.send_signal(signal.SIGKILL)
        owner.wait()

    wait_until(lambda: living(pids) == [], "the end of all processes", describe=lambda: str(living(pids)))


def test_a_stranger_with_a_reused_id_is_left_alone() -> None:
    stranger = subprocess.Popen(["sleep", "86400"], start_new_session=True)
    try:
        created = psutil.Process(stranger.pid).create_time()

        assert reap("no such marker", {stranger.pid: created - 100}) == []
        assert stranger.poll() is None
        assert reap("no such marker", {stranger.pid: created}) == [stranger.pid]
    finally:
        stranger.kill()
        stranger.wait()


def test_by_the_marker_alone_what_has_overwritten_its_environment_would_stay(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # setproctitle, as Airflow's task processes do it, writes over the environment
    code = (
        "import setproctitle, time; setproctitle.setproctitle('x' * 4000); print('done', flush=True); time.sleep(86400)"
    )
    env = {**os.environ, local_airflow.MARKER: "mine"}
    process = subprocess.Popen([sys.executable, "-c", code], env=env, stdout=subprocess.PIPE, start_new_session=True)
    try:
        assert process.stdout is not None
        process.stdout.readline()

        assert reap("mine", {}) == []
        assert reap("mine", {process.pid: psutil.Process(process.pid).create_time()}) == [process.pid]
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
