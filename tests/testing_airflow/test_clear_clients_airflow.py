"""Both clear clients in Airflow: compare-and-clear as region tasks use it (docs/protocol.md#clear and #final-check).

Its API server's journal can be exchanged for one in a store that never answers: the pages keep no task waiting.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import requests
from doctor_in_airflow import BACKEND, PLUGIN, REST_DOOR, STORE_DOOR, doctor_command, doctor_task, wrong
from silent_store import ReportingTask, SilentStore

from airflow_recovery.attempt.clear_protocol import API_PREFIX, CALL_KEY
from airflow_recovery.testing.local_airflow import LocalAirflow
from airflow_recovery.testing.patience import HANG_S

pytestmark = pytest.mark.airflow

UNPROTECTED = """
from airflow.plugins_manager import AirflowPlugin

from airflow_recovery.api_server.plugin import LazyApp


class Unprotected(AirflowPlugin):
    name = "unprotected"
    fastapi_apps = [
        {"app": LazyApp("unprotected_app", "app"), "url_prefix": "/unprotected", "name": "Without protection"}
    ]
"""
TABS = 200
SHARED_THREADS = 40
"""Of the pool in which the API server runs what is not asynchronous."""

NO_HEARTBEATS = """
import sys

__all__ = []
if sys.argv[1:2] == ["scheduler"]:
    from airflow.sdk.execution_time.supervisor import ActivitySubprocess

    ActivitySubprocess._send_heartbeat_if_needed = lambda self: None
