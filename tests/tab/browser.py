"""Debian's Chromium, driven by Selenium; and what a person does on the Recovery tab."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest
from selenium import webdriver
from selenium.common.exceptions import NoSuchElementException, StaleElementReferenceException
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.select import Select

from airflow_recovery.testing.patience import HANG_S

Found = TypeVar("Found")
OPTIONS = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-proxy-server"),
    *("--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"),
    "--window-size=1400,1000",
)


@contextmanager
def open_browser() -> Iterator[webdriver.Chrome]:
    programs = {name: shutil.which(name) for name in ("chromium", "chromedriver")}
    if not all(programs.values()):
        raise pytest.UsageError("the tab is tested in Chromium: install Debian's chromium and chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = str(programs["chromium"])
    for option in OPTIONS:
        options.add_argument(option)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options, Service(str(programs["chromedriver"])))
    assert not isinstance(driver.command_executor, str)
    driver.command_executor.client_config.timeout = int(HANG_S)
    driver.set_page_load_timeout(HANG_S)
    driver.set_script_timeout(HANG_S)
    try:
        yield driver
    finally:
        driver.quit()


class Browser:
    """One tab of Chromium. Waits for what it is told to find: pages change by themselves."""

    def __init__(self, driver: webdriver.Chrome, screenshots: Path) -> None:
        self.driver = driver
        self._screenshots = screenshots
        # Airflow's way of framing pages, which Chromium warns of.
        self._expected = ["can escape its sandboxing"]

    def be(self, user: str | None, url: str) -> None:
        """Be logged in as ``user`` on the fake Airflow at ``url``."""
        self.driver.get(f"{url}/")
        self.driver.delete_all_cookies()
        self.driver.execute_script("localStorage.clear()")
        if user is not None:
            self.driver.add_cookie({"name": "user", "value": user})
        self.driver.get_log("browser")

    def open(self, url: str) -> None:
        """Go to a page that frames the tab, and into the frame."""
        self.driver.get(url)
        self.driver.switch_to.frame(self.find("iframe"))

    def theme(self, name: str) -> None:
        """What Airflow's own pages keep as the user's choice."""
        self.driver.execute_script("localStorage.setItem('theme', arguments[0])", name)

    def find(self, css: str) -> Any:
        """The first element, as soon as there is one."""
        return self.wait(lambda: self.driver.find_element(By.CSS_SELECTOR, css), css)

    def all(self, css: str) -> list[Any]:
        return self.driver.find_elements(By.CSS_SELECTOR, css)

    def text(self, css: str = "body") -> str:
        return str(self.driver.execute_script("return document.querySelector(arguments[0])?.innerText ?? ''", css))

    def reads(self, text: str, css: str = "body") -> None:
        """Wait until ``text`` can be read."""
        self.wait(lambda: text in self.text(css), f"{text!r} in {css}", lambda: self.text(css)[:3000])

    def press(self, label: str, within: str = "body") -> None:
        """Press the button with this label."""
        self.wait(lambda: self._button(label, within), f"the button {label!r}").click()

    def _button(self, label: str, within: str) -> Any:
        found = [each for each in self.all(f"{within} button") if each.text.strip().startswith(label)]
        return found[0] if found and found[0].is_enabled() else None

    def box(self, name: str) -> Any:
        """A box of the graph, as soon as it is drawn."""
        return self.find(f'[data-box="{name}"]')

    def open_box(self, name: str) -> None:
        """As somebody at the keyboard opens it."""
        self.box(name)
        self.driver.execute_script("document.querySelector(`[data-box='${arguments[0]}']`).focus()", name)
        self.key(Keys.ENTER)
        self.reads(name, "#details")

    def key(self, *keys: str) -> None:
        webdriver.ActionChains(self.driver).send_keys(*keys).perform()

    def choose(self, css: str, value: str) -> None:
        """An option of a list."""
        Select(self.find(css)).select_by_value(value)

    def focused(self) -> str:
        return str(self.driver.execute_script("return document.activeElement.dataset.box ?? document.activeElement.id"))

    def script(self, body: str, *arguments: Any) -> Any:
        return self.driver.execute_script(body, *arguments)

    def fetch(self, path: str, body: Any) -> int:
        """A request that the page itself did not make, with its cookie; the status."""
        said = (
            "const done = arguments[2]; fetch(arguments[0], {method: 'POST', headers: {'Content-Type': "
            "'application/json'}, body: JSON.stringify(arguments[1])}).then((each) => done(each.status))"
        )
        return int(self.driver.execute_async_script(said, path, body))

    def expects_in_console(self, part: str) -> None:
        """An answer that is not 200 is told in the console by Chromium itself."""
        self._expected.append(part)

    def console(self) -> list[str]:
        """What is in the console, and was not expected."""
        said = [each["message"] for each in self.driver.get_log("browser") if each["level"] in ("SEVERE", "WARNING")]
        return [each for each in said if not any(part in each for part in self._expected)]

    def shoot(self, name: str) -> None:
        """A picture for the docs."""
        self._screenshots.mkdir(parents=True, exist_ok=True)
        self.driver.save_screenshot(str(self._screenshots / f"{name}.png"))

    def wait(self, look: Callable[[], Found], what: str, describe: Callable[[], str] = lambda: "") -> Found:
        deadline = time.monotonic() + HANG_S
        while True:
            try:
                found = look()
            except (NoSuchElementException, StaleElementReferenceException):
                found = None
            if found:
                return found
            if time.monotonic() > deadline:
                raise AssertionError(f"Expected {what} within {HANG_S:.0f} s. {describe()}")
            time.sleep(0.05)
