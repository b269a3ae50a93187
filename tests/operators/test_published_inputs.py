"""Results of another DAG as inputs: declared with `published`, or asked of the hook by a task's function."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.standard.operators.bash import BashOperator
from airflow.providers.standard.operators.python import PythonOperator
from airflow.sdk import DAG
from airflow.sdk.exceptions import AirflowException
from expected_errors import fails_with
from tries import DATE, RUN_KEY, run_try, task_context

from airflow_recovery import files, job, published
from airflow_recovery.attempt.withdraw import withdraw
from airflow_recovery.errors import NotPublished
from airflow_recovery.hooks import result as hook_module
from airflow_recovery.hooks.result import RecoveryResultHook
from airflow_recovery.hooks.settings import RecoverySettings
from airflow_recovery.hooks.stores import open_stores
from airflow_recovery.job.parallelism import per_file
from airflow_recovery.journal.journal import Journal
from airflow_recovery.locations import PublishedLocation
from airflow_recovery.model.keys import OPERATORS_GROUP
from airflow_recovery.model.manifest import PartitionManifest, ResultObject
from airflow_recovery.model.records import (
    AttemptState,
    Claim,
    Outcome,
    Publish,
    PublishedRegion,
    Released,
    RunIdentity,
)
from airflow_recovery.operators import recoverable
from airflow_recovery.store.local import LocalStore
from airflow_recovery.task.externals import list_external
from airflow_recovery.task.published_input import PublishedInput

Bash = recoverable(BashOperator, paths="plain")
Python = recoverable(PythonOperator)
COPY = "mkdir -p '{output:out}' && cat '{input:rows}'/* > '{output:out}/part-0'"
UP: dict[str, Any] = {"dag_id": "up", "result": "a.o"}


class Upstream:
    """The DAG ``up``, whose operator ``a`` makes ``o``."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "results" / "up"
        identity = RunIdentity("up", RUN_KEY, OPERATORS_GROUP)
        self.journal = Journal(LocalStore(f"file://{folder}/journal"), identity, writer="up")

    def publish(self, attempt: int, rows: str, digest: str | None = None) -> None:
        """Attempt and publish have the same number."""
        folder = self._folder / f"{attempt:08d}"
        folder.mkdir(parents=True)
        (folder / "part-0").write_text(rows)
        store = LocalStore(folder.as_uri())
        objects = tuple(ResultObject(info.key, info.size, info.etag) for info in store.list())
        manifest = PartitionManifest("a.o", folder.as_uri(), objects, digest=digest)
        self.journal.claim(Claim("a", attempt, "up", "plan", (), "r", attempt, "ti", f"tag-{attempt}", ""))
        outcome = Outcome("a", attempt, AttemptState.FINISHED, "up", "", outputs=(manifest,))
        etag = self.journal.finish(outcome).etag
        self.journal.publish(Publish(attempt, (PublishedRegion("a", attempt, etag, ("a.o",)),)))


@pytest.fixture
def up(recovery: Path) -> Upstream:
    return Upstream(recovery)


def in_dag(operator: type[Any], **given: Any) -> Any:
    with DAG("d", schedule=None, start_date=datetime(2024, 1, 1, tzinfo=timezone.utc)):
        return operator(**{"task_id": "t", "outputs": ["out"], **given})


def reader(**given: Any) -> Any:
    return in_dag(Bash, **{"bash_command": COPY, "inputs": {"rows": published(**UP)}, **given})


def asks_the_hook(out: str, logical_date: str) -> None:
    try:
        (uri,) = RecoveryResultHook().get_result("up", "a.o", logical_date=logical_date).files
        rows = Path(uri.removeprefix("file://")).read_text()
    except NotPublished:
        rows = "none"
    folder = Path(out.removeprefix("file://"))
    folder.mkdir(parents=True)
    (folder / "part-0").write_text(rows)


def asking() -> Any:
    arguments = {"out": "{output:out}", "logical_date": DATE.isoformat()}
    return in_dag(Python, python_callable=asks_the_hook, op_kwargs=arguments)


