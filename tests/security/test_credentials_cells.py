"""Each cell of the table in docs/security.md: a source of locations, a process, and each kind of store."""

from __future__ import annotations

import ast
import json
from argparse import Namespace
from collections.abc import Callable, Iterable
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import DAG
from airflow.sdk.execution_time.context import VariableAccessor
from tries import task_context

import airflow_recovery
from airflow_recovery.api_server import journals
from airflow_recovery.console.deployment import open_standalone
from airflow_recovery.console.in_airflow import AirflowDeployment
from airflow_recovery.driver.stores import open_spec_store
from airflow_recovery.errors import LocationNotAllowed
from airflow_recovery.hooks.settings import RecoverySettings
from airflow_recovery.hooks.stores import open_stores
from airflow_recovery.model.job_recovery import DeclaredJobRecovery
from airflow_recovery.operators import RecoverableSparkSubmitOperator
from airflow_recovery.store import opening
from airflow_recovery.store.scheme import StoreSpec
from airflow_recovery.task.open_run import RunPlace

STORES = {"s3": "s3://other", "gs": "gs://other", "abfss": "abfss://other@acc.dfs.core.windows.net"}
PAGE = Path(__file__).parents[2] / "docs" / "security.md"
PACKAGE = Path(airflow_recovery.__file__).parent
OPENERS = {"open_external", "open_location", "opener_of", "open_answered", "open_store", "list_external"}

Opens = Callable[[str, pytest.MonkeyPatch], object]


def rows() -> dict[tuple[str, str], str]:
    """The table: (source, process) to what is allowed."""
    table = [line for line in PAGE.read_text().splitlines() if line.startswith("|")]
    head, _, *lines = ([cell.strip() for cell in line.strip("|").split("|")] for line in table)
    return {(line[0], process): cell for line in lines for process, cell in zip(head[1:], line[1:], strict=True)}


