"""The link from a region's task leads to its application in Spark's own history server."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import requests
from tries import task_context

from airflow_recovery.task.links import SparkHistoryLink
from airflow_recovery.testing.patience import HANG_S, wait_until
from airflow_recovery.testing.spark_cluster import history_server

pytestmark = pytest.mark.spark

APPLICATION = """
import sys

from pyspark.sql import SparkSession

builder = SparkSession.builder.master("local[1]").appName("delays@3").config("spark.ui.enabled", "false")
spark = builder.config("spark.eventLog.enabled", "true").config("spark.eventLog.dir", sys.argv[1]).getOrCreate()
spark.range(3).collect()
print(spark.sparkContext.applicationId)
spark.stop()
"""


def linked(application_id: str) -> str:
    operator: Any = SimpleNamespace(spark_application_id=application_id)
    return SparkHistoryLink().get_link(operator, ti_key=task_context()["ti"])


def page(address: str) -> str:
    """Empty where there is none."""
    request = requests.get(address, timeout=HANG_S)
    return request.text if request.ok else ""


def test_the_link_shows_the_application_that_it_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    events = tmp_path / "events"
    events.mkdir()
    run = [sys.executable, "-c", APPLICATION, events.as_uri()]
    application_id = subprocess.run(run, capture_output=True, text=True, check=True).stdout.split()[-1]
    with history_server(events) as url:
        monkeypatch.setenv("AIRFLOW__RECOVERY__SPARK_HISTORY_URL", url)
        wait_until(lambda: "delays@3" in page(linked(application_id)), "the history server to find the application")
        # The control: what is no application's id is no page.
        assert page(linked("app-0")) == ""
