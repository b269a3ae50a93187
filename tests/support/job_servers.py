"""Servers of the services that operators submit jobs to, by their REST: each job is a real process of this machine.

A job's program is a Python file; how it is found in a request, and what its states are called, is the service's. They
have tests of their own: `tests/operators/test_job_servers.py`.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.parse import parse_qs, urlsplit

from airflow_recovery.testing.patience import HANG_S

Answer = tuple[int, Any]


@dataclass
class JobProcess:
    """A program that was submitted. ``is_ended_by_request``: it was killed, and did not end by itself."""

    request: Mapping[str, Any]
    process: subprocess.Popen[str]
    is_ended_by_request: bool = False
    lines: list[str] = field(default_factory=list)

    @classmethod
    def start(cls, request: Mapping[str, Any], program: str, arguments: Sequence[str]) -> JobProcess:
        """Run the Python file ``program``."""
        command = [sys.executable, program.removeprefix("file://"), *arguments]
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        job = cls(request, process)
        threading.Thread(target=job._read, daemon=True).start()
        return job

    def _read(self) -> None:
        assert self.process.stdout is not None
        self.lines.extend(line.rstrip("\n") for line in self.process.stdout)

    @property
    def code(self) -> int | None:
        """Its exit code; `None` while it runs."""
        return self.process.poll()

    def kill(self) -> None:
        """End it, and wait until it is gone."""
        if self.code is None:
            self.is_ended_by_request = True
            self.process.kill()
        self.process.wait(HANG_S)


class JobServer:
    """An HTTP server in a thread. ``jobs``: by id, as they were submitted; ``requests``: method and path of each."""

    fetch: Callable[[str], str] = staticmethod(str)
    """The path of the program that a request names, when its job is started."""

    def __init__(self) -> None:
        self.jobs: dict[int, JobProcess] = {}
        self.requests: list[str] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _handle(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                raw = self.rfile.read(length)
                parts = urlsplit(self.path)
                query = {key: values[0] for key, values in parse_qs(parts.query).items()}
                outer.requests.append(f"{self.command} {parts.path}")
                try:
                    body = json.loads(raw) if raw else None
                except ValueError:
                    status, answer = 400, {"msg": "The body is no JSON."}
                else:
                    headers = {key.lower(): value for key, value in self.headers.items()}
                    status, answer = outer.answer(self.command, parts.path, query, body, headers)
                content = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            do_GET = do_POST = do_DELETE = _handle

            def log_message(self, *args: Any) -> None:
                """Says nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)

    @property
    def port(self) -> int:
        """Where it listens, on 127.0.0.1."""
        return int(self._server.server_address[1])

    def __enter__(self) -> Any:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._server.shutdown()
        self._server.server_close()
        for job in self.jobs.values():
            job.kill()

    def answer(self, method: str, path: str, query: Mapping[str, str], body: Any, headers: Mapping[str, str]) -> Answer:
        """The status and the JSON for one request."""
        raise NotImplementedError


class LivyServer(JobServer):
    """Batches of Apache Livy's REST API. ``needs_header``: its protection against forged requests is on."""

    def __init__(self, *, needs_header: bool = False) -> None:
        super().__init__()
        self._needs_header = needs_header
        self._next = 0

    def connection(self) -> str:
        """For ``AIRFLOW_CONN_LIVY_DEFAULT``."""
        return json.dumps({"conn_type": "livy", "host": "127.0.0.1", "port": self.port, "schema": "http"})

    def answer(self, method: str, path: str, query: Mapping[str, str], body: Any, headers: Mapping[str, str]) -> Answer:
        """See Livy's own page of its REST API."""
        if self._needs_header and method != "GET" and "x-requested-by" not in headers:
            return 400, {"msg": "Missing Required Header for CSRF protection."}
        pieces = path.strip("/").split("/")
        if pieces[0] != "batches" or len(pieces) > 3:
            return 404, {"msg": "Not found."}
        if len(pieces) == 1:
            return self._submit(body) if method == "POST" else (200, self._list(query))
        number = int(pieces[1]) if pieces[1].isdigit() else -1
        job = self.jobs.get(number)
        if job is None:
            return 404, {"msg": f"Session '{pieces[1]}' not found."}
        if method == "DELETE":
            job.kill()
            del self.jobs[number]
            return 200, {"msg": "deleted"}
        if len(pieces) == 2:
            return 200, self._batch(number, job)
        if pieces[2] == "state":
            return 200, {"id": number, "state": self._state(job)}
        if pieces[2] == "log":
            first, size = int(query.get("from", 0)), int(query.get("size", 100))
            lines = job.lines[first : first + size]
            return 200, {"id": number, "from": first, "total": len(job.lines), "log": lines}
        return 404, {"msg": "Not found."}

    def _submit(self, body: Any) -> Answer:
        if not isinstance(body, dict) or not body.get("file"):
            return 400, {"msg": "requirement failed: File is required."}
        number, self._next = self._next, self._next + 1
        job = JobProcess.start(body, self.fetch(body["file"]), [str(argument) for argument in body.get("args") or ()])
        self.jobs[number] = job
        return 201, self._batch(number, job)

    def _list(self, query: Mapping[str, str]) -> dict[str, Any]:
        first, size = int(query.get("from", 0)), int(query.get("size", 100))
        sessions = [self._batch(number, job) for number, job in self.jobs.items()]
        return {"from": first, "total": len(sessions), "sessions": sessions[first : first + size]}

    def _batch(self, number: int, job: JobProcess) -> dict[str, Any]:
        return {
            "id": number,
            "name": job.request.get("name"),
            "owner": None,
            "proxyUser": job.request.get("proxyUser"),
            "state": self._state(job),
            "appId": f"application_1_{number:04d}",
            "appInfo": {"driverLogUrl": None, "sparkUiUrl": None},
            "log": job.lines[-10:],
        }

    @staticmethod
    def _state(job: JobProcess) -> str:
        if job.code is None:
            return "running"
        if job.is_ended_by_request:
            return "killed"
        return "success" if job.code == 0 else "dead"


