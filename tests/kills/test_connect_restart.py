"""A Spark Connect server that is killed in the middle of a region, and started again at the same address."""

from __future__ import annotations

import logging
import os
import signal
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from runtime_specs import outcome_of, region_spec, troubled

from airflow_recovery.driver.exit_report import read_failure
from airflow_recovery.errors import SessionLost
from airflow_recovery.model.records import AttemptState, Claim
from airflow_recovery.store import open_store
from airflow_recovery.task.attempt_sessions import ServerChoice
from airflow_recovery.task.region_program import region_failed
from airflow_recovery.task.region_session import RegionSession
from airflow_recovery.testing.free_port import free_port
from airflow_recovery.testing.patience import HANG_S, wait_until
from airflow_recovery.testing.spark_cluster import connect_server

LOG = logging.getLogger("tests.connect_restart")
pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("outside_connect")]


def test_fault_75_a_lost_session_is_no_failure_of_the_code_and_the_next_attempt_runs(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ready, go, port = tmp_path / "ready", tmp_path / "go", free_port()
    first, second = (region_spec(tmp_path, *troubled("beat", ready=ready, go=go), attempt=n) for n in (1, 2))
    raised: list[Exception] = []

    def application() -> RegionSession:
        stores = SimpleNamespace(journal=open_store(first.journal.uri), results=None)
        program: Any = SimpleNamespace(job=SimpleNamespace(packages=()), stores=stores, identity=first.identity)
        return RegionSession(program, ServerChoice(f"sc://127.0.0.1:{port}"), user_id="me", conf={}, log=LOG)

    def run() -> None:
        try:
            application()._launch(first, tmp_path)
        except Exception as error:
            raised.append(error)

    with connect_server(port=port) as server:
        task = threading.Thread(target=run, daemon=True)
        task.start()
        wait_until(ready.exists, "the UDF to begin", describe=lambda: str(raised), is_over=lambda: not task.is_alive())
        os.kill(server.pid, signal.SIGKILL)
    with connect_server(port=port):
        task.join(HANG_S)
        assert raised
        assert isinstance(region_failed(first, read_failure(first), raised[0]), SessionLost)
        assert outcome_of(first) is None

        # The next attempt looks for what is left under the old session and tag, and finds nothing.
        with caplog.at_level(logging.INFO):
            application().stop_previous(_claim(first.tag))
        assert "interrupted" not in caplog.text
        go.touch()
        application()._launch(second, tmp_path)
    outcome = outcome_of(second)
    assert outcome is not None
    assert outcome.state is AttemptState.FINISHED


def _claim(tag: str) -> Claim:
    return Claim("r", 1, "writer-1", "plan", (), "run", 1, "ti", tag, "now")
