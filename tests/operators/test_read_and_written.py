"""Faults 230 and 231: a task that reads what it writes reads the version before its own commits, or is refused.

Real tables, written by pyiceberg and delta-rs in the task's process.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest
from airflow.providers.standard.operators.python import PythonOperator
from airflow.sdk import DAG
from airflow.sdk.exceptions import AirflowException
from expected_errors import fails_with
from pyiceberg.catalog import load_catalog
from tries import run_try, state_in, task_context

from airflow_recovery.attempt import region_task
from airflow_recovery.errors import OutputAltered, RecoveryError, RegionFailed
from airflow_recovery.model.keys import OPERATORS_GROUP
from airflow_recovery.operators import drop_in, recoverable
from airflow_recovery.results.tables import DELTA_TOKEN, ICEBERG_TOKEN
from airflow_recovery.sinks import DeltaTable, IcebergTable
from airflow_recovery.task import drop_in as running
from airflow_recovery.task.references import DropIn

Python = recoverable(PythonOperator)
NEXT_DATE = datetime(2024, 1, 3, tzinfo=timezone.utc)
SEEN: list[str] = []
BETWEEN: list[Callable[[], None]] = []
"""What happens after the job has read, and before it commits; one a run of it."""
TABLES: list[Any] = []
"""The table of the test: the state of an open catalog would count if it were bound to the function."""


def balance(rows: int) -> pa.Table:
    return pa.table({"balance": pa.array([rows], "i8")})


class Delta:
    """A Delta table with one balance, as others than the job see it."""

    def __init__(self, folder: Path) -> None:
        self.folder = f"{folder}/balances"
        self.uri = f"delta+{self.folder}"
        self.put(100)

    def put(self, rows: int, token: str | None = None) -> None:
        given = None if token is None else deltalake.CommitProperties(custom_metadata={DELTA_TOKEN: token})
        deltalake.write_deltalake(self.folder, balance(rows), mode="overwrite", commit_properties=given)

    def read(self, version: str | None = None) -> int:
        table = deltalake.DeltaTable(self.folder, version=None if version is None else int(version))
        return int(table.to_pyarrow_table()["balance"][0].as_py())

    @property
    def version(self) -> str:
        return str(deltalake.DeltaTable(self.folder).version())

    def restore(self, version: str) -> None:
        deltalake.DeltaTable(self.folder).restore(int(version))

    def maintain(self) -> None:
        deltalake.DeltaTable(self.folder).optimize.compact()
        deltalake.DeltaTable(self.folder).vacuum(168, dry_run=False)

    def expire(self, version: str) -> None:
        deltalake.DeltaTable(self.folder).vacuum(0, dry_run=False, enforce_retention_duration=False)

    @property
    def sink(self) -> DeltaTable:
        return DeltaTable(uri=self.folder, mode="replace")


class Iceberg:
    """The same as a table of Iceberg."""

    uri = "iceberg://lake/db.balances"

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.properties = {"type": "sql", "uri": f"sqlite:///{folder}/c.db", "warehouse": f"file://{folder}/w"}
        monkeypatch.setenv(
            "AIRFLOW_CONN_LAKE", json.dumps({"conn_type": "generic", "extra": json.dumps(self.properties)})
        )
        self.catalog = load_catalog("lake", **self.properties)
        self.catalog.create_namespace("db")
        self.catalog.create_table("db.balances", balance(0).schema)
        self.put(100)

    @property
    def table(self) -> Any:
        return self.catalog.load_table("db.balances")

    def put(self, rows: int, token: str | None = None) -> None:
        given = {} if token is None else {ICEBERG_TOKEN: token}
        self.table.overwrite(balance(rows), snapshot_properties=given)

    def read(self, version: str | None = None) -> int:
        scan = self.table.scan(snapshot_id=None if version is None else int(version))
        return int(scan.to_arrow()["balance"][0].as_py())

    @property
    def version(self) -> str:
        return str(self.table.metadata.current_snapshot_id)

    def restore(self, version: str) -> None:
        self.table.manage_snapshots().rollback_to_snapshot(int(version)).commit()

    def maintain(self) -> None:
        """Pyiceberg has no compaction; nothing of this is done to a table here."""

    def expire(self, version: str) -> None:
        self.table.maintenance.expire_snapshots().by_id(int(version)).commit()

    @property
    def sink(self) -> IcebergTable:
        return IcebergTable(uri=self.uri, mode="replace")


@pytest.fixture(params=["delta", "iceberg"])
def table(request: pytest.FixtureRequest, recovery: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    SEEN.clear()
    BETWEEN.clear()
    TABLES[:] = [Delta(recovery) if request.param == "delta" else Iceberg(recovery, monkeypatch)]
    return TABLES[0]


def upsert(table: Any, version: str, token: str, add: int, say: str) -> None:
    """The user's job: the balance of the version that it is told, plus ``add``, in place of all rows."""
    SEEN.append(version)
    read = table.read(version)
    if BETWEEN:
        BETWEEN.pop(0)()
    table.put(read + add, token)
    if say == "die after the commit" and len(SEEN) == 1:
        raise ConnectionError("the reply was lost")


