"""Registered questions have buttons on the pages, and their answers are drawn without JavaScript of their own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

import pytest
from browser import Browser
from night import MakeRest
from pages import Site, serve

from airflow_recovery.api_server import app as app_module
from airflow_recovery.story.asked import AskedDag
from airflow_recovery.story.question import QUESTIONS, Given, Question, register
from airflow_recovery.story.run_view import RunView

pytestmark = pytest.mark.browser


@dataclass(frozen=True)
class Attempts:
    job: str
    attempts: tuple[tuple[str, int], ...]
    regions: tuple[Counted, ...]


@dataclass(frozen=True)
class Counted:
    region: str
    attempts: int


def attempts_of_run(run: RunView) -> Attempts:
    counted = tuple(Counted(name, len(state.attempts)) for name, state in run.in_use.state.regions.items())
    return Attempts("<b>" + run.in_use.plan.job, (), counted)


def attempts_of_region(run: RunView, region: Annotated[str, Given("a region")]) -> Counted:
    return Counted(region, len(run.in_use.state.of(region).attempts))


def attempts_of_dag(dag: AskedDag) -> Counted:
    return Counted(f"all of {dag.dag_id}", 0)


@pytest.fixture
def asking(rest: MakeRest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """Pages of an Airflow that knows three more questions."""
    known = dict(QUESTIONS)
    for kind in ("run", "region", "dag"):
        register(Question(f"{kind}-attempts", kind, f"{__name__}:attempts_of_{kind}", label=f"Attempts of the {kind}"))
    monkeypatch.setattr(app_module, "app", app_module.make_app())
    rest().world.go_all()
    with serve(app_module.app) as site:
        yield site
    QUESTIONS.clear()
    QUESTIONS.update(known)


def test_answers_are_drawn_as_lines_and_tables(asking: Site, browser: Browser) -> None:
    browser.be("admin", asking.url)
    browser.open(asking.run_page())
    browser.press("Attempts of the run", "#tools")
    browser.reads("Job: <b>", "#details")
    browser.reads("Attempts: none", "#details")
    assert [each.text for each in browser.all("#details th")] == ["Region", "Attempts"]
    assert [each.text for each in browser.all("#details tr:last-child td")] == ["busiest", "1"]

    browser.open_box("raw")
    browser.press("Attempts of the region", "#details")
    browser.reads("Region: raw", "#details")
    assert "Attempts of the region" not in browser.text("#tools")

    browser.open(asking.dag_page())
    browser.press("Attempts of the dag")
    browser.reads("Region: all of flights", "#answer")
