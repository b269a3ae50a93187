"""The metadata database: SQLite's URL, and an empty one that is migrated already."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import uuid
from collections.abc import Mapping
from pathlib import Path

from airflow_recovery.testing.local_airflow.error import LocalAirflowError

SQLITE_TIMEOUT_S = 60
API_SQLITE_TIMEOUT_S = 4
"""Of the API server. It writes its audit log on its event loop: while that waits for the lock, a request that holds the
lock can't end. Only the time-out ends this, and the request that waited is answered with 500: see `ApiClient.request`.
"""


def sqlite_url(path: Path, timeout_s: int = SQLITE_TIMEOUT_S) -> str:
    """SQLAlchemy's URL of a SQLite file. A writer waits for the lock, on a busy machine longer than the default 5 s."""
    return f"sqlite:///{path}?timeout={timeout_s}"


def template_database(env: Mapping[str, str]) -> Path:
    """A migrated, empty SQLite database; made once for this Airflow version (saves 6 s a start).

    ``env`` is a component's. Raises `LocalAirflowError` where Airflow can't migrate it.
    """
    from importlib.metadata import version

    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "airflow-recovery"
    template = cache / f"airflow-{version('apache-airflow-core')}.db"
    if not template.exists():
        cache.mkdir(parents=True, exist_ok=True)
        fresh = cache / f"{template.name}.{uuid.uuid4().hex}"
        done = subprocess.run(
            [sys.executable, "-m", "airflow", "db", "migrate"],
            env={**env, "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": sqlite_url(fresh)},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        if done.returncode != 0:
            raise LocalAirflowError(f"airflow db migrate failed:\n{done.stdout}\n{done.stderr}")
        import sqlite3

        with contextlib.closing(sqlite3.connect(fresh)) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        fresh.replace(template)
        for leftover in cache.glob(f"{fresh.name}-*"):
            leftover.unlink(missing_ok=True)
    return template
