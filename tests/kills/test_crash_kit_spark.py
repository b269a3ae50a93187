"""The crash kit with a real Spark: a job's own functions, in a driver with a JVM that dies with its task."""

from __future__ import annotations

import pytest

from airflow_recovery.testing.crash_kit.cli import main

pytestmark = pytest.mark.spark


def test_fault_4_a_users_own_job_on_a_real_spark(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["crash_jobs:alone", "--spark", "--crash", "task of counted try 1, after result 1"]) == 0
    assert "counted try 1 is dead\n  counted try 2: success" in capsys.readouterr().out
