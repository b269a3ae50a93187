"""A whole Airflow as real processes on this machine: API server, scheduler, DAG processor, triggerer.

For the demo, the tests and the benchmarks. `LocalAirflow` starts it, speaks its REST API, kills parts of it, and leaves
no process behind: everything it starts carries a marker in its environment, by which `stop` finds also what has left
its process group (task processes, Spark drivers), and a small reaper process does the same where this process dies.

What it does not do: it is no way to run Airflow in production (one machine, passwords in a file, short intervals).
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any
from urllib.parse import quote

if TYPE_CHECKING:
    from types import TracebackType

    import requests

MARKER = "AIRFLOW_RECOVERY_LOCAL_ID"
COMPONENTS = ("api-server", "scheduler", "dag-processor", "triggerer")
FINISHED_RUN_STATES = frozenset({"success", "failed"})
STATE_BACKEND = "airflow_recovery.plugins.state_backend.RecoveryStateBackend"
POLL_INTERVAL_S = 0.2
LOG_TAIL_LINES = 40
CREATION_TOLERANCE_S = 2.0
"""The kernel tells a process's age to 10 ms, and the clock may be set meanwhile."""
SQLITE_TIMEOUT_S = 60
API_SQLITE_TIMEOUT_S = 4
"""Of the API server. It writes its audit log on its event loop: while that waits for the lock, a request that holds the
lock can't end. Only the time-out ends this, and the request that waited is answered with 500: see `request`."""
REQUEST_TIMEOUT_S = 120
REQUEST_TRIES = 10

FAST_SETTINGS = {
    # Crash tests take seconds instead of minutes.
    "AIRFLOW__SCHEDULER__SCHEDULER_HEARTBEAT_SEC": "1",
    "AIRFLOW__SCHEDULER__SCHEDULER_HEALTH_CHECK_THRESHOLD": "4",
    "AIRFLOW__SCHEDULER__ORPHANED_TASKS_CHECK_INTERVAL": "2",
    "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": "6",
    "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT_DETECTION_INTERVAL": "1",
    "AIRFLOW__SCHEDULER__SCHEDULER_IDLE_SLEEP_TIME": "0.2",
    "AIRFLOW__WORKERS__MIN_HEARTBEAT_INTERVAL": "1",
    "AIRFLOW__WORKERS__SOCKET_CLEANUP_TIMEOUT": "3",
}


class LocalAirflowError(RuntimeError):
    """A component died, did not become ready, or the API refused. The message ends with the component's log."""


@dataclass(frozen=True)
class Login:
    """A user of this Airflow."""

    user: str
    password: str


