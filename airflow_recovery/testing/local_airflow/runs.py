"""DAGs, runs and tasks of a local Airflow, over its REST API."""

from __future__ import annotations

import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any
from urllib.parse import quote

from airflow_recovery.testing.local_airflow.api_client import ApiClient
from airflow_recovery.testing.local_airflow.error import LocalAirflowError
from airflow_recovery.testing.local_airflow.settings import Login
from airflow_recovery.testing.patience import HANG_S

FINISHED_RUN_STATES = frozenset({"success", "failed"})


class RunsApi(ApiClient, ABC):
    """What a person does in the UI: look, trigger, clear, mark; and waiting for what comes of it."""

    def __init__(self, url: str, admin: Login) -> None:
        super().__init__(url, admin)
        self._ready_dags: set[str] = set()

    @abstractmethod
    def wait_until(
        self,
        claim: Callable[[], bool],
        what: str,
        describe: Callable[[], str] = lambda: "",
        *,
        component: str = "scheduler",
        timeout_s: float = HANG_S,
    ) -> None:
        """Poll ``claim``; raises `LocalAirflowError` with ``what``, ``describe()`` and the log of ``component``.

        Raises it at once where any component ends meanwhile.
        """

    def wait_dag(self, dag_id: str, timeout_s: float = HANG_S) -> None:
        """Wait until the DAG is parsed. Raises at once where a file of the folder cannot be imported."""
        if dag_id in self._ready_dags:
            return

        def is_parsed() -> bool:
            response = self.request("GET", f"/api/v2/dags/{quote(dag_id)}/details")
            # Written by the DAG processor a moment before it may be triggered.
            if response.ok and not response.json()["is_stale"]:
                return True
            problems = self.api("GET", "/importErrors")["import_errors"]
            if problems:
                errors = "\n".join(f"{problem['filename']}: {problem['stack_trace']}" for problem in problems)
                raise LocalAirflowError(f"DAG files that cannot be imported:\n{errors}")
            return False

        self.wait_until(is_parsed, f"DAG {dag_id!r} to be parsed", component="dag-processor", timeout_s=timeout_s)
        self._ready_dags.add(dag_id)

    def trigger(
        self,
        dag_id: str,
        *,
        logical_date: datetime | str | None = None,
        conf: Mapping[str, Any] | None = None,
        run_id: str | None = None,
        partition_key: str | None = None,
    ) -> str:
        """Start a run; its run id. Waits for the DAG to be parsed. ``partition_key`` is for a partitioned DAG."""
        self.wait_dag(dag_id)
        date = logical_date.isoformat() if isinstance(logical_date, datetime) else logical_date
        body: dict[str, Any] = {"logical_date": date, "conf": dict(conf or {}), "partition_key": partition_key}
        body["dag_run_id"] = run_id or f"local__{date or uuid.uuid4().hex}"
        return str(self.api("POST", f"/dags/{quote(dag_id)}/dagRuns", body)["dag_run_id"])

    def dag_runs(self, dag_id: str, run_type: str | None = None) -> list[dict[str, Any]]:
        """The runs of a DAG, or those of one type, as the API shows them, oldest logical date first; at most 100."""
        only = f"&run_type={quote(run_type)}" if run_type else ""
        page = self.api("GET", f"/dags/{quote(dag_id)}/dagRuns?limit=100&order_by=logical_date{only}")
        return list(page["dag_runs"])

    def run_state(self, dag_id: str, run_id: str) -> str:
        """The state of the DAG run: ``queued``, ``running``, ``success`` or ``failed``."""
        return str(self.api("GET", f"{_run_path(dag_id, run_id)}")["state"])

    def wait_run(self, dag_id: str, run_id: str, timeout_s: float = HANG_S) -> str:
        """Wait until the run has ended; return its state. Raises with all tasks' states if it does not end."""
        self.wait_until(
            lambda: self.run_state(dag_id, run_id) in FINISHED_RUN_STATES,
            f"run {run_id} of {dag_id} to end",
            lambda: self.describe(dag_id, run_id),
            timeout_s=timeout_s,
        )
        return self.run_state(dag_id, run_id)

    def describe(self, dag_id: str, run_id: str) -> str:
        """One line a task instance: name, state, try."""
        return "\n".join(
            f"  {instance['task_id']} [{instance['map_index']}] {instance['state']} try {instance['try_number']}"
            for instance in self.task_instances(dag_id, run_id)
        )

    def task_instances(self, dag_id: str, run_id: str) -> list[dict[str, Any]]:
        """All task instances of a run, as the API shows them."""
        instances: list[dict[str, Any]] = []
        while True:
            path = f"{_run_path(dag_id, run_id)}/taskInstances?limit=100&offset={len(instances)}"
            page = self.api("GET", path)
            instances += page["task_instances"]
            if len(instances) >= page["total_entries"] or not page["task_instances"]:
                return instances

    def task_instance(self, dag_id: str, run_id: str, task_id: str, map_index: int = -1) -> dict[str, Any]:
        """One task instance, as the API shows it."""
        for instance in self.task_instances(dag_id, run_id):
            if instance["task_id"] == task_id and instance["map_index"] == map_index:
                return instance
        raise LocalAirflowError(f"run {run_id} of {dag_id} has no task {task_id} [{map_index}]")

    def tries(self, dag_id: str, run_id: str, task_id: str, map_index: int = -1) -> list[dict[str, Any]]:
        """Every try of a task instance, as the API shows it, the newest included, oldest first."""
        mapped = f"/{map_index}" if map_index >= 0 else ""
        path = f"{_run_path(dag_id, run_id)}/taskInstances/{quote(task_id)}{mapped}/tries"
        return sorted(self.api("GET", path)["task_instances"], key=lambda instance: int(instance["try_number"]))

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
            body["task_ids"] = [task_id if isinstance(task_id, str) else list(task_id) for task_id in task_ids]
        cleared = self.api("POST", f"/dags/{quote(dag_id)}/clearTaskInstances", body)
        return [str(instance["task_id"]) for instance in cleared["task_instances"]]

    def set_state(self, dag_id: str, run_id: str, task_id: str, state: str, *, map_index: int = -1) -> None:
        """Mark a task instance ``success``, ``failed`` or ``skipped`` by hand, as in the UI."""
        mapped = f"/{map_index}" if map_index >= 0 else ""
        path = f"{_run_path(dag_id, run_id)}/taskInstances/{quote(task_id)}{mapped}"
        self.api("PATCH", path, {"new_state": state})

    def log(self, dag_id: str, run_id: str, task_id: str, try_number: int, map_index: int = -1) -> str:
        """The text of a task's log: one line an entry, with an exception's type and message."""
        path = f"{_run_path(dag_id, run_id)}/taskInstances/{quote(task_id)}/logs/{try_number}"
        page = self.api("GET", f"{path}?full_content=true&map_index={map_index}")
        return "\n".join(_log_line(entry) for entry in page["content"])

    def xcom(self, dag_id: str, run_id: str, task_id: str, key: str = "return_value", map_index: int = -1) -> Any:
        """The value of one XCom of a task instance, by default what the task has returned."""
        path = f"{_run_path(dag_id, run_id)}/taskInstances/{quote(task_id)}/xcomEntries/{quote(key, safe='')}"
        return self.api("GET", f"{path}?deserialize=true&map_index={map_index}")["value"]

    def xcom_keys(self, dag_id: str, run_id: str, task_id: str, map_index: int = -1) -> set[str]:
        """The keys of the XComs of a task instance."""
        path = f"{_run_path(dag_id, run_id)}/taskInstances/{quote(task_id)}/xcomEntries"
        entries = self.api("GET", f"{path}?map_index={map_index}&limit=100")["xcom_entries"]
        return {str(entry["key"]) for entry in entries}

    def backfill(
        self,
        dag_id: str,
        from_date: datetime | str,
        to_date: datetime | str,
        *,
        reprocess: str = "none",
        conf: Mapping[str, Any] | None = None,
        max_active_runs: int = 3,
        run_backwards: bool = False,
    ) -> int:
        """Create a backfill (``reprocess``: none, failed or completed) of the dates, both included; its id.

        Waits for an earlier one of the DAG, of which Airflow notices the end every 30 s only (`wait_backfill` sees to
        that). On SQLite Airflow may refuse it, and delete runs that it was to repeat: use PostgreSQL.
        """
        self.wait_dag(dag_id)
        dates = [name.isoformat() if isinstance(name, datetime) else name for name in (from_date, to_date)]
        body: dict[str, Any] = {
            "dag_id": dag_id,
            "from_date": dates[0],
            "to_date": dates[1],
            "reprocess_behavior": reprocess,
            "max_active_runs": max_active_runs,
            "run_backwards": run_backwards,
        }
        if conf is not None:
            body["dag_run_conf"] = dict(conf)
        created: list[int] = []

        def done() -> bool:
            response = self.request("POST", "/api/v2/backfills", body)
            if response.status_code == 409:
                return False
            if not response.ok:
                raise LocalAirflowError(f"backfill answered {response.status_code}: {response.text[:2000]}")
            created.append(int(response.json()["id"]))
            return True

        self.wait_until(done, f"an earlier backfill of {dag_id} to complete")
        return created[0]

    def newest_backfill(self, dag_id: str) -> int:
        """The id of the backfill of a DAG that was created last, by whoever it was."""
        backfills = self.api("GET", f"/backfills?dag_id={quote(dag_id)}&order_by=-id&limit=1")["backfills"]
        if not backfills:
            raise LocalAirflowError(f"expected a backfill of {dag_id}, found none")
        return int(backfills[0]["id"])

    def wait_backfill(self, backfill_id: int) -> list[dict[str, Any]]:
        """Wait until every run of a backfill's dates has ended, and close it; the runs that are backfills', by date.

        Of a partitioned DAG, a date may have several.
        """
        backfill = self.api("GET", f"/backfills/{backfill_id}")
        dag_id, first, last = backfill["dag_id"], _moment(backfill["from_date"]), _moment(backfill["to_date"])

        def date_of(run: Mapping[str, Any]) -> datetime:
            return _moment(run["logical_date"] or run["partition_date"] or run["run_after"])

        def runs() -> list[dict[str, Any]]:
            document = self.dag_runs(dag_id, "backfill")
            return sorted((run for run in document if first <= date_of(run) <= last), key=date_of)

        def story() -> str:
            return "\n".join(f"{run['dag_run_id']}\n{self.describe(dag_id, run['dag_run_id'])}" for run in runs())

        self.wait_until(
            lambda: all(run["state"] in FINISHED_RUN_STATES for run in runs()),
            f"the backfill of {dag_id} to end",
            story,
        )
        response = self.request("PUT", f"/api/v2/backfills/{backfill_id}/cancel")
        # 409: Airflow itself has noticed.
        if not response.ok and response.status_code != 409:
            raise LocalAirflowError(f"backfill {backfill_id}: {response.status_code} {response.text[:2000]}")
        return runs()


def _run_path(dag_id: str, run_id: str) -> str:
    return f"/dags/{quote(dag_id)}/dagRuns/{quote(run_id, safe='')}"


def _moment(text: str) -> datetime:
    return datetime.fromisoformat(text.replace("Z", "+00:00"))


def _log_line(entry: Any) -> str:
    if not isinstance(entry, dict):
        return str(entry)
    details = [
        f"{error.get('exc_type')}: {error.get('exc_value')}"
        for error in entry.get("error_detail") or []
        if isinstance(error, dict)
    ]
    head = " ".join(str(entry[key]) for key in ("timestamp", "level") if entry.get(key))
    return " ".join(filter(None, [head, str(entry.get("event", "")), *details]))
