"""The tab where it lives: a real Airflow's pages, its log-in, its authorisation, its audit log, its scheduler.

raw --> by_route --> busiest        by_route fails at its first try, and blocks busiest
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from airflows_pages import log_in, open_tab
from axe import serious_findings
from browser import Browser

from airflow_recovery.journal.codec import resealed
from airflow_recovery.journal.layout import JournalLayout
from airflow_recovery.model.keys import OPERATORS_GROUP
from airflow_recovery.model.records import RunIdentity
from airflow_recovery.store import open_store
from airflow_recovery.testing.local_airflow import LocalAirflow
from airflow_recovery.testing.local_airflow.settings import Login

pytestmark = [pytest.mark.airflow, pytest.mark.browser]

DAGS = Path(__file__).parent / "dags"
KEPT = ("plan_id", "plan", "tries")
"""What a page sends back of a plan."""
FailedRun = Callable[..., str]


@pytest.fixture(scope="module")
def airflow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalAirflow]:
    home = tmp_path_factory.mktemp("airflow")
    env = {"AIRFLOW__RECOVERY__JOURNAL": (home / "journal").as_uri()}
    with LocalAirflow(home, DAGS, env=env) as started:
        yield started


@pytest.fixture
def failed_run(airflow: LocalAirflow) -> FailedRun:
    """Makes a failed run; its id has a plus, which addresses must not lose."""

    def make(run_id: str, dag_id: str = "night") -> str:
        airflow.trigger(dag_id, run_id=run_id)
        assert airflow.wait_run(dag_id, run_id) == "failed", airflow.describe(dag_id, run_id)
        return run_id

    return make


def path_of(run_id: str, dag_id: str = "night") -> str:
    return f"/airflow-recovery/v1/dags/{dag_id}/runs/{quote(run_id)}"


def plan_of(airflow: LocalAirflow, run_id: str, user: Login | None = None, **question: Any) -> dict[str, Any]:
    """As a page keeps it."""
    answer = airflow.request("POST", f"{path_of(run_id)}/plan", question, user=user).json()
    return {name: answer[name] for name in KEPT}


def tries(airflow: LocalAirflow, run_id: str) -> dict[str, int]:
    return {instance["task_id"]: instance["try_number"] for instance in airflow.task_instances("night", run_id)}


def audited(airflow: LocalAirflow, run_id: str) -> list[tuple[str, str]]:
    """Of recovery, by whom."""
    entries = airflow.api("GET", f"/eventLogs?dag_id=night&run_id={quote(run_id)}&limit=100")["event_logs"]
    return [(entry["owner"], entry["event"]) for entry in entries if entry["event"].startswith("airflow_recovery.")]


def test_fault_65_a_failed_run_is_repaired_from_airflows_own_page(
    airflow: LocalAirflow, in_airflow: Browser, failed_run: FailedRun
) -> None:
    browser, run_id = in_airflow, failed_run("manual+a-bad-night")
    assert airflow.task_instance("night", run_id, "busiest")["state"] == "upstream_failed"
    log_in(browser, airflow, airflow.admin)
    open_tab(browser, airflow, run_id, "night")
    browser.reads("✕ failed: 1", "#legend")
    browser.shoot("in-airflow-failed")
    browser.press("What must run?")
    browser.reads("2 run", "#details")
    browser.reads("will run", "#graph")
    browser.shoot("in-airflow-plan")
    browser.script("window.stays = 'the same page'")

    browser.press("Run this plan")

    browser.reads("Cleared: by_route, busiest", "#details")
    browser.reads("✓ run: 3", "#legend")
    assert browser.script("return window.stays") == "the same page"
    assert airflow.wait_run("night", run_id) == "success"
    assert tries(airflow, run_id) == {"raw": 1, "by_route": 2, "busiest": 1}
    assert audited(airflow, run_id) == [("admin", "airflow_recovery.run_plan")]
    browser.reads("of Spark saved against clearing everything: 1 region did not run again", "#summary")
    browser.shoot("in-airflow-repaired")

    # Somebody who restarts one region, and a release; over REST, as a service would.
    assert airflow.request("POST", f"{path_of(run_id)}/plan/run", plan_of(airflow, run_id, restart=["busiest"])).json()[
        "cleared"
    ] == ["busiest"]
    airflow.wait_until(lambda: tries(airflow, run_id)["busiest"] == 2, "busiest to run again")
    assert airflow.wait_run("night", run_id) == "success"
    released = airflow.request("POST", f"{path_of(run_id)}/release", {"region": "by_route", "attempt": 2}).json()
    assert released["files"] == 1
    browser.reads("○ released: 1", "#legend")

    # The DAG's own tab.
    browser.open(f"{airflow.url}/dags/night/plugin/recovery-dag")
    browser.reads(run_id, "#runs")
    browser.shoot("in-airflow-dag")


def test_a_viewer_sees_and_changes_nothing_whatever_he_sends_and_nobody_sees_nothing(
    airflow: LocalAirflow, in_airflow: Browser, failed_run: FailedRun
) -> None:
    browser, run_id = in_airflow, failed_run("manual+viewed")
    log_in(browser, airflow, airflow.viewer)
    open_tab(browser, airflow, run_id, "night")
    browser.reads("✕ failed: 1", "#legend")
    browser.press("What must run?")
    browser.reads("You may not run it", "#details")
    assert not browser.find("#run-plan").is_enabled()

    browser.expects_in_console("403")
    browser.script("const go = document.querySelector('#run-plan'); go.disabled = false; go.click()")
    browser.reads("Forbidden", "#problem")
    kept = plan_of(airflow, run_id, airflow.viewer)
    which = {"region": "raw", "attempt": 1}
    for path, body in (("plan/run", kept), ("release", which), ("pin", which)):
        forged = airflow.request("POST", f"{path_of(run_id)}/{path}", body, user=airflow.viewer)
        assert (forged.status_code, forged.json()["code"]) == (403, "forbidden")
        nobody = airflow.request("POST", f"{path_of(run_id)}/{path}", body, anonymous=True)
        assert (nobody.status_code, nobody.json()["code"]) == (401, "unauthorized")
    for path in ("", "/channels"):
        assert airflow.request("GET", f"{path_of(run_id)}{path}", anonymous=True).json()["code"] == "unauthorized"
    assert airflow.run_state("night", run_id) == "failed"
    assert tries(airflow, run_id) == {"raw": 1, "by_route": 1, "busiest": 0}
    assert audited(airflow, run_id) == []

    # Control: the very same request of somebody who may.
    assert airflow.request("POST", f"{path_of(run_id)}/plan/run", kept).status_code == 200


def forge(airflow: LocalAirflow, run_id: str, location: str, *, managed: bool, declared: bool = False) -> None:
    """What somebody can do who may write the journal of one DAG: ``raw`` says that its result lies at ``location``.

    ``declared``: and so does the plan.
    """
    journal = open_store(airflow.env["AIRFLOW__RECOVERY__JOURNAL"])
    layout = JournalLayout(RunIdentity("night", f"run-{run_id}", OPERATORS_GROUP))

    def change(key: str, work: Callable[[dict[str, Any]], None]) -> None:
        document = json.loads(journal.get(key).body)
        work(document["body"])
        journal.put(key, resealed(document))

    def lie(outcome: dict[str, Any]) -> None:
        outcome["outputs"][0] |= {"location": location, "managed": managed, "objects": [["guess", 1, "etag"]]}

    def declare(plan: dict[str, Any]) -> None:
        (raw,) = (each for each in plan["regions"] if each["name"] == "raw")
        raw["fixed"] = [["raw", location]]

    change(layout.attempt("raw", 1, "outcome"), lie)
    if declared:
        for each in list(journal.list(f"{layout.prefix}plan/")):
            change(each.key, declare)


def test_fault_86_a_viewer_learns_nothing_of_places_that_only_the_api_server_may_read(
    airflow: LocalAirflow, failed_run: FailedRun, tmp_path: Path
) -> None:
    (tmp_path / "payroll.csv").write_text("names and numbers")
    run_id = failed_run("manual+forged")

    def asked() -> tuple[int, Any]:
        answer = airflow.request("POST", f"{path_of(run_id)}/plan", {}, user=airflow.viewer)
        assert "payroll.csv" not in answer.text
        assert "17 bytes" not in answer.text
        return answer.status_code, answer.json()

    forge(airflow, run_id, tmp_path.as_uri(), managed=True)
    status, said = asked()
    assert (status, said["code"]) == (502, "unreadable")
    assert "nothing was asked there" in said["detail"]

    forge(airflow, run_id, tmp_path.as_uri(), managed=False)
    status, said = asked()
    assert status == 200
    assert any(each.startswith("Not asked, and taken to be there") for each in said["warnings"])

    # Only where a plan says so as well is it asked, since the results are files here too; and even then:
    forge(airflow, run_id, tmp_path.as_uri(), managed=False, declared=True)
    status, said = asked()
    assert (status, said["code"]) == (409, "in_use")
    assert "is not as it was registered" in said["detail"]


def test_fault_17_who_clears_a_task_while_a_plan_is_looked_at_makes_it_stale(
    airflow: LocalAirflow, in_airflow: Browser, failed_run: FailedRun
) -> None:
    browser, run_id = in_airflow, failed_run("manual+cleared-meanwhile")
    log_in(browser, airflow, airflow.admin)
    open_tab(browser, airflow, run_id, "night")
    browser.press("What must run?")
    browser.reads("2 run", "#details")
    assert "by_route" in airflow.clear("night", run_id, ["by_route"], downstream=True)
    assert airflow.wait_run("night", run_id) == "success"

    browser.expects_in_console("409")
    browser.press("Run this plan")

    browser.reads("The run has moved on", "#details")
    browser.reads("by_route", "#details")
    assert audited(airflow, run_id) == []
    browser.press("What must run?")
    browser.reads("Nothing has to run.", "#details")
    assert tries(airflow, run_id) == {"raw": 1, "by_route": 2, "busiest": 1}


def test_fault_66_what_was_marked_by_hand_is_looked_at_and_made(
    airflow: LocalAirflow, in_airflow: Browser, failed_run: FailedRun
) -> None:
    browser, run_id = in_airflow, failed_run("manual+marked-by-hand")
    airflow.set_state("night", run_id, "by_route", "success")
    log_in(browser, airflow, airflow.admin)
    open_tab(browser, airflow, run_id, "night")

    # Airflow's green square is no result.
    browser.open_box("by_route")
    browser.reads("Airflow task by_route, try 1: success.", "#details")
    browser.reads("must run", "#details")
    browser.shoot("marked-by-hand")
    assert "✓ run: 1" in browser.text("#legend")
    browser.press("What must run?")
    browser.reads("2 run", "#details")
    browser.press("Run this plan")
    browser.reads("✓ run: 3", "#legend")
    assert airflow.wait_run("night", run_id) == "success"
    assert tries(airflow, run_id)["by_route"] == 2


def test_fault_16_many_clicks_at_once_are_one(
    airflow: LocalAirflow, in_airflow: Browser, failed_run: FailedRun
) -> None:
    browser, run_id = in_airflow, failed_run("manual+double-click")
    log_in(browser, airflow, airflow.admin)
    open_tab(browser, airflow, run_id, "night")
    browser.press("What must run?")
    browser.find("#run-plan")
    kept = plan_of(airflow, run_id)

    browser.script("const go = document.querySelector('#run-plan'); go.click(); go.click(); go.click()")
    browser.reads("Cleared: by_route, busiest", "#details")
    # Other pages, at once and late.
    with ThreadPoolExecutor(4) as pool:
        late = list(pool.map(lambda _: airflow.request("POST", f"{path_of(run_id)}/plan/run", kept), range(4)))
    assert {(each.status_code, each.json()["code"]) for each in late} == {(409, "outdated")}
    assert airflow.wait_run("night", run_id) == "success"
    assert tries(airflow, run_id) == {"raw": 1, "by_route": 2, "busiest": 1}
    assert audited(airflow, run_id) == [("admin", "airflow_recovery.run_plan")]


def test_fault_84_hostile_words_are_text_and_secrets_are_masked_in_dark_as_in_light(
    airflow: LocalAirflow, in_airflow: Browser, failed_run: FailedRun
) -> None:
    browser, run_id = in_airflow, failed_run("manual+hostile", "hostile")
    log_in(browser, airflow, airflow.viewer)
    browser.theme("dark")
    open_tab(browser, airflow, run_id, "hostile")
    browser.open_box("by_route")
    browser.reads("AnalysisException: <img src=x onerror='window.hacked=1'> ***", "#details")
    browser.reads("<img src=y onerror='window.hacked=2'>", "#details")
    assert "hunter2" not in browser.script("return document.documentElement.outerHTML")
    assert not browser.all("img")
    assert browser.script("return window.hacked ?? window.parent.hacked ?? null") is None

    # As Airflow's own page is, also when it changes under the tab.
    assert browser.script("return window.parent.document.documentElement.className").split().count("dark") == 1
    assert browser.script("return document.documentElement.dataset.theme") == "dark"
    assert serious_findings(browser) == []
    browser.shoot("in-airflow-dark")
    browser.script("window.parent.localStorage.setItem('theme', 'light')")
    browser.wait(lambda: browser.script("return document.documentElement.dataset.theme") == "light", "the light theme")
    assert serious_findings(browser) == []
