"""What a DAG's runs cost, and what recovery saved in them, on its Recovery tab.

load --> sums --> report
"""

from __future__ import annotations

import pytest
from axe import serious_findings
from browser import Browser
from night import MakeRest
from pages import Site
from rest_world import DAG, RestWorld
from written_night import Night, region

from airflow_recovery.model.keys import OPERATORS_GROUP
from airflow_recovery.store import ObjectStore

pytestmark = pytest.mark.browser

PLAN = (region("load"), region("sums", reads=("load",)), region("report", reads=("sums",), final=True))


def night(store: ObjectStore, day: int, failures: int, group: str = OPERATORS_GROUP) -> None:
    """`sums` fails so often while `load`, which takes longer each day, is kept."""
    written = Night(store, f"date-2026-01-{day:02}T000000Z", PLAN, dag=DAG, group=group)
    written.finishes("load", 2400 + 120 * day)
    for at in range(failures):
        written.fails("sums", "sums", at_s=5000 + 100 * at)
    written.finishes("sums", 1500, at_s=8000)
    written.finishes("report", 300, at_s=12000)


def ten_nights(rest: RestWorld) -> None:
    for day, failures in enumerate((0, 1, 0, 0, 3, 0, 1, 0, 2, 0), start=1):
        night(rest.stores.journal, day, failures)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_cost_and_savings_are_drawn_and_told_in_words(rest: MakeRest, browser: Browser, site: Site, theme: str) -> None:
    ten_nights(rest())
    browser.theme(theme)
    browser.open(site.dag_page())

    browser.reads("recovery saved", "#costs")
    browser.reads("10 runs: 13 h", "#costs")
    assert len(browser.all("#costs .plot .bar")) == 10
    # Drawn is what was saved in the four runs with failures, and in no other; its numbers stand above.
    assert len(browser.all("#costs .plot .block-saved")) == len(browser.all("#costs .plot .over")) == 4
    assert len(browser.all("#costs .plot .block-again")) == 4
    assert browser.script("return document.querySelector('.plot .over').textContent") == "44 min"
    shown = browser.script("return [...document.querySelectorAll('.plot title')].map((each) => each.textContent)")
    assert any(
        "date-2026-01-05T000000Z: 1 h 23 min spent, 50 min saved, 3 attempts beyond the first" in each for each in shown
    )
    told = browser.find("#costs .plot").get_attribute("aria-labelledby").split()
    named = [browser.script("return document.getElementById(arguments[0]).textContent", each) for each in told]
    assert named[0] == "Seconds that each run spent, and that recovery saved in it"
    assert "recovery saved 3 h 26 min" in named[1]

    browser.reads("Advice:", "#costs")
    lists = browser.text("#costs .lists")
    assert lists.index("load") < lists.index("sums") < lists.index("report")
    assert "sums\t7\t4 of 10" in lists
    assert serious_findings(browser) == []

    browser.script("document.querySelector('#costs details').open = true")
    table = browser.text("#costs details table")
    assert "1 h 23 min\t" in table
    # Only the run that Airflow still has is a link.
    assert [each.get_attribute("href").split("?")[0].rpartition("/")[2] for each in browser.all("#costs a")] == [
        "run.html"
    ]
    assert serious_findings(browser) == []


def test_bars_are_as_high_as_what_they_stand_for(rest: MakeRest, browser: Browser, site: Site) -> None:
    ten_nights(rest())
    browser.open(site.dag_page())
    browser.find("#costs .plot")
    browser.shoot("costs")
    heights = browser.script(
        "return [...document.querySelectorAll('.bar')].map((bar) => ['spent', 'again', 'saved'].map((kind) => "
        "Number(bar.querySelector(`.block-${kind}`)?.getAttribute('height') ?? 0)))"
    )
    spent, again, saved = heights[4]
    assert saved / (spent + again) == pytest.approx(3000 / 4950, rel=1e-6)
    assert again / spent == pytest.approx((1500 + 2 * 50) / (3000 + 50 + 300), rel=1e-6)
    assert heights[0][1:] == [0, 0]
    assert sum(heights[9]) / sum(heights[0]) == pytest.approx(5400 / 4320, rel=1e-6)


def test_without_a_run_it_says_so_and_asks_for_nothing(rest: MakeRest, browser: Browser, site: Site) -> None:
    rest()
    browser.open(site.dag_page())
    browser.reads("No finished run yet", "#costs")
    assert not browser.all("#costs svg")
    assert serious_findings(browser) == []


def test_a_run_in_which_nothing_has_finished(rest: MakeRest, browser: Browser, site: Site) -> None:
    Night(rest().stores.journal, "date-2026-01-01T000000Z", PLAN, dag=DAG, group=OPERATORS_GROUP).fails("load", None)
    browser.open(site.dag_page())
    browser.reads("No region has finished in these runs yet", "#costs")
    assert not browser.all("#costs .plot")


def test_runs_without_a_failure(rest: MakeRest, browser: Browser, site: Site) -> None:
    night(rest().stores.journal, 1, 0)
    browser.open(site.dag_page())
    browser.reads("No region had to run again in these runs.", "#costs")
    browser.reads("nothing has failed", "#costs .advice")
    assert not browser.all("#costs .plot .block-saved")


def test_a_journal_that_can_not_be_read_is_told_and_the_runs_stay(rest: MakeRest, browser: Browser, site: Site) -> None:
    world = rest().world
    world.go_all()
    world.journal_store.delete([world.journal().layout.snapshot])
    world.journal_store.put(world.journal().layout.attempt("raw", 1, "outcome"), b"no json")
    browser.expects_in_console("502")
    browser.open(site.dag_page())
    browser.reads("What the runs cost can't be told: ", "#costs")
    assert "outcome" in browser.text("#costs")
    assert browser.text("#runs")
    assert serious_findings(browser) == []


def test_each_group_has_a_plot_of_its_own(rest: MakeRest, browser: Browser, site: Site) -> None:
    store = rest().stores.journal
    for group in ("day", "night"):
        night(store, 1, 1, group)
    browser.open(site.dag_page())
    browser.reads("Cost and savings of day", "#costs")
    browser.reads("Cost and savings of night", "#costs")
    assert len(browser.all("#costs .plot")) == 2
    assert serious_findings(browser) == []
