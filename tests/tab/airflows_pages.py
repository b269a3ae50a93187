"""The pages of a real Airflow in a browser: its log-in, and the Recovery tab of a run."""

from __future__ import annotations

from urllib.parse import quote

from browser import Browser

from airflow_recovery.testing.local_airflow import LocalAirflow
from airflow_recovery.testing.local_airflow.settings import Login


def log_in(browser: Browser, airflow: LocalAirflow, login: Login) -> None:
    browser.driver.get(airflow.url)
    browser.driver.delete_all_cookies()
    browser.driver.get(f"{airflow.url}/auth/login")
    browser.find("input[name=username]").send_keys(login.user)
    browser.find("input[name=password]").send_keys(login.password)
    browser.find("button[type=submit]").click()
    browser.wait(lambda: "/auth/login" not in browser.driver.current_url, "the log-in")


def open_tab(browser: Browser, airflow: LocalAirflow, run_id: str, dag_id: str) -> None:
    browser.open(f"{airflow.url}/dags/{dag_id}/runs/{quote(run_id, safe='')}/plugin/recovery-dag-run")