class DatabricksServer(JobServer):
    """Runs of Databricks' Jobs API 2.2 that are submitted once, of one ``spark_python_task``."""

    TOKEN = "dapi-of-this-test"

    def connection(self) -> str:
        """For ``AIRFLOW_CONN_DATABRICKS_DEFAULT``."""
        place = {"schema": "http", "host": "127.0.0.1", "port": self.port}
        return json.dumps({"conn_type": "databricks", "password": self.TOKEN, **place})

    def answer(self, method: str, path: str, query: Mapping[str, str], body: Any, headers: Mapping[str, str]) -> Answer:
        """See Databricks' reference of its Jobs API."""
        if headers.get("authorization") != f"Bearer {self.TOKEN}":
            return 403, {"error_code": "403", "message": "Invalid access token."}
        version, _, call = path.removeprefix("/api/").partition("/")
        if version not in ("2.0", "2.1", "2.2"):
            return 404, {"error_code": "ENDPOINT_NOT_FOUND", "message": f"No API found for '{method} {path}'"}
        if (method, call) == ("POST", "jobs/runs/submit"):
            return self._submit(body)
        given = {**query, **(body or {})}
        number = int(given.get("run_id", -1))
        job = self.jobs.get(number)
        if call.startswith("jobs/runs/") and job is None:
            return 404, {"error_code": "RESOURCE_DOES_NOT_EXIST", "message": f"Run {number} does not exist."}
        assert job is not None
        if (method, call) == ("GET", "jobs/runs/get"):
            return 200, self._run(number, job)
        if (method, call) == ("GET", "jobs/runs/get-output"):
            failed = {"error": "\n".join(job.lines[-5:])} if job.code else {}
            return 200, {"metadata": self._run(number, job), "logs": "\n".join(job.lines), **failed}
        if (method, call) == ("POST", "jobs/runs/cancel"):
            job.kill()
            return 200, {}
        return 404, {"error_code": "ENDPOINT_NOT_FOUND", "message": f"No API found for '{method} {path}'"}

    def _submit(self, body: Any) -> Answer:
        tasks = (body or {}).get("tasks") or [body or {}]
        program = tasks[0].get("spark_python_task")
        if program is None:
            message = "One of the task fields must be set: this server knows spark_python_task."
            return 400, {"error_code": "INVALID_PARAMETER_VALUE", "message": message}
        token = body.get("idempotency_token")
        for number, job in self.jobs.items():
            if token is not None and job.request.get("idempotency_token") == token:
                return 200, {"run_id": number}
        number = 1000 + len(self.jobs)
        self.jobs[number] = JobProcess.start(body, self.fetch(program["python_file"]), program.get("parameters") or [])
        return 200, {"run_id": number}

    def _run(self, number: int, job: JobProcess) -> dict[str, Any]:
        state: dict[str, Any] = {"life_cycle_state": "RUNNING", "state_message": "In run"}
        if job.code is not None:
            result = "CANCELED" if job.is_ended_by_request else "SUCCESS" if job.code == 0 else "FAILED"
            state = {"life_cycle_state": "TERMINATED", "result_state": result, "state_message": ""}
        return {
            "job_id": 1,
            "run_id": number,
            "run_page_url": f"http://127.0.0.1:{self.port}/#job/1/run/{number}",
            "run_name": job.request.get("run_name"),
            "state": state,
            "tasks": [{"run_id": number, "task_key": "main", "state": state}],
        }


def gated(folder: Path) -> str:
    """A program that writes what ``writer.py`` does, but waits for the file ``go`` first, and says ``started``."""
    program = folder / "gated.py"
    program.write_text(
        f"import os, runpy, sys, time\nopen({str(folder / 'started')!r}, 'a').write('x')\n"
        f"while not os.path.exists({str(folder / 'go')!r}): time.sleep(0.05)\n"
        f"sys.argv[0] = {WRITER!r}\nrunpy.run_path({WRITER!r}, run_name='__main__')\n"
    )
    return str(program)


WRITER = str(Path(__file__).parent / "code" / "writer.py")
