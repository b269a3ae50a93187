"""The hook behind the connection type ``airflow_recovery``: our endpoint in Airflow's API server."""

from __future__ import annotations

from datetime import datetime, timezone
from enum import Enum
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from airflow.sdk import BaseHook

from airflow_recovery.attempt.clear_protocol import API_PREFIX, NOTE_SIGN, Caller, ClearBody
from airflow_recovery.attempt.rebuild import RebuildRequest, Rebuilt
from airflow_recovery.attempt.task_instances import ClearRequest, ClearResult, Observation, clear_in_slices
from airflow_recovery.checks import check_arguments
from airflow_recovery.errors import ConfigurationError, NotMine, RecoveryError
from airflow_recovery.journal.layout import run_key
from airflow_recovery.model.codec import from_json, to_json
from airflow_recovery.model.keys import TaskKey

if TYPE_CHECKING:
    import requests
    from airflow.sdk import Connection

CONNECT_TIMEOUT_S = 5.0
READ_TIMEOUT_S = 30.0
RETRIES = 4
_PAGE_OF_RUNS = 100


class Authentication(str, Enum):
    """How a token is come by (extra ``auth``)."""

    PASSWORD = "password"
    """``POST /auth/token`` with login and password. The default."""
    TOKEN = "token"
    """The connection's password is the token."""
    NONE = "none"
    """``GET /auth/token``: a development server on which everybody is an admin."""


