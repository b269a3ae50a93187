"""The workers of a local Airflow with CeleryExecutor, each on a machine of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from airflow_recovery.testing.local_airflow.error import LocalAirflowError
from airflow_recovery.testing.local_airflow.link import Link
from airflow_recovery.testing.local_airflow.machine import Machine
from airflow_recovery.testing.local_airflow.processes import WORKER, Processes, worker_command
from airflow_recovery.testing.local_airflow.redis import RedisBroker
from airflow_recovery.testing.patience import HANG_S, NEVER_S

READY = b" ready."
"""What Celery logs when a worker begins to take tasks, behind its name."""
DEFAULT_QUEUE = "default"


@dataclass(frozen=True)
class _Worker:
    machine: Machine
    link: Link
    command: list[str]


class Workers:
    """The broker, and the workers that were added, by name; the processes are kept in ``processes``."""

    def __init__(self, processes: Processes, *, home: Path, dags_folder: Path, api_port: int, concurrency: int) -> None:
        self._processes = processes
        self._home = home
        self._dags_folder = dags_folder
        self._api_port = api_port
        self._concurrency = concurrency
        self._broker = RedisBroker(home)
        self._workers: dict[str, _Worker] = {}

    def settings(self, result_backend: str) -> dict[str, str]:
        """What all components are told. ``result_backend`` is the URL of a database, as SQLAlchemy takes it."""
        return {
            "AIRFLOW__CORE__EXECUTOR": "CeleryExecutor",
            "AIRFLOW__CELERY__BROKER_URL": self._broker.url,
            "AIRFLOW__CELERY__RESULT_BACKEND": f"db+{result_backend}",
            "AIRFLOW__CELERY__SYNC_PARALLELISM": "1",
            "AIRFLOW__CELERY__OPERATION_TIMEOUT": str(HANG_S),
            "AIRFLOW__CELERY_BROKER_TRANSPORT_OPTIONS__VISIBILITY_TIMEOUT": str(NEVER_S),
        }

    def add(
        self,
        queues: tuple[str, ...] | None = None,
        concurrency: int | None = None,
        env: Mapping[str, str] | None = None,
        scratch_bytes: int | None = None,
    ) -> str:
        """Make a machine with a worker, which takes tasks of ``queues``; its name. It is not started."""
        name = f"{WORKER}-{len(self._workers) + 1}"
        machine = Machine(
            name,
            self._home / "machines",
            home=self._home,
            dags_folder=self._dags_folder,
            env=env,
            scratch_bytes=scratch_bytes,
        )
        command = worker_command(queues or (DEFAULT_QUEUE, name), concurrency or self._concurrency)
        self._workers[name] = _Worker(machine, Link(self._api_port), command)
        return name

    def __contains__(self, name: str) -> bool:
        return name in self._workers

    def link(self, name: str) -> Link:
        """The way from a worker to the API server."""
        return self._workers[name].link

    def machine(self, name: str) -> Machine:
        """Where a worker runs."""
        return self._workers[name].machine

    def broker_down(self) -> AbstractContextManager[None]:
        """As `RedisBroker.down`."""
        return self._broker.down(self._processes)

    def prepare(self) -> None:
        """Start the broker. Raises `LocalAirflowError` where something that is needed is not installed."""
        if find_spec("airflow.providers.celery") is None:
            raise LocalAirflowError(
                "expected apache-airflow-providers-celery, whose executor needs workers, found none: install it"
            )
        self._broker.start(self._processes)

    def start(self, name: str, env: Mapping[str, str]) -> Callable[[], bool]:
        """Start a worker where it does not run; returns whether it takes tasks, to be asked until it does."""
        if self._processes.is_running(name):
            return lambda: True
        worker = self._workers[name]
        worker.machine.prepare()
        log = self._processes.log_of(name)
        begins = log.stat().st_size if log.exists() else 0
        env = worker.machine.environment(env)
        env["AIRFLOW__CORE__EXECUTION_API_SERVER_URL"] = f"http://127.0.0.1:{worker.link.port}/execution/"
        self._processes.start(name, worker.machine.command(worker.command), env, self._home)

        def is_ready() -> bool:
            with log.open("rb") as out:
                out.seek(begins)
                return f"celery@{name}".encode() + READY in out.read()

        return is_ready

    def close(self) -> None:
        """End the links. The processes have been stopped."""
        for worker in self._workers.values():
            worker.link.close()