def task_of(table: Any, *, add: int = 10, say: str = "", read: str | None = None, **given: Any) -> Any:
    with DAG("d", schedule=None, start_date=datetime(2024, 1, 1, tzinfo=timezone.utc)):
        return Python(
            task_id="t",
            python_callable=lambda version, token, add, say: upsert(TABLES[0], version, token, add, say),
            op_kwargs={"version": "{version:before}", "token": "{token:after}", "add": add, "say": say},
            **{"inputs": {"before": read or table.uri}, "outputs": {"after": table.uri}, **given},
        )


def ran(table: Any, **given: Any) -> str:
    return str(run_try(task_of(table, **given))["decision"])


# --- a table is pinned to the version before the task's own commits ---------------------------------------------------


def test_fault_230_an_unchanged_finished_run_is_kept_when_it_is_cleared(table: Any) -> None:
    assert [ran(table), ran(table), ran(table)] == ["ran", "kept", "kept"]
    assert (table.read(), len(SEEN)) == (110, 1)


def test_fault_230_a_second_attempt_begins_where_the_first_one_did(table: Any) -> None:
    with pytest.raises(RegionFailed, match="the reply was lost"):
        ran(table, say="die after the commit")
    assert table.read() == 110
    assert ran(table, say="die after the commit") == "ran"
    assert (table.read(), SEEN[0] == SEEN[1]) == (110, True)
    assert ran(table, say="die after the commit") == "kept"


def test_fault_230_other_code_begins_there_too(table: Any) -> None:
    assert [ran(table), ran(table, add=20), ran(table, add=20)] == ["ran", "ran", "kept"]
    assert table.read() == 120
    assert ran(table) == "ran", "a rollback"
    assert table.read() == 110


def test_fault_230_the_same_where_the_journal_was_lost(table: Any, recovery: Path) -> None:
    ran(table)
    shutil.rmtree(recovery / "journal")
    (recovery / "results" / "_owner").unlink()
    assert ran(table) == "ran"
    assert (table.read(), SEEN[0] == SEEN[1]) == (110, True)


