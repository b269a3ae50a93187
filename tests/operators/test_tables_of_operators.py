"""Tables as inputs and results of an operator: a `PythonOperator` that commits to real tables with pyiceberg."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import nullcontext
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from airflow.providers.standard.operators.python import PythonOperator
from airflow.sdk import DAG
from airflow.sdk.exceptions import AirflowFailException
from expected_errors import fails_with
from iceberg_rest import IcebergRest
from pyiceberg.catalog import load_catalog
from tries import run_try, state_in, submissions, task_context

from airflow_recovery.errors import JobDefinitionError, OutputAltered, RegionFailed
from airflow_recovery.model.keys import OPERATORS_GROUP
from airflow_recovery.operators import RecoverableSparkSubmitOperator, recoverable
from airflow_recovery.results.prober import OnAltered
from airflow_recovery.results.tables import DELTA_USER_METADATA, ICEBERG_SETTING, ICEBERG_TOKEN, Tables

Python = recoverable(PythonOperator)
SOURCE, CLEANED = "iceberg://lake/db.source", "iceberg://lake/db.cleaned"
CALLS: list[dict[str, Any]] = []


def lake() -> Any:
    return load_catalog("lake", **json.loads(json.loads(PROPERTIES)["extra"]))


PROPERTIES = ""


def commit(table: str, rows: int, token: str | None = None) -> int:
    given = {} if token is None else {ICEBERG_TOKEN: token}
    opened = lake().load_table(table)
    opened.overwrite(pa.table({"n": pa.array(range(rows), "i8")}), snapshot_properties=given)
    return int(opened.metadata.current_snapshot_id)


def copy(source: str, version: str, target: str, token: str, say: str = "") -> None:
    """The user's job: commits as many rows as the snapshot has that it is told to read."""
    CALLS.append({"version": version, "token": token, "source": source})
    if say == "commit nothing":
        return
    read = lake().load_table(source.partition(".")[2]).scan(snapshot_id=int(version)).to_arrow()
    commit(target.partition(".")[2], read.num_rows, None if say == "no token" else token)
    if say == "lose the reply" and len(CALLS) == 1:
        raise ConnectionError("the reply was lost")


def copying(task_id: str, source: Any, target: str = CLEANED, say: str = "") -> Any:
    told = {"source": "{input:rows}", "version": "{version:rows}", "target": "{output:out}", "token": "{token:out}"}
    return Python(
        task_id=task_id,
        python_callable=copy,
        op_kwargs={**told, "say": say},
        inputs={"rows": source},
        outputs={"out": target},
    )


def new_dag() -> DAG:
    return DAG("d", schedule=None, start_date=datetime(2024, 1, 1, tzinfo=timezone.utc))


def made_by(say: str = "", source: str = SOURCE) -> Any:
    with new_dag():
        return copying("t", source, say=say)


def registered(folder: Path, task: str = "t") -> Any:
    current = state_in(folder, OPERATORS_GROUP, task).of(task).current
    assert current is not None
    assert current.outcome is not None
    return current.outcome.outputs[0]


