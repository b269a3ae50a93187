"""What a try leaves in Airflow's own pages: a note, links, and a log that ends with what repairs the run."""

from __future__ import annotations

import logging
import shlex
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException, AirflowTaskTimeout
from job_tasks import Drivers, job_dag
from tries import RUN_KEY, dag_run, run_try, task_context

from airflow_recovery.errors import InputLost, InputSkipped, NotMine, RegionFailed, UserCodeError
from airflow_recovery.hooks import clear_clients as clear_clients
from airflow_recovery.operators import RecoverableSparkSubmitOperator, RecoveryPublishOperator, SparkRegionOperator
from airflow_recovery.task.links import RecoveryTabLink, SparkHistoryLink, history_url, tab_url
from airflow_recovery.task.notes import noting_failure, tell_how_to_repair


def aside(**given: Any) -> SparkRegionOperator:
    dag = job_dag("dagjobs.shapes:diamond", **given)
    return next(task for task in dag.tasks if isinstance(task, SparkRegionOperator) and task.region == "aside")


@pytest.fixture
def notes(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is sent through the clear client."""
    found: list[str] = []
    monkeypatch.setattr(clear_clients.FirstClearClient, "note", lambda self, text: found.append(text))
    return found


def dies() -> None:
    raise RegionFailed("boom")


def ending_with(error: Exception, monkeypatch: pytest.MonkeyPatch) -> SparkRegionOperator:
    def execute_region(self: Any, context: Any) -> Any:
        raise error

    monkeypatch.setattr(SparkRegionOperator, "execute_region", execute_region)
    return aside()


def test_a_failure_a_second_attempt_and_a_kept_result(recovery: Path, drivers: Drivers, notes: list[str]) -> None:
    drivers.meanwhile = dies
    with pytest.raises(RegionFailed):
        run_try(aside())
    run_try(aside(), try_number=2)
    run_try(aside(), try_number=3)
    first, second, third = notes
    assert first.startswith("not yet: aside@1: ")
    assert "boom" in first
    assert second.startswith("ran as attempt 2: aside: failed (attempt 1: ")
    kept, _, command = third.partition("; to run it again: ")
    assert kept == "kept, 2 s of Spark saved: attempt 2 is valid, 0 files are as registered"
    assert command.startswith("airflow recovery restart d ")


@pytest.mark.parametrize(
    ("error", "raised", "note"),
    [
        (UserCodeError("a missing table"), AirflowFailException, ["failed: a missing table"]),
        (InputLost("raw is gone"), InputLost, ["not yet: raw is gone"]),
        (InputSkipped("raw was skipped"), AirflowSkipException, ["skipped: raw was skipped"]),
        # The task is another process's now, and so is its note.
        (NotMine("cleared meanwhile"), NotMine, []),
    ],
)
def test_how_a_try_ends(
    recovery: Path,
    notes: list[str],
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
    raised: type[Exception],
    note: list[str],
) -> None:
    with pytest.raises(raised):
        run_try(ending_with(error, monkeypatch))
    assert notes == note


def test_a_note_that_can_not_be_left_changes_nothing(
    recovery: Path, drivers: Drivers, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(self: Any, text: str) -> None:
        raise OSError("no route")

    monkeypatch.setattr(clear_clients.FirstClearClient, "note", broken)
    assert run_try(aside())["decision"] == "ran"


def ended(task: Any, error: BaseException, *, max_tries: int = 3, **run: Any) -> Any:
    """A try of the task that ends so; its task instance's task is what Airflow asks for callbacks."""
    instance = SimpleNamespace(dag_id="d", run_id="manual 1/2", task=task, try_number=1, max_tries=max_tries)
    context = {"ti": instance, "task": task, "dag_run": dag_run(run_id="manual 1/2", **run)}
    with pytest.raises(type(error)), noting_failure(context):
        raise error
    return context


def test_fault_338_the_note_of_a_try_that_has_taken_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    left: list[str] = []
    monkeypatch.setattr("airflow_recovery.task.notes.leave_note", lambda context, text: left.append(text))
    ended(aside(), AirflowTaskTimeout("Timeout, PID: 7"), max_tries=0)
    ended(aside(), AirflowTaskTimeout("Timeout, PID: 7"))
    told = "AirflowTaskTimeout: the try has taken longer than execution_timeout (Timeout, PID: 7)"
    assert left == [f"failed: {told}", f"not yet: {told}"]


@pytest.mark.parametrize(
    ("run", "key"),
    [
        ({}, RUN_KEY),
        ({"partition_key": "de", "logical_date": None}, "partition-de"),
        ({"logical_date": None}, "'run-manual 1/2'"),
    ],
)
def test_the_log_of_a_failed_task_ends_with_the_command_and_the_link(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, run: dict[str, Any], key: str
) -> None:
    monkeypatch.setenv("AIRFLOW__API__BASE_URL", "https://airflow.example.com/here/")
    told: list[Any] = []
    task = aside(on_failure_callback=told.append)
    context = ended(task, AirflowFailException("no such column"), **run)
    with caplog.at_level(logging.INFO):
        for callback in task.on_failure_callback:
            callback(context)
    assert told == [context]
    assert caplog.messages[-1].splitlines() == [
        f"What would run again, and why:  airflow recovery plan d {key} --group g",
        f"Once the cause is repaired:  airflow recovery plan d {key} --group g --apply, or clear this task",
        "Or look, and press a button:  "
        "https://airflow.example.com/here/dags/d/runs/manual%201%2F2/plugin/recovery-dag-run",
    ]


def test_the_command_of_an_operator_outside_a_group_names_theirs(caplog: pytest.LogCaptureFixture) -> None:
    task = RecoverableSparkSubmitOperator(
        task_id="load", application="a.py", outputs=["rows"], application_args=["{output:rows}"]
    )
    context = ended(task, AirflowFailException("no such column"))
    with caplog.at_level(logging.INFO):
        tell_how_to_repair(context)
    said = caplog.messages[-1].splitlines()[0].partition(":  airflow recovery plan ")[2]
    assert shlex.split(said)[2:] == ["--group", "(operators)"]


def test_where_airflow_has_no_retry_left_it_says_so_too_and_before_it_does_not() -> None:
    last, before = aside(), aside()
    ended(last, ConnectionError("reset"), max_tries=0)
    ended(before, ConnectionError("reset"))
    assert list(last.on_failure_callback) == [tell_how_to_repair]
    assert not before.on_failure_callback


def test_no_task_is_declared_with_a_callback_for_which_airflow_would_forget_a_persons_clear() -> None:
    assert not RecoveryPublishOperator(task_id="publish").on_failure_callback
    assert not aside().on_failure_callback


def test_the_link_to_the_tab_is_where_the_plugin_puts_it() -> None:
    from airflow_recovery.api_server.plugin import RecoveryPlugin

    (route,) = [
        external_view["url_route"]
        for external_view in RecoveryPlugin.external_views
        if external_view["destination"] == "dag_run"
    ]
    link = RecoveryTabLink().get_link(aside(), ti_key=SimpleNamespace(dag_id="d", run_id="r"))
    assert link == tab_url("d", "r")
    assert link.endswith(f"/dags/d/runs/r/plugin/{route}")


@pytest.mark.parametrize(
    ("configured", "application_id", "url"),
    [
        ("", "app-1", ""),
        ("https://history", None, ""),
        ("https://history/", "app-1", "https://history/history/app-1/"),
        ("https://proxy/{application_id}/jobs", "app/1", "https://proxy/app%2F1/jobs"),
    ],
)
def test_the_link_to_sparks_history(
    monkeypatch: pytest.MonkeyPatch, configured: str, application_id: str | None, url: str
) -> None:
    monkeypatch.setenv("AIRFLOW__RECOVERY__SPARK_HISTORY_URL", configured)
    operator = aside()
    assert SparkHistoryLink().get_link(operator, ti_key=task_context()["ti"]) == ""
    operator.spark_application_id = application_id
    assert SparkHistoryLink().get_link(operator, ti_key=task_context()["ti"]) == history_url(application_id) == url


def test_every_region_has_both_links_and_subtasks_have_a_name() -> None:
    assert [link.name for link in aside().operator_extra_links] == ["Recovery", "Spark history"]
    tasks = [task for task in job_dag("dagjobs.parallel:dealt").tasks if isinstance(task, SparkRegionOperator)]
    assert {task.map_index_template for task in tasks if task.task_id == "g.shown"} == {"{{ task.subtask }}"}
