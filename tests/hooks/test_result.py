from __future__ import annotations

import importlib
import re
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from expected_errors import fails_with
from published import DATE, PublishedRun

from airflow_recovery.errors import NotPublished, StoreAccessDenied
from airflow_recovery.hooks import result
from airflow_recovery.hooks.result import RecoveryResultHook, RegisteredResult, result_run_key
from airflow_recovery.hooks.settings import RecoverySettings
from airflow_recovery.hooks.stores import open_stores
from airflow_recovery.journal.layout import run_key
from airflow_recovery.model.inputs import InputRef
from airflow_recovery.model.manifest import PartitionManifest, ResultObject
from airflow_recovery.model.records import AttemptState, Claim, Outcome, Publish, PublishedRegion
from airflow_recovery.results import availability
from airflow_recovery.store.local import LocalStore
from airflow_recovery.store.object_store import ObjectInfo


@pytest.fixture
def run(tmp_path: Path) -> PublishedRun:
    return PublishedRun(tmp_path)


@pytest.fixture
def hook(tmp_path: Path) -> RecoveryResultHook:
    return RecoveryResultHook(RecoverySettings(tmp_path.as_uri(), tmp_path.as_uri()))


def test_a_published_result_is_found(run: PublishedRun, hook: RecoveryResultHook) -> None:
    run.complete()

    assert hook.get_result("flights", "delays", group_id="group", logical_date=DATE) == RegisteredResult(
        location="file:///results/delays/1",
        files=("file:///results/delays/1/part-0.parquet",),
        rows=3,
        schema="{}",
        region="delays",
        attempt=1,
        publish=1,
    )


