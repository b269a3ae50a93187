"""A question in one file: registered here, and asked as a command, over REST and by the tab."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import pytest
from rest_world import DAG, KEY, RUN, RestWorld

from airflow_recovery.api_server import app as app_module
from airflow_recovery.console.exit_codes import ExitCode
from airflow_recovery.console.main import main
from airflow_recovery.story.question import QUESTIONS, Given, MayAsk, Question, register
from airflow_recovery.story.run_view import RunView


@dataclass(frozen=True)
class Written:
    region: str
    files: int


@dataclass(frozen=True)
class Largest:
    regions: int
    largest: tuple[Written, ...]


def largest_results(
    run: RunView,
    most: Annotated[int, Given("how many regions are shown", "N")] = 2,
    order: Annotated[str | None, Given("by what they are ordered", choices=("files", "name"))] = None,
) -> Largest:
    finished = [
        Written(region.name, sum(len(output.objects) for output in current.outcome.outputs))
        for region in run.in_use.plan.regions
        if (current := run.in_use.state.of(region.name).current) is not None and current.outcome is not None
    ]
    finished.sort(key=lambda each: each.region if order == "name" else -each.files)
    return Largest(len(finished), tuple(finished[:most]))


LARGEST = Question("largest", "which results have most files", f"{__name__}:largest_results", label="Largest results")
ANSWER = {"regions": 4, "largest": [{"region": "raw", "files": 1}, {"region": "by_route", "files": 1}]}


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Makes an API whose application knows a question, and a run that has finished."""
    known = dict(QUESTIONS)

    def made(question: Question) -> RestWorld:
        register(question)
        monkeypatch.setattr(app_module, "app", app_module.make_app())
        rest = RestWorld(tmp_path, monkeypatch)
        rest.world.go_all()
        return rest

    yield made
    QUESTIONS.clear()
    QUESTIONS.update(known)


def call(rest: RestWorld, *arguments: str) -> int:
    stores = ("--journal", rest.stores.journal.base_uri, "--results", rest.stores.results.base_uri)
    return main(["largest", DAG, KEY, *arguments, *stores])


def test_it_is_a_command(make: Any, capsys: pytest.CaptureFixture[str]) -> None:
    rest = make(LARGEST)
    assert call(rest, "--json") == ExitCode.DONE
    assert json.loads(capsys.readouterr().out) == ANSWER
    assert call(rest, "--most", "1", "--order", "name") == ExitCode.DONE
    header, *lines = capsys.readouterr().out.splitlines()
    assert header.startswith(f"DAG {DAG}, run {KEY}")
    assert lines[-5:] == [
        "",
        "Largest:",
        "region   files",
        "-------  -----",
        "busiest  1",
    ]
    assert "Regions: 4" in lines
    with pytest.raises(SystemExit):
        call(rest, "--order", "size")


def test_it_is_a_route_with_the_same_answer_and_arguments(make: Any) -> None:
    rest = make(LARGEST)
    path = f"/dags/{DAG}/runs/{RUN}/largest"
    assert rest.get(path, user="viewer").json() == ANSWER
    assert rest.get(f"{path}?most=1&order=name").json()["largest"] == [{"region": "busiest", "files": 1}]
    for wrong in ("most=many", "order=size"):
        refused = rest.get(f"{path}?{wrong}")
        assert (refused.status_code, refused.json()["code"]) == (422, "invalid")
    assert [rest.get(path, user).status_code for user in (None, "stranger")] == [401, 403]
    described = rest.get("/openapi.json", user=None).json()["paths"]["/dags/{dag_id}/runs/{run_id}/largest"]["get"]
    assert described["description"] == LARGEST.help
    assert {each["name"] for each in described["parameters"]} == {"dag_id", "run_id", "group", "most", "order"}


def test_the_tab_finds_it_in_its_list(make: Any) -> None:
    listed = make(LARGEST).get(f"/dags/{DAG}/questions", user="viewer").json()["questions"]
    assert [each["name"] for each in listed] == ["why", "largest"]
    assert listed[-1] == {
        "name": "largest",
        "path": "largest",
        "label": LARGEST.label,
        "help": LARGEST.help,
        "about": "run",
        "requires": [],
    }


def test_a_question_of_the_command_line_alone_has_no_route(make: Any) -> None:
    rest = make(replace(LARGEST, who=MayAsk.COMMAND_LINE))
    assert rest.get(f"/dags/{DAG}/runs/{RUN}/largest").status_code == 404
    assert [each["name"] for each in rest.get(f"/dags/{DAG}/questions").json()["questions"]] == ["why"]
    assert call(rest) == ExitCode.DONE