"""
"""Airflow's local settings. A task that is cleared goes on: a supervisor hears of that by its heartbeats alone, and
would kill the task some seconds later."""

BOTH_CLIENTS = pytest.mark.parametrize("clear_client", ["store", "rest"])


@pytest.fixture(scope="module")
def silent_store() -> Iterator[SilentStore]:
    with SilentStore() as store:
        yield store


@pytest.fixture(scope="module")
def airflow(
    tmp_path_factory: pytest.TempPathFactory, silent_store: SilentStore, launching: Callable[..., LocalAirflow]
) -> Iterator[LocalAirflow]:
    home = tmp_path_factory.mktemp("airflow")
    (home / "plugins").mkdir()
    (home / "plugins" / "unprotected_plugin.py").write_text(UNPROTECTED)
    path = os.pathsep.join(filter(None, [str(Path(__file__).parent / "unprotected"), os.environ.get("PYTHONPATH")]))
    (home / "config").mkdir()
    (home / "config" / "airflow_local_settings.py").write_text(NO_HEARTBEATS)
    env = {**silent_store.environment, "PYTHONPATH": path}
    with launching(home, recovery_backend=True, env=env) as started:
        yield started


@pytest.fixture(scope="module")
def reporting(airflow: LocalAirflow) -> ReportingTask:
    """A task that runs until Airflow ends."""
    (Path(airflow.env["CLEAR_CLIENTS_OUT"])).mkdir(exist_ok=True)
    airflow.trigger("lasting", run_id="lasting")
    noted = Path(airflow.env["CLEAR_CLIENTS_OUT"]) / "lasting"
    airflow.wait_until(lambda: noted.exists() and len(noted.read_text().split()) == 2, "the task to run")
    return ReportingTask(airflow, "lasting", "lasting", "last")


def folder(airflow: LocalAirflow, run_id: str) -> Path:
    return Path(airflow.env["CLEAR_CLIENTS_OUT"]) / run_id


def read(airflow: LocalAirflow, run_id: str, name: str) -> Any:
    return json.loads((folder(airflow, run_id) / f"{name}.json").read_text())


def executions(airflow: LocalAirflow, run_id: str, task_id: str) -> int:
    return len(list(folder(airflow, run_id).glob(f"{task_id}-ran-*.json")))


@BOTH_CLIENTS
def test_four_consumers_that_lose_one_input_run_its_producer_once_more(
    airflow: LocalAirflow, clear_client: str
) -> None:
    #   A --> B0, B1, B2 wake A at once; B3 decides late, on an observation from before
    run_id = airflow.trigger("clear_producer", conf={"clear_client": clear_client})

    assert airflow.wait_run("clear_producer", run_id) == "success", airflow.describe("clear_producer", run_id)

    assert executions(airflow, run_id, "A") == 2
    cleared = [read(airflow, run_id, f"cleared-{index}") for index in range(4)]
    assert sorted(cleared) == [[], [], [], ["A"]]


def test_without_the_comparison_the_producer_runs_more_often(airflow: LocalAirflow) -> None:
    run_id = airflow.trigger("clear_producer", conf={"clear_client": "store", "compare": False})

    assert airflow.wait_run("clear_producer", run_id) == "success", airflow.describe("clear_producer", run_id)

    # Each of the four has lost the same result, and each clears the producer that has made it again; but one whose
    # own call fails finds a new result at its retry. Twice is what the test above holds to.
    assert executions(airflow, run_id, "A") > 2


@BOTH_CLIENTS
def test_the_final_check_clears_running_and_finished_consumers_at_the_observed_try_only(
    airflow: LocalAirflow, clear_client: str
) -> None:
    run_id = airflow.trigger("clear_consumers", conf={"clear_client": clear_client})

    assert airflow.wait_run("clear_consumers", run_id) == "success", airflow.describe("clear_consumers", run_id)

    answer = read(airflow, run_id, "cleared")
    assert answer["cleared"] == ["C", "D"]
    assert answer["unmoved"] == {"E": [1, "success"], "gone": [0, None]}
    # C ended its work after the clear, and its success did not count; the caller asked for itself and was left alone
    assert {each: executions(airflow, run_id, each) for each in "CDES"} == {"C": 2, "D": 2, "E": 1, "S": 1}


@BOTH_CLIENTS
@pytest.mark.parametrize(("unblock", "state"), [(True, "success"), (False, "failed")])
def test_fault_65_upstream_failed_is_cleared_with_the_fix(
    airflow: LocalAirflow, clear_client: str, unblock: bool, state: str
) -> None:
    #   X --> Y --> Z; with unblock off (the negative control) Y and Z stay stuck though X is fixed
    run_id = airflow.trigger("clear_unblocks", conf={"clear_client": clear_client, "unblock": unblock})
    assert airflow.wait_run("clear_unblocks", run_id) == "failed"

    airflow.clear("clear_unblocks", run_id, ["X"])

    airflow.wait_until(lambda: (folder(airflow, run_id) / "unblocked.json").exists(), "X to run again")
    assert airflow.wait_run("clear_unblocks", run_id) == state
    assert read(airflow, run_id, "unblocked")["cleared"] == (["Y", "Z"] if unblock else [])
    states = {instance["task_id"]: instance["state"] for instance in airflow.task_instances("clear_unblocks", run_id)}
    expected = "success" if unblock else "upstream_failed"
    assert states == {"X": "success", "Y": expected, "Z": expected}


@BOTH_CLIENTS
def test_a_zombie_is_refused(airflow: LocalAirflow, clear_client: str) -> None:
    run_id = airflow.trigger("clear_by_zombie", conf={"clear_client": clear_client})
    airflow.wait_until(lambda: (folder(airflow, run_id) / "started.json").exists(), "Z to start")

    airflow.clear("clear_by_zombie", run_id, ["Z"])
    (folder(airflow, run_id) / "was-cleared.json").write_text("true")

    said = folder(airflow, run_id) / "zombie-said.json"
    airflow.wait_until(said.exists, "the zombie to speak")
    assert read(airflow, run_id, "zombie-said") == {"live_check": "NotMine", "clear": "NotMine"}
    assert airflow.wait_run("clear_by_zombie", run_id) == "success"
    assert airflow.task_instance("clear_by_zombie", run_id, "other")["try_number"] == 1


def test_the_endpoint_asks_airflow_who_may_do_what(airflow: LocalAirflow) -> None:
    run_id = airflow.trigger("clear_choice", conf={"clear_client": "store"})
    assert airflow.wait_run("clear_choice", run_id) == "success"
    base = f"/airflow-recovery/v1/dags/clear_choice/runs/{run_id}"
    observed = airflow.request("POST", f"{base}/observe", {}, user=airflow.viewer).json()["tries"]
    body = {"request": {"producers": {"ask": observed[0]["ti_id"]}, "consumers": {}, "unblock": False}}

    statuses = {
        "anonymous": airflow.request("POST", f"{base}/clear", body, anonymous=True).status_code,
        "viewer": airflow.request("POST", f"{base}/clear", body, user=airflow.viewer).status_code,
        "nonsense": airflow.request("POST", f"{base}/clear", {"request": {"producers": 1}}).status_code,
        "no run": airflow.request("POST", base.replace(run_id, "nope") + "/clear", body).status_code,
        "zombie": airflow.request(
            "POST", f"{base}/clear", {**body, "caller": {"key": "ask", "ti_id": "x"}}
        ).status_code,
    }

    assert statuses == {"anonymous": 401, "viewer": 403, "nonsense": 422, "no run": 404, "zombie": 410}
    assert airflow.run_state("clear_choice", run_id) == "success"  # none of these did anything


def test_a_finished_run_is_queued_again(airflow: LocalAirflow) -> None:
    run_id = airflow.trigger("clear_choice", run_id=f"again+{uuid.uuid4().hex}", conf={"clear_client": "store"})
    assert airflow.wait_run("clear_choice", run_id) == "success"
    base = f"/airflow-recovery/v1/dags/clear_choice/runs/{quote(run_id)}"
    ti_id = airflow.request("POST", f"{base}/observe", {}).json()["tries"][0]["ti_id"]

    body = {"request": {"producers": {"ask": ti_id}, "consumers": {}, "unblock": False}}
    assert airflow.request("POST", f"{base}/clear", body).json() == {"cleared": ["ask"], "unmoved": {}}

    airflow.wait_until(
        lambda: airflow.task_instance("clear_choice", run_id, "ask")["try_number"] == 2, "the task to run again"
    )
    assert airflow.wait_run("clear_choice", run_id) == "success"


def test_open_clear_client_takes_the_state_store(airflow: LocalAirflow) -> None:
    run_id = airflow.trigger("clear_choice", conf={"clear_client": "open", "api_conn_id": "not_there"})

    assert airflow.wait_run("clear_choice", run_id) == "success"

    assert read(airflow, run_id, "said") == {"states": {"ask": "running"}, "tries": ["ask"]}


@pytest.mark.parametrize(("dag_id", "cleared"), [("clear_setup", ["P", "start", "stop"]), ("clear_no_setup", ["P"])])
def test_fault_68_fault_69_what_a_teardown_has_removed_is_set_up_again(
    airflow: LocalAirflow, dag_id: str, cleared: list[str]
) -> None:
    #   start --> P --> stop, P --> C; the control's start and stop are plain tasks, which a wake-up leaves alone
    run_id = airflow.trigger(dag_id, conf={"clear_client": "store"})

    assert airflow.wait_run(dag_id, run_id) == "success", airflow.describe(dag_id, run_id)

    assert json.loads((folder(airflow, run_id) / "cleared.json").read_text()) == cleared


def test_fault_69_a_setup_is_left_alone_while_a_running_task_uses_it(airflow: LocalAirflow) -> None:
    #   start --> P --> stop, start --> L --> stop, P --> C; the control is in tests/api_server/test_setups_in_use.py
    run_id = airflow.trigger("clear_setup_in_use", conf={"clear_client": "store"})

    assert airflow.wait_run("clear_setup_in_use", run_id) == "success", airflow.describe("clear_setup_in_use", run_id)

    assert read(airflow, run_id, "cleared") == ["P"]
    ran = {path.stem for path in folder(airflow, run_id).glob("*-ran-*.json")}
    assert ran == {"start-ran-1", "P-ran-1", "P-ran-2", "stop-ran-1"}


def test_doctor_finds_nothing_wrong_as_a_task_and_over_the_connection(airflow: LocalAirflow) -> None:
    state, said = doctor_task(airflow)
    assert state == "success", said
    for check in (STORE_DOOR, BACKEND, PLUGIN, "clock of the API server", "clock of the database", "Java"):
        assert f"OK  {check}: " in said
    assert "WARNING  [workers] execution_api_retries: recommended 10 attempts, found 5 attempts: running tasks" in said
    found = doctor_command(airflow, AIRFLOW__RECOVERY__API_CONN_ID="airflow_recovery_default")
    assert wrong(found) == []
    assert found["[workers] execution_api_retries"]["status"] == "warning"
    for check in (REST_DOOR, BACKEND, PLUGIN, "API server's [recovery]"):
        assert found[check]["status"] == "ok"


def test_control_doctor_names_what_is_broken(airflow: LocalAirflow) -> None:
    broken = {"AIRFLOW__RECOVERY__JOURNAL": (airflow.home / "other").as_uri(), "AIRFLOW_CONN_SPARK_DEFAULT": ""}
    found = doctor_command(airflow, AIRFLOW__RECOVERY__API_CONN_ID="airflow_recovery_default", **broken)
    assert wrong(found) == ["API server's [recovery]", "connection spark_default"]
    viewer = {"login": airflow.viewer.user, "password": airflow.viewer.password}
    connection = json.dumps({"conn_type": "airflow_recovery", "host": airflow.url, **viewer})
    found = doctor_command(airflow, AIRFLOW__RECOVERY__API_CONN_ID="viewer", AIRFLOW_CONN_VIEWER=connection)
    assert wrong(found) == ["API server's plugin"]
    assert "HTTP 403" in found["API server's plugin"]["found"]


@contextmanager
def without_answers(airflow: LocalAirflow) -> Iterator[None]:
    """Inside, the API server's journal lies in the silent store."""
    assert airflow.request("POST", "/unprotected/journal/silent").ok
    yield
    assert airflow.request("POST", "/unprotected/journal/answering").ok


