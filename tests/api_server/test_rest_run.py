"""``GET`` of a run and of a DAG's runs: what the tab shows, over a real journal.

         +--> by_route ----+
raw -----+                 +--> busiest
         +--> by_carrier --+
"""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from components_of_claims import made_of
from expected_errors import fails_with
from fakes import Hooks, Killed, Process
from rest_world import DAG, DIAMOND, KEY, RUN, RestWorld
from written_night import Night, region

from airflow_recovery.api_server import plan_readings, readings
from airflow_recovery.errors import Failure, RegionFailed, StoreAccessDenied
from airflow_recovery.journal.folders import folders
from airflow_recovery.model.components import Component
from airflow_recovery.model.keys import OPERATORS_GROUP
from airflow_recovery.model.names import encode
from airflow_recovery.story import run_document

SCRIPT = "<script>alert('x')</script>"


@pytest.fixture
def rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RestWorld:
    return RestWorld(tmp_path, monkeypatch)


def fail(message: str = "boom") -> Any:
    def raising() -> None:
        raise RegionFailed(message, Failure("ValueError", message))

    return raising


def regions(rest: RestWorld) -> dict[str, Any]:
    return {each["story"]["name"]: each for each in rest.get().json()["run"]["regions"]}


def test_a_run_in_the_middle_of_a_bad_night(rest: RestWorld) -> None:
    world = rest.world
    world.go("raw")
    with pytest.raises(RegionFailed):
        world.go("by_route", on_start=fail())
    process = Process()
    own = world.airflow.start("by_carrier")
    with pytest.raises(Killed):
        world.region_task(own, process, Hooks(on_start=process.kill)).execute()
    world.keep_events()

    answer = rest.get()
    run, found = answer.json()["run"], regions(rest)

    assert answer.json()["can_act"] is True
    assert {name: each["status"] for name, each in found.items()} == {
        "raw": "run",
        "by_route": "waiting",
        "by_carrier": "running",
        "busiest": "waiting",
    }
    assert run["statuses"] == {"run": 1, "running": 1, "waiting": 2}
    (attempt,) = found["by_route"]["story"]["attempts"]
    assert attempt["state"] == "FENCED"
    assert attempt["failure"] == {
        "type": "ValueError",
        "message": "boom",
        "condition": None,
        "vertex": None,
        "labels": [["class", "unknown"], ["recoverable", "yes"]],
    }
    assert (attempt["claimed_at"], attempt["ended_at"], attempt["try_number"]) == ("now", "now", 1)
    assert found["raw"]["story"]["attempts"][0]["bytes"] > 0
    assert {(each["producer"], each["consumer"], each["type"]) for each in run["edges"]} == {
        (producer, consumer, "BLOCKING") for consumer, inputs in DIAMOND.items() for producer in inputs
    }
    assert ("failed", "by_route", "@1: own failure: RegionFailed: boom") in {
        (each["kind"], each["region"], each["text"]) for each in run["decisions"]
    }


def test_code_that_can_not_be_seen_is_named_in_the_run_and_in_a_plan(rest: RestWorld) -> None:
    image = Component("image etl:1", "etl:1", seen=False)
    rest.world.go("raw")
    rest.world.go("by_route")
    assert "can't be seen" not in str(rest.plan()["warnings"])
    made_of(rest.world.journal(), "raw", image)
    assert {name: each["unseen_code"] for name, each in regions(rest).items()} == {
        "raw": [image.name],
        **{name: [] for name in ("by_route", "by_carrier", "busiest")},
    }
    (warning,) = [each for each in rest.plan()["warnings"] if "can't be seen" in each]
    assert warning.endswith(": raw: image etl:1.")


