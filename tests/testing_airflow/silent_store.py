"""A store that takes every connection and never answers; and a task that has to report all the same."""

from __future__ import annotations

import contextlib
import socket
import threading
import uuid
from datetime import datetime, timezone
from types import TracebackType
from typing import Any

import jwt
import requests
from airflow.sdk.api.datamodels._generated import API_VERSION

from airflow_recovery.testing.local_airflow import LocalAirflow
from airflow_recovery.testing.patience import HANG_S


class SilentStore:
    """Listens on a port of 127.0.0.1. ``accepted`` counts the connections; `hang_up` closes those that are open."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=512)
        self._open: list[socket.socket] = []
        self._lock = threading.Lock()
        self.accepted = 0
        self._thread = threading.Thread(target=self._serve, name="silent-store", daemon=True)

    @property
    def environment(self) -> dict[str, str]:
        """Where an S3 client finds it."""
        return {
            "AWS_ENDPOINT_URL_S3": f"http://127.0.0.1:{self._listener.getsockname()[1]}",
            "AWS_ACCESS_KEY_ID": "key",
            "AWS_SECRET_ACCESS_KEY": "secret",
            "AWS_DEFAULT_REGION": "us-east-1",
        }

    def __enter__(self) -> SilentStore:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(HANG_S)
        self.hang_up()

    def hang_up(self) -> None:
        """Close what is open: who waits there waits no longer."""
        with self._lock:
            for each in self._open:
                each.close()
            self._open.clear()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with self._lock:
                self.accepted += 1
                self._open.append(connection)


class ReportingTask:
    """A running task instance, as its supervisor speaks to the Execution API."""

    def __init__(self, airflow: LocalAirflow, dag_id: str, run_id: str, task_id: str) -> None:
        found = airflow.task_instance(dag_id, run_id, task_id)
        self._url = f"{airflow.url}/execution"
        self.ti_id = str(found["id"])
        self._who = {"hostname": found["hostname"], "pid": found["pid"]}
        now = datetime.now(timezone.utc).timestamp()
        claims: dict[str, Any] = {"sub": self.ti_id, "aud": "urn:airflow.apache.org:task", "jti": uuid.uuid4().hex}
        claims |= {"iat": now, "nbf": now - 5, "exp": now + 3600, "scope": "execution"}
        token = jwt.encode(claims, airflow.env["AIRFLOW__API_AUTH__JWT_SECRET"], algorithm="HS512")
        self._headers = {"Authorization": f"Bearer {token}", "airflow-api-version": API_VERSION}

    def heartbeat(self, timeout_s: float) -> int:
        """The status. Raises `requests.Timeout`."""
        return self._send("PUT", f"task-instances/{self.ti_id}/heartbeat", self._who, timeout_s).status_code

    def call(self, key: str, value: Any) -> Any:
        """Write to its own state store, and what is there afterwards. Raises where the write is not accepted."""
        path = f"store/ti/{self.ti_id}/{key}"
        self._send("PUT", path, {"value": value}, 60).raise_for_status()
        return self._send("GET", path, None, 60).json()["value"]

    def _send(self, method: str, path: str, body: Any, timeout_s: float) -> requests.Response:
        with requests.Session() as http:
            http.trust_env = False
            return http.request(method, f"{self._url}/{path}", json=body, headers=self._headers, timeout=timeout_s)
