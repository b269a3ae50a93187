"""The processes of a local Airflow: started, watched, killed, and none of them left."""

from __future__ import annotations

import contextlib
import os
import pwd
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from airflow_recovery.testing.local_airflow import reaper
from airflow_recovery.testing.local_airflow.error import LocalAirflowError
from airflow_recovery.testing.patience import HANG_S

COMPONENTS = ("api-server", "scheduler", "dag-processor", "triggerer")
WORKER = "worker"
DATABASE = "postgresql"
"""The name of the database server, where there is one: it is stopped after all who use it."""
POLL_INTERVAL_S = 0.5
STOP_TIMEOUT_S = 2.0
"""Airflow has nothing to bring to safety; what needs longer is killed."""
DATABASE_STOP_TIMEOUT_S = 60.0
"""It waits for no client. Killed, it would leave a shared memory segment behind."""
LOG_TAIL_LINES = 40


def instances(schedulers: int) -> tuple[str, ...]:
    """The components by name: ``scheduler``, ``scheduler-2``, ... where there are more of them."""
    further = tuple(f"scheduler-{number}" for number in range(2, schedulers + 1))
    return tuple(text for name in COMPONENTS for text in ((name, *further) if name == "scheduler" else (name,)))


def component_of(instance: str) -> str:
    """The component of an instance: ``scheduler`` of ``scheduler-2``."""
    name, _, number = instance.rpartition("-")
    return name if number.isdigit() else instance


def airflow_command(instance: str) -> list[str]:
    """The command line that runs the instance."""
    component = component_of(instance)
    arguments = ["--skip-serve-logs"] if component in ("scheduler", "triggerer") else []
    return [sys.executable, "-m", "airflow", component, *arguments]


def worker_command(queues: Sequence[str], concurrency: int) -> list[str]:
    """The command line that runs a worker of CeleryExecutor, which is named after its machine."""
    arguments = ["--queues", ",".join(queues), "--concurrency", str(concurrency)]
    quiet = ["--skip-serve-logs", "--without-gossip", "--without-mingle"]
    return [sys.executable, "-m", "airflow", "celery", "worker", *arguments, *quiet]


