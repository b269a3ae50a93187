"""The Recovery tab in a headless Chromium, framed as Airflow frames it, over a real journal and a fake Airflow."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from browser import Browser, open_browser
from pages import Site, serve
from rest_world import RestWorld


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    """The tab's pages, framed as in Airflow."""
    with serve() as found:
        yield found


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with open_browser() as driver:
        yield driver


@pytest.fixture
def browser(chromium: Any, site: Site, pytestconfig: pytest.Config, tmp_path: Path) -> Iterator[Browser]:
    """A fresh page. At the end of each test, nothing may be in the console but what the test has named."""
    folder = pytestconfig.getoption("--screenshots")
    found = Browser(chromium, Path(folder) if folder else tmp_path)
    found.be("admin", site.url)
    yield found
    assert found.console() == []


@pytest.fixture
def in_airflow(chromium: Any, pytestconfig: pytest.Config, tmp_path: Path) -> Iterator[Browser]:
    """At the end of each test, nothing may be in the console but what the test has named."""
    folder = pytestconfig.getoption("--screenshots")
    browser = Browser(chromium, Path(folder) if folder else tmp_path)
    chromium.get("about:blank")
    chromium.get_log("browser")
    # Airflow's own page, before and while somebody logs in.
    browser.expects_in_console("401")
    yield browser
    assert browser.console() == []


@pytest.fixture
def rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., RestWorld]:
    """Makes a `RestWorld`."""

    def make(*arguments: Any, **named: Any) -> RestWorld:
        return RestWorld(tmp_path, monkeypatch, *arguments, **named)

    return make
