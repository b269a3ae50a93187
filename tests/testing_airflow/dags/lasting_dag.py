"""A task that runs until it is killed, with a child that has left its session (as a detached driver would)."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from airflow.sdk import DAG, task

with DAG("lasting", schedule=None, catchup=False):

    @task
    def last() -> None:
        child = subprocess.Popen(["sleep", "86400"], start_new_session=True)
        preloaded = "airflow_recovery.attempt.region_task" in sys.modules
        Path(os.environ["CLEAR_CLIENTS_OUT"], "preloaded").write_text(str(preloaded))
        Path(os.environ["CLEAR_CLIENTS_OUT"], "lasting").write_text(f"{os.getpid()} {child.pid}")
        time.sleep(86400)

    last()
