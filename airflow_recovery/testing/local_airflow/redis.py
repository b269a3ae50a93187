"""A Redis server of a local Airflow's own: through it the schedulers hand tasks to the workers of CeleryExecutor."""

from __future__ import annotations

import secrets
import shutil
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from airflow_recovery.testing.free_port import free_port
from airflow_recovery.testing.local_airflow.error import LocalAirflowError
from airflow_recovery.testing.local_airflow.processes import Processes
from airflow_recovery.testing.patience import HANG_S

BROKER = "redis"
"""The name of its process."""


class RedisBroker:
    """On a free port of 127.0.0.1, with a password drawn anew; it keeps nothing on the disk."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._port = free_port()
        self._password = secrets.token_hex(16)

    @property
    def url(self) -> str:
        """Celery's ``broker_url``."""
        return f"redis://:{self._password}@127.0.0.1:{self._port}/0"

    def start(self, processes: Processes) -> None:
        """Start the server, and wait until it answers. Raises `LocalAirflowError`."""
        program = find_server()
        # Not on the command line, which everybody may read.
        settings = self._folder / "redis.conf"
        settings.touch(mode=0o600)
        settings.write_text(
            f'bind 127.0.0.1\nport {self._port}\nrequirepass {self._password}\nsave ""\nappendonly no\n'
        )
        processes.start(BROKER, [str(program), str(settings)], {}, self._folder)
        processes.wait_until(self._answers, "Redis to be ready", lambda: "", BROKER)

    @contextmanager
    def down(self, processes: Processes) -> Iterator[None]:
        """Inside, there is no server; then there is one again, with nothing of what it held."""
        processes.kill(BROKER, signal.SIGKILL)
        try:
            yield
        finally:
            self.start(processes)

    def _answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self._port), timeout=HANG_S) as connection:
                connection.sendall(f"AUTH {self._password}\r\n".encode())
                return connection.recv(64).startswith(b"+OK")
        except OSError:
            return False


def find_server() -> Path:
    """The program ``redis-server``. Raises `LocalAirflowError` where it is not installed."""
    program = shutil.which("redis-server")
    if program is None:
        raise LocalAirflowError(
            "expected redis-server, through which workers get their tasks, on the PATH, found none: install it "
            "(Debian: apt-get install redis-server)"
        )
    return Path(program)
