"""A run of more regions than are told of one by one: its first answer, and the rest by page.

source[0..9] ---> total (one region) ---> spread[0..4]
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from large_run import FAILED, PLAN, finished
from rest_world import DAG, RUN, RestWorld

from airflow_recovery.store.object_store import ObjectInfo


@pytest.fixture
def rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RestWorld:
    monkeypatch.setattr("airflow_recovery.story.run_document.MAX_REGIONS", 6)
    world = RestWorld(tmp_path, monkeypatch)
    finished(world, PLAN.regions[:10])
    return world


def page(rest: RestWorld, asked: str) -> tuple[int, list[str]]:
    answer = rest.get(f"/dags/{DAG}/runs/{RUN}/regions?{asked}")
    assert answer.status_code == 200, answer.text
    found = answer.json()
    return found["total"], [each["story"]["name"] for each in found["regions"]]


def test_subtasks_with_nothing_to_tell_are_told_as_one(rest: RestWorld) -> None:
    run = rest.get().json()["run"]

    assert [(each["story"]["name"], each["status"]) for each in run["regions"]] == [
        (FAILED, "failed"),
        ("total", "waiting"),
    ]
    assert [(each["of"], each["status"], each["regions"], each["first"]) for each in run["subtasks"]] == [
        ("source", "run", 9, 0),
        ("spread", "waiting", 5, 0),
    ]
    source, spread = run["subtasks"]
    assert {name: source[name] for name in ("attempt", "results", "rows", "files", "bytes", "why")} == {
        "attempt": 1,
        "results": 9,
        "rows": 27,
        "files": 9,
        "bytes": 90,
        "why": "ran once",
    }
    assert (spread["attempt"], spread["rows"]) == (0, None)
    assert run["statuses"] == {"run": 9, "waiting": 6, "failed": 1}
    assert [(each["producer"], each["consumer"]) for each in run["edges"]] == [("source", "total"), ("total", "spread")]
    assert "show --all" in run["holes"][0]
    assert run["left"] == 0


def test_of_very_many_that_have_failed_the_first_are_told_one_by_one(
    rest: RestWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("airflow_recovery.story.run_document.MAX_REGIONS", 0)
    run = rest.get().json()["run"]
    assert [each["story"]["name"] for each in run["regions"]] == ["total"]
    assert [(each["of"], each["status"], each["regions"]) for each in run["subtasks"]] == [
        ("source", "run", 9),
        ("source", "failed", 1),
        ("spread", "waiting", 5),
    ]


def test_a_run_is_told_with_so_many_regions_and_rows_and_counts_those_that_are_left(
    rest: RestWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("airflow_recovery.story.run_document.MAX_TOLD", 1)
    run = rest.get().json()["run"]
    assert [each["story"]["name"] for each in run["regions"]] == [FAILED]  # of which there is more to tell
    assert [(each["of"], each["regions"]) for each in run["subtasks"]] == [("source", 9)]
    assert (run["left"], run["edges"], sum(run["statuses"].values())) == (6, [], 16)
    assert page(rest, "status=waiting&offset=1&limit=2") == (6, ["spread[0]", "spread[1]"])


def test_the_regions_of_a_row_come_by_page(rest: RestWorld) -> None:
    assert page(rest, "of=source&status=run&limit=4") == (9, [f"source[{at}]" for at in (0, 1, 2, 4)])
    assert page(rest, "of=source&status=run&limit=4&offset=8") == (9, ["source[9]"])
    assert page(rest, "search=D[4") == (1, ["spread[4]"])
    assert page(rest, "of=nothing") == (0, [])
    assert rest.get(f"/dags/{DAG}/runs/{RUN}/regions?status=nothing").status_code == 422
    assert rest.get(f"/dags/{DAG}/runs/{RUN}/regions", user="stranger").status_code == 403


def test_control_a_run_that_is_no_larger_is_told_region_by_region(
    rest: RestWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("airflow_recovery.story.run_document.MAX_REGIONS", 16)
    run = rest.get().json()["run"]
    assert (len(run["regions"]), run["subtasks"], len(run["edges"])) == (16, [], 15)


def test_a_run_is_listed_once_and_without_heartbeats(rest: RestWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    layout = rest.world.journal().layout
    for region in PLAN.regions:
        rest.world.journal_store.put(layout.heartbeat(region.name, 1), b"{}")
    listed: list[str] = []
    listing = rest.stores.journal.list

    def counting(*arguments: Any, **named: Any) -> Any:
        for info in listing(*arguments, **named):
            assert isinstance(info, ObjectInfo)
            listed.append(info.key)
            yield info

    monkeypatch.setattr(rest.stores.journal, "list", counting)
    etag = rest.get().headers["ETag"]
    claims = [key for key in listed if key.endswith(".claim")]
    # A listing that ends before the heartbeats has come to the first of them.
    assert {key for key in listed if key.startswith(layout.heartbeats)} <= {layout.heartbeat("source[0]", 1)}
    assert len(claims) == len(set(claims)) == 10

    rest.world.journal_store.put(layout.heartbeat("total", 1), b"{'later': 1}")
    assert rest.get(**{"If-None-Match": etag}).status_code == 304