def made(answer: dict[str, Any]) -> tuple[str, int, str]:
    """How the try ended, at which attempt, and its rows."""
    (result,) = answer["results"].values()
    rows = (Path(result["location"].removeprefix("file://")) / "part-0").read_text()
    return answer["decision"], answer["attempt"], rows


# --- a declared input -------------------------------------------------------------------------------------------------


def test_fault_204_a_reader_runs_again_when_other_rows_are_published(up: Upstream) -> None:
    up.publish(1, "old")
    assert made(run_try(reader())) == ("ran", 1, "old")
    assert made(run_try(reader())) == ("kept", 1, "old")
    up.publish(2, "new")
    assert made(run_try(reader())) == ("ran", 2, "new")
    assert made(run_try(reader())) == ("kept", 2, "new")


def test_fault_362_a_published_result_that_can_not_be_read_stops_a_reader_before_it_starts(
    up: Upstream, recovery: Path
) -> None:
    up.publish(1, "old")
    run_try(reader())
    file = recovery / "results" / "up" / "00000001" / "part-0"
    file.unlink()
    assert made(run_try(reader())) == ("kept", 1, "old")  # it reads nothing
    with fails_with("published-unreadable", where="t: input 'rows'"):
        run_try(reader(bash_command=f"true; {COPY}"))


def test_a_publish_with_the_same_rows_by_their_digest_keeps_the_reader(up: Upstream) -> None:
    up.publish(1, "old", "rows1-a")
    run_try(reader())
    up.publish(2, "in another order", "rows1-a")
    assert made(run_try(reader()))[:2] == ("kept", 1)
    up.publish(3, "new", "rows1-b")
    assert made(run_try(reader())) == ("ran", 2, "new")


def test_the_finish_names_the_result_and_its_run(up: Upstream, recovery: Path) -> None:
    up.publish(1, "old", "rows1-a")
    run_try(reader())
    identity = RunIdentity("d", RUN_KEY, OPERATORS_GROUP)
    journal = Journal(LocalStore(f"file://{recovery}/journal"), identity, writer="test")
    outcome = journal.read_outcome("t", 1)
    assert outcome is not None
    (read,) = outcome.externals
    assert (read.vertex, read.size, read.etag) == ("rows", 0, "rows1-a")
    assert PublishedLocation.parse(read.uri) == PublishedLocation("up", "a.o", OPERATORS_GROUP, run_key=RUN_KEY)


def test_what_is_not_published_or_was_withdrawn_fails_the_try_by_name(up: Upstream) -> None:
    with fails_with("nothing-published", by=(NotPublished, AirflowException)):
        run_try(reader())
    up.publish(1, "old")
    run_try(reader())
    withdraw(up.journal, "a", "ann", "the prices are wrong")
    with fails_with("publish-withdrawn", by=(NotPublished, AirflowException)):
        run_try(reader())
    up.publish(2, "new")
    assert made(run_try(reader())) == ("ran", 2, "new")


def releases(rows: str, out: str, up: Upstream) -> None:
    assert (Path(rows.removeprefix("file://")) / "part-0").exists()
    folder = Path(out.removeprefix("file://"))
    folder.mkdir(parents=True)
    (folder / "part-0").write_text("half of it")
    up.journal.release(Released("a", 1, "gc"))


def test_fault_205_a_result_that_is_released_while_it_is_read_is_not_registered(up: Upstream, recovery: Path) -> None:
    up.publish(1, "old")
    operator = in_dag(
        Python,
        python_callable=lambda rows, out: releases(rows, out, up),
        op_kwargs={"rows": "{input:rows}", "out": "{output:out}"},
        inputs={"rows": published(**UP)},
    )
    with fails_with("published-released"):
        run_try(operator)


