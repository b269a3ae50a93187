"""What a person does on the Recovery tab, in Chromium.

         +--> by_route ----+
raw -----+                 +--> busiest
         +--> by_carrier --+
"""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from axe import serious_findings
from browser import Browser
from fakes import Hooks, Process
from large_run import PLAN, finished
from many import many_regions
from night import MakeRest, bad_night, failing
from pages import Site
from rest_world import DAG, RUN
from selenium.webdriver.common.keys import Keys

from airflow_recovery.errors import RegionFailed

pytestmark = pytest.mark.browser

API = f"/airflow-recovery/v1/dags/{DAG}/runs/{RUN}"
HTML = "<img src=x onerror='window.hacked=1'>"


def test_a_bad_night_is_repaired_with_one_button(rest: MakeRest, browser: Browser, site: Site) -> None:
    night = bad_night(rest(retries=0))
    browser.open(site.run_page())

    # One glance: by words and signs, not by colour alone.
    browser.reads("✕ failed: 1", "#legend")
    assert "✕ failed" in browser.box("by_route").text
    assert browser.box("raw").get_attribute("aria-label") == "raw, ✓ run, raw"
    browser.reads("no such column: delay", "#history")
    browser.shoot("failed-run")
    browser.open_box("by_route")
    browser.reads("AnalysisException: no such column: delay", "#details")
    browser.shoot("failed-region")

    browser.press("What must run?")
    browser.reads("Plan: the run as it is", "#details")
    browser.reads("2 run", "#details")
    browser.reads("will run", "#graph")
    assert "is-faint" in browser.box("raw").get_attribute("class")
    assert night.world.airflow.cleared == []
    browser.shoot("plan")
    assert serious_findings(browser) == []
    browser.script("window.stays = 'the same page'")

    browser.press("Run this plan")
    browser.reads("Cleared: by_route, busiest", "#details")

    # It runs again, and the page shows it without being loaded anew.
    night.run_state = "running"
    own = night.world.airflow.start("by_route")
    browser.reads("▶ running: 1", "#legend")
    browser.shoot("running")
    night.world._report(own, night.world.region_task(own, Process(), Hooks()).execute)
    night.world.until_green()
    night.run_state = "success"
    browser.wait(
        lambda: "failed" not in browser.text("#legend") and "✓ run: 4" in browser.text("#legend"), "all to be green"
    )
    assert browser.script("return window.stays") == "the same page"
    assert night.world.ran.count(("raw", 1)) == 1
    browser.shoot("repaired")
    assert [user for user, event, _ in night.audited] == ["admin"]


def test_a_double_click_is_one_click(rest: MakeRest, browser: Browser, site: Site) -> None:
    night = bad_night(rest(retries=0))
    browser.open(site.run_page())
    browser.press("What must run?")
    browser.find("#run-plan")

    browser.script("const go = document.querySelector('#run-plan'); go.click(); go.click(); go.click()")

    browser.reads("Cleared: by_route, busiest", "#details")
    assert len(night.audited) == 1
    assert night.world.airflow.cleared.count("by_route") == 1


def test_fault_16_a_stale_page_is_refused_with_what_changed(rest: MakeRest, browser: Browser, site: Site) -> None:
    night = rest()
    night.world.go_all()
    browser.open(site.run_page())
    browser.open_box("by_route")
    browser.press("Restart this region")
    browser.reads("Plan: restart by_route", "#details")
    night.world.restart("by_route")
    night.world.until_green()
    attempts = len(night.world.ran)

    browser.expects_in_console("409")
    browser.press("Run this plan")

    browser.reads("The run has moved on", "#details")
    browser.reads("by_route: run @1", "#details")
    browser.shoot("stale-page")
    night.world.until_green()
    assert len(night.world.ran) == attempts
    assert night.audited == []


def test_a_viewer_sees_and_can_not_press(rest: MakeRest, browser: Browser, site: Site) -> None:
    night = bad_night(rest(retries=0))
    browser.be("viewer", site.url)
    browser.open(site.run_page())
    browser.press("What must run?")
    browser.reads("You may not run it", "#details")
    browser.shoot("viewer")

    assert not browser.find("#run-plan").is_enabled()
    browser.script("const go = document.querySelector('#run-plan'); go.disabled = false; go.click()")
    browser.expects_in_console("403")
    browser.reads("Forbidden", "#problem")
    assert browser.fetch(f"{API}/release", {"region": "raw", "attempt": 1}) == 403
    assert (night.world.airflow.cleared, night.audited) == ([], [])