@pytest.fixture(autouse=True)
def connections(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW__RECOVERY__JOURNAL", "file:///journal")
    for name in ("ALLOWED_LOCATIONS", "RESULTS"):
        monkeypatch.delenv(f"AIRFLOW__RECOVERY__{name}", raising=False)


def in_task(template: str, rendered: str) -> object:
    """What a task opens that ``template`` is rendered to."""
    with DAG("d", schedule=None, start_date=datetime(2024, 1, 1, tzinfo=timezone.utc)) as dag:
        RecoverableSparkSubmitOperator(
            task_id="t",
            application="/app.py",
            outputs=["out"],
            inputs={"in": template},
            application_args=["{input:in}", "{output:out}"],
        )
    context = {**task_context(), "var": {"value": VariableAccessor(deserialize_json=False)}}
    place = RunPlace.of(context, "g", DeclaredJobRecovery(), dag=dag)
    return place.stores.open_external(rendered)


def in_command(uri: str, *, standalone: bool) -> object:
    if standalone:
        args = Namespace(journal="/journal", results="/results", endpoint_url=None, s3_region=None)
        allowed = {"AIRFLOW__RECOVERY__ALLOWED_LOCATIONS": ",".join(RecoverySettings.load().allowed_locations)}
        return open_standalone(args, allowed).open_location(uri)
    return AirflowDeployment(RecoverySettings.load()).open_location(uri)


def by_setting(uri: str, _: pytest.MonkeyPatch) -> object:
    opened = open_stores(RecoverySettings(f"{uri}/journal", f"{uri}/results"))
    return opened.journal, opened.results


def by_argument(uri: str, _: pytest.MonkeyPatch) -> object:
    args = Namespace(journal=f"{uri}/j", results=f"{uri}/r", endpoint_url=None, s3_region=None)
    return open_standalone(args, {}).results


def by_variable(uri: str, patch: pytest.MonkeyPatch) -> object:
    patch.setenv("AIRFLOW_VAR_LAKE", uri)
    return in_task("{{ var.value.lake }}/{{ params.path }}", f"{uri}/x")


def in_api_server(uri: str, _: pytest.MonkeyPatch) -> object:
    journals.deployment_stores.cache_clear()
    try:
        return journals.deployment_stores().open_location(f"{uri}/x")
    finally:
        journals.deployment_stores.cache_clear()


def in_redirect(uri: str, _: pytest.MonkeyPatch) -> object:
    """Only of web servers."""
    name = uri.partition("://")[2].partition("@")[0]
    open_stores(RecoverySettings.load()).check(f"https://{name}.example/x")
    return name


def by_metastore(uri: str, _: pytest.MonkeyPatch) -> object:
    return open_stores(RecoverySettings.load()).open_answered(uri)


CELLS: dict[tuple[str, str], Opens] = {
    ("a setting of the deployment", "task"): by_setting,
    ("a setting of the deployment", "driver"): lambda uri, _: open_spec_store(StoreSpec(f"{uri}/x")),
    ("a setting of the deployment", "triggerer"): by_setting,
    ("a setting of the deployment", "API server"): by_setting,
    ("a setting of the deployment", "command"): by_setting,
    ("an argument of a command", "command without Airflow"): by_argument,
    ("the DAG file", "task"): lambda uri, _: in_task(f"{uri}/{{{{ params.path }}}}", f"{uri}/x"),
    ("a template over `var`, `conn` or dates", "task"): by_variable,
    ("a template over `conf`, `params` or XComs", "task"): lambda uri, _: in_task("{{ params.uri }}/x", f"{uri}/x"),
    ("a record", "task"): lambda uri, _: in_task("s3://lake/x", f"{uri}/x"),
    ("a record", "API server"): in_api_server,
    ("a record", "command"): lambda uri, _: in_command(f"{uri}/x", standalone=False),
    ("a record", "command without Airflow"): lambda uri, _: in_command(f"{uri}/x", standalone=True),
    ("the answer of a metastore or of Glue", "task"): by_metastore,
    ("a redirect of a web server", "task"): in_redirect,
}


def test_the_page_has_a_cell_for_each_way_that_is_tried_and_no_other() -> None:
    assert {cell for cell, allowed in rows().items() if allowed != "no"} == CELLS.keys()


@pytest.mark.parametrize("kind", STORES)
@pytest.mark.parametrize("cell", CELLS, ids=" in ".join)
def test_fault_369_each_cell(cell: tuple[str, str], kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    uri, opens = STORES[kind], CELLS[cell]
    if rows()[cell] == "any":
        assert opens(uri, monkeypatch)
        return
    assert rows()[cell] == "if allowed"
    with pytest.raises(LocationNotAllowed, match="allowed_locations"):
        opens(uri, monkeypatch)
    monkeypatch.setenv("AIRFLOW__RECOVERY__ALLOWED_LOCATIONS", f"{uri}/x,https://other.example")
    assert opens(uri, monkeypatch)


# --- the cells with "no" ----------------------------------------------------------------------------------------------


def opened_in(*names: str) -> set[tuple[str, str]]:
    """(module, what is called to open a location) in these rooms and modules."""
    return {
        (path.relative_to(PACKAGE).as_posix(), name)
        for path in _files(names)
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, (ast.Attribute, ast.Name))
        and (name := node.attr if isinstance(node, ast.Attribute) else node.id) in OPENERS
    }


def _files(names: Iterable[str]) -> Iterable[Path]:
    for name in names:
        path = PACKAGE / name
        yield from path.rglob("*.py") if path.is_dir() else [path]


def test_a_driver_opens_the_stores_of_its_spec_and_the_triggerer_those_of_the_settings() -> None:
    assert opened_in("driver") == {("driver/stores.py", "open_store")}
    assert opened_in("triggers", "notifications", "sensors") == set()


def test_a_request_a_bundle_and_an_export_name_no_location() -> None:
    modules = ("journals", "readings", "silence")  # the second opens results, by the third, which asks the stores
    assert opened_in("api_server") == {(f"api_server/{module}.py", "open_location") for module in modules}
    assert opened_in("console/bundle.py", "console/export.py") == set()


def test_nothing_is_opened_while_a_dag_file_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> Any:
        raise AssertionError("a location was opened")

    monkeypatch.setattr(opening, "decide", fail)
    monkeypatch.setattr("airflow_recovery.hooks.stores.decide", fail)
    with DAG("d", schedule=None, start_date=datetime(2024, 1, 1, tzinfo=timezone.utc)) as dag:
        RecoverableSparkSubmitOperator(
            task_id="t", application="s3://code/x.py", outputs={"out": "s3://evil/{{ params.x }}"}, inputs={"in": "s3://evil/x"},
            application_args=["{input:in}", "{output:out}"],
        )  # fmt: skip
    for task in dag.tasks:
        task.resolve_template_files()
    assert json.dumps([task.task_id for task in dag.tasks]) == '["t"]'
