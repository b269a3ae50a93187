"""`LocalAirflow`: the components' life, and the REST API on top of it."""

from __future__ import annotations

import json
import secrets
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from airflow_recovery.testing.free_port import free_port
from airflow_recovery.testing.local_airflow.error import LocalAirflowError
from airflow_recovery.testing.local_airflow.postgres import PostgresDatabase
from airflow_recovery.testing.local_airflow.processes import Processes, airflow_command, component_of, instances
from airflow_recovery.testing.local_airflow.runs import RunsApi
from airflow_recovery.testing.local_airflow.settings import Login, airflow_environment
from airflow_recovery.testing.local_airflow.sqlite import SqliteDatabase
from airflow_recovery.testing.local_airflow.task_processes import TaskProcesses, task_processes
from airflow_recovery.testing.local_airflow.workers import Workers
from airflow_recovery.testing.patience import HANG_S

if TYPE_CHECKING:
    from types import TracebackType

HEALTH_KEYS = {"scheduler": "scheduler", "dag-processor": "dag_processor", "triggerer": "triggerer"}
"""How the API server calls the components of which it knows whether they are healthy."""


class LocalAirflow(RunsApi):
    """Airflow in ``home``, with the DAGs of ``dags_folder``; a context manager.

    ``database`` is SQLite in ``home``, or a PostgreSQL server of its own, which is removed at the end; its programs
    must be installed. ``schedulers`` of them run, named ``scheduler``, ``scheduler-2``, ...: more than one needs
    PostgreSQL. ``env`` is added to every component's environment, and wins. ``recovery_backend=False`` keeps Airflow's
    own state backend. ``fast`` has Airflow look more often, and lets no process be late (`OFTEN` and `PATIENT` in
    `settings.py`). ``parallelism`` is the number of tasks at once, of each scheduler.

    Without ``workers`` tasks run beside the scheduler (LocalExecutor). With them, they run on as many machines named
    ``worker-1``, ``worker-2``, ... (CeleryExecutor), that share nothing but the network
    (`airflow_recovery.testing.local_airflow.machine`): each takes tasks of the default queue, and of one that has its
    name. That needs PostgreSQL, Redis, Airflow's Celery provider, and Linux.
    """

    def __init__(  # noqa: PLR0913 - options of an Airflow, each with its default
        self,
        home: Path | str,
        dags_folder: Path | str,
        *,
        database: Literal["sqlite", "postgresql"] = "sqlite",
        schedulers: int = 1,
        workers: int = 0,
        env: Mapping[str, str] | None = None,
        recovery_backend: bool = True,
        fast: bool = True,
        parallelism: int = 6,
        port: int | None = None,
    ) -> None:
        if schedulers > 1 and database != "postgresql":
            raise ValueError(f"{schedulers} schedulers need database='postgresql': SQLite locks them out of each other")
        if workers and database != "postgresql":
            raise ValueError(f"{workers} workers need database='postgresql': Celery keeps there what became of tasks")
        self.port = port or free_port()
        super().__init__(f"http://127.0.0.1:{self.port}", Login("admin", secrets.token_urlsafe(12)))
        self.viewer = Login("viewer", secrets.token_urlsafe(12))
        self.home = Path(home).resolve()
        self.dags_folder = Path(dags_folder).resolve()
        self.components = instances(schedulers)
        self._database = PostgresDatabase() if database == "postgresql" else SqliteDatabase(self.home)
        self._processes = Processes(self.home / "log")
        self._workers: Workers | None = None
        celery: dict[str, str] = {}
        if workers:
            self._workers = Workers(
                self._processes,
                home=self.home,
                dags_folder=self.dags_folder,
                api_port=self.port,
                concurrency=parallelism,
            )
            self.components += tuple(self._workers.add() for _ in range(workers))
            celery = self._workers.settings(self._database.url_for("scheduler"))
        self.env = {
            **airflow_environment(
                home=self.home,
                dags_folder=self.dags_folder,
                url=self.url,
                database_url=self._database.url_for("scheduler"),
                admin=self.admin,
                viewer=self.viewer,
                parallelism=parallelism,
                recovery_backend=recovery_backend,
                fast=fast,
            ),
            **self._database.settings,
            **celery,
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
        """Stop all processes and the database."""
        self.stop()

    @property
    def processes(self) -> dict[str, subprocess.Popen[bytes]]:
        """The main process of each component that was started."""
        return self._processes.running

    @property
    def database_address(self) -> dict[str, str | int]:
        """How psycopg2 connects to the server that holds the metadata database: to its own one. PostgreSQL only."""
        return self._database.address

    def start(self, *components: str) -> None:
        """Start the named ones of ``components``, or all; return when Airflow says that they are healthy.

        Raises `LocalAirflowError` with the component's log if a component ends, or does not become healthy.
        """
        if not self._processes.is_guarded:
            self._prepare()
        names = components or self.components
        workers = {}
        for name in names:
            if self._workers is not None and name in self._workers:
                workers[name] = self._workers.start(name, self.env)
            else:
                self._processes.start(name, airflow_command(name), self._environment_of(name), self.home)
        self._wait_healthy([name for name in names if name not in workers])
        for name, is_ready in workers.items():
            self.wait_until(is_ready, f"{name} to take tasks", component=name)

    def add_worker(
        self,
        *,
        queues: tuple[str, ...] | None = None,
        concurrency: int | None = None,
        env: Mapping[str, str] | None = None,
        scratch_bytes: int | None = None,
    ) -> str:
        """Another worker on a machine of its own; its name. `start` starts it.

        ``queues``: whose tasks it takes, by default those of the default queue and of one that has its name;
        ``concurrency`` of them at once, by default as many as a scheduler. ``env`` is added to its environment alone.
        ``scratch_bytes`` is how much its temporary folder holds. Where there are workers only.
        """
        return self._with_workers.add(queues, concurrency, env, scratch_bytes)

    def dags_of(self, worker: str) -> Path:
        """A worker's own copy of the DAG folder. It is made anew when the worker starts."""
        return self._with_workers.machine(worker).dags

    def cut_off(self, worker: str) -> None:
        """Let nothing pass between a worker and the API server. It still reaches everything else."""
        self._with_workers.link(worker).cut()

    def connect_again(self, worker: str) -> None:
        """End what `cut_off` began."""
        self._with_workers.link(worker).mend()

    def frozen(self, component: str) -> AbstractContextManager[None]:
        """Inside, a component stands still with all that it has started: of a worker its machine, with its drivers."""
        return self._processes.frozen(component)

    def broker_down(self) -> AbstractContextManager[None]:
        """Inside, the broker is away; then it is back, and has lost all tasks that waited in it. With workers only."""
        return self._with_workers.broker_down()

    def stop(self) -> None:
        """End every process, politely first; afterwards none is left. Safe to call twice."""
        self._processes.stop()
        if self._workers is not None:
            self._workers.close()
        self._database.remove()
        self.close()

    def kill(self, component: str, with_signal: signal.Signals = signal.SIGKILL) -> None:
        """Send a signal to the one main process of a component, and wait for its end. Its children are left alone."""
        ports = self._processes.ports(component)
        self._processes.kill(component, with_signal)
        self._database.end_connections(ports)

    def kill_group(self, component: str) -> None:
        """``kill -9`` a component with everything in its process group (LocalExecutor's workers)."""
        ports = self._processes.ports(component)
        self._processes.kill_group(component)
        self._database.end_connections(ports)

    def restart(self, *components: str) -> None:
        """``kill -9`` of the main processes of the named components that run, and a start of all that are named."""
        for component in components:
            if self._processes.is_running(component):
                self.kill(component)
        self.start(*components)

    def task_processes(self, dag_id: str, run_id: str, task_id: str, map_index: int = -1) -> TaskProcesses | None:
        """The processes of the newest try of a task instance; `None` where it does not run now (or not yet)."""
        wanted = str(self.task_instance(dag_id, run_id, task_id, map_index)["id"])
        return next(iter(task_processes(wanted.__eq__)), None)

    def miss_heartbeat(self, dag_id: str, run_id: str, task_id: str, map_index: int = -1) -> None:
        """Let Airflow find that a running task instance has given no heartbeat for too long; return when it has.

        For a task that gives none: its supervisor is dead, frozen or cut off. Airflow's own limit stays high, so that
        no other task meets it. PostgreSQL only.
        """
        tried = self.task_instance(dag_id, run_id, task_id, map_index)

        def is_found() -> bool:
            now = self.task_instance(dag_id, run_id, task_id, map_index)
            if (now["id"], now["state"]) != (tried["id"], "running"):
                return True
            # Again each time: a heartbeat that was on its way may have come after the last one.
            self._database.miss_heartbeat(str(tried["id"]))
            return False

        self.wait_until(is_found, f"{task_id} of {run_id} to count as dead", lambda: self.describe(dag_id, run_id))

    def recreate_database(self) -> None:
        """Lose the metadata database: it is dropped while everybody is connected to it, and made anew, migrated, empty.

        All components but the API server are then started anew, as they would have to be. Task processes are left
        alone: their task instances are gone. PostgreSQL only.
        """
        self._database.recreate()
        self._restart_with_new_database()

    def database_down(self) -> AbstractContextManager[None]:
        """Inside, the database server is shut down; then it is started again, with what it had. PostgreSQL only.

        Components that do not survive that stay ended: `start` starts them again.
        """
        return self._database.down(self._processes)

    def back_up_database(self, path: Path | str) -> None:
        """Write all of the metadata database to a file, while it is in use. PostgreSQL only."""
        self._database.back_up(Path(path))

    def restore_database(self, path: Path | str) -> None:
        """Put a backup in place of the metadata database, with everybody connected to it. Else `recreate_database`."""
        self._database.restore(Path(path))
        self._restart_with_new_database()

    def run_cli(self, *arguments: str, timeout_s: float = HANG_S) -> str:
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

    def wait_until(
        self,
        claim: Callable[[], bool],
        what: str,
        describe: Callable[[], str] = lambda: "",
        *,
        component: str = "scheduler",
        timeout_s: float = HANG_S,
    ) -> None:
        """Poll ``claim``; raises `LocalAirflowError` with ``what``, ``describe()`` and the log of ``component``.

        Raises it at once where any component ends meanwhile.
        """
        self._processes.wait_until(claim, what, describe, component, timeout_s=timeout_s)

    def _prepare(self) -> None:
        for folder in (self.home, self._processes.log_folder, self.home / "logs", self.home / "plugins"):
            folder.mkdir(parents=True, exist_ok=True)
        passwords = {login.user: login.password for login in (self.admin, self.viewer)}
        (self.home / "passwords.json").write_text(json.dumps(passwords))
        self._processes.guard(self._database.make_folder())
        self._database.prepare(self.env, self._processes)
        if self._workers is not None:
            self._workers.prepare()

    @property
    def _with_workers(self) -> Workers:
        if self._workers is None:
            raise LocalAirflowError(
                "expected an Airflow with workers, found LocalExecutor: LocalAirflow(..., workers=2)"
            )
        return self._workers

    def _restart_with_new_database(self) -> None:
        """The API server keeps no row of its own, and connects anew by itself."""
        self._ready_dags.clear()
        self.restart(*(component for component in self.components if component != "api-server"))

    def _environment_of(self, name: str) -> dict[str, str]:
        env = dict(self.env)
        key = "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN"
        if env[key] == self._database.url_for("scheduler"):
            env[key] = self._database.url_for(component_of(name))
        return env

    def _wait_healthy(self, components: Sequence[str]) -> None:
        if not components or not self._processes.is_running("api-server"):
            return
        wanted = {
            HEALTH_KEYS[component_of(name)]: self._processes.started_at[name]
            for name in components
            if component_of(name) in HEALTH_KEYS
        }
        running = filter(self._processes.is_running, self._processes.running)
        schedulers = [self._processes.started_at[name] for name in running if component_of(name) == "scheduler"]
        seen: dict[str, Any] = {}

        def healthy() -> bool:
            document = self.health()
            seen.update(document or {})
            if document is None:
                return False
            for name, started in wanted.items():
                health = document.get(name) or {}
                # A process that was killed counts as healthy until its last heartbeat is too old.
                beat = health.get(f"latest_{name}_heartbeat")
                if health.get("status") != "healthy" or beat is None or _moment(beat) < started:
                    return False
            # It knows the newest heartbeat of all schedulers only.
            return len(schedulers) < 2 or "scheduler" not in wanted or self._all_have_begun(schedulers)

        names = ", ".join(components)
        self.wait_until(healthy, f"{names} to be healthy", lambda: str(seen), component=components[0])

    def _all_have_begun(self, schedulers: Sequence[datetime]) -> bool:
        """Whether each of the schedulers that were started at these moments has registered itself."""
        jobs = self.api("GET", "/jobs?job_type=SchedulerJob&limit=100&order_by=-start_date")["jobs"]
        begun = [_moment(job["start_date"]) for job in jobs]
        return all(
            sum(moment >= started for moment in begun) >= sum(other >= started for other in schedulers)
            for started in schedulers
        )


def _moment(text: str) -> datetime:
    return datetime.fromisoformat(text.replace("Z", "+00:00"))
