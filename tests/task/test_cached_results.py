"""Cached results, as the tasks of a group see them: the connection must be a Connect server's; the last task drops."""

from __future__ import annotations

import json
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException
from job_tasks import GROUP, Drivers, job_dag
from tries import journal_in, run_try

from airflow_recovery.driver.cached import CacheServer
from airflow_recovery.model.manifest import PartitionManifest

KEPT = "dagjobs.kept:keeping"


@pytest.fixture
def lake(recovery: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """One file to read, and a connection ``connect``."""
    (recovery / "lake").mkdir()
    (recovery / "lake" / "a.csv").write_text("1")
    connect = {"conn_type": "spark_connect", "host": "sc://server", "port": 15002, "login": "me", "password": "t0ken"}
    monkeypatch.setenv("AIRFLOW_CONN_CONNECT", json.dumps(connect))
    return {"params": {"lake": str(recovery / "lake")}}


class Servers:
    """What was said to which server."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.dropped: list[tuple[str, int]] = []
        patch.setattr(CacheServer, "ask", self.ask)
        patch.setattr(CacheServer, "names", lambda server: frozenset())
        patch.setattr(CacheServer, "drop", lambda server, views: self.drop(server._url, views))

    def ask(self, manifest: PartitionManifest) -> str | None:
        return None

    def drop(self, url: str, views: Collection[str]) -> None:
        self.dropped.append((url, len(views)))


def test_over_spark_submit_it_is_refused_before_the_claim(recovery: Path, lake: dict[str, Any]) -> None:
    tasks = {task.task_id: task for task in job_dag(KEPT).tasks}
    for region in ("kept", "total"):
        with pytest.raises(AirflowFailException) as refused:
            run_try(tasks[f"{GROUP}.{region}"], **lake)
        said = str(refused.value)
        assert "job 'keeping', vertex 'kept': is CACHED" in said
        assert f"region {region!r} runs with the connection 'spark_default' of type 'spark'" in said
        advice = "Give the group a connection of type spark_connect or spark='per-run', or declare 'kept' with"
        assert advice in said
        assert journal_in(recovery, GROUP).list([region]).state.of(region).attempts == {}


def test_control_unless_it_is_refused_an_attempt_is_claimed(
    recovery: Path, lake: dict[str, Any], drivers: Drivers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("airflow_recovery.operators.region.check_cached_connection", lambda *_: None)
    tasks = {task.task_id: task for task in job_dag(KEPT).tasks}
    assert run_try(tasks[f"{GROUP}.kept"], **lake)["attempt"] == 1


def test_the_spec_says_how_it_is_kept(recovery: Path, lake: dict[str, Any], drivers: Drivers) -> None:
    tasks = {task.task_id: task for task in job_dag(KEPT, conn_id="connect").tasks}
    run_try(tasks[f"{GROUP}.kept"], **lake)
    assert {vertex.name: (vertex.is_result, vertex.kept_as) for vertex in drivers.specs[0].vertices} == {
        "raw": (False, None),
        "kept": (True, "CACHED"),
    }


@pytest.mark.parametrize("given", [{"conn_id": "connect"}, {"default_args": {"conn_id": "connect"}}])
def test_the_publish_drops_through_the_groups_connection(
    given: dict[str, Any], lake: dict[str, Any], drivers: Drivers, monkeypatch: pytest.MonkeyPatch
) -> None:
    servers = Servers(monkeypatch)
    tasks = {task.task_id: task for task in job_dag(KEPT, **given).tasks}
    for task in ("kept", "total", "publish"):
        run_try(tasks[f"{GROUP}.{task}"], **lake)
    assert servers.dropped == [("sc://server:15002/;user_id=me;token=t0ken", 0)]


def test_a_job_without_cached_results_asks_for_no_connection(
    lake: dict[str, Any], drivers: Drivers, monkeypatch: pytest.MonkeyPatch
) -> None:
    tasks = {task.task_id: task for task in job_dag("dagjobs.shapes:diamond").tasks}
    for task in ("cleaned", "left", "right", "joined", "aside"):
        run_try(tasks[f"{GROUP}.{task}"], **lake)
    monkeypatch.delattr("airflow_recovery.task.spark_connection.cache_server")
    assert run_try(tasks[f"{GROUP}.publish"], **lake)["publish"] == 1
