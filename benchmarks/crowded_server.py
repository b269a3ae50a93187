"""An API server alone, real and over real HTTP, with the journals of a large run and of a small one.

For the benchmark of many viewers, and for the tests that attack it. There is no scheduler: the rows of the runs are
written into Airflow's database, their journals into an S3 stand-in.
"""

from __future__ import annotations

import json
import pickle
import socket
import subprocess
import sys
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Literal

import psutil  # type: ignore[import-untyped]
import requests

from airflow_recovery.attempt.clear_protocol import API_PREFIX
from airflow_recovery.model.records import RunIdentity
from airflow_recovery.testing.local_airflow import LocalAirflow
from airflow_recovery.testing.local_airflow.settings import Login
from airflow_recovery.testing.patience import HANG_S
from benchmarks import crowded_rows
from benchmarks.s3_stand_in import serving
from benchmarks.shapes import IDENTITY, chain, finished_run, planned

RUN = "run"
SMALL = RunIdentity("small", IDENTITY.run_key, IDENTITY.group_id)
LARGE_PAGE = f"{API_PREFIX}/dags/{IDENTITY.dag_id}/runs/{RUN}"
SMALL_PAGE = f"{API_PREFIX}/dags/{SMALL.dag_id}/runs/{RUN}"
READER = "airflow_recovery.api_server.reader_process"


@dataclass(frozen=True)
class CrowdedServer:
    """The server. ``viewers``: users who may read runs; ``task``: the id of a task instance that runs."""

    airflow: LocalAirflow
    viewers: tuple[Login, ...]
    task: str

    def get(self, path: str, user: Login, **headers: str) -> requests.Response:
        """One request, on a connection of its own."""
        with self._http() as http:
            headers["Authorization"] = f"Bearer {self.airflow.token(user)}"
            return http.get(f"{self.airflow.url}{path}", headers=headers, timeout=HANG_S)

    def write_state(self, value: Any) -> requests.Response:
        """The task writes into its own state store, as its process does."""
        import jwt
        from airflow.sdk.api.datamodels._generated import API_VERSION

        now = datetime.now(timezone.utc).timestamp()
        claims: dict[str, Any] = {"sub": self.task, "aud": "urn:airflow.apache.org:task", "jti": uuid.uuid4().hex}
        claims |= {"iat": now, "nbf": now - 5, "exp": now + 3600, "scope": "execution"}
        token = jwt.encode(claims, self.airflow.env["AIRFLOW__API_AUTH__JWT_SECRET"], algorithm="HS512")
        headers = {"Authorization": f"Bearer {token}", "airflow-api-version": API_VERSION}
        with self._http() as http:
            url = f"{self.airflow.url}/execution/store/ti/{self.task}/measured"
            return http.put(url, json={"value": value}, headers=headers, timeout=HANG_S)

    def post_head(self, path: str, user: Login | None, length: int) -> socket.socket:
        """Begin a POST with a body of that length, and send nothing of it."""
        lines = [f"POST {path} HTTP/1.1", f"Host: 127.0.0.1:{self.airflow.port}", "Content-Type: application/json"]
        lines.append(f"Content-Length: {length}")
        if user is not None:
            lines.append(f"Authorization: Bearer {self.airflow.token(user)}")
        connection = socket.create_connection(("127.0.0.1", self.airflow.port), timeout=HANG_S)
        connection.sendall("\r\n".join([*lines, "", ""]).encode())
        return connection

    def processes(self) -> tuple[list[psutil.Process], list[psutil.Process]]:
        """Those of the API server, and those that read large runs for it."""
        main = psutil.Process(self.airflow.processes["api-server"].pid)
        children = main.children(recursive=True)
        readers = [each for each in children if READER in each.cmdline()]
        return [main, *(each for each in children if each not in readers)], readers

    @staticmethod
    def _http() -> requests.Session:
        http = requests.Session()
        http.trust_env = False
        return http


@contextmanager
def crowded_server(
    folder: Path,
    levels: int,
    parallelism: int,
    *,
    viewers: int,
    database: Literal["sqlite", "postgresql"] = "sqlite",
    env: Mapping[str, str] | None = None,
    plugins: Mapping[str, str] | None = None,
) -> Iterator[CrowdedServer]:
    """``levels`` x ``parallelism``: the regions of the large run. ``plugins``: files of Airflow's, by name."""
    bodies: dict[str, bytes] = {}
    finished_run(planned(chain(levels, parallelism)).record, bodies)
    finished_run(planned(chain(3, 1)).record, bodies, identity=SMALL)
    folder.mkdir(parents=True, exist_ok=True)
    objects = folder / "objects"
    objects.write_bytes(pickle.dumps(bodies))
    del bodies
    dags, home = folder / "dags", folder / "airflow"
    dags.mkdir()
    (home / "plugins").mkdir(parents=True)
    for name, text in (plugins or {}).items():
        (home / "plugins" / name).write_text(text)
    with serving(objects) as s3:
        airflow = LocalAirflow(home, dags, database=database)
        names = [f"viewer{number}" for number in range(viewers)]
        users = airflow.env["AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS"]
        airflow.env |= {
            "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": ",".join([users, *(f"{name}:viewer" for name in names)]),
            "AIRFLOW__RECOVERY__JOURNAL": "s3://bucket/journal",
            "AWS_ENDPOINT_URL_S3": s3.endpoint_url,
            "AWS_ACCESS_KEY_ID": "key",
            "AWS_SECRET_ACCESS_KEY": "secret",
            "AWS_DEFAULT_REGION": "us-east-1",
            **(env or {}),
        }
        try:
            airflow.start("api-server")
            task = _write_rows(airflow, levels, parallelism)
            passwords = json.loads((home / "passwords.json").read_text())
            yield CrowdedServer(airflow, tuple(Login(name, passwords[name]) for name in names), task)
        finally:
            airflow.stop()


def _write_rows(airflow: LocalAirflow, levels: int, parallelism: int) -> str:
    """The id of the task instance that runs."""

    def tasks(levels: int, parallelism: int) -> list[tuple[str, int, str, str]]:
        return [
            (f"{IDENTITY.group_id}.v{level}", at if parallelism > 1 else -1, "success", str(uuid.uuid4()))
            for level in range(levels)
            for at in range(parallelism)
        ]

    task = str(uuid.uuid4())
    runs = [
        {"dag_id": IDENTITY.dag_id, "run_id": RUN, "state": "running", "tasks": tasks(levels, parallelism)},
        {"dag_id": SMALL.dag_id, "run_id": RUN, "state": "running", "tasks": tasks(3, 1)},
        {"dag_id": "working", "run_id": RUN, "state": "running", "tasks": [("task", -1, "running", task)]},
    ]
    subprocess.run(
        [sys.executable, crowded_rows.__file__], input=json.dumps(runs), text=True, env=airflow.env, check=True
    )
    return task