class Processes:
    """Processes by name, each the leader of a session of its own, with its log in ``log_folder``."""

    def __init__(self, log_folder: Path) -> None:
        self.log_folder = log_folder
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        self.started_at: dict[str, datetime] = {}
        self._marker = uuid.uuid4().hex
        self._sessions: dict[int, float] = {}
        self._reaper: subprocess.Popen[bytes] | None = None

    @property
    def marker(self) -> dict[str, str]:
        """The environment variable by which everything that is started here is known."""
        return {reaper.MARKER: self._marker}

    @property
    def is_guarded(self) -> bool:
        """Whether there is somebody to clean up after this process."""
        return self._reaper is not None

    def guard(self, folders: Sequence[Path] = ()) -> None:
        """Start the process that cleans up where this one dies; it removes ``folders``, too."""
        command = [sys.executable, "-I", reaper.__file__, self._marker, *map(str, folders)]
        self._reaper = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)
        assert self._reaper.stdin is not None
        # A forked child that kept the pipe open would keep the reaper waiting, and `stop` with it.
        os.register_at_fork(after_in_child=self._reaper.stdin.close)

    def is_running(self, name: str) -> bool:
        """Whether it was started and has not ended."""
        process = self.running.get(name)
        return process is not None and process.poll() is None

    def start(
        self, name: str, command: Sequence[str], env: Mapping[str, str], folder: Path, *, user: str | None = None
    ) -> None:
        """Start ``command`` in ``folder``, as ``user`` where one is named. Nothing where it is running."""
        if self.is_running(name):
            return
        self.started_at[name] = datetime.now(timezone.utc)
        with self.log_of(name).open("ab") as out:
            self.running[name] = subprocess.Popen(
                command,
                env={**env, **self.marker},
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                user=user,
                group=None if user is None else pwd.getpwnam(user).pw_gid,
                extra_groups=None if user is None else [],
            )
        self._watch(self.running[name].pid)

    def ports(self, component: str) -> list[int]:
        """Return the local ports of the TCP connections that the main process of a component has now."""
        import psutil  # type: ignore[import-untyped]

        with contextlib.suppress(psutil.NoSuchProcess):
            main = psutil.Process(self.running[component].pid)
            return [connection.laddr.port for connection in main.net_connections(kind="tcp")]
        return []

    def kill(self, component: str, with_signal: signal.Signals) -> None:
        """Send a signal to the one main process of a component, and wait for its end. Its children are left alone."""
        process = self.running[component]
        process.send_signal(with_signal)
        process.wait(HANG_S)

    def kill_group(self, component: str) -> None:
        """``kill -9`` a component with everything in its process group."""
        process = self.running[component]
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(HANG_S)

    @contextlib.contextmanager
    def frozen(self, component: str) -> Iterator[None]:
        """Inside, a component stands still with all that it has started, on its machine too; then all of it goes on."""
        import psutil

        main = psutil.Process(self.running[component].pid)
        try:
            # What one of them has started meanwhile is found the next time.
            while moving := [process for process in _tree(main) if not _is_still(process)]:
                for process in moving:
                    _send(process, signal.SIGSTOP)
            yield
        finally:
            for process in _tree(main):
                _send(process, signal.SIGCONT)

    def stop(self) -> None:
        """End every process, politely first; afterwards none is left. Safe to call twice."""
        airflow = [process for name, process in self.running.items() if name != DATABASE]
        self._end(airflow, signal.SIGTERM, STOP_TIMEOUT_S)
        # Its "fast" shutdown.
        database = [process for name, process in self.running.items() if name == DATABASE]
        self._end(database, signal.SIGINT, DATABASE_STOP_TIMEOUT_S)
        reaper.reap(self._marker, self._sessions)
        self._sessions.clear()
        for process in self.running.values():
            process.wait()
        self.running.clear()
        if self._reaper is not None:
            if self._reaper.stdin is not None:
                self._reaper.stdin.close()
            self._reaper.wait()
            self._reaper = None

    def wait_until(
        self,
        claim: Callable[[], bool],
        what: str,
        describe: Callable[[], str],
        component: str,
        *,
        timeout_s: float = HANG_S,
    ) -> None:
        """Poll ``claim``; raises `LocalAirflowError` with ``what``, ``describe()`` and the log of ``component``.

        Raises it at once, with its log, where a component ends that runs now.
        """
        expected = {name: process for name, process in self.running.items() if process.poll() is None}
        deadline = time.monotonic() + timeout_s
        while not claim():
            for name, process in expected.items():
                if process.poll() is not None and self.running.get(name) is process:
                    raise LocalAirflowError(
                        f"{name} ended with {process.returncode} while waiting for {what}\n{self.tail(name)}"
                    )
            if time.monotonic() > deadline:
                raise LocalAirflowError(
                    f"waited {timeout_s:.0f} s for {what}\n{describe()}\n{component}:\n{self.tail(component)}"
                )
            time.sleep(POLL_INTERVAL_S)

    def log_of(self, component: str) -> Path:
        """The path of the file with the output of ``component``."""
        return self.log_folder / f"{component}.log"

    def tail(self, component: str) -> str:
        """The last lines of the log of ``component``, for an error message."""
        path = self.log_of(component)
        lines = path.read_text(errors="replace").splitlines() if path.exists() else []
        return "\n".join(f"  | {line}" for line in lines[-LOG_TAIL_LINES:])

    @staticmethod
    def _end(processes: Sequence[subprocess.Popen[bytes]], with_signal: signal.Signals, timeout_s: float) -> None:
        for process in processes:
            if process.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    process.send_signal(with_signal)
        deadline = time.monotonic() + timeout_s
        for process in processes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, deadline - time.monotonic()))

    def _watch(self, pid: int) -> None:
        """Remember a component's session, here and in the reaper."""
        import psutil

        with contextlib.suppress(psutil.NoSuchProcess):
            self._sessions[pid] = psutil.Process(pid).create_time()
            if self._reaper is not None and self._reaper.stdin is not None:
                self._reaper.stdin.write(f"{pid} {self._sessions[pid]}\n".encode())
                self._reaper.stdin.flush()


def _tree(main: Any) -> list[Any]:
    return [main, *main.children(recursive=True)]


def _is_still(process: Any) -> bool:
    import psutil

    with contextlib.suppress(psutil.NoSuchProcess):
        return bool(process.status() in (psutil.STATUS_STOPPED, psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD))
    return True


def _send(process: Any, number: signal.Signals) -> None:
    import psutil

    with contextlib.suppress(psutil.NoSuchProcess):
        process.send_signal(number)
