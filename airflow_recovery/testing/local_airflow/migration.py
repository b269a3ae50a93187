"""An empty metadata database, migrated; and where its copies are kept between starts."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from airflow_recovery.testing.local_airflow.error import LocalAirflowError
from airflow_recovery.testing.patience import HANG_S


def cache_folder() -> Path:
    """Where empty, migrated databases are kept. Made where it is not there."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "airflow-recovery"
    cache.mkdir(parents=True, exist_ok=True)
    return cache


def migrate(env: Mapping[str, str], url: str) -> None:
    """Run ``airflow db migrate`` on ``url``; ``env`` is a component's. Raises `LocalAirflowError` where it fails."""
    done = subprocess.run(
        [sys.executable, "-m", "airflow", "db", "migrate"],
        env={**env, "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": url},
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=False,
    )
    if done.returncode != 0:
        raise LocalAirflowError(f"airflow db migrate failed:\n{done.stdout}\n{done.stderr}")
