"""`LocalAirflow`: the components' life, and the REST API on top of it."""

from __future__ import annotations

import json
import secrets
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow_recovery.testing.local_airflow.database import API_SQLITE_TIMEOUT_S, sqlite_url, template_database
from airflow_recovery.testing.local_airflow.error import LocalAirflowError
from airflow_recovery.testing.local_airflow.processes import COMPONENTS, Processes
from airflow_recovery.testing.local_airflow.runs import RunsApi
from airflow_recovery.testing.local_airflow.settings import Login, airflow_environment, free_port

if TYPE_CHECKING:
    from types import TracebackType

HEALTH_KEYS = {"scheduler": "scheduler", "dag-processor": "dag_processor", "triggerer": "triggerer"}
"""How the API server calls the components of which it knows whether they are healthy."""


class LocalAirflow(RunsApi):
    """Airflow in ``home``, with the DAGs of ``dags_folder``; a context manager.

    ``database_url`` is SQLAlchemy's; without one, SQLite in ``home`` (copied from a migrated template). ``env`` is
    added to every component's environment, and wins. ``recovery_backend=False`` keeps Airflow's own state backend.
    ``fast`` shortens Airflow's time-outs. ``parallelism`` is the number of tasks at once.
    """

    def __init__(
        self,
        home: Path | str,
        dags_folder: Path | str,
        *,
        database_url: str | None = None,
        env: Mapping[str, str] | None = None,
        recovery_backend: bool = True,
        fast: bool = True,
        parallelism: int = 6,
        port: int | None = None,
    ) -> None:
        self.port = port or free_port()
        super().__init__(f"http://127.0.0.1:{self.port}", Login("admin", secrets.token_urlsafe(12)))
        self.viewer = Login("viewer", secrets.token_urlsafe(12))
        self.home = Path(home).resolve()
        self.dags_folder = Path(dags_folder).resolve()
        self._database = self.home / "airflow.db"
        self._database_url = database_url
        self._processes = Processes(self.home / "log")
        self.env = {
            **airflow_environment(
                home=self.home,
                dags_folder=self.dags_folder,
                url=self.url,
                database_url=database_url or sqlite_url(self._database),
                admin=self.admin,
                viewer=self.viewer,
                parallelism=parallelism,
                recovery_backend=recovery_backend,
                fast=fast,
            ),
            **self._processes.marker,
            **(env or {}),
        }

    def __enter__(self) -> LocalAirflow:
        """Start everything and wait until it is healthy."""
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop everything."""
        self.stop()

    @property
    def processes(self) -> dict[str, subprocess.Popen[bytes]]:
        """The main process of each component that was started."""
        return self._processes.running

    def start(self, *components: str, wait_s: float = 120.0) -> None:
        """Start the named components, or all; return when Airflow says that they are healthy.

        Raises `LocalAirflowError` with the component's log where one dies or is not healthy in time.
        """
        if not self._processes.is_guarded:
            self._prepare()
        names = components or COMPONENTS
        for name in names:
            self._processes.start(name, self._environment_of(name), self.home)
        self._wait_healthy(names, wait_s)

    def stop(self) -> None:
        """End every process, politely first; afterwards none is left. Safe to call twice."""
        self._processes.stop()
        self.close()

    def kill(self, component: str, with_signal: signal.Signals = signal.SIGKILL) -> None:
        """Send a signal to the one main process of a component, and wait for its end. Its children are left alone."""
        self._processes.kill(component, with_signal)

    def kill_group(self, component: str) -> None:
        """``kill -9`` a component with everything in its process group (LocalExecutor's workers)."""
        self._processes.kill_group(component)

    def run_cli(self, *arguments: str, timeout_s: float = 120.0) -> str:
        """Run ``airflow <arguments>`` in this Airflow's environment; its standard output. Raises on failure."""
        done = subprocess.run(
            [sys.executable, "-m", "airflow", *arguments],
            env=self.env,
            cwd=self.home,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
        if done.returncode != 0:
            raise LocalAirflowError(
                f"airflow {' '.join(arguments)} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}"
            )
        return done.stdout

    def component_log(self, component: str) -> Path:
        """The file with a component's output."""
        return self._processes.log_of(component)

    def wait_until(
        self,
        claim: Callable[[], bool],
        timeout_s: float,
        what: str,
        describe: Callable[[], str] = lambda: "",
        *,
        component: str = "scheduler",
    ) -> None:
        """Poll ``claim``; raises `LocalAirflowError` with ``what``, ``describe()`` and the log of ``component``.

        Raises it at once where any component ends meanwhile.
        """
        self._processes.wait_until(claim, timeout_s, what, describe, component)

    def _prepare(self) -> None:
        for folder in (self.home, self._processes.log_folder, self.home / "plugins"):
            folder.mkdir(parents=True, exist_ok=True)
        passwords = {each.user: each.password for each in (self.admin, self.viewer)}
        (self.home / "passwords.json").write_text(json.dumps(passwords))
        self._processes.guard()
        if self._database_url is not None:
            self.run_cli("db", "migrate", timeout_s=300)
        elif not self._database.exists():
            shutil.copyfile(template_database(self.env), self._database)

    def _environment_of(self, component: str) -> dict[str, str]:
        env = dict(self.env)
        key = "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN"
        if component == "api-server" and env[key] == sqlite_url(self._database):
            env[key] = sqlite_url(self._database, API_SQLITE_TIMEOUT_S)
        return env

    def _wait_healthy(self, components: Iterable[str], timeout_s: float) -> None:
        if not self._processes.is_running("api-server"):
            return
        wanted = [HEALTH_KEYS[each] for each in components if each in HEALTH_KEYS]
        seen: dict[str, Any] = {}

        def healthy() -> bool:
            found = self.health()
            seen.update(found or {})
            return found is not None and all((found.get(each) or {}).get("status") == "healthy" for each in wanted)

        names = ", ".join(components)
        self.wait_until(
            healthy, timeout_s, f"{names} to be healthy", lambda: str(seen), component=next(iter(components))
        )