def test_nobody_sees_nothing(rest: MakeRest, browser: Browser, site: Site) -> None:
    bad_night(rest(retries=0))
    browser.be(None, site.url)
    browser.expects_in_console("401")
    browser.open(site.run_page())

    browser.reads("Not authenticated", "#problem")
    assert "by_route" not in browser.text()


def test_names_errors_and_notes_of_others_are_text(rest: MakeRest, browser: Browser, site: Site) -> None:
    named = f"route{HTML}"
    night = rest({"raw": (), named: ("raw",)}, retries=0)
    night.world.go("raw")
    with pytest.raises(RegionFailed):
        night.world.go(named, on_start=failing(HTML))
    night.world.keep_events()
    assert night.post("pin", {"region": "raw", "attempt": 1, "why": f"note {HTML}"}).status_code == 200
    browser.open(site.run_page())

    browser.reads(HTML, "#regions")
    browser.reads(f"@1 was pinned by admin: note {HTML}", "#history")
    browser.press(named, "#regions")
    browser.reads(f"AnalysisException: {HTML}", "#details")
    browser.press("Restart this region", "#details")
    browser.reads(f"Plan: restart {named}", "#details")
    browser.expects_in_console("404")
    for address in (site.run_page(run_id=HTML), site.run_page(dag_id=HTML), site.dag_page(HTML)):
        browser.open(address)
        browser.wait(lambda: browser.text("#problem") or browser.text("#runs"), "an answer")
        assert not browser.all("img")
    assert browser.script("return window.hacked") is None


def test_control_these_tests_find_markup_a_bad_page_and_words_in_the_console(
    rest: MakeRest, browser: Browser, site: Site
) -> None:
    rest().world.go_all()
    browser.open(site.run_page())
    browser.box("busiest")
    browser.script("document.querySelector('#history').innerHTML = arguments[0]; console.error('something')", HTML)

    browser.wait(lambda: browser.script("return document.querySelector('#history img')?.complete"), "the image")
    assert any("image-alt" in finding for finding in serious_findings(browser))
    said = " ".join(browser.console())
    assert "something" in said
    # Even then the policy of the page lets no script run.
    assert "Content Security Policy" in said
    assert browser.script("return window.hacked") is None


def test_everything_can_be_done_with_the_keyboard(rest: MakeRest, browser: Browser, site: Site) -> None:
    rest().world.go_all()
    browser.open(site.run_page())
    browser.box("busiest")
    browser.script("document.querySelector(`[data-box='raw']`).focus()")

    browser.key(Keys.ARROW_RIGHT)
    first = browser.focused()
    assert first in ("by_route", "by_carrier")
    browser.key(
        Keys.ARROW_DOWN if browser.box(first).location["y"] < browser.box("busiest").location["y"] else Keys.ARROW_UP
    )
    assert {first, browser.focused()} == {"by_route", "by_carrier"}
    browser.key(Keys.ARROW_RIGHT)
    assert browser.focused() == "busiest"
    browser.key(Keys.ENTER)
    browser.reads("busiest", "#details")
    assert browser.focused() == "details"
    browser.key(Keys.ESCAPE)
    assert browser.focused() == "busiest"
    browser.key("/")
    assert browser.focused() == "search"
    browser.key("carrier")
    browser.reads("1 of 4 regions", "#regions")


