"""Real S3 servers as child processes on 127.0.0.1: for the demo, the tests and the benchmarks.

The two are used in the same way; nothing outside this file needs to know which one it talks to.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from airflow_recovery.errors import ConfigurationError, StoreUnavailable
from airflow_recovery.testing.free_port import free_port

if TYPE_CHECKING:
    from botocore.session import Session
    from mypy_boto3_s3 import S3Client
    from typing_extensions import Self

ACCESS_KEY = "airflow-recovery"
SECRET_KEY = "airflow-recovery-secret"
REGION = "us-east-1"

_START_TIMEOUT_S = 60.0
_STOP_TIMEOUT_S = 10.0
_PR_SET_PDEATHSIG = 1


class S3Server(ABC):
    """One server process, started by ``with`` or `start`, on a free port of 127.0.0.1 (or ``port``).

    It dies with the process that started it (on Linux), also by ``kill -9``; precisely, with the thread, so start it
    from one that lives as long as the server is needed. Its log goes to ``log_path``.
    """

    name: str

    def __init__(self, folder: str | Path | None = None, *, port: int = 0) -> None:
        """``folder`` takes the log and what the server stores; without it, a temporary one that `stop` removes."""
        self._own_folder = folder is None
        self.folder = Path(tempfile.mkdtemp(prefix="recovery-s3-") if folder is None else folder)
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
        """Credentials and region as environment variables. The endpoint is not among them: it is always said."""
        return {
            "AWS_ACCESS_KEY_ID": ACCESS_KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
            "AWS_REGION": REGION,
            "AWS_DEFAULT_REGION": REGION,
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    def session(self) -> Session:
        """A session of botocore with the server's credentials and region."""
        from airflow_recovery.store.s3_clients import new_session

        session = new_session(ACCESS_KEY, SECRET_KEY)
        session.set_config_variable("region", REGION)
        return session

    def create_bucket(self, name: str) -> None:
        """Create a bucket; one that is there already is fine. Names have at least three characters."""
        from botocore.config import Config

        config = Config(s3={"addressing_style": "path"})
        create: Any = self.session().create_client  # typed as a client of any service
        client: S3Client = create("s3", endpoint_url=self.endpoint_url, config=config)
        if name not in {bucket.get("Name") for bucket in client.list_buckets().get("Buckets", ())}:
            client.create_bucket(Bucket=name)

    @contextmanager
    def refusing_strangers(self) -> Iterator[None]:
        """Inside, unknown credentials are refused. Do not use the known ones in there."""
        yield

    def start(self) -> Self:
        """Start the process and wait until it answers. Raises `StoreUnavailable` with the end of its log."""
        self.folder.mkdir(parents=True, exist_ok=True)
        # A port that is free now may be taken when the server binds it: then it exits, and we look for another.
        tries = 1 if self.port else 3
        if self.port and not _is_free(self.port):
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
        said = self.log_path.read_text(errors="replace")[-2000:]
        raise StoreUnavailable(
            f"{self.name} did not answer at {self.endpoint_url} within {_START_TIMEOUT_S:.0f} s. Its log ends:\n{said}"
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
        deadline_s = time.monotonic() + _START_TIMEOUT_S
        while time.monotonic() < deadline_s:
            if self._process is None or self._process.poll() is not None:
                return False
            try:
                _request(self.endpoint_url)
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


_ATOMIC_MOTO = """
import io, threading
from moto import server

respond, turn = server.DomainDispatcherApplication.__call__, threading.Lock()

def one_conditional_write_at_a_time(self, environ, start_response):
    if "HTTP_IF_NONE_MATCH" not in environ or environ["REQUEST_METHOD"] != "PUT":
        return respond(self, environ, start_response)
    body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
    with turn:
        return respond(self, {**environ, "wsgi.input": io.BytesIO(body)}, start_response)

server.DomainDispatcherApplication.__call__ = one_conditional_write_at_a_time
server.main()
"""


class MotoServer(S3Server):
    """moto's server, from the interpreter that runs this. Everything is in memory and gone when it stops.

    moto looks whether a key is there, and writes then: of two conditional writes at once, both win now and then, and
    the start-up probe would refuse it. Here they take turns.
    """

    name = "moto"

    def _command(self) -> list[str]:
        return [sys.executable, "-c", _ATOMIC_MOTO, "-H", "127.0.0.1", "-p", str(self.port)]

    @contextmanager
    def refusing_strangers(self) -> Iterator[None]:
        """Inside, unknown credentials are refused (moto takes any otherwise; it knows no users, so none is known)."""
        self._check_credentials_after(b"0")
        try:
            yield
        finally:
            self._check_credentials_after(b"inf")

    def _check_credentials_after(self, requests: bytes) -> None:
        _request(f"{self.endpoint_url}/moto-api/reset-auth", requests)


class VersityServer(S3Server):
    """versitygw over a folder: a server for real use (Go, Apache-2.0). What it stores survives a kill.

    Raises `ConfigurationError` where the binary is not there (`find_versitygw`).
    """

    name = "versitygw"

    def _command(self) -> list[str]:
        binary = find_versitygw()
        if binary is None:
            raise ConfigurationError(
                "versitygw was not found on the PATH nor in Go's bin folder. Install it with "
                "`go install github.com/versity/versitygw/cmd/versitygw@v1.8.0`."
            )
        data = self.folder / "buckets"
        data.mkdir(exist_ok=True)
        return [binary, "--quiet", "--port", f"127.0.0.1:{self.port}", "--region", REGION, "posix", str(data)]

    def _server_environment(self) -> dict[str, str]:
        return {"ROOT_ACCESS_KEY": ACCESS_KEY, "ROOT_SECRET_KEY": SECRET_KEY}


SERVERS: dict[str, type[S3Server]] = {server.name: server for server in (MotoServer, VersityServer)}


def find_versitygw() -> str | None:
    """The versitygw binary: on the PATH, or where ``go install`` puts it. `None` where it is not installed."""
    text = shutil.which("versitygw")
    if text is not None:
        return text
    folders = [os.environ.get("GOBIN"), *(f"{path}/bin" for path in _go_paths())]
    return next((path for folder in folders if folder and os.access(path := f"{folder}/versitygw", os.X_OK)), None)


def _go_paths() -> list[str]:
    go = shutil.which("go")
    if go is None:
        return [os.path.expanduser("~/go")]
    answer = subprocess.run([go, "env", "GOPATH"], capture_output=True, text=True, timeout=30, check=False)
    return [piece for piece in answer.stdout.strip().split(os.pathsep) if piece] or [os.path.expanduser("~/go")]


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def _request(url: str, body: bytes | None = None) -> None:
    # A proxy of the environment must not get between this process and its own child.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    request = urllib.request.Request(url, body, {"Content-Type": "text/plain"})
    opener.open(request, timeout=5).close()


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
