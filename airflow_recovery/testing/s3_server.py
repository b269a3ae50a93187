"""Real S3 servers as child processes on 127.0.0.1: for the demo, the tests and the benchmarks.

The two are used in the same way; nothing outside this file needs to know which one it talks to.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow_recovery.errors import ConfigurationError
from airflow_recovery.testing.patience import HANG_S
from airflow_recovery.testing.server_process import ServerProcess, request

if TYPE_CHECKING:
    from botocore.session import Session
    from mypy_boto3_s3 import S3Client

ACCESS_KEY = "airflow-recovery"
SECRET_KEY = "airflow-recovery-secret"
REGION = "us-east-1"


class S3Server(ServerProcess):
    """A server of S3's API, as `ServerProcess` runs it."""

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
        request(f"{self.endpoint_url}/moto-api/reset-auth", requests)


class VersityServer(S3Server):
    """versitygw over a folder: a server for real use (Go, Apache-2.0). What it stores survives a kill.

    Raises `ConfigurationError` where the binary is not there (`find_versitygw`).
    """

    name = "versitygw"

    def _command(self) -> list[str]:
        binary = find_versitygw()
        if binary is None:
            raise ConfigurationError(
                "versitygw was not found on the PATH, in this environment, nor in Go's bin folder. Install it with "
                "`go install github.com/versity/versitygw/cmd/versitygw@v1.8.0`."
            )
        data = self.folder / "buckets"
        data.mkdir(exist_ok=True)
        return [binary, "--quiet", "--port", f"127.0.0.1:{self.port}", "--region", REGION, "posix", str(data)]

    def _server_environment(self) -> dict[str, str]:
        return {"ROOT_ACCESS_KEY": ACCESS_KEY, "ROOT_SECRET_KEY": SECRET_KEY}


SERVERS: dict[str, type[S3Server]] = {server.name: server for server in (MotoServer, VersityServer)}


def local_server(folder: Path) -> S3Server:
    """versitygw where it is installed, since it keeps connections open, as S3 does; else moto."""
    return MotoServer(folder) if find_versitygw() is None else VersityServer(folder)


def find_versitygw() -> str | None:
    """Return the versitygw binary, or `None` if it is not installed.

    It is on the PATH, beside this Python (``scripts/setup.sh --s3a``), or in the folder of ``go install``.
    """
    text = shutil.which("versitygw") or shutil.which("versitygw", path=f"{sys.prefix}/bin")
    if text is not None:
        return text
    folders = [os.environ.get("GOBIN"), *(f"{path}/bin" for path in _go_paths())]
    return next((path for folder in folders if folder and os.access(path := f"{folder}/versitygw", os.X_OK)), None)


def _go_paths() -> list[str]:
    go = shutil.which("go")
    if go is None:
        return [os.path.expanduser("~/go")]
    answer = subprocess.run([go, "env", "GOPATH"], capture_output=True, text=True, timeout=HANG_S, check=False)
    return [piece for piece in answer.stdout.strip().split(os.pathsep) if piece] or [os.path.expanduser("~/go")]