def open_tabs(airflow: LocalAirflow, prefix: str, number: int, pool: ThreadPoolExecutor) -> list[Any]:
    """As many pages of a viewer as that ask for a run at once; their answers to come."""
    headers = {"Authorization": f"Bearer {airflow.token(airflow.viewer)}"}

    def ask(_: int) -> requests.Response:
        with requests.Session() as http:
            http.trust_env = False
            return http.get(f"{airflow.url}{prefix}/dags/lasting/runs/lasting", headers=headers, timeout=HANG_S)

    return [pool.submit(ask, candidate) for candidate in range(number)]


def test_a_store_that_does_not_answer_keeps_no_task_waiting(
    airflow: LocalAirflow, reporting: ReportingTask, silent_store: SilentStore
) -> None:
    assert reporting.heartbeat(HANG_S) == 204
    before = silent_store.accepted
    with without_answers(airflow), ThreadPoolExecutor(TABS) as pool:
        tabs = open_tabs(airflow, API_PREFIX, TABS, pool)
        airflow.wait_until(lambda: silent_store.accepted > before, "the tabs to wait for the store")

        assert reporting.heartbeat(HANG_S) == 204

        # The tabs were waiting for the store when the heartbeat came, and when it was answered. One asks for all.
        assert not any(tab.done() for tab in tabs)
        assert silent_store.accepted - before == 1
        silent_store.hang_up()
        refused = [tab.result(HANG_S) for tab in tabs]
        assert {each.status_code for each in refused} == {503}
        assert silent_store.accepted - before == 1
        told = {each.json()["detail"] for each in refused}
        assert any("no complete answer" in each for each in told)
        assert not any("\n" in each for each in told)
        # A tab that is opened now is told at once.
        (late,) = open_tabs(airflow, API_PREFIX, 1, pool)
        assert "The store s3://silent does not answer, and is asked again in" in late.result(HANG_S).json()["detail"]
        assert silent_store.accepted - before == 1