def test_who_asks_again_and_again_has_one_set_of_clients(
    run: PublishedRun, hook: RecoveryResultHook, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[RecoverySettings] = []
    monkeypatch.setattr(result, "open_stores", lambda settings: opened.append(settings) or open_stores(settings))
    for _ in range(3):
        with pytest.raises(NotPublished):
            hook.get_result("flights", "delays", group_id="group", logical_date=DATE)
    assert len(opened) == 1


@pytest.mark.parametrize("vertex", ["delays", "nobody"])
def test_what_is_not_published_is_not_found(run: PublishedRun, hook: RecoveryResultHook, vertex: str) -> None:
    run.finish("by_route", 1)
    run.finish("delays", 1, InputRef("by_route", 1))
    with fails_with("nothing-published"):
        hook.get_result("flights", vertex, group_id="group", logical_date=DATE)

    run.publish(1, 1, 1)
    if vertex == "nobody":
        with fails_with("publish-does-not-name", found="nobody"):
            hook.get_result("flights", vertex, group_id="group", logical_date=DATE)


def test_without_a_group_the_dag_s_operators_are_meant_and_others_are_named(
    run: PublishedRun, hook: RecoveryResultHook
) -> None:
    run.complete()
    with fails_with("nothing-published"):
        hook.get_result("flights", "delays", logical_date=DATE)
    with pytest.raises(NotPublished) as of_no_run:
        hook.get_result("flights", "delays", logical_date="2024-01-03T00:00:00Z")
    assert "group_id=" not in str(of_no_run.value)


def test_a_result_whose_input_was_made_again_no_longer_stands(run: PublishedRun, hook: RecoveryResultHook) -> None:
    #   by_route@1 --> delays@1 is published; then by_route@2 finishes
    run.complete()
    run.finish("by_route", 2)

    with fails_with("published-outdated"):
        hook.get_result("flights", "delays", group_id="group", logical_date=DATE)

    run.finish("delays", 2, InputRef("by_route", 2))
    run.publish(2, 2, 2)
    assert hook.get_result("flights", "delays", group_id="group", logical_date=DATE).attempt == 2


@pytest.mark.parametrize(
    "moment",
    [
        DATE,
        "2024-01-02T00:00:00Z",
        "2024-01-02T01:00:00+01:00",
        datetime(2024, 1, 2, tzinfo=timezone.utc),
        datetime(2024, 1, 2, 2, tzinfo=timezone(timedelta(hours=2))),
    ],
)
def test_one_moment_is_one_run_however_it_is_written(moment: str | datetime) -> None:
    assert result_run_key(logical_date=moment) == run_key(logical_date=DATE, partition_key=None, run_id="r")


def test_a_run_is_named_in_exactly_one_way() -> None:
    assert result_run_key(partition_key="p") == run_key(logical_date=None, partition_key="p", run_id="r")
    assert result_run_key(run_id="r") == run_key(logical_date=None, partition_key=None, run_id="r")
    with fails_with("result-run-ambiguous"):
        result_run_key()
    with fails_with("result-run-ambiguous"):
        result_run_key(run_id="r", logical_date=DATE)
    with fails_with("logical-date-unfit"):
        result_run_key(logical_date="P1D")


def test_importing_the_hook_reads_no_store_library() -> None:
    module = importlib.import_module("airflow_recovery.hooks.result")

    assert not hasattr(module, "boto3")


def test_a_parallel_vertex_has_the_files_of_all_its_subtasks(run: PublishedRun, hook: RecoveryResultHook) -> None:
    parts = []
    for key in ("jan", "feb"):
        location = f"file:///results/run/m~5B{key}~5D/1/m"
        manifest = PartitionManifest("m", location, (ResultObject("part-0", 10, "etag"),), 3, "{}")
        region = f"m[{key}]"
        run.journal.claim(Claim(region, 1, "w", "hash", (), "run", 1, "ti", "tag", DATE))
        run.journal.finish(Outcome(region, 1, AttemptState.FINISHED, "w", DATE, outputs=(manifest,)))
        parts.append(PublishedRegion(region, 1, "etag", ("m",)))
    run.journal.publish(Publish(1, tuple(parts)))

    result = hook.get_result("flights", "m", group_id="group", logical_date=DATE)
    assert (result.location, result.rows, result.region) == ("file:///results/run", 6, "m")
    assert result.files == tuple(f"file:///results/run/m~5B{key}~5D/1/m/part-0" for key in ("jan", "feb"))


# --- the data ---------------------------------------------------------------------------------------------------------


def archive(monkeypatch: pytest.MonkeyPatch) -> None:
    """A lifecycle rule moves each object to Glacier."""
    whole = LocalStore.list

    def listed(store: LocalStore, *given: str, **named: str) -> Iterator[ObjectInfo]:
        return (info._replace(archived="GLACIER") for info in whole(store, *given, **named))

    monkeypatch.setattr(LocalStore, "list", listed)


def ask(hook: RecoveryResultHook) -> RegisteredResult:
    return hook.get_result("flights", "delays", group_id="group", logical_date=DATE)


@pytest.mark.parametrize("change", ["archived", "deleted", "overwritten"])
def test_fault_362_a_result_that_can_not_be_read_is_not_handed_out(
    run: PublishedRun, hook: RecoveryResultHook, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    file = run.with_data()
    assert ask(hook).files == (file.as_uri(),)
    if change == "archived":
        archive(monkeypatch)
    elif change == "deleted":
        file.unlink()
    else:
        file.write_text("other rows")
    said = {"archived": "is archived .storage class GLACIER.", "deleted": "is gone", "overwritten": "was altered"}
    with fails_with("result-unreadable", vertex="delays") as error:
        ask(hook)
    assert re.search(said[change], str(error.value))
    assert "Clear the tasks of that run" in str(error.value)


def test_who_may_not_list_the_results_relies_on_the_journal(run: PublishedRun, monkeypatch: pytest.MonkeyPatch) -> None:
    results = run.base / "_results"
    run.with_data(results).unlink()
    whole = LocalStore.list

    def listed(store: LocalStore, *given: str, **named: str) -> Iterator[ObjectInfo]:
        if store.base_uri == results.as_uri():
            raise StoreAccessDenied("no right to list")
        return whole(store, *given, **named)

    monkeypatch.setattr(LocalStore, "list", listed)
    assert ask(RecoveryResultHook(RecoverySettings(run.base.as_uri(), results.as_uri()))).attempt == 1


@pytest.mark.control
def test_fault_362_control_by_the_journal_alone_an_archived_result_is_handed_out(
    run: PublishedRun, hook: RecoveryResultHook, monkeypatch: pytest.MonkeyPatch
) -> None:
    run.with_data()
    archive(monkeypatch)
    monkeypatch.setattr(availability, "why_unreadable", lambda *given: None)
    assert ask(hook).attempt == 1