@pytest.mark.control
def test_fault_230_control_read_at_its_newest_version_the_task_applies_itself_again(
    table: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(DropIn, "pinned", frozenset())
    assert [ran(table), ran(table)] == ["ran", "ran"]
    assert table.read() == 120


def test_each_date_reads_what_the_one_before_has_left_and_is_kept_after_it(table: Any) -> None:
    task = task_of(table)
    run_try(task)
    later = task_context("t", run_id="r2", logical_date=NEXT_DATE)
    assert run_try(task, later)["decision"] == "ran"
    assert table.read() == 120
    assert run_try(task)["decision"] == "kept"
    assert run_try(task, later)["decision"] == "kept"
    assert table.read() == 120


def test_fault_231_where_others_have_committed_since_nothing_is_run(table: Any) -> None:
    before = table.version
    ran(table)
    table.put(500)
    assert ran(table) == "kept", "its own commit is a part of the table"
    with fails_with("table-committed-by-others", by=(OutputAltered, AirflowException)):
        ran(table, add=20)
    assert (table.read(), len(SEEN)) == (500, 1)
    assert len(attempts(table)) == 1, "it is refused before the claim"
    table.restore(before)
    assert ran(table, add=20) == "ran"
    assert table.read() == 120


def attempts(table: Any) -> dict[int, Any]:
    folder = (
        Path(str(table.folder)).parent if isinstance(table, Delta) else Path(table.properties["warehouse"][7:]).parent
    )
    return dict(state_in(folder, OPERATORS_GROUP, "t").of("t").attempts)


def test_fault_231_where_others_commit_while_it_runs_it_does_not_finish_and_reads_theirs(table: Any) -> None:
    BETWEEN.append(lambda: table.put(500))
    with fails_with("table-committed-meanwhile"):
        ran(table)
    assert [attempt.is_finished for attempt in attempts(table).values()] == [False]
    assert [ran(table), ran(table)] == ["ran", "kept"]
    assert table.read() == 510


@pytest.mark.control
def test_fault_231_control_without_the_look_the_rows_of_others_are_lost(
    table: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running.DropInApplication, "_check_nobody_between", lambda *_: None)
    monkeypatch.setattr(running.DropInApplication, "_check_pinned", lambda *_: None)
    BETWEEN.append(lambda: table.put(500))
    assert (ran(table), table.read()) == ("ran", 110)
    table.put(700)
    assert (ran(table, add=20), table.read()) == ("ran", 520)


def test_maintenance_is_no_commit_of_others(table: Any) -> None:
    ran(table)
    table.maintain()
    assert ran(table) == "kept"
    assert ran(table, add=20) == "ran"
    assert table.read() == 120


def test_fault_231_a_version_that_is_gone_can_not_be_read_again(table: Any) -> None:
    before = table.version
    ran(table)
    table.expire(before)
    assert ran(table) == "kept"
    with fails_with("table-version-forgotten", "table-version-unreadable", by=(OutputAltered, AirflowException)):
        ran(table, add=20)
    assert (table.read(), len(SEEN)) == (110, 1)


def test_a_table_that_was_made_anew_is_a_new_input(recovery: Path) -> None:
    SEEN.clear()
    table = Delta(recovery)
    TABLES[:] = [table]
    ran(table)
    shutil.rmtree(table.folder)
    table.put(7)
    assert ran(table) == "ran"
    assert table.read() == 17


def test_a_version_that_the_user_names_is_read(table: Any) -> None:
    pinned = f"{table.uri}?as_of={table.version}"
    ran(table, read=pinned)
    table.put(500)
    assert ran(table, read=pinned, add=20) == "ran"
    assert table.read() == 120


# --- a target of commit= ----------------------------------------------------------------------------------------------


def add_staged(table: Any, version: str, out: str, add: int) -> None:
    import pyarrow.parquet

    SEEN.append(version)
    folder = Path(out.removeprefix("file://"))
    folder.mkdir(parents=True)
    pyarrow.parquet.write_table(balance(table.read(version) + add), folder / "part-0.parquet")
    if BETWEEN:
        BETWEEN.pop(0)()


def committing(table: Any, add: int = 10) -> Any:
    with DAG("d", schedule=None, start_date=datetime(2024, 1, 1, tzinfo=timezone.utc)):
        return Python(
            task_id="t",
            python_callable=lambda version, out, add: add_staged(TABLES[0], version, out, add),
            op_args=["{version:before}", "{output:after}", add],
            inputs={"before": table.uri},
            outputs=["after"],
            commit=table.sink,
        )


def test_fault_230_a_target_that_is_an_input_is_read_before_the_tasks_own_commit(table: Any) -> None:
    decisions = [run_try(committing(table))["decision"], run_try(committing(table))["decision"]]
    assert (decisions, table.read()) == (["ran", "kept"], 110)
    assert run_try(committing(table, add=20))["decision"] == "ran"
    assert table.read() == 120


def test_fault_231_a_target_that_others_have_written_is_not_replaced(table: Any) -> None:
    BETWEEN.append(lambda: table.put(500))
    with fails_with("table-committed-meanwhile"):
        run_try(committing(table))
    assert table.read() == 500
    assert run_try(committing(table))["decision"] == "ran"
    assert table.read() == 510


def killed_before_its_commit(table: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(region_task, "commit_own", lambda *_: raise_(KeyboardInterrupt()))
        with pytest.raises(KeyboardInterrupt):
            run_try(committing(table))


def raise_(error: BaseException) -> None:
    raise error


def test_what_was_prepared_is_committed_where_nobody_else_was_there(
    table: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed_before_its_commit(table, monkeypatch)
    assert run_try(committing(table))["decision"] == "kept"
    assert (table.read(), len(SEEN)) == (110, 1)


def test_fault_231_what_was_prepared_of_an_older_version_is_made_again_by_the_try_that_commits_it(
    table: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed_before_its_commit(table, monkeypatch)
    table.put(500)
    assert run_try(committing(table))["decision"] == "ran"
    assert (table.read(), len(SEEN)) == (510, 2)
    assert run_try(committing(table))["decision"] == "kept"


def between_finish_and_commit(table: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    real = region_task.commit_own

    def commit(*given: Any) -> None:
        monkeypatch.setattr(region_task, "commit_own", real)
        table.put(500)
        real(*given)

    monkeypatch.setattr(region_task, "commit_own", commit)


def test_fault_231_who_writes_between_the_finish_and_the_commit_is_read_by_the_next_try(
    table: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    between_finish_and_commit(table, monkeypatch)
    with fails_with("table-committed-meanwhile"):
        run_try(committing(table))
    assert run_try(committing(table))["decision"] == "ran"
    assert table.read() == 510


@pytest.mark.control
def test_fault_231_control_without_a_look_after_the_commit_their_rows_are_lost(
    table: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running.DropInApplication, "check_committed", lambda *_: None)
    between_finish_and_commit(table, monkeypatch)
    assert run_try(committing(table))["decision"] == "ran"
    assert table.read() == 110


# --- what is refused --------------------------------------------------------------------------------------------------


def reading_and_writing(read: Any, written: Any, **given: Any) -> Any:
    with DAG("d", schedule=None, start_date=datetime(2024, 1, 1, tzinfo=timezone.utc)):
        return Python(
            task_id="t",
            python_callable=print,
            op_args=["{input:i}", "{output:o}"],
            inputs={"i": read},
            outputs={"o": written},
            **given,
        )


FOLDERS = [
    ("s3://lake/t", "s3://lake/t"),
    ("s3a://lake/t/", "s3://lake/t"),
    ("s3://lake//t", "s3://lake/t"),
    ("file:///lake/t", "/lake/t"),
    ("file:/lake/t", "file:///lake/t/"),
    ("abfs://c@a.dfs.core.windows.net/t", "abfss://c@a.dfs.core.windows.net/t"),
    ("s3://lake/t", "s3://lake/t/day=1"),
    ("s3://lake/t/day=0", "s3://lake/t"),
    ("s3://lake", "s3://lake/t"),
    ("s3://lake/t/*", "s3://lake/t/day=1"),
    ("s3://lake/*/day=1/*.csv", "s3://lake/t"),
    ("s3://lake/{s,t}/x", "s3://lake/t"),
    ("s3://lake/t/{{ ds }}", "s3://lake/t/{{ ds }}"),
    ("s3://lake/t", "s3://lake/t/day={{ ds }}"),
    ("s3://lake/t", "delta+s3://lake/t"),
    ("delta+s3://lake/t", "s3a://lake/t"),
    ("delta+s3://lake/t", "s3://lake/t/day=1"),
    ("s3://lake/t/*.parquet", "delta+s3a://lake/t"),
]


@pytest.mark.parametrize(("read", "written"), FOLDERS)
def test_fault_231_a_folder_that_is_read_and_written_is_refused_when_the_dag_is_parsed(read: str, written: str) -> None:
    given = {"op_kwargs": {"token": "{token:o}"}} if written.startswith("delta+") else {}
    given |= {"op_kwargs": {"version": "{version:i}"}} if read.startswith("delta+") else {}
    with fails_with("reads-what-it-writes", task="t", input="i"):
        reading_and_writing(read, written, **given)


@pytest.mark.parametrize(
    ("read", "written"),
    [
        ("s3://lake/t", "s3://lake/t2"),
        ("s3://lake/t/day=0", "s3://lake/t/day=1"),
        ("s3://lake/t/*.csv", "s3://lake/t/out"),
        ("s3://lake/t", "s3://lake/t/_out"),
        ("s3://other/t", "s3://lake/t"),
        ("s3://lake/t/{{ macros.ds_add(ds, -1) }}", "s3://lake/t/{{ ds }}"),
    ],
)
def test_places_apart_are_taken(read: str, written: str) -> None:
    reading_and_writing(read, written)


@pytest.mark.control
@pytest.mark.parametrize(("read", "written"), FOLDERS[:6])
def test_fault_231_control_nothing_else_would_refuse_them(
    read: str, written: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drop_in, "check_read_and_written", lambda *_, **__: None)
    reading_and_writing(read, written)


def test_fault_231_what_templates_come_to_is_refused_before_the_claim(recovery: Path) -> None:
    params = {"in": f"{recovery}/t", "out": f"file://{recovery}/t/x"}
    with fails_with("reads-what-it-writes", by=(RecoveryError, AirflowException), input="i"):
        run_try(reading_and_writing("{{ params['in'] }}", "{{ params.out }}"), params=params)
    assert not state_in(recovery, OPERATORS_GROUP, "t").of("t").attempts


def test_fault_231_a_symbolic_link_is_followed(recovery: Path) -> None:
    (recovery / "t").mkdir()
    (recovery / "current").symlink_to(recovery / "t")
    with fails_with("reads-what-it-writes", by=(RecoveryError, AirflowException), input="i"):
        run_try(reading_and_writing(f"{recovery}/current", f"{recovery}/t"))


def test_fault_231_the_folder_of_an_iceberg_table_is_refused_before_the_claim(
    recovery: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = Iceberg(recovery, monkeypatch)
    folder = table.table.location()
    told = {"op_kwargs": {"token": "{token:o}"}}
    with fails_with("reads-what-it-writes", by=(RecoveryError, AirflowException), input="i"):
        run_try(reading_and_writing(folder, table.uri, **told))
    with fails_with("reads-what-it-writes", by=(RecoveryError, AirflowException), input="i"):
        run_try(reading_and_writing(table.uri, f"{folder}/x", op_kwargs={"version": "{version:i}"}))


def test_fault_231_an_input_in_which_the_tasks_own_results_lie_is_refused(recovery: Path) -> None:
    (recovery / "rows.csv").write_text("1")
    with fails_with("reads-what-it-writes", by=(RecoveryError, AirflowException), input="i"):
        run_try(reading_and_writing(str(recovery), None))


def test_fault_231_two_tasks_never_write_to_one_table(recovery: Path) -> None:
    with DAG("d", schedule=None, start_date=datetime(2024, 1, 1, tzinfo=timezone.utc)):
        first = Python(
            task_id="first", python_callable=print, op_args=["{token:o}"], outputs={"o": "delta+s3://lake/t"}
        )
        with fails_with("outputs-overlap", output="commit=", other_task="first", other_output="o"):
            Python(
                task_id="t",
                python_callable=print,
                op_args=["{version:i}", "{output:o}"],
                inputs={"i": first.result("o")},
                outputs=["o"],
                commit=DeltaTable(uri="s3a://lake/t", mode="replace"),
            )
        with fails_with("outputs-overlap", output="p", other_task="first", other_output="o"):
            Python(
                task_id="u",
                python_callable=print,
                op_args=["{version:i}", "{token:p}"],
                inputs={"i": first.result("o")},
                outputs={"p": "delta+s3a://lake/t/"},
            )