class RecoveryApiHook(BaseHook):
    """Observe and clear through the API server, as the connection's user.

    Connection: host (``http://api:8080``, or host, port and schema), login, password, extra ``auth``. The token is
    kept for the hook's life and fetched again once on 401. A request that may not have arrived is repeated: a repeated
    compare-and-clear finds nothing to clear.
    """

    conn_name_attr = "recovery_conn_id"
    default_conn_name = "airflow_recovery_default"
    conn_type = "airflow_recovery"
    hook_name = "Airflow Recovery API"

    def __init__(self, recovery_conn_id: str = default_conn_name) -> None:
        check_arguments(RecoveryApiHook.__init__, locals(), "RecoveryApiHook")
        super().__init__()
        self.recovery_conn_id = recovery_conn_id
        self._connection: Connection | None = None
        self._http: requests.Session | None = None
        self._token: str | None = None

    def get_conn(self) -> requests.Session:
        """The HTTP session (no token in it). Built once."""
        if self._http is None:
            import requests
            from requests.adapters import HTTPAdapter
            from urllib3.util.retry import Retry

            retry = Retry(
                total=RETRIES,
                backoff_factor=0.3,
                status_forcelist=(502, 503, 504),
                allowed_methods=None,
                raise_on_status=False,
            )
            self._http = requests.Session()
            for scheme in ("http://", "https://"):
                self._http.mount(scheme, HTTPAdapter(max_retries=retry))
        return self._http

    def observe(self, dag_id: str, run_id: str) -> Observation:
        """All tries of a run, as Airflow has them now. Raises `RecoveryError` where there is no such run."""
        return Observation.from_json(self._call(_of_run(dag_id, run_id, "observe"), {}))

    def clear(self, dag_id: str, run_id: str, request: ClearRequest, caller: Caller | None = None) -> ClearResult:
        """Compare and clear. Raises `NotMine` where ``caller`` is no longer its own try."""

        def clear(some: ClearRequest) -> ClearResult:
            body = to_json(ClearBody(some, caller))
            return from_json(ClearResult, self._call(_of_run(dag_id, run_id, "clear"), body))

        return clear_in_slices(clear, request)

    def rebuild(self, dag_id: str, request: RebuildRequest) -> Rebuilt:
        """Set the finished tasks of a re-created run to success. A repeated request finds nothing left to set."""
        return from_json(Rebuilt, self._call(f"/dags/{quote(dag_id, safe='')}/rebuild", to_json(request)))

    def describe(self) -> dict[str, Any]:
        """What is installed and configured in the API server (`airflow_recovery.api_server.description`)."""
        return self._ask("GET", f"{API_PREFIX}/description", None)

    def pool_slots(self, name: str) -> int | None:
        """The slots of a pool: -1 without limit, `None` where there is no such pool."""
        response = self._authorised("GET", f"/api/v2/pools/{quote(name, safe='')}", None)
        if response.status_code == 404:
            return None
        self._raise_for(response, "/api/v2/pools")
        return int(response.json()["slots"])

    def has_dag(self, dag_id: str) -> bool:
        """Whether Airflow has the DAG in a file, by its own REST API."""
        path = f"/api/v2/dags/{quote(dag_id, safe='')}"
        response = self._authorised("GET", path, None)
        if response.status_code == 404:
            return False
        self._raise_for(response, path)
        return not response.json().get("is_stale", False)

    def dag_run_state(self, dag_id: str, run_id: str) -> str | None:
        """The state of a DAG run by Airflow's own REST API, `None` where there is no such run."""
        path = f"/api/v2/dags/{quote(dag_id, safe='')}/dagRuns/{quote(run_id, safe='')}"
        response = self._authorised("GET", path, None)
        if response.status_code == 404:
            return None
        self._raise_for(response, path)
        return str(response.json()["state"])

    def live_runs(self, dag_id: str) -> list[tuple[str, str]]:
        """The id and the run key of each run of the DAG that has not ended, by Airflow's own REST API."""
        path = f"/api/v2/dags/{quote(dag_id, safe='')}/dagRuns?state=queued&state=running&limit={_PAGE_OF_RUNS}"
        runs: list[tuple[str, str]] = []
        while True:
            page = self._ask("GET", f"{path}&offset={len(runs)}", None)
            runs += [(str(run["dag_run_id"]), _key_of_run(run)) for run in page["dag_runs"]]
            if not page["dag_runs"] or len(runs) >= int(page["total_entries"]):
                return runs

    def note(self, dag_id: str, run_id: str, task_key: str, note: str) -> None:
        """Give a task instance a note, by Airflow's own REST API; one that a person has written stays."""
        task = TaskKey.parse(task_key)
        names = ("dags", dag_id, "dagRuns", run_id, "taskInstances", task.task_id)
        path = "/".join(("/api/v2", *(quote(name, safe="") for name in names)))
        path = path if task.map_index < 0 else f"{path}/{task.map_index}"
        present = self._ask("GET", path, None).get("note")
        if not present or str(present).startswith(NOTE_SIGN):
            self._ask("PATCH", path, {"note": note})

    @property
    def base_url(self) -> str:
        """The API server's address, without a slash at the end. Raises `ConfigurationError` where there is no host."""
        connection = self._settings()
        if not connection.host:
            raise ConfigurationError(
                f"Expected connection {self.recovery_conn_id!r} to name Airflow's API server, found no host. Set its "
                "host to the server's address, for example http://airflow-apiserver:8080.",
                code="api-without-host",
            )
        host = connection.host if "://" in connection.host else f"{connection.schema or 'http'}://{connection.host}"
        has_port = ":" in host.partition("://")[2].partition("/")[0]
        return (host if has_port or not connection.port else f"{host}:{connection.port}").rstrip("/")

    def _settings(self) -> Connection:
        if self._connection is None:
            self._connection = self.get_connection(self.recovery_conn_id)
        return self._connection

    def _call(self, operation: str, body: dict[str, Any]) -> dict[str, Any]:
        return self._ask("POST", f"{API_PREFIX}{operation}", body)

    def _ask(self, method: str, path: str, body: dict[str, Any] | None) -> dict[str, Any]:
        response = self._authorised(method, path, body)
        self._raise_for(response, path)
        value = response.json()
        if not isinstance(value, dict):
            raise RecoveryError(f"Expected {self.base_url}{path} to answer with an object, found {value!r}.")
        return value

    def _authorised(self, method: str, path: str, body: dict[str, Any] | None) -> requests.Response:
        response = self._send(method, path, body, token=self._get_token())
        if response.status_code == 401:
            # The token ran out, or the server was given another secret: one more try with a fresh one.
            self._token = None
            response = self._send(method, path, body, token=self._get_token())
        return response

    def _get_token(self) -> str:
        if self._token is None:
            connection = self._settings()
            text = str(connection.extra_dejson.get("auth", Authentication.PASSWORD.value))
            try:
                authentication = Authentication(text)
            except ValueError:
                allowed = ", ".join(authentication.value for authentication in Authentication)
                raise ConfigurationError(
                    f"Expected auth in the extra of connection {self.recovery_conn_id!r} to be one of {allowed}, "
                    f"found {text!r}.",
                    code="auth-unknown",
                    found=text,
                ) from None
            if authentication is Authentication.TOKEN:
                self._token = connection.password or ""
            else:
                response = (
                    self._send("GET", "/auth/token", None)
                    if authentication is Authentication.NONE
                    else self._send(
                        "POST", "/auth/token", {"username": connection.login, "password": connection.password}
                    )
                )
                self._raise_for(response, "/auth/token")
                self._token = str(response.json()["access_token"])
        return self._token

    def _send(self, method: str, path: str, body: dict[str, Any] | None, token: str | None = None) -> requests.Response:
        import requests

        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        try:
            return self.get_conn().request(
                method,
                f"{self.base_url}{path}",
                json=body,
                headers=headers,
                timeout=(CONNECT_TIMEOUT_S, READ_TIMEOUT_S),
            )
        except requests.RequestException as error:
            raise RecoveryError(
                f"Expected Airflow's API server at {self.base_url} (connection {self.recovery_conn_id!r}) to answer "
                f"{path}, found: {error}. The task may be retried.",
                code="api-no-answer",
            ) from error

    def _raise_for(self, response: requests.Response, path: str) -> None:
        status = response.status_code
        if status < 400:
            return
        where = f"{self.base_url}{path}"
        if status == 410:
            raise NotMine(_detail(response))
        if status in (401, 403):
            raise ConfigurationError(
                f"Expected the user of connection {self.recovery_conn_id!r} to be allowed to clear tasks, found HTTP "
                f"{status} at {where}. Check login, password and extra auth; the user needs edit rights on task "
                "instances (role User or higher).",
                code="api-user-refused",
                connection=self.recovery_conn_id,
                status=status,
            )
        if status == 404 and "run" not in _detail(response):
            raise ConfigurationError(
                f"Expected the airflow_recovery plugin at {where}, found HTTP 404. Install airflow-recovery where the "
                f"API server runs, and check the host of connection {self.recovery_conn_id!r}."
            )
        raise RecoveryError(f"Expected {where} to succeed, found HTTP {status}: {_detail(response)}")


def _of_run(dag_id: str, run_id: str, operation: str) -> str:
    return f"/dags/{quote(dag_id, safe='')}/runs/{quote(run_id, safe='')}/{operation}"


def _key_of_run(run: dict[str, Any]) -> str:
    date = run.get("logical_date")
    moment = datetime.fromisoformat(date.replace("Z", "+00:00")).astimezone(timezone.utc) if date else None
    return run_key(
        logical_date=moment.isoformat() if moment else None,
        partition_key=run.get("partition_key"),
        run_id=str(run["dag_run_id"]),
    )


def _detail(response: requests.Response) -> str:
    try:
        value = response.json()
    except ValueError:
        return response.text[:500]
    return str(value.get("detail", value) if isinstance(value, dict) else value)[:500]