@pytest.mark.control
def test_control_where_nobody_looks_for_unseen_code_the_tab_shows_a_region_as_any_other(
    rest: RestWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (plan_readings, run_document):
        monkeypatch.setattr(module, "unseen_code", lambda view: {})
    rest.world.go("raw")
    made_of(rest.world.journal(), "raw", Component("image etl:1", "etl:1", seen=False))
    assert regions(rest)["raw"]["unseen_code"] == []
    assert "can't be seen" not in str(rest.plan()["warnings"])


def test_what_is_kept_lost_released_failed_and_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rest = RestWorld(tmp_path, monkeypatch, retries=0)
    world = rest.world
    world.go_all(["raw", "by_route"])
    with pytest.raises(RegionFailed):
        world.go("by_carrier", on_start=fail())
    assert regions(rest)["by_carrier"]["status"] == "failed"

    world.airflow.clear("by_carrier")
    world.delete_results("raw", 1)
    with fails_with("input-cleared"):
        world.go("by_carrier")
    # It has woken its producer, so that this is the moment before raw has looked at what was reported.
    assert regions(rest)["raw"]["status"] == "lost"
    assert rest.run_plan(rest.plan()).status_code == 200
    world.until_green()
    world.new_airflow()
    world.until_green()
    world.keep_events()
    assert {region["status"] for region in regions(rest).values()} == {"kept"}
    assert rest.get().json()["run"]["saved"] == {
        "regions": 4,
        "again": ["raw", "by_route", "by_carrier"],
        "spared": ["raw", "by_route", "by_carrier", "busiest"],
        "by_hand": False,
        "seconds_saved": 40.0,
    }

    world.release("by_route", world.current("by_route"))
    assert regions(rest)["by_route"]["status"] == "released"
    world.airflow.clear("busiest")
    world.airflow.mark("busiest", "skipped")
    world.restart("busiest")
    world.airflow.mark("busiest", "skipped")
    assert regions(rest)["busiest"]["status"] == "skipped"


def test_a_page_that_is_up_to_date_is_told_so_without_a_record_being_read(rest: RestWorld) -> None:
    rest.world.go("raw")
    etag = rest.get().headers["ETag"]

    same = rest.get(**{"If-None-Match": etag})
    assert (same.status_code, same.content) == (304, b"")

    rest.world.airflow.start("by_route")
    moved = rest.get(**{"If-None-Match": etag})
    assert moved.status_code == 200
    assert moved.headers["ETag"] != etag


def test_the_last_runs_of_a_dag(rest: RestWorld) -> None:
    rest.world.go_all()

    found = rest.get(f"/dags/{DAG}/runs").json()

    assert found == {
        "dag_id": DAG,
        "runs": [
            {
                "run_id": RUN,
                "run_key": KEY,
                "state": "failed",
                "run_after": "2026-01-02T00:00:00+00:00",
                "groups": [
                    {
                        "group_id": "(operators)",
                        "statuses": {"run": 4},
                        "regions": 4,
                        "seconds_saved": 0.0,
                        "problem": None,
                    }
                ],
            }
        ],
    }


@pytest.mark.parametrize(
    ("path", "status", "code"),
    [
        (f"/dags/{DAG}/runs/nope", 404, "not_found"),
        (f"/dags/nope/runs/{RUN}", 404, "not_found"),
        (f"/dags/{DAG}/runs/{RUN}?group=nope", 404, "not_found"),
        (f"/dags/{DAG}/runs?limit=0", 422, "invalid"),
        ("/nothing", 404, "not_found"),
    ],
)
def test_what_is_not_there_is_one_clear_line(rest: RestWorld, path: str, status: int, code: str) -> None:
    rest.world.go("raw")

    answer = rest.get(path)

    assert (answer.status_code, answer.json()["code"]) == (status, code)
    assert "\n" not in answer.json()["detail"]
    assert set(answer.json()) == {"detail", "code", "changed"}


def test_nothing_recorded_yet(rest: RestWorld) -> None:
    answer = rest.get()
    assert (answer.status_code, answer.json()["code"]) == (404, "not_found")
    assert "no region has begun" in answer.json()["detail"]


def test_a_damaged_journal_is_one_clear_line(rest: RestWorld) -> None:
    rest.world.go("raw")
    key = rest.world.journal().layout.attempt("raw", 1, "outcome")
    rest.world.journal_store.put(key, b"no json")
    rest.world.journal_store.delete([rest.world.journal().layout.snapshot])

    answer = rest.get()
    assert (answer.status_code, answer.json()["code"]) == (502, "unreadable")
    assert "Traceback" not in answer.text

    (run,) = rest.get(f"/dags/{DAG}/runs").json()["runs"]
    assert run["groups"][0]["problem"]


def test_a_bucket_that_is_denied_is_one_clear_line(rest: RestWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(*arguments: Any, **named: Any) -> Any:
        raise StoreAccessDenied("the credentials may not list s3://bucket/journal")

    rest.world.go("raw")
    monkeypatch.setattr(rest.stores.journal, "list", denied)

    answer = rest.get()
    assert (answer.status_code, answer.json()["code"]) == (502, "store_denied")
    assert "may not list" in answer.json()["detail"]


@pytest.mark.parametrize(("user", "status", "code"), [(None, 401, "unauthorized"), ("stranger", 403, "forbidden")])
def test_who_may_not_see_the_dag_sees_nothing(rest: RestWorld, user: str | None, status: int, code: str) -> None:
    rest.world.go("raw")
    for path in (f"/dags/{DAG}/runs/{RUN}", f"/dags/{DAG}/runs"):
        answer = rest.get(path, user)
        assert (answer.status_code, answer.json()["code"]) == (status, code)
        assert "raw" not in answer.text


def test_a_viewer_is_told_that_he_may_not_act(rest: RestWorld) -> None:
    rest.world.go("raw")
    assert rest.get(user="viewer").json()["can_act"] is False


def test_text_of_others_is_answered_as_json_and_never_as_html(rest: RestWorld) -> None:
    rest.world.go("raw")
    with pytest.raises(RegionFailed):
        rest.world.go("by_route", on_start=fail(SCRIPT))

    answer = rest.get()
    assert answer.headers["content-type"] == "application/json"
    assert SCRIPT in regions(rest)["by_route"]["story"]["attempts"][0]["failure"]["message"]
    lost = rest.get(f"/dags/{DAG}/runs/{SCRIPT.replace('/', '')}")
    assert (lost.status_code, lost.headers["content-type"]) == (404, "application/json")


def test_the_first_line_of_the_advice(rest: RestWorld) -> None:
    rest.world.until_green()
    found = rest.get(f"/dags/{DAG}/advice").json()
    assert found["runs"] == 1
    assert "nothing has failed" in found["first_line"]
    assert (found["repeated"], found["notes"]) == ([], [])
    assert [(each["region"], each["seconds"]) for each in found["slowest"]] == [(name, 10.0) for name in DIAMOND]
    (cost,) = found["costs"]
    assert cost == {
        "run_key": KEY, "ended_at": "now", "seconds_spent": 40.0, "seconds_again": 0.0, "seconds_saved": 0.0,
        "again": 0, "finished": 4,
    }  # fmt: skip
    assert rest.get("/dags/nope/advice").status_code == 404
    assert rest.get(f"/dags/{DAG}/advice?group=nope").status_code == 404


def test_what_a_run_cost_and_saved_is_what_the_list_of_runs_says(rest: RestWorld) -> None:
    rest.world.go("raw")
    with pytest.raises(RegionFailed):
        rest.world.go("by_route", on_start=fail())
    rest.world.until_green()
    rest.world.new_airflow()
    rest.world.until_green()  # everything is found valid: only the events say so
    rest.world.keep_events()

    found = rest.get(f"/dags/{DAG}/advice").json()
    (run,) = rest.get(f"/dags/{DAG}/runs").json()["runs"]
    (cost,) = found["costs"]
    assert cost["seconds_saved"] == run["groups"][0]["seconds_saved"] == 40.0
    assert (cost["again"], cost["seconds_again"]) == (1, 10.0)
    assert [(each["region"], each["again"], each["runs_again"]) for each in found["repeated"]] == [("by_route", 1, 1)]


def test_of_runs_that_can_not_be_read_the_others_are_told(rest: RestWorld) -> None:
    rest.world.go_all()
    for key in ("date-2025-12-30T000000Z", "date-2025-12-31T000000Z"):
        night = Night(rest.stores.journal, key, (region("raw", final=True),), dag=DAG, group=OPERATORS_GROUP)
        night.finishes("raw", 3600)
    damaged = night.journal.layout.attempt("raw", 1, "outcome")
    rest.stores.journal.put(damaged, b"no json")

    found = rest.get(f"/dags/{DAG}/advice").json()
    assert [each["run_key"] for each in found["costs"]] == [KEY, "date-2025-12-30T000000Z"]  # as they were at work
    assert found["slowest"][0] == {
        "region": "raw", "seconds": 1805.0, "again": 0, "runs_again": 0, "seconds_again": 0.0,
    }  # fmt: skip
    (note,) = found["notes"]
    assert note.startswith("Run date-2025-12-31T000000Z can't be read, and is left out")


def test_the_only_run_that_can_not_be_read_is_an_error(rest: RestWorld) -> None:
    rest.world.go_all()
    rest.stores.journal.put(rest.world.journal().layout.attempt("raw", 1, "outcome"), b"no json")
    rest.stores.journal.delete([rest.world.journal().layout.snapshot])
    answer = rest.get(f"/dags/{DAG}/advice")
    assert (answer.status_code, answer.json()["code"]) == (502, "unreadable")


def test_the_openapi_document_has_every_route_and_one_shape_of_errors(rest: RestWorld) -> None:
    document = rest.get("/openapi.json", user=None).json()

    run = "/dags/{dag_id}/runs/{run_id}"
    ours = {"/dags/{dag_id}/runs": "get", run: "get"}
    ours |= {f"{run}/{name}": "post" for name in ("plan", "plan/run", "release/plan", "release", "pin")}
    for path, method in ours.items():
        answers = document["paths"][path][method]["responses"]
        assert {"200", "401", "403", "404", "409", "422", "503"} <= set(answers)
        for status, answer in answers.items():
            if status not in ("200", "304"):
                assert answer["content"]["application/json"]["schema"] == {"$ref": "#/components/schemas/Problem"}
    assert rest.get("/docs").status_code == 404  # its page would load scripts from elsewhere


LONG_GROUP = "\u8d44\u6599" * 20
"""Forty Chinese characters: its folder's name is shortened."""


@pytest.fixture
def long_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RestWorld:
    world = RestWorld(tmp_path, monkeypatch, group=LONG_GROUP)
    world.world.go_all()
    # A heartbeat sorts before every record, and is none.
    layout = world.world.journal().layout
    world.world.journal_store.put(layout.heartbeat("raw", 1), b"alive")
    return world


def test_a_group_with_a_long_name_is_shown_as_any_other(long_group: RestWorld) -> None:
    shown = long_group.get().json()
    assert (shown["run"]["group_id"], len(shown["run"]["regions"])) == (LONG_GROUP, 4)
    (run,) = long_group.get(f"/dags/{DAG}/runs").json()["runs"]
    assert [(each["group_id"], each["regions"]) for each in run["groups"]] == [(LONG_GROUP, 4)]
    assert long_group.get(f"/dags/{DAG}/runs/{RUN}?group={quote(LONG_GROUP)}").status_code == 200


def test_control_by_the_folders_name_nothing_is_found(long_group: RestWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    def by_folder(store: Any, dag_id: str, run_key: str) -> list[str]:
        return folders(store, f"{encode(dag_id)}/{encode(run_key)}/")

    monkeypatch.setattr(readings, "groups_of", by_folder)
    assert long_group.get().status_code != 200
