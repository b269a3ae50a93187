"""The files of the Recovery tab: the same for everybody, complete, and without anything from elsewhere."""

from __future__ import annotations

import re
from importlib.resources import files

import pytest
from fastapi.testclient import TestClient

from airflow_recovery.api_server.app import app
from airflow_recovery.api_server.plugin import RecoveryPlugin

STATIC = files("airflow_recovery.api_server") / "static"
OWN = sorted(path.name for path in STATIC.iterdir() if path.is_file())


def get(path: str) -> tuple[int, str, dict[str, str]]:
    with TestClient(app) as client:
        answer = client.get(path)
    return answer.status_code, answer.text, dict(answer.headers)


@pytest.mark.parametrize("name", [*OWN, "dagre.esm.js"])
def test_every_file_is_served_with_a_policy_that_lets_nothing_else_in(name: str) -> None:
    status, text, headers = get(f"/ui/{name}")

    assert status == 200
    assert text
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "http" not in policy
    assert headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize("name", ["nothing.js", "..%2Fapp.py", "%2e%2e/app.py", "LICENSE", "README.md"])
def test_nothing_else_is(name: str) -> None:
    assert get(f"/ui/{name}")[0] == 404


@pytest.mark.parametrize("name", OWN)
def test_everything_that_a_file_names_is_there(name: str) -> None:
    text = (STATIC / name).read_text()
    named = re.findall(r'(?:from|src=|href=|new URL\() ?"(?:\./)?([\w.]+\.(?:js|css))"', text)
    assert all(get(f"/ui/{match}")[0] == 200 for match in named)
    if name.endswith(".html"):
        assert named


@pytest.mark.parametrize("name", OWN)
def test_no_text_ever_becomes_markup_and_nothing_comes_from_elsewhere(name: str) -> None:
    text = (STATIC / name).read_text()
    for candidate in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "DOMParser", "https:"):
        assert candidate not in text
    assert re.sub(r'"http://www\.w3\.org/2000/svg"', "", text).count("http:") == 0
    if name.endswith(".html"):
        assert "<style" not in text
        assert not re.search(r"<script(?![^>]*src=)|\son\w+=|style=", text)


def test_the_tabs_are_a_dag_runs_and_a_dags() -> None:
    views = {external_view["destination"]: external_view for external_view in RecoveryPlugin.external_views}

    assert views["dag_run"]["href"] == "airflow-recovery/v1/ui/run.html?dag_id={DAG_ID}&run_id={RUN_ID}"
    assert views["dag"]["href"] == "airflow-recovery/v1/ui/dag.html?dag_id={DAG_ID}"
    assert len({view["url_route"] for view in views.values()}) == 2