@pytest.fixture(autouse=True, params=["sql", pytest.param("rest", marks=pytest.mark.drill)])
def tables(request: pytest.FixtureRequest, recovery: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A catalog with two tables, of which one has rows. Yields the folder of journal and results."""
    extra = {"type": "sql", "uri": f"sqlite:///{recovery}/catalog.db", "warehouse": f"file://{recovery}/warehouse"}
    with IcebergRest(recovery) if request.param == "rest" else nullcontext() as server:
        yield with_tables(recovery, extra if server is None else server.properties, monkeypatch)


def with_tables(recovery: Path, extra: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Path:
    connection = json.dumps({"conn_type": "generic", "extra": json.dumps(extra)})
    monkeypatch.setenv("AIRFLOW_CONN_LAKE", connection)
    monkeypatch.setitem(globals(), "PROPERTIES", connection)
    CALLS.clear()
    catalog = lake()
    catalog.create_namespace("db")
    for name in ("db.source", "db.cleaned", "db.report"):
        catalog.create_table(name, pa.schema([("n", pa.int64())]))
    commit("db.source", 2)
    return recovery


def test_the_snapshot_of_the_attempts_own_token_is_registered(tables: Path) -> None:
    run_try(made_by())
    found = registered(tables)
    newest = lake().load_table("db.cleaned").metadata.current_snapshot_id
    assert (found.location, found.managed, found.objects[0].path) == (CLEANED, False, str(newest))
    assert CALLS[0]["source"] == "lake.db.source"
    assert CALLS[0]["version"] == str(lake().load_table("db.source").metadata.current_snapshot_id)
    run_try(made_by())
    assert len(CALLS) == 1


@pytest.mark.slow
def test_another_snapshot_of_an_input_means_run_again_and_as_of_does_not(tables: Path) -> None:
    first = lake().load_table("db.source").metadata.current_snapshot_id
    pinned = f"{SOURCE}?as_of={first}"
    run_try(made_by())
    with new_dag():
        run_try(copying("p", pinned, "iceberg://lake/db.report"))
    second = commit("db.source", 3)
    run_try(made_by())
    assert [call["version"] for call in CALLS] == [str(first), str(first), str(second)]
    with new_dag():
        run_try(copying("p", pinned, "iceberg://lake/db.report"))
    assert len(CALLS) == 3
    assert lake().load_table("db.cleaned").scan().to_arrow().num_rows == 3


def test_others_commits_on_top_leave_the_result_as_it_is(tables: Path) -> None:
    run_try(made_by())
    commit("db.cleaned", 7)
    run_try(made_by())
    assert len(CALLS) == 1


@pytest.mark.parametrize("say", ["commit nothing", "no token"])
def test_a_job_whose_commit_is_not_found_has_failed(tables: Path, say: str) -> None:
    commit("db.cleaned", 5)
    with fails_with("snapshot-without-token", output="out"):
        run_try(made_by(say))
    assert state_in(tables, OPERATORS_GROUP, "t").of("t").current is None


def test_after_a_lost_reply_the_next_attempt_is_the_one_that_counts(tables: Path) -> None:
    with pytest.raises(RegionFailed, match="the reply was lost"):
        run_try(made_by("lose the reply"))
    lost = lake().load_table("db.cleaned").metadata.current_snapshot_id
    run_try(made_by("lose the reply"))
    assert registered(tables).objects[0].path != str(lost)
    assert lake().load_table("db.cleaned").scan().to_arrow().num_rows == 2


@pytest.mark.slow
def test_fault_173_a_zombies_late_commit_is_never_read(tables: Path) -> None:
    with pytest.raises(RegionFailed):
        run_try(made_by("lose the reply"))
    with new_dag():
        task = copying("t", SOURCE, say="lose the reply")
        reader = copying("r", task.result("out"), "iceberg://lake/db.report")
        run_try(task)
        commit("db.cleaned", 9, CALLS[0]["token"])
        run_try(reader)
    assert CALLS[-1]["version"] == registered(tables).objects[0].path
    assert lake().load_table("db.report").scan().to_arrow().num_rows == 2, "the zombie's nine are above"


@pytest.mark.slow
def test_fault_170_a_result_that_was_rolled_back_is_lost_for_its_reader_and_made_again(tables: Path) -> None:
    with new_dag():
        task = copying("t", SOURCE)
        reader = copying("r", task.result("out"), "iceberg://lake/db.report")
    before = commit("db.cleaned", 5)
    run_try(task)
    table = lake().load_table("db.cleaned")
    assert [name for name in table.metadata.refs if name.startswith("recovery-")], "its reader has not read it yet"
    table.manage_snapshots().rollback_to_snapshot(before).commit()
    with pytest.raises(AirflowFailException, match=r"snapshot \d+ of iceberg://lake/db.cleaned was rolled back"):
        run_try(reader)
    run_try(task)
    run_try(reader)
    assert [call["version"] for call in CALLS][-1] == registered(tables).objects[0].path
    assert before in {one.snapshot_id for one in lake().load_table("db.cleaned").snapshots()}


def make_and_read(on_altered: str = "stop") -> tuple[Any, Any]:
    with new_dag():
        task = copying("t", SOURCE)
        task.on_altered = OnAltered(on_altered)
        return task, copying("r", task.result("out"), "iceberg://lake/db.report")


def force_move(registered: int) -> None:
    """A branch of somebody's own, from before the result, is put in the place of `main`."""
    table = lake().load_table("db.cleaned")
    before = table.metadata.snapshot_by_id(registered).parent_snapshot_id
    table.manage_snapshots().rollback_to_snapshot(before).commit()
    commit("db.cleaned", 7)


def expire(registered: int) -> None:
    for name, ref in lake().load_table("db.cleaned").metadata.refs.items():
        if ref.snapshot_ref_type == "tag":
            lake().load_table("db.cleaned").manage_snapshots().remove_tag(name).commit()
    commit("db.cleaned", 7)
    lake().load_table("db.cleaned").maintenance.expire_snapshots().by_id(registered).commit()


def test_fault_171_a_result_that_has_expired_is_lost_for_its_reader_and_made_again(tables: Path) -> None:
    task, reader = make_and_read()
    run_try(task)
    expire(int(registered(tables).objects[0].path))
    with fails_with("no-way-to-clear", by=AirflowFailException):
        run_try(reader)
    run_try(task)
    run_try(reader)
    assert [call["version"] for call in CALLS][-1] == registered(tables).objects[0].path


@pytest.mark.slow
def test_fault_174_a_branch_that_was_forced_elsewhere_stops_or_is_made_again_as_declared(tables: Path) -> None:
    commit("db.cleaned", 5)
    task, reader = make_and_read()
    run_try(task)
    force_move(int(registered(tables).objects[0].path))
    head = lake().load_table("db.cleaned").metadata.current_snapshot_id
    for each in (reader, task):
        with pytest.raises((OutputAltered, AirflowFailException), match="which was force-moved to"):
            run_try(each)
    assert lake().load_table("db.cleaned").metadata.current_snapshot_id == head
    task, reader = make_and_read("recompute")
    run_try(task)
    run_try(reader)
    assert [call["version"] for call in CALLS][-1] == registered(tables).objects[0].path
    assert lake().load_table("db.cleaned").scan().to_arrow().num_rows == 2


@pytest.mark.slow
@pytest.mark.parametrize("fault", [170, 174])
def test_fault_170_174_control_nobody_asks_the_table_and_its_reader_reads_what_is_not_in_it(
    tables: Path, monkeypatch: pytest.MonkeyPatch, fault: int
) -> None:
    before = commit("db.cleaned", 5)
    task, reader = make_and_read()
    run_try(task)
    if fault == 170:
        lake().load_table("db.cleaned").manage_snapshots().rollback_to_snapshot(before).commit()
    else:
        force_move(int(registered(tables).objects[0].path))
    monkeypatch.setattr(Tables, "why_lost", lambda *_: None)
    run_try(reader)
    assert lake().load_table("db.report").scan().to_arrow().num_rows == 2
    assert lake().load_table("db.cleaned").scan().to_arrow().num_rows in (5, 7)


@pytest.mark.slow
def test_fault_171_control_nobody_asks_the_table_and_its_reader_can_never_run(
    tables: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    task, reader = make_and_read()
    run_try(task)
    expire(int(registered(tables).objects[0].path))
    monkeypatch.setattr(Tables, "why_lost", lambda *_: None)
    for _ in range(2):
        with pytest.raises(RegionFailed, match=r"r@[12]: the application failed: Snapshot not found"):
            run_try(reader)


@pytest.mark.slow
def test_fault_173_control_who_reads_the_newest_snapshot_reads_the_zombies(tables: Path) -> None:
    with pytest.raises(RegionFailed):
        run_try(made_by("lose the reply"))
    run_try(made_by("lose the reply"))
    commit("db.cleaned", 9, CALLS[0]["token"])
    with new_dag():
        run_try(copying("r", CLEANED, "iceberg://lake/db.report"))
    assert lake().load_table("db.report").scan().to_arrow().num_rows == 9


@pytest.mark.parametrize("tables", ["sql"], indirect=True)
def test_one_table_by_two_catalogs_is_refused_before_the_claim(tables: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_LAKE2", PROPERTIES)
    source = lake().load_table("db.source")
    other = load_catalog("lake2", **json.loads(json.loads(PROPERTIES)["extra"]))
    other.create_namespace("db")
    other.register_table("db.mine", source.metadata_location)
    with new_dag():
        task = copying("t", SOURCE, "iceberg://lake2/db.mine")
    with fails_with("table-of-two-names", by=(JobDefinitionError, AirflowFailException)):
        run_try(task)
    assert not state_in(tables, OPERATORS_GROUP, "t").of("t").attempts


def test_an_input_without_a_snapshot_is_refused_before_the_claim(tables: Path) -> None:
    with fails_with("snapshot-missing"):
        run_try(made_by(source="iceberg://lake/db.report"))
    assert not state_in(tables, OPERATORS_GROUP, "t").of("t").attempts


def test_a_template_may_come_to_a_table(tables: Path) -> None:
    params = {"source": SOURCE, "out": CLEANED}
    with new_dag():
        made = copying("t", "{{ params.source }}", target="{{ params.out }}")
        copying("u", made.result("out"), target="iceberg://lake/db.report")
    for task in ("t", "u"):
        run_try(made.dag.task_dict[task], task_context(task, params=params, states={"t": "success"}))
    assert CALLS[1]["version"] == str(lake().load_table("db.cleaned").metadata.current_snapshot_id)


AS_SPARK_DOES = f"""
import json, os, pyarrow as pa
from pyiceberg.catalog import load_catalog
options = json.loads(open(os.environ["SUBMITTED"]).readlines()[-1])["options"]
token = next(part for part in options if part.startswith("{ICEBERG_SETTING}=")).partition("=")[2]
catalog = load_catalog("lake", **json.loads(os.environ["CATALOG"]))
rows = pa.table({{"n": pa.array([1], "i8")}})
catalog.load_table("db.cleaned").append(rows, snapshot_properties={{"{ICEBERG_TOKEN}": token}})
"""


@pytest.mark.slow
def test_a_reader_that_is_not_told_the_version_of_what_a_template_came_to_is_refused(
    tables: Path, submitted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would read whatever is newest: a zombie's snapshot, say."""
    monkeypatch.setenv("CATALOG", json.loads(PROPERTIES)["extra"])
    monkeypatch.setenv("AIRFLOW__RECOVERY__ALLOWED_LOCATIONS", "iceberg://lake")
    (tables / "app.py").write_text(AS_SPARK_DOES)
    with new_dag():
        made = RecoverableSparkSubmitOperator(
            task_id="t", application=f"{tables}/app.py", outputs={"out": "{{ params.out }}"}
        )
        reader = Python(
            task_id="u",
            python_callable=lambda source, out: CALLS.append({"source": source}),
            op_args=["{input:rows}", "{output:out}"],
            inputs={"rows": made.result("out")},
            outputs=["out"],
        )
    params = {"out": CLEANED}
    run_try(made, task_context("t", params=params))
    with pytest.raises(AirflowFailException, match="input 'rows' is a table, and the application is never told which"):
        run_try(reader, task_context("u", params=params, states={"t": "success"}))
    assert not CALLS


def test_spark_is_told_the_token_by_its_settings(tables: Path, submitted: Path) -> None:
    (tables / "app.py").write_text("")
    with new_dag():
        task = RecoverableSparkSubmitOperator(
            task_id="t",
            application=f"{tables}/app.py",
            outputs={"out": CLEANED},
            conf={DELTA_USER_METADATA: "nightly"},
            application_args=["{output:out}"],
        )
    with fails_with("snapshot-without-token"):
        run_try(task)
    [one] = submissions(submitted)
    given = one["options"]
    token = next(part for part in given if part.startswith(f"{ICEBERG_SETTING}=")).partition("=")[2]
    assert token.startswith("d/")
    assert f"{DELTA_USER_METADATA}=nightly {token}" in given
    assert one["arguments"] == ["lake.db.cleaned"]


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ({"outputs": {"out": CLEANED}}, "token-never-told"),
        ({"inputs": {"rows": SOURCE}}, "version-never-told"),
        ({"inputs": {"rows": "hudi+s3://lake/t"}}, "table-without-snapshots"),
        ({"inputs": {"rows": "iceberg://db.t"}}, "table-location-unfit"),
        ({"outputs": {"out": f"{CLEANED}?as_of=1"}}, "output-as-of"),
        ({"outputs": {"out": "delta+lake/t"}}, "location-unfit"),
        ({"outputs": {"out": "delta+s3://l/t", "b": "s3a://l/t/x"}}, "outputs-overlap"),
    ],
)
def test_what_can_not_be_is_refused_where_it_is_written(given: Any, code: str) -> None:
    with new_dag(), fails_with(code):
        Python(**{"task_id": "t", "python_callable": copy, "outputs": {"x": "s3://l/x"}, **given})