def test_a_row_of_a_large_run_opens_its_subtasks(
    rest: MakeRest, browser: Browser, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("airflow_recovery.story.run_document.MAX_REGIONS", 6)
    finished(rest(), PLAN.regions[:10])
    browser.open(site.run_page())
    browser.reads("16 regions, run", "#summary")
    assert "1 failed, 9 run" in browser.box("source[]").text

    browser.press("source: 9 subtasks", "#regions")
    browser.reads("1 to 9 of 9", "#details")
    assert serious_findings(browser) == []
    browser.press("source[4]", "#details")
    browser.reads("Results of attempt 1", "#details")
    browser.press("Restart this region", "#details")
    browser.reads("Plan: restart source[4]", "#details")
    browser.press("Close", "#details")

    browser.script("document.querySelector('#search').focus()")
    browser.key("spread[4]")
    browser.reads("0 of 16 regions", "#regions")
    browser.press("Search all 16 regions", "#regions")
    browser.reads("1 to 1 of 1", "#details")
    browser.press("spread[4]", "#details")
    browser.reads("It has not begun.", "#details")


def test_regions_that_a_large_runs_page_leaves_out_are_listed_by_the_server(
    rest: MakeRest, browser: Browser, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("airflow_recovery.story.run_document.MAX_REGIONS", 6)
    monkeypatch.setattr("airflow_recovery.story.run_document.MAX_TOLD", 1)
    finished(rest(), PLAN.regions[:10])
    browser.open(site.run_page())
    browser.reads("10 of 16 regions", "#regions")
    browser.press("List all 16 regions", "#regions")
    browser.reads("1 to 16 of 16", "#details")
    browser.press("total", "#details")
    browser.reads("It has not begun.", "#details")


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_light_and_dark_are_as_airflow_has_them_and_accessible(
    rest: MakeRest, browser: Browser, site: Site, theme: str
) -> None:
    bad_night(rest(retries=0))
    browser.theme(theme)
    browser.open(site.run_page())
    browser.open_box("by_route")

    assert browser.script("return document.documentElement.dataset.theme") == theme
    assert serious_findings(browser) == []
    browser.shoot(f"theme-{theme}")
    browser.open(site.dag_page())
    browser.reads("✕ failed: 1", "#runs")
    assert serious_findings(browser) == []
    browser.shoot(f"dag-{theme}")


def test_a_release_is_warned_of_and_done(rest: MakeRest, browser: Browser, site: Site) -> None:
    night = rest()
    night.world.go_all()
    browser.open(site.run_page())
    browser.open_box("busiest")

    browser.press("Release its data")
    browser.reads("busiest is a final result", "#details")
    browser.reads("It is still needed: it is a final result.", "#details")
    browser.reads("all the same", "#details .actions")
    browser.shoot("release")
    browser.press("Release", "#details")

    browser.reads("Released", "#details")
    browser.reads("○ released: 1", "#legend")
    assert night.world.state().of("busiest").current.is_released


def test_a_pin_keeps_the_data_and_lets_it_go_again(rest: MakeRest, browser: Browser, site: Site) -> None:
    night = rest()
    night.world.go_all()
    browser.open(site.run_page())
    browser.open_box("raw")
    browser.press("Pin its data", "#details")
    browser.reads("Pinned: raw@1, by admin", "#details")
    assert night.world.state().of("raw").current.is_pinned

    browser.open_box("raw")
    browser.reads("Pinned: no policy deletes its data.", "#details")
    browser.expects_in_console("409")
    browser.press("Release its data", "#details")
    browser.press("Release", "#details")
    browser.reads("was pinned by admin", "#problem")
    browser.open_box("raw")
    browser.press("Let its data go again", "#details")
    browser.reads("Unpinned: raw@1", "#details")
    assert not night.world.state().of("raw").current.is_pinned


def test_a_result_is_withdrawn_from_other_dags_and_given_back(rest: MakeRest, browser: Browser, site: Site) -> None:
    night = rest()
    night.world.go_all()
    night.world.publish()
    browser.open(site.run_page())
    browser.open_box("busiest")
    browser.press("Withdraw it from other DAGs", "#details")
    browser.find("input[name=reason]").send_keys("the prices are wrong")
    browser.press("Withdraw", "#details")
    browser.reads("Withdrawn: busiest@1, by admin: the prices are wrong.", "#details")
    assert night.world.state().of("busiest").current.is_withdrawn

    browser.open_box("busiest")
    browser.reads("Withdrawn from other DAGs by admin: the prices are wrong", "#details")
    browser.press("Give it back to other DAGs", "#details")
    browser.find("input[name=reason]").send_keys("they were right")
    browser.press("Give back", "#details")
    browser.reads("Other DAGs are given busiest@1.", "#details")
    assert not night.world.state().of("busiest").current.is_withdrawn


def test_a_thousand_regions_can_be_used(
    rest: MakeRest, browser: Browser, site: Site, record_property: Callable[[str, object], None]
) -> None:
    many_regions(rest(), layers=25, wide=40)
    begun = time.monotonic()
    browser.open(site.run_page())
    browser.reads("1,000 regions", "#summary")
    assert browser.box("layer 0").text.startswith("layers 1 to 2: 80 ×")
    record_property("first_paint_s", round(time.monotonic() - begun, 2))
    browser.reads("✕ failed: 1", "#legend")
    browser.shoot("thousand-overview")

    # From the overview to what matters, and to any region by its name.
    browser.choose("#level", "attention")
    assert browser.box("r12_07").is_displayed()
    assert len(browser.all("[data-box]")) <= 40
    assert "r12_07" in browser.text("#regions tbody tr"), "the worst comes first"
    browser.shoot("thousand-attention")
    browser.find("#search").send_keys("r03_11")
    browser.reads("1 of 1,000 regions", "#regions")
    browser.box("r03_11")
    assert len(browser.all("[data-box]")) <= 40
    assert serious_findings(browser) == []