def test_fault_205_control_without_the_second_look_half_of_it_is_registered(
    up: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    up.publish(1, "old")
    monkeypatch.setattr(PublishedInput, "ensure_kept", lambda *_: None)
    operator = in_dag(
        Python,
        python_callable=lambda rows, out: releases(rows, out, up),
        op_kwargs={"rows": "{input:rows}", "out": "{output:out}"},
        inputs={"rows": published(**UP)},
    )
    assert made(run_try(operator)) == ("ran", 1, "half of it")


def test_another_run_is_named(up: Upstream) -> None:
    up.publish(1, "old")
    later: dict[str, Any] = {"logical_date": DATE + timedelta(days=1)}
    given = published("up", "a.o", execution_delta=timedelta(days=1))
    context = task_context(**later)
    context["ts"] = later["logical_date"].isoformat()
    assert made(run_try(reader(inputs={"rows": given}), context))[2] == "old"
    literal = published("up", "a.o", logical_date=DATE)
    assert made(run_try(reader(inputs={"rows": literal}), task_context(**later)))[2] == "old"


def test_a_run_without_a_logical_date_is_refused_by_name(up: Upstream) -> None:
    context = task_context(logical_date=None)
    del context["ts"]
    with fails_with("published-run-without-value", by=Exception, name="logical_date"):
        run_try(reader(), context)


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ({"result": "o"}, "published-without-group"),
        ({"logical_date": DATE, "run_id": "r"}, "published-ways-exclude"),
        ({"dag_id": "{{ params.dag }}"}, "published-template"),
        ({"logical_date": "soon"}, "logical-date-unfit"),
        ({"dag_id": 3}, "argument-unfit"),
    ],
)
def test_a_wrong_name_is_refused(given: dict[str, Any], code: str) -> None:
    with fails_with(code):
        published(**{**UP, **given})


def test_a_text_that_published_has_not_made_is_refused() -> None:
    with fails_with("published-unfit", where="t: input 'rows'"):
        reader(inputs={"rows": "published:up/a.o"})


# --- what a function asks the hook ------------------------------------------------------------------------------------


def test_fault_206_what_the_hook_hands_out_is_an_input(up: Upstream) -> None:
    assert made(run_try(asking())) == ("ran", 1, "none")
    assert made(run_try(asking())) == ("kept", 1, "none")
    up.publish(1, "old")
    assert made(run_try(asking())) == ("ran", 2, "old")
    assert made(run_try(asking())) == ("kept", 2, "old")
    up.publish(2, "new")
    assert made(run_try(asking())) == ("ran", 3, "new")


def test_fault_206_control_without_the_record_the_old_rows_are_kept(
    up: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hook_module, "_record", lambda external: None)
    up.publish(1, "old")
    run_try(asking())
    up.publish(2, "new")
    assert made(run_try(asking())) == ("kept", 1, "old")


# --- a job's source ---------------------------------------------------------------------------------------------------


def test_a_source_reads_the_files_of_the_publish(up: Upstream, recovery: Path) -> None:
    flights = job("flights")

    @flights.source(splits=files(published(**UP)))
    def raw(spark: Any, splits: Any) -> Any: ...

    facts = SimpleFacts(DATE.isoformat())
    splits: Any = flights.render_splits("raw", facts)
    pattern = splits.pattern
    stores = open_stores(RecoverySettings.load())
    with pytest.raises(NotPublished):
        list_external(stores, pattern, "raw")
    up.publish(1, "old")
    (first,) = list_external(stores, pattern, "raw")
    assert (first.vertex, first.size) == ("raw", 3)
    assert Path(first.uri.removeprefix("file://")).read_text() == "old"
    up.publish(2, "new")
    (second,) = list_external(stores, pattern, "raw")
    assert second != first


def test_a_subtask_for_each_of_its_files_is_refused() -> None:
    flights = job("flights")
    with fails_with("per-file-without-files"):

        @flights.source(splits=files(published(**UP)), parallelism=per_file)
        def raw(spark: Any, splits: Any) -> Any: ...


class SimpleFacts:
    """A run, as far as templates see it."""

    data_interval_start = data_interval_end = None

    def __init__(self, logical_date: str | None) -> None:
        self.logical_date = logical_date
        self.conf: dict[str, Any] = {}
        self.params: dict[str, Any] = {}
