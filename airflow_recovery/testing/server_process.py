"""A real server as a child process on 127.0.0.1, which dies with the process that started it."""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from airflow_recovery.errors import StoreUnavailable
from airflow_recovery.testing.free_port import free_port, is_free
from airflow_recovery.testing.patience import HANG_S

if TYPE_CHECKING:
    from typing_extensions import Self

_STOP_TIMEOUT_S = 10.0
"""A server that has not ended by then is killed: it has nothing to bring to safety."""
_PR_SET_PDEATHSIG = 1


class ServerProcess(ABC):
    """One HTTP server, started by ``with`` or `start`, on a free port of 127.0.0.1 (or ``port``).

    It dies with the process that started it (on Linux), also by ``kill -9``; precisely, with the thread, so start it
    from one that lives as long as the server is needed. Its log goes to ``log_path``.
    """

    name: str

    def __init__(self, folder: str | Path | None = None, *, port: int = 0) -> None:
        """``folder`` takes the log and what the server stores; without it, a temporary one that `stop` removes."""
        self._own_folder = folder is None
        self.folder = Path(tempfile.mkdtemp(prefix="recovery-server-") if folder is None else folder)
        self.port = port
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def endpoint_url(self) -> str:
        """The address of the server: ``http://127.0.0.1:<port>``."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def log_path(self) -> Path:
        """The file with what the server has printed."""
        return self.folder / f"{self.name}.log"

    @property
    def pid(self) -> int | None:
        """The process id while the server runs."""
        return self._process.pid if self._process is not None else None

    def environment(self) -> dict[str, str]:
        """What its clients find in their environment, credentials for the most part; the server gets it too."""
        return {}

    def start(self) -> Self:
        """Start the process and wait until it answers. Raises `StoreUnavailable` with the end of its log."""
        self.folder.mkdir(parents=True, exist_ok=True)
        # A port that is free now may be taken when the server binds it: then it exits, and we look for another.
        tries = 1 if self.port else 3
        if self.port and not is_free(self.port):
            # Else whoever has it would answer in the name of our child.
            raise StoreUnavailable(
                f"Port {self.port} of 127.0.0.1 is taken by another process. End it, or give another port."
            )
        for _ in range(tries):
            if tries > 1:
                self.port = free_port()
            with open(self.log_path, "wb") as log:
                self._process = subprocess.Popen(
                    self._command(),
                    env={**os.environ, **self.environment(), **self._server_environment()},
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,  # Ctrl-C is for the parent, which stops the server in order
                    preexec_fn=_die_with(os.getpid()),
                )
            if self._answers():
                return self
            self._end_process()
        tail = self.log_path.read_text(errors="replace")[-2000:]
        raise StoreUnavailable(
            f"{self.name} did not answer at {self.endpoint_url} within {HANG_S:.0f} s, or has ended. "
            f"Its log ends:\n{tail}"
        )

    def stop(self) -> None:
        """End the process and remove the temporary folder. A second call does nothing."""
        self._end_process()
        if self._own_folder:
            shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.stop()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @abstractmethod
    def _command(self) -> list[str]: ...

    def _server_environment(self) -> dict[str, str]:
        return {}

    def _answers(self) -> bool:
        deadline_s = time.monotonic() + HANG_S
        while time.monotonic() < deadline_s:
            if self._process is None or self._process.poll() is not None:
                return False
            try:
                request(self.endpoint_url)
                return True
            except urllib.error.HTTPError:
                return True  # an answer, if only "who are you?"
            except OSError:
                time.sleep(0.05)
        return False

    def _end_process(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.terminate()
        try:
            process.wait(_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def request(url: str, body: bytes | None = None) -> None:
    """Ask the server something, and leave the answer. Raises as `urllib.request.urlopen`."""
    # A proxy of the environment must not get between this process and its own child.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    request = urllib.request.Request(url, body, {"Content-Type": "text/plain"})
    opener.open(request, timeout=HANG_S).close()


def _die_with(parent: int) -> Callable[[], None] | None:
    """What the child runs before exec, so that it can't outlive ``parent``. Linux only; elsewhere `stop` must run."""
    if not sys.platform.startswith("linux"):
        return None
    libc = ctypes.CDLL(None)  # loaded here: after the fork no import is safe

    def in_child() -> None:
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it died between the fork and prctl
            os._exit(1)

    return in_child
