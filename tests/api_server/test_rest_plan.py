"""What-if plans over REST, and having them done: stale pages, double clicks, forged requests."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from fakes import Hooks, Killed, Process
from rest_world import RestWorld

from airflow_recovery.api_server import changes
from airflow_recovery.attempt import manual_release as release_by_hand
from airflow_recovery.errors import Failure, RegionFailed
from airflow_recovery.story.deploy_impact import DECLARED_OTHERWISE


@pytest.fixture
def rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RestWorld:
    world = RestWorld(tmp_path, monkeypatch)
    world.world.go_all()
    return world


def actions(plan: dict[str, Any]) -> dict[str, str]:
    return {each["name"]: each["action"] for each in plan["plan"]["regions"]}


def keys(rest: RestWorld) -> set[str]:
    return {each.key for each in rest.stores.journal.list()}


def test_a_plan_changes_nothing_and_running_it_runs_exactly_that(rest: RestWorld) -> None:
    before = keys(rest)

    plan = rest.plan(restart=["by_route"])

    assert keys(rest) == before
    assert actions(plan) == {"raw": "keep", "by_route": "run", "by_carrier": "keep", "busiest": "run"}
    assert plan["asked"] == "restart by_route"
    assert plan["can_run"]
    assert plan["resets"] == ["by_route@1"]
    assert set(plan["tries"]) == {"by_route", "busiest"}
    assert "2 run" in plan["summary"]
    assert plan["warnings"] == ["Final results are made again, and readers outside the job see new data: busiest."]

    done = rest.run_plan(plan)

    assert done.status_code == 200, done.text
    assert done.json()["resets"] == ["by_route@1"]
    assert sorted(done.json()["cleared"]) == ["busiest", "by_route"]
    asked = {"plan_id": plan["plan_id"], "asked": "restart by_route", "group_id": "(operators)"}
    assert rest.audited == [("admin", "airflow_recovery.run_plan", asked)]
    rest.world.until_green()
    assert rest.world.ran[4:] == [("by_route", 2), ("busiest", 2)]
    assert "reset by admin: restart by_route" in rest.get().text


def test_from_here_on_recompute_and_rebuild(rest: RestWorld) -> None:
    from_here: dict[str, Any] = {"from": ["by_carrier"]}
    assert set(actions(rest.plan(**from_here)).items()) >= {("by_carrier", "run"), ("busiest", "run")}
    assert set(actions(rest.plan(recompute=True)).values()) == {"run"}
    assert set(actions(rest.plan()).values()) == {"keep"}

    # What is lost is made again by the plan that asks for nothing.
    rest.world.delete_results("busiest", 1)
    plan = rest.plan()
    assert actions(plan)["busiest"] == "run"
    assert rest.run_plan(plan).json() == {"plan_id": plan["plan_id"], "resets": [], "cleared": ["busiest"]}
    rest.world.until_green()
    assert rest.world.current("busiest") == 2


def test_what_is_supposed_is_shown_and_not_done(rest: RestWorld) -> None:
    plan = rest.plan(lost=["by_route"], failed=["busiest"])

    assert actions(plan)["by_route"] == "run"
    assert not plan["can_run"]
    refused = rest.run_plan(plan)
    assert (refused.status_code, refused.json()["code"]) == (422, "invalid")


def test_fault_16_a_stale_page_is_refused_with_what_changed(rest: RestWorld) -> None:
    old = rest.plan(restart=["by_route"])
    rest.world.restart("by_route")
    rest.world.until_green()
    before = keys(rest)

    refused = rest.run_plan(old)

    assert (refused.status_code, refused.json()["code"]) == (409, "outdated")
    assert "Nothing was changed" in refused.json()["detail"]
    assert any(each.startswith("by_route: run @1") for each in refused.json()["changed"])
    assert keys(rest) == before
    assert rest.audited == []
    assert rest.world.airflow.is_green


def test_a_task_that_was_cleared_since_makes_a_page_stale(rest: RestWorld) -> None:
    # No record tells of it: the journal is as it was.
    rest.world.delete_results("busiest", 1)
    old = rest.plan()
    rest.world.airflow.clear("busiest")

    refused = rest.run_plan(old)

    assert refused.status_code == 409
    assert refused.json()["changed"] == ["task busiest: tried again or cleared, now try 1, not begun"]


def test_a_second_press_of_the_button_changes_nothing(rest: RestWorld) -> None:
    plan = rest.plan(restart=["by_route"])
    assert rest.run_plan(plan).status_code == 200
    before, cleared = keys(rest), list(rest.world.airflow.cleared)

    assert rest.run_plan(plan).status_code == 409

    assert keys(rest) == before
    assert rest.world.airflow.cleared == cleared


def test_two_presses_at_once_clear_once(rest: RestWorld) -> None:
    plan = rest.plan(restart=["by_route"])

    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda _: rest.run_plan(plan), range(4)))

    assert {answer.status_code for answer in answers} <= {200, 409}
    assert sorted(rest.world.airflow.cleared) == ["busiest", "by_route"]
    rest.world.until_green()
    assert rest.world.current("by_route") == 2


def test_without_the_comparison_a_second_press_would_run_everything_again(
    rest: RestWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(changes, "changes", lambda seen, now, tries: ())
    plan = rest.plan(restart=["by_route"])
    rest.run_plan(plan)
    rest.world.until_green()

    rest.run_plan(plan)

    rest.world.until_green()
    assert rest.world.current("by_route") == 3


def test_a_plan_that_was_tampered_with_is_refused(rest: RestWorld) -> None:
    plan = rest.plan(restart=["by_route"])
    plan["plan"]["resets"].append(["raw", 1])
    before = keys(rest)

    assert rest.run_plan(plan).json()["code"] == "invalid"
    assert rest.run_plan({**plan, "plan": {}}).status_code == 422
    assert keys(rest) == before


def test_nobody_acts_in_the_name_of_another(rest: RestWorld) -> None:
    plan = rest.plan("viewer", restart=["by_route"])
    plan["plan"]["request"]["who"] = "the boss"

    assert rest.run_plan(plan).status_code == 200

    assert rest.world.journal().read_reset("by_route", 1).who == "admin"


@pytest.mark.parametrize(
    ("user", "headers", "status"),
    [
        (None, {}, 401),
        ("stranger", {}, 403),
        ("viewer", {}, 403),
        ("admin", {"Sec-Fetch-Site": "cross-site"}, 403),
        ("admin", {"Sec-Fetch-Site": "same-site"}, 403),
    ],
)
def test_a_forged_request_changes_nothing(
    rest: RestWorld, user: str | None, headers: dict[str, str], status: int
) -> None:
    plan = rest.plan("viewer", restart=["by_route"])  # a viewer may ask
    before = keys(rest)

    assert rest.run_plan(plan, user, **headers).status_code == status
    for path in ("release", "pin"):
        assert rest.post(path, {"region": "raw", "attempt": 1}, user, **headers).status_code == status

    assert keys(rest) == before
    assert rest.world.airflow.cleared == []
    assert rest.audited == []


def test_a_form_of_another_page_is_no_request(rest: RestWorld) -> None:
    path = "/dags/flights/runs/scheduled__2026-01-01T00:00:00+00:00/plan/run"
    with rest.client() as client:
        answer = client.post(path, content='{"plan_id": ""}', headers={"Content-Type": "text/plain"})
    assert answer.status_code == 415


@pytest.mark.parametrize(
    ("question", "status", "said"),
    [
        ({"restart": ["by_rout"]}, 404, "did you mean"),
        ({"restart": "by_route"}, 422, "restart"),
        ({"restrat": ["by_route"]}, 422, "restrat"),
        ([], 422, "body"),
    ],
)
def test_a_question_that_is_none_is_one_clear_line(rest: RestWorld, question: Any, status: int, said: str) -> None:
    answer = rest.post("plan", question)
    assert answer.status_code == status
    assert said in answer.json()["detail"]


def test_fault_65_what_a_failure_has_blocked_runs_with_its_repair(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rest = RestWorld(tmp_path, monkeypatch, retries=0)

    def boom() -> None:
        raise RegionFailed("boom", Failure("ValueError", "boom"))

    rest.world.go_all(["raw", "by_carrier"])
    with pytest.raises(RegionFailed):
        rest.world.go("by_route", on_start=boom)
    assert rest.world.airflow.ready() == []
    assert rest.world.airflow.state("busiest") == "upstream_failed"

    done = rest.run_plan(rest.plan())

    assert sorted(done.json()["cleared"]) == ["busiest", "by_route", "publish"]
    rest.world.until_green()


def test_a_restart_leaves_a_region_alone_that_works_on_something_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rest = RestWorld(tmp_path, monkeypatch)
    rest.world.go_all(["raw", "by_carrier"])
    process = Process()
    own = rest.world.airflow.start("by_route")
    with pytest.raises(Killed):
        rest.world.region_task(own, process, Hooks(on_start=process.kill)).execute()

    done = rest.run_plan(rest.plan(restart=["by_carrier"]))

    assert done.json()["cleared"] == ["by_carrier"]


def test_a_release_says_before_what_is_given_up(rest: RestWorld) -> None:
    rest.world.release("raw", 1)
    rest.world.delete_results("raw", 1)

    shown = rest.post("release/plan", {"region": "by_route"}, "viewer").json()

    assert (shown["attempt"], shown["files"], shown["again"]) == (
        1,
        1,
        ["raw", "by_route", "by_carrier", "busiest"],
    )
    assert shown["warnings"] == ["To make it again, raw must be made again as well: that data is not there either."]
    assert rest.world.state().of("by_route").current is not None

    done = rest.post("release", {"region": "by_route", "attempt": 1})

    assert (done.status_code, done.json()["files"]) == (200, 1)
    told = {"region": "by_route", "attempt": 1, "force": False}
    assert rest.audited == [("admin", "airflow_recovery.release", told)]
    again = rest.post("release", {"region": "by_route", "attempt": 1})
    assert (again.status_code, again.json()["code"]) == (404, "not_found")
    rest.world.restart("busiest")
    rest.world.until_green()
    assert rest.world.current("raw") == 2


def test_a_final_result_is_released_with_a_warning_and_a_stale_page_releases_nothing(rest: RestWorld) -> None:
    shown = rest.post("release/plan", {"region": "busiest"}).json()
    assert shown["warnings"][0] == "busiest is a final result: whoever reads it outside this job loses it."

    rest.world.restart("busiest")
    rest.world.until_green()
    refused = rest.post("release", {"region": "busiest", "attempt": 1})
    assert (refused.status_code, refused.json()["changed"]) == (409, ["busiest: attempt 2 counts now, not 1"])


def published(rest: RestWorld) -> list[str]:
    """The files of the region that the newest publish names."""
    rest.world.publish()
    return files(rest)


def files(rest: RestWorld) -> list[str]:
    return [each.key for each in rest.world.results.list() if "/busiest/" in each.key]


def test_what_is_published_goes_with_force_alone(rest: RestWorld) -> None:
    before = published(rest)
    shown = rest.post("release/plan", {"region": "busiest"}).json()
    assert shown["still_needed"] == "publish 1 names it"

    refused = rest.post("release", {"region": "busiest", "attempt": 1})

    assert (refused.status_code, refused.json()["code"]) == (409, "in_use")
    assert '"force": true' in refused.json()["detail"]
    assert (files(rest), rest.audited) == (before, [])
    done = rest.post("release", {"region": "busiest", "attempt": 1, "force": True})
    assert (done.status_code, done.json()["files"], files(rest)) == (200, len(before), [])
    assert [extra["force"] for _, _, extra in rest.audited] == [True]


def test_control_without_the_question_one_post_deletes_a_published_result(
    rest: RestWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert published(rest)
    for module in (changes, release_by_hand):
        monkeypatch.setattr(module, "check_may_go", lambda found, *, force: None)
    assert rest.post("release", {"region": "busiest", "attempt": 1}).status_code == 200
    assert files(rest) == []


def test_what_somebody_reads_is_not_released(rest: RestWorld) -> None:
    rest.world.restart("by_route")
    process = Process()
    own = rest.world.airflow.start("by_route")
    with pytest.raises(Killed):
        rest.world.region_task(own, process, Hooks(on_start=process.kill)).execute()

    refused = rest.post("release", {"region": "raw", "attempt": 1})

    assert (refused.status_code, refused.json()["code"]) == (409, "in_use")
    assert "by_route@2 reads raw@1 now" in refused.json()["detail"]
    assert rest.world.journal().list(["raw"]).state.of("raw").attempts[1].is_released is False


def test_fault_203_what_is_withdrawn_is_shown_and_given_back(rest: RestWorld) -> None:
    reason = {"reason": "the prices are wrong"}
    assert rest.post("withdraw", reason).status_code == 404, "nothing is published"
    rest.world.publish()
    assert rest.post("withdraw", {"region": "raw"}).status_code == 422
    withdrawn = rest.post("withdraw", {"region": "raw", **reason}).json()
    assert withdrawn == {
        "attempts": [{"region": "raw", "attempt": 1, "turn": 1, "withdrawn": True, "who": "admin", **reason}]
    }
    shown = {each["story"]["name"]: each["withdrawn"] for each in rest.get().json()["run"]["regions"]}
    assert shown == {"raw": "admin: the prices are wrong", "by_route": "", "by_carrier": "", "busiest": ""}
    said = "Withdrawn, so that other DAGs are not given it: raw@1, by admin: the prices are wrong."
    assert said in rest.post("plan", {}).json()["warnings"]

    given = rest.post("withdraw", {"withdrawn": False, "reason": "they were right"}).json()["attempts"]
    assert [(each["region"], each["withdrawn"]) for each in given] == [("raw", False)], (
        "the others were never withdrawn"
    )
    assert said not in rest.post("plan", {}).json()["warnings"]
    assert rest.post("withdraw", {"region": "nobody", **reason}).status_code == 404
    assert [event for _, event, _ in rest.audited][:2] == ["airflow_recovery.withdraw"] * 2


def test_what_is_pinned_is_not_released_until_it_is_unpinned(rest: RestWorld) -> None:
    which = {"region": "raw", "attempt": 1}

    pinned = rest.post("pin", {**which, "why": "for the audit"}).json()

    assert pinned == {**which, "turn": 1, "pinned": True, "who": "admin", "why": "for the audit"}
    assert rest.post("pin", which).json() == pinned  # twice is once
    shown = {each["story"]["name"]: each["is_pinned"] for each in rest.get().json()["run"]["regions"]}
    assert shown == {"raw": True, "by_route": False, "by_carrier": False, "busiest": False}
    refused = rest.post("release", which)
    assert (refused.status_code, refused.json()["code"]) == (409, "in_use")
    assert "was pinned by admin (for the audit)" in refused.json()["detail"]

    assert rest.post("pin", {**which, "pinned": False}).json()["pinned"] is False
    assert rest.post("pin", {**which, "pinned": False}).status_code == 404
    assert rest.post("release", which).status_code == 200
    late = rest.post("pin", which)
    assert (late.status_code, late.json()["code"]) == (409, "in_use")
    assert [event for _, event, _ in rest.audited][:2] == ["airflow_recovery.pin", "airflow_recovery.pin"]


def test_a_plan_names_what_a_deploy_declares_otherwise_of_what_it_keeps(rest: RestWorld) -> None:
    assert rest.plan()["warnings"] == []
    rest.otherwise = {"raw": ("application_args", "trigger_rule"), "by_route": ("trigger_rule",), "no region": ("x",)}
    arguments, rules = rest.plan()["warnings"]
    assert arguments == f"{DECLARED_OTHERWISE.format('raw (application_args)')}."
    assert rules.startswith("The trigger rule is not the one of the last try any more: raw, by_route.")
    assert "application_args" not in str(rest.plan(restart=["raw"])["warnings"]), "it runs again in any case"