def test_control_without_threads_of_their_own_the_tabs_stop_the_heartbeats(
    airflow: LocalAirflow, reporting: ReportingTask, silent_store: SilentStore
) -> None:
    before = silent_store.accepted
    with without_answers(airflow), ThreadPoolExecutor(TABS) as pool:
        tabs = open_tabs(airflow, "/unprotected", TABS, pool)
        taken = before + SHARED_THREADS
        airflow.wait_until(lambda: silent_store.accepted >= taken, "all threads to be taken")

        with pytest.raises(requests.Timeout):
            reporting.heartbeat(2)

        airflow.wait_until(lambda: silent_store.hang_up() or all(tab.done() for tab in tabs), "the tabs to end")
    assert reporting.heartbeat(HANG_S) == 204


@pytest.mark.parametrize("key", ["P|1" + "0" * 30, "P|x"])
def test_a_key_that_no_task_can_have_is_answered_and_not_asked_again(reporting: ReportingTask, key: str) -> None:
    request = {"producers": {key: "id"}, "consumers": {}, "unblock": False}
    found = reporting.call(CALL_KEY, {"call_id": "c", "operation": "clear", "request": request})
    assert (found["call_id"], found["result"]) == ("c", None)
    assert "expected a map index" in found["error"]


def test_clear_and_rebuild_are_refused_to_other_sites_and_are_in_the_audit_log(airflow: LocalAirflow) -> None:
    run_id = airflow.trigger("clear_choice", conf={"clear_client": "store"})
    assert airflow.wait_run("clear_choice", run_id) == "success"
    base = f"{airflow.url}{API_PREFIX}/dags/clear_choice"
    nothing = json.dumps({"request": {"producers": {}, "consumers": {}, "unblock": True}})
    rebuild = json.dumps({"run_key": f"run-{run_id}", "notes": {}, "dry_run": False})

    def post(path: str, body: str, **headers: str) -> int:
        with requests.Session() as http:
            http.trust_env = False
            http.cookies.set("_token", airflow.token(airflow.admin))
            return http.post(f"{base}/{path}", data=body, headers=headers, timeout=HANG_S).status_code

    def audited() -> list[tuple[str, str]]:
        found = airflow.api("GET", f"/eventLogs?dag_id=clear_choice&run_id={quote(run_id)}&limit=1000")["event_logs"]
        return sorted((each["owner"], each["event"]) for each in found if "airflow_recovery" in each["event"])

    asked = ((f"runs/{quote(run_id)}/clear", nothing), ("rebuild", rebuild))
    typed = {"Content-Type": "application/json"}
    for path, body in asked:
        for site in ("cross-site", "same-site"):
            assert post(path, body, **typed, **{"Sec-Fetch-Site": site}) == 403
        assert post(path, body) == 415
    assert audited() == []
    for path, body in asked:
        assert post(path, body, **typed, **{"Sec-Fetch-Site": "same-origin"}) == 200
    assert audited() == [("admin", "airflow_recovery.clear"), ("admin", "airflow_recovery.rebuild")]