class LocalAirflow:
    """Airflow in ``home``, with the DAGs of ``dags_folder``; a context manager.

    ``database_url`` is SQLAlchemy's; without one, SQLite in ``home`` (copied from a migrated template). ``env`` is
    added to every component's environment, and wins. ``recovery_backend=False`` keeps Airflow's own state backend.
    ``fast`` shortens Airflow's time-outs. ``parallelism`` is the number of tasks at once.
    """

    def __init__(
        self,
        home: Path | str,
        dags_folder: Path | str,
        *,
        database_url: str | None = None,
        env: Mapping[str, str] | None = None,
        recovery_backend: bool = True,
        fast: bool = True,
        parallelism: int = 6,
        port: int | None = None,
    ) -> None:
        self.home = Path(home).resolve()
        self.dags_folder = Path(dags_folder).resolve()
        self.port = port or free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.admin = Login("admin", secrets.token_urlsafe(12))
        self.viewer = Login("viewer", secrets.token_urlsafe(12))
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self._sessions: dict[int, float] = {}
        self._database_url = database_url
        self._marker = uuid.uuid4().hex
        self._reaper: subprocess.Popen[bytes] | None = None
        self._http: requests.Session | None = None
        self._tokens: dict[str, str] = {}
        self._ready_dags: set[str] = set()
        self.env = self._environment(dict(env or {}), recovery_backend=recovery_backend, fast=fast, tasks=parallelism)

    # life

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
        """Stop everything."""
        self.stop()

    def start(self, *components: str, wait_s: float = 120.0) -> None:
        """Start the named components, or all; return when Airflow says that they are healthy.

        Raises `LocalAirflowError` with the component's log where one dies or is not healthy in time.
        """
        if self._reaper is None:
            self._prepare()
        names = components or COMPONENTS
        for name in names:
            running = self.processes.get(name)
            if running is not None and running.poll() is None:
                continue
            self.processes[name] = self._spawn(name)
            self._watch(self.processes[name].pid)
        self._wait_healthy(names, wait_s)

    def stop(self) -> None:
        """End every process, politely first; afterwards none is left. Safe to call twice."""
        for process in self.processes.values():
            if process.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    process.send_signal(signal.SIGTERM)
        deadline = time.monotonic() + 5.0
        for process in self.processes.values():
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, deadline - time.monotonic()))
        reap(self._marker, self._sessions)
        self._sessions.clear()
        for process in self.processes.values():
            process.wait()
        self.processes.clear()
        if self._reaper is not None:
            if self._reaper.stdin is not None:
                self._reaper.stdin.close()
            self._reaper.wait()
            self._reaper = None
        if self._http is not None:
            self._http.close()
            self._http = None

    def kill(self, component: str, with_signal: signal.Signals = signal.SIGKILL) -> None:
        """Send a signal to the one main process of a component, and wait for its end. Its children are left alone."""
        process = self.processes[component]
        process.send_signal(with_signal)
        process.wait(30)

    def kill_group(self, component: str) -> None:
        """``kill -9`` a component with everything in its process group (LocalExecutor's workers)."""
        process = self.processes[component]
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(30)

    def run_cli(self, *arguments: str, timeout_s: float = 120.0) -> str:
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

    def component_log(self, component: str) -> Path:
        """The file with a component's output."""
        return self.home / "log" / f"{component}.log"

    # REST

    def request(
        self, method: str, path: str, body: object = None, *, user: Login | None = None, anonymous: bool = False
    ) -> requests.Response:
        """One request as ``user`` (default: admin), whatever it answers. ``path`` begins at the server's root.

        Repeated while the database was locked: nothing was done then.
        """
        headers = {} if anonymous else {"Authorization": f"Bearer {self.token(user or self.admin)}"}
        url = f"{self.url}{path}"
        for _ in range(REQUEST_TRIES):
            response = self._session().request(method, url, json=body, headers=headers, timeout=REQUEST_TIMEOUT_S)
            if response.status_code != 500 or "Database error" not in response.text:
                break
        return response

    def api(self, method: str, path: str, body: object = None) -> Any:
        """One request to ``/api/v2<path>`` as admin; its JSON. Raises `LocalAirflowError` on any 4xx or 5xx."""
        response = self.request(method, f"/api/v2{path}", body)
        if not response.ok:
            raise LocalAirflowError(f"{method} {path} answered {response.status_code}: {response.text[:2000]}")
        return response.json() if response.content else None

    def token(self, user: Login) -> str:
        """A token for ``user``, fetched once."""
        if user.user not in self._tokens:
            response = self._session().post(
                f"{self.url}/auth/token", json={"username": user.user, "password": user.password}, timeout=60
            )
            if not response.ok:
                raise LocalAirflowError(f"no token for {user.user}: {response.status_code} {response.text[:500]}")
            self._tokens[user.user] = response.json()["access_token"]
        return self._tokens[user.user]

    # DAGs and runs

    def wait_dag(self, dag_id: str, timeout_s: float = 90.0) -> None:
        """Wait until the DAG is parsed. Raises at once where a file of the folder cannot be imported."""
        if dag_id in self._ready_dags:
            return

        def found() -> bool:
            response = self.request("GET", f"/api/v2/dags/{quote(dag_id)}/details")
            if response.ok:
                return True
            problems = self.api("GET", "/importErrors")["import_errors"]
            if problems:
                told = "\n".join(f"{each['filename']}: {each['stack_trace']}" for each in problems)
                raise LocalAirflowError(f"DAG files that cannot be imported:\n{told}")
            return False

        self._poll(found, timeout_s, f"DAG {dag_id!r} to be parsed", "dag-processor")
        self._ready_dags.add(dag_id)

    def trigger(
        self,
        dag_id: str,
        *,
        logical_date: datetime | str | None = None,
        conf: Mapping[str, Any] | None = None,
        run_id: str | None = None,
    ) -> str:
        """Start a run; its run id. Waits for the DAG to be parsed."""
        self.wait_dag(dag_id)
        date = logical_date.isoformat() if isinstance(logical_date, datetime) else logical_date
        body: dict[str, Any] = {"logical_date": date, "conf": dict(conf or {})}
        body["dag_run_id"] = run_id or f"local__{date or uuid.uuid4().hex}"
        return str(self.api("POST", f"/dags/{quote(dag_id)}/dagRuns", body)["dag_run_id"])

    def dag_runs(self, dag_id: str) -> list[dict[str, Any]]:
        """All runs of a DAG, as the API shows them, oldest logical date first."""
        found = self.api("GET", f"/dags/{quote(dag_id)}/dagRuns?limit=100&order_by=logical_date")
        return list(found["dag_runs"])

    def run_state(self, dag_id: str, run_id: str) -> str:
        """``queued``, ``running``, ``success`` or ``failed``."""
        return str(self.api("GET", f"{_run_path(dag_id, run_id)}")["state"])

    def wait_run(self, dag_id: str, run_id: str, timeout_s: float = 300.0) -> str:
        """Wait until the run has ended; its state. Raises with all tasks' states where it does not end in time."""
        self.wait_until(
            lambda: self.run_state(dag_id, run_id) in FINISHED_RUN_STATES,
            timeout_s,
            f"run {run_id} of {dag_id} to end",
            lambda: self.describe(dag_id, run_id),
        )
        return self.run_state(dag_id, run_id)

    def wait_until(
        self,
        claim: Callable[[], bool],
        timeout_s: float,
        what: str,
        describe: Callable[[], str] = lambda: "",
    ) -> None:
        """Poll ``claim``; raises `LocalAirflowError` with ``what``, ``describe()`` and the scheduler's log."""
        self._poll(claim, timeout_s, what, "scheduler", describe)

    def describe(self, dag_id: str, run_id: str) -> str:
        """One line a task instance: name, state, try."""
        return "\n".join(
            f"  {each['task_id']} [{each['map_index']}] {each['state']} try {each['try_number']}"
            for each in self.task_instances(dag_id, run_id)
        )

    def task_instances(self, dag_id: str, run_id: str) -> list[dict[str, Any]]:
        """All task instances of a run, as the API shows them."""
        found: list[dict[str, Any]] = []
        while True:
            path = f"{_run_path(dag_id, run_id)}/taskInstances?limit=100&offset={len(found)}"
            page = self.api("GET", path)
            found += page["task_instances"]
            if len(found) >= page["total_entries"] or not page["task_instances"]:
                return found

    def task_instance(self, dag_id: str, run_id: str, task_id: str, map_index: int = -1) -> dict[str, Any]:
        """One task instance, as the API shows it."""
        for each in self.task_instances(dag_id, run_id):
            if each["task_id"] == task_id and each["map_index"] == map_index:
                return each
        raise LocalAirflowError(f"run {run_id} of {dag_id} has no task {task_id} [{map_index}]")

    def tries(self, dag_id: str, run_id: str, task_id: str, map_index: int = -1) -> list[dict[str, Any]]:
        """Every try of a task instance, as the API shows it, the newest included, oldest first."""
        mapped = f"/{map_index}" if map_index >= 0 else ""
        path = f"{_run_path(dag_id, run_id)}/taskInstances/{quote(task_id)}{mapped}/tries"
        return sorted(self.api("GET", path)["task_instances"], key=lambda each: int(each["try_number"]))

    def clear(
        self,
        dag_id: str,
        run_id: str,
        task_ids: Sequence[str | tuple[str, int]] | None = None,
        *,
        only_failed: bool = False,
        downstream: bool = False,
        upstream: bool = False,
    ) -> list[str]:
        """Airflow's own Clear, as the UI does it (no comparison); ``None`` = the whole run. Ids of what it cleared."""
        body: dict[str, Any] = {
            "dry_run": False,
            "only_failed": only_failed,
            "reset_dag_runs": True,
            "dag_run_id": run_id,
            "include_upstream": upstream,
            "include_downstream": downstream,
        }
        if task_ids is not None:
            body["task_ids"] = [each if isinstance(each, str) else list(each) for each in task_ids]
        found = self.api("POST", f"/dags/{quote(dag_id)}/clearTaskInstances", body)
        return [str(each["task_id"]) for each in found["task_instances"]]

    def set_state(self, dag_id: str, run_id: str, task_id: str, state: str, *, map_index: int = -1) -> None:
        """Mark a task instance ``success``, ``failed`` or ``skipped`` by hand, as in the UI."""
        mapped = f"/{map_index}" if map_index >= 0 else ""
        path = f"{_run_path(dag_id, run_id)}/taskInstances/{quote(task_id)}{mapped}"
        self.api("PATCH", path, {"new_state": state})

    def log(self, dag_id: str, run_id: str, task_id: str, try_number: int, map_index: int = -1) -> str:
        """The text of a task's log: one line an entry, with an exception's type and message."""
        path = f"{_run_path(dag_id, run_id)}/taskInstances/{quote(task_id)}/logs/{try_number}"
        found = self.api("GET", f"{path}?full_content=true&map_index={map_index}")
        return "\n".join(_log_line(each) for each in found["content"])

    def xcom(self, dag_id: str, run_id: str, task_id: str, key: str = "return_value", map_index: int = -1) -> Any:
        """One XCom value."""
        path = f"{_run_path(dag_id, run_id)}/taskInstances/{quote(task_id)}/xcomEntries/{quote(key, safe='')}"
        return self.api("GET", f"{path}?deserialize=true&map_index={map_index}")["value"]

    def backfill(
        self,
        dag_id: str,
        from_date: datetime | str,
        to_date: datetime | str,
        *,
        reprocess: str = "none",
        conf: Mapping[str, Any] | None = None,
        max_active_runs: int = 3,
    ) -> int:
        """Create a backfill (``reprocess``: none, failed or completed); its id. Waits for an earlier one."""
        self.wait_dag(dag_id)
        dates = [each.isoformat() if isinstance(each, datetime) else each for each in (from_date, to_date)]
        body: dict[str, Any] = {
            "dag_id": dag_id,
            "from_date": dates[0],
            "to_date": dates[1],
            "reprocess_behavior": reprocess,
            "max_active_runs": max_active_runs,
        }
        if conf is not None:
            body["dag_run_conf"] = dict(conf)
        created: list[int] = []

        def done() -> bool:
            response = self.request("POST", "/api/v2/backfills", body)
            # 409: Airflow notices the end of a backfill only every 30 s. 503: it could not lock, and has cleaned up.
            if response.status_code in (409, 503):
                return False
            if not response.ok:
                raise LocalAirflowError(f"backfill answered {response.status_code}: {response.text[:2000]}")
            created.append(int(response.json()["id"]))
            return True

        self._poll(done, 90.0, f"an earlier backfill of {dag_id} to complete", "scheduler")
        return created[0]

    def wait_backfill(self, dag_id: str, backfill_id: int, timeout_s: float = 300.0) -> list[dict[str, Any]]:
        """Wait until every run of a backfill has ended; the runs."""
        del backfill_id  # runs don't show it; one backfill of a DAG is active at a time

        def runs() -> list[dict[str, Any]]:
            return [each for each in self.dag_runs(dag_id) if each["run_type"] == "backfill"]

        def ended() -> bool:
            found = runs()
            return bool(found) and all(each["state"] in FINISHED_RUN_STATES for each in found)

        self.wait_until(ended, timeout_s, f"the backfill of {dag_id} to end")
        return runs()

    # inside

    def _environment(self, extra: dict[str, str], *, recovery_backend: bool, fast: bool, tasks: int) -> dict[str, str]:
        # Nothing of an Airflow that the caller may have configured for himself.
        env = {key: value for key, value in os.environ.items() if not key.startswith(("AIRFLOW_", "_AIRFLOW"))}
        local = "127.0.0.1,localhost"
        env.update(
            {
                MARKER: self._marker,
                "PATH": f"{Path(sys.executable).parent}{os.pathsep}{env.get('PATH', os.defpath)}",
                "NO_PROXY": ",".join(filter(None, [env.get("NO_PROXY"), local])),
                "no_proxy": ",".join(filter(None, [env.get("no_proxy"), local])),
                "PYTHONUNBUFFERED": "1",
                "AIRFLOW_HOME": str(self.home),
                # The same keys and secrets everywhere: each component would make a key of its own in airflow.cfg.
                "AIRFLOW__CORE__FERNET_KEY": base64.urlsafe_b64encode(secrets.token_bytes(32)).decode(),
                "AIRFLOW__CORE__DAGS_FOLDER": str(self.dags_folder),
                "AIRFLOW__CORE__PLUGINS_FOLDER": str(self.home / "plugins"),
                "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
                "AIRFLOW__CORE__EXECUTOR": "LocalExecutor",
                "AIRFLOW__CORE__PARALLELISM": str(tasks),
                "AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION": "False",
                "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"{self.url}/execution/",
                "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": f"{self.admin.user}:admin,{self.viewer.user}:viewer",
                "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": str(self.home / "passwords.json"),
                "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": self._database_url or sqlite_url(self.home / "airflow.db"),
                "AIRFLOW__LOGGING__BASE_LOG_FOLDER": str(self.home / "logs"),
                "AIRFLOW__API__BASE_URL": self.url,
                "AIRFLOW__API__HOST": "127.0.0.1",
                "AIRFLOW__API__PORT": str(self.port),
                "AIRFLOW__API__WORKERS": "1",
                "AIRFLOW__API__SECRET_KEY": secrets.token_hex(16),
                # The same secret everywhere: otherwise tasks get 403 from the execution API.
                "AIRFLOW__API_AUTH__JWT_SECRET": secrets.token_hex(32),
                "AIRFLOW__DAG_PROCESSOR__REFRESH_INTERVAL": "2",
                "AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "5",
                "AIRFLOW__DAG_PROCESSOR__PARSING_PROCESSES": "1",
                "AIRFLOW__USAGE_DATA_COLLECTION__ENABLED": "False",
            }
        )
        if recovery_backend:
            env["AIRFLOW__STATE_STORE__BACKEND"] = STATE_BACKEND
        if fast:
            env.update(FAST_SETTINGS)
        env.update(extra)
        return env

    def _prepare(self) -> None:
        for folder in (self.home, self.home / "log", self.home / "plugins"):
            folder.mkdir(parents=True, exist_ok=True)
        passwords = {each.user: each.password for each in (self.admin, self.viewer)}
        (self.home / "passwords.json").write_text(json.dumps(passwords))
        self._reaper = subprocess.Popen(
            [sys.executable, "-I", __file__, self._marker], stdin=subprocess.PIPE, start_new_session=True
        )
        if self._database_url is not None:
            self.run_cli("db", "migrate", timeout_s=300)
        elif not (self.home / "airflow.db").exists():
            shutil.copyfile(self._template_database(), self.home / "airflow.db")

    def _template_database(self) -> Path:
        """A migrated, empty SQLite database; made once for this Airflow version (saves 6 s a start)."""
        from importlib.metadata import version

        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "airflow-recovery"
        template = cache / f"airflow-{version('apache-airflow-core')}.db"
        if not template.exists():
            cache.mkdir(parents=True, exist_ok=True)
            fresh = cache / f"{template.name}.{uuid.uuid4().hex}"
            done = subprocess.run(
                [sys.executable, "-m", "airflow", "db", "migrate"],
                env={**self.env, "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": sqlite_url(fresh)},
                cwd=self.home,
                capture_output=True,
                text=True,
                timeout=300,
                check=False,
            )
            if done.returncode != 0:
                raise LocalAirflowError(f"airflow db migrate failed:\n{done.stdout}\n{done.stderr}")
            import sqlite3

            with contextlib.closing(sqlite3.connect(fresh)) as connection:
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            fresh.replace(template)
            for leftover in cache.glob(f"{fresh.name}-*"):
                leftover.unlink(missing_ok=True)
        return template

    def _watch(self, pid: int) -> None:
        """Remember a component's session, here and in the reaper."""
        import psutil  # type: ignore[import-untyped]

        with contextlib.suppress(psutil.NoSuchProcess):
            self._sessions[pid] = psutil.Process(pid).create_time()
            if self._reaper is not None and self._reaper.stdin is not None:
                self._reaper.stdin.write(f"{pid} {self._sessions[pid]}\n".encode())
                self._reaper.stdin.flush()

    def _spawn(self, component: str) -> subprocess.Popen[bytes]:
        arguments = ["--skip-serve-logs"] if component in ("scheduler", "triggerer") else []
        env = dict(self.env)
        database = self.home / "airflow.db"
        if component == "api-server" and env["AIRFLOW__DATABASE__SQL_ALCHEMY_CONN"] == sqlite_url(database):
            env["AIRFLOW__DATABASE__SQL_ALCHEMY_CONN"] = sqlite_url(database, API_SQLITE_TIMEOUT_S)
        with self.component_log(component).open("ab") as out:
            return subprocess.Popen(
                [sys.executable, "-m", "airflow", component, *arguments],
                env=env,
                cwd=self.home,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def _wait_healthy(self, components: Iterable[str], timeout_s: float) -> None:
        keys = {"scheduler": "scheduler", "dag-processor": "dag_processor", "triggerer": "triggerer"}
        wanted = [keys[each] for each in components if each in keys]
        seen: dict[str, Any] = {}

        def healthy() -> bool:
            import requests

            try:
                response = self._session().get(f"{self.url}/api/v2/monitor/health", timeout=5)
            except requests.RequestException:
                return False
            if not response.ok:
                return False
            seen.update(response.json())
            return all((seen.get(each) or {}).get("status") == "healthy" for each in wanted)

        if self._is_running("api-server"):
            slowest = next(iter(components), "api-server")
            self._poll(healthy, timeout_s, f"{', '.join(components)} to be healthy", slowest, lambda: str(seen))

    def _is_running(self, component: str) -> bool:
        process = self.processes.get(component)
        return process is not None and process.poll() is None

    def _poll(
        self,
        claim: Callable[[], bool],
        timeout_s: float,
        what: str,
        component: str,
        describe: Callable[[], str] = lambda: "",
    ) -> None:
        expected = {name: process for name, process in self.processes.items() if process.poll() is None}
        deadline = time.monotonic() + timeout_s
        while True:
            if claim():
                return
            for name, process in expected.items():
                if process.poll() is not None and self.processes.get(name) is process:
                    raise LocalAirflowError(
                        f"{name} ended with {process.returncode} while waiting for {what}\n{self._tail(name)}"
                    )
            if time.monotonic() > deadline:
                raise LocalAirflowError(
                    f"waited {timeout_s:.0f} s for {what}\n{describe()}\n{component}:\n{self._tail(component)}"
                )
            time.sleep(POLL_INTERVAL_S)

    def _tail(self, component: str) -> str:
        path = self.component_log(component)
        lines = path.read_text(errors="replace").splitlines() if path.exists() else []
        return "\n".join(f"  | {line}" for line in lines[-LOG_TAIL_LINES:])

    def _session(self) -> requests.Session:
        if self._http is None:
            import requests

            self._http = requests.Session()
            self._http.trust_env = False  # a proxy has no business on 127.0.0.1
            # A server that is killed, or that fails inside, drops connections that are kept open.
            self._http.headers["Connection"] = "close"
        return self._http


def sqlite_url(path: Path, timeout_s: int = SQLITE_TIMEOUT_S) -> str:
    """SQLAlchemy's URL of a SQLite file. A writer waits for the lock, on a busy machine longer than the default 5 s."""
    return f"sqlite:///{path}?timeout={timeout_s}"


def free_port() -> int:
    """A TCP port of 127.0.0.1 that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def reap(marker: str, sessions: Mapping[int, float]) -> list[int]:
    """``kill -9`` everything that is ours, until nothing is left; the ids of what was killed.

    Ours is what carries ``marker`` in its environment, or belongs to one of ``sessions`` (id of the session's first
    process -> when that was created). One sign is not enough: Airflow's API server, executor workers and task processes
    write their titles over their environment, and a task leads a process group of its own; a program that a task
    starts may open another session.
    """
    import psutil

    killed: list[int] = []
    while True:
        ours = {each for each, created in sessions.items() if not _was_reused(each, created)}
        living = [each for each in psutil.process_iter() if _is_ours(each, marker, ours) and _is_alive(each)]
        if not living:
            return killed
        for process in living:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
                killed.append(process.pid)
        psutil.wait_procs(living, timeout=2)


def _is_ours(process: Any, marker: str, sessions: set[int]) -> bool:
    if process.pid == os.getpid():
        return False
    with contextlib.suppress(OSError):
        if os.getsid(process.pid) in sessions:
            return True
    return _environment_of(process).get(MARKER) == marker


def _was_reused(pid: int, created: float) -> bool:
    """A stranger has this id now: its session is none of our business."""
    import psutil

    try:
        return bool(abs(psutil.Process(pid).create_time() - created) > CREATION_TOLERANCE_S)
    except psutil.NoSuchProcess:
        return False


def _environment_of(process: Any) -> Mapping[str, str]:
    import psutil

    try:
        return dict(process.environ())
    except (psutil.Error, OSError):
        return {}


def _is_alive(process: Any) -> bool:
    import psutil

    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False


def _run_path(dag_id: str, run_id: str) -> str:
    return f"/dags/{quote(dag_id)}/dagRuns/{quote(run_id, safe='')}"


def _log_line(entry: Any) -> str:
    if not isinstance(entry, dict):
        return str(entry)
    details = [
        f"{each.get('exc_type')}: {each.get('exc_value')}"
        for each in entry.get("error_detail") or []
        if isinstance(each, dict)
    ]
    head = " ".join(str(entry[key]) for key in ("timestamp", "level") if entry.get(key))
    return " ".join(filter(None, [head, str(entry.get("event", "")), *details]))


def _reap_when_parent_dies(marker: str, pipe: IO[bytes]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sessions = {int(pid): float(created) for pid, created in map(bytes.split, pipe)}
    reap(marker, sessions)


if __name__ == "__main__":
    _reap_when_parent_dies(sys.argv[1], sys.stdin.buffer)
