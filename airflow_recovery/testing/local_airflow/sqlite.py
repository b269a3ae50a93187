"""The metadata database in a file: good for one scheduler, and started at once."""

from __future__ import annotations

import contextlib
import shutil
import uuid
from collections.abc import Collection, Mapping
from contextlib import AbstractContextManager
from pathlib import Path

from airflow_recovery.testing.local_airflow.error import LocalAirflowError
from airflow_recovery.testing.local_airflow.migration import cache_folder, migrate
from airflow_recovery.testing.local_airflow.processes import Processes
from airflow_recovery.testing.patience import HANG_S

TIMEOUT_S = int(HANG_S)
"""So long a writer waits for the lock. Airflow's default is 5 s."""
API_TIMEOUT_S = 4
"""Of the API server. It writes its audit log on its event loop: while that waits for the lock, a request that holds the
lock can't end. Only the time-out ends this, and the request that waited is answered with 500: see `ApiClient.request`.
"""


class SqliteDatabase:
    """The metadata database as a file, ``airflow.db`` in Airflow's home. It can't be backed up, restored or shared."""

    def __init__(self, home: Path) -> None:
        self._path = home / "airflow.db"

    def url_for(self, component: str) -> str:
        """The URL by which SQLAlchemy opens the file."""
        return _url(self._path, API_TIMEOUT_S if component == "api-server" else TIMEOUT_S)

    def make_folder(self) -> list[Path]:
        """It needs none: it is below Airflow's home, which stays."""
        return []

    def prepare(self, env: Mapping[str, str], processes: Processes) -> None:
        """Copy an empty one that is migrated, where there is none. ``env`` is a component's."""
        del processes
        if not self._path.exists():
            shutil.copyfile(template_database(env), self._path)

    def down(self, processes: Processes) -> AbstractContextManager[None]:
        """Refused: there is no server."""
        raise self._refused()

    def recreate(self) -> None:
        """Refused: a file can't be dropped under those who have it open."""
        raise self._refused()

    def back_up(self, path: Path) -> None:
        """Raises: a file in use is neither copied nor replaced."""
        raise self._refused()

    def restore(self, path: Path) -> None:
        """Raises: a file in use is neither copied nor replaced."""
        raise self._refused()

    @property
    def address(self) -> dict[str, str | int]:
        """Raises: no server listens."""
        raise self._refused()

    @property
    def settings(self) -> dict[str, str]:
        """What Airflow needs with this database: a request that has waited for the lock in vain is sent again."""
        return {
            "AIRFLOW__WORKERS__EXECUTION_API_RETRIES": "1000",
            "AIRFLOW__WORKERS__EXECUTION_API_RETRY_WAIT_MAX": "5",
        }

    def miss_heartbeat(self, ti_id: str) -> None:
        """Raises: another process that writes would lock Airflow out."""
        raise self._refused()

    def end_connections(self, ports: Collection[int]) -> None:
        """Does nothing: there are no connections."""

    def remove(self) -> None:
        """Does nothing: the file goes with Airflow's home."""

    @staticmethod
    def _refused() -> LocalAirflowError:
        return LocalAirflowError("expected a database server, found SQLite: LocalAirflow(..., database='postgresql')")


def template_database(env: Mapping[str, str]) -> Path:
    """A migrated, empty SQLite database; made once for this Airflow version (saves 6 s a start).

    ``env`` is a component's. Raises `LocalAirflowError` where Airflow can't migrate it.
    """
    from importlib.metadata import version

    template = cache_folder() / f"airflow-{version('apache-airflow-core')}.db"
    if not template.exists():
        fresh = template.with_name(f"{template.name}.{uuid.uuid4().hex}")
        migrate(env, _url(fresh, TIMEOUT_S))
        import sqlite3

        with contextlib.closing(sqlite3.connect(fresh)) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        fresh.replace(template)
        for leftover in template.parent.glob(f"{fresh.name}-*"):
            leftover.unlink(missing_ok=True)
    return template


def _url(path: Path, timeout_s: int) -> str:
    return f"sqlite:///{path}?timeout={timeout_s}"
