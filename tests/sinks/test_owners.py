"""Who owns the rows of a target (faults 220 to 225): two dates, tasks and DAGs that commit to one table.

The real protocol, PostgreSQL, Delta and Iceberg tables; in place of Spark rows of the test's.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import deltalake
import pyarrow as pa
import pytest
from expected_errors import fails_with
from pyiceberg.catalog import load_catalog
from sink_process import Case
from staging import Resources, Warehouse, stage

from airflow_recovery.attempt import adopted, commit, owners, region_task
from airflow_recovery.attempt.commit import prepared_of, token_of_finish
from airflow_recovery.attempt.region_task import Decision, RegionResult
from airflow_recovery.console import adopt as console_adopt
from airflow_recovery.console.exit_codes import ExitCode
from airflow_recovery.console.main import main
from airflow_recovery.errors import AppendedAlready, RecoveryError, SinkRefused
from airflow_recovery.journal.layout import xcoms_key
from airflow_recovery.model.records import CommitEnd, RunIdentity, StoredXComs
from airflow_recovery.planning.evaluation import Evaluation
from airflow_recovery.planning.plan_text import plan_text
from airflow_recovery.sinks import (
    Committable,
    CommittingSink,
    CommitToken,
    DeltaTable,
    IcebergTable,
    PostgresTable,
    Rows,
    delta,
    iceberg,
    postgres,
    sink_of,
)
from airflow_recovery.sinks.owners import date_of
from airflow_recovery.store.local import LocalStore
from airflow_recovery.story.run_view import view_run
from airflow_recovery.story.what_if import plan_run
from airflow_recovery.task.notes import note_of
from airflow_recovery.verify import verify_run

DAY_1, DAY_2, DAY_3 = (f"date-2026-01-0{day}T000000Z" for day in (1, 2, 3))
GROUP = "flights"


@dataclass
class Lake(Resources):
    """What a deployment lends to the sinks of a lake."""

    folder: Path

    def __post_init__(self) -> None:
        super().__init__()
        self.resources = self
        self.store = LocalStore(str(self.folder / "results"))

    def catalog_properties(self, name: str) -> dict[str, str]:
        return {"type": "sql", "uri": f"sqlite:///{self.folder}/c.db", "warehouse": f"file://{self.folder}/w"}


class Target:
    """One table with the columns ``carrier`` and ``run_key``, and every task that writes there."""

    def __init__(self, kind: str, folder: Path, warehouse: Warehouse | None) -> None:
        self.kind = kind
        self.folder = folder
        self.warehouse = warehouse
        self.lake = Lake(folder)
        self.uri = str(folder / "lake" / "t")
        if kind == "iceberg":
            self.catalog = load_catalog("lake", **self.lake.catalog_properties("lake"))
            self.catalog.create_namespace("db")
            self.catalog.create_table("db.t", pa.schema([("carrier", pa.string()), ("run_key", pa.string())]))

    def sink(self, mode: str, **how: Any) -> CommittingSink:
        if self.kind == "delta":
            if mode == "append":
                how["run_column"] = "run_key"  # else its rows would have other columns than those of the others
            return DeltaTable(uri=self.uri, mode=mode, **how)
        if self.kind == "iceberg":
            return IcebergTable(uri="iceberg://lake/db.t", mode=mode, **how)
        assert self.warehouse is not None
        return PostgresTable(conn_id="warehouse", table=self.warehouse.table, mode=mode, **how)

    def case(self, sink: CommittingSink, run_key: str, carrier: str, dag: str = "dag", task: str = "load") -> Case:
        """One task of one run. Its DAG is in Airflow, and has two more tasks."""
        identity = RunIdentity(dag, run_key, GROUP)
        place: Any = self.warehouse if self.kind == "postgres" else self.lake
        tasks = tuple(f"{GROUP}.{name}" for name in ("load", "other"))
        journal = self.folder / f"journal-{dag}"
        rows: dict[str, list[Any]] = {"carrier": [carrier]}
        return Case(
            place, sink, journal, rows, carrier, identity=identity, region=task, dag_tasks=tasks, dags=("a", "b")
        )

    def carriers(self) -> list[str]:
        return sorted(str(row["carrier"]) for row in self.table())

    def table(self) -> list[dict[str, Any]]:
        if self.kind == "delta":
            is_there = deltalake.DeltaTable.is_deltatable(self.uri)
            return list(deltalake.DeltaTable(self.uri).to_pyarrow_table().to_pylist()) if is_there else []
        if self.kind == "iceberg":
            return list(self.catalog.load_table("db.t").scan().to_arrow().to_pylist())
        assert self.warehouse is not None
        found = self.warehouse.ask(f"SELECT carrier, run_key FROM {self.warehouse.table}")
        return [{"carrier": carrier, "run_key": key} for carrier, key in found]

    def committer(self, sink: CommittingSink) -> Any:
        return sink.open(self.lake if self.warehouse is None else self.warehouse.resources)


KINDS = ("postgres", "delta", "iceberg")


@pytest.fixture(params=KINDS)
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Target:
    warehouse = request.getfixturevalue("warehouse") if request.param == "postgres" else None
    return Target(request.param, tmp_path, warehouse)


APPEND: dict[str, Any] = {"mode": "append"}
ALL: dict[str, Any] = {"mode": "replace"}
BY_RUN: dict[str, Any] = {"mode": "replace", "run_column": "run_key"}
LATEST: dict[str, Any] = {"mode": "replace", "keeps": "latest"}
SINKS = {"append": APPEND, "all": ALL, "run": BY_RUN, "latest": LATEST}
OTHERS: dict[str, dict[str, str]] = {
    "a later date": {"run_key": DAY_2},
    "an earlier date": {"run_key": DAY_1},
    "another task": {"run_key": DAY_1, "task": "other"},
    "another DAG": {"run_key": DAY_1, "dag": "b"},
}
BOTH, REFUSED, THE_LATER = "both stay", "the second is refused", "the later date stays"


def expected(first: str, second: str, other: str) -> str:
    if {first, second} <= {"append", "run"}:
        return BOTH
    return THE_LATER if first in ("all", "latest") and second == "latest" and "date" in other else REFUSED


def each_pair_of_sinks() -> Iterator[Any]:
    """Each pair with each other owner on each kind of table. `make test` has each of them on one of the kinds."""
    pairs = itertools.product(SINKS, SINKS, OTHERS)
    for number, pair in enumerate(pairs):
        for kind in KINDS:
            marks = () if kind == KINDS[number % len(KINDS)] else pytest.mark.slow
            yield pytest.param(kind, *pair, marks=marks)


@pytest.mark.parametrize(("target", "first", "second", "other"), each_pair_of_sinks(), indirect=["target"])
def test_faults_220_to_222_nobody_deletes_the_rows_of_another(
    target: Target, first: str, second: str, other: str
) -> None:
    """The sink of the first x that of the second x who the second is; then both are cleared, and run with new code."""
    mine = {"run_key": DAY_2 if other == "an earlier date" else DAY_1, "dag": "a"}
    one = target.case(target.sink(**SINKS[first]), carrier="AA", **mine)
    two = target.case(target.sink(**SINKS[second]), carrier="UA", **{"dag": "a", **OTHERS[other]})
    one.task()
    end = expected(first, second, other)
    if end == REFUSED:
        with fails_with("sinks-of-two-owners"):
            two.task()
        assert two.state().latest_attempt == 0  # before Spark
        assert target.carriers() == ["AA"]
        one.task()
        assert target.carriers() == ["AA"]
        return
    two.task()
    later = ["AA"] if other == "an earlier date" else ["UA"]
    assert target.carriers() == (["AA", "UA"] if end == BOTH else later)
    if end == THE_LATER:
        one = replace(one, sink=two.sink)  # as it was declared last
    # Cleared: both are kept.
    assert [case.task().decision for case in (one, two)] == [Decision.KEPT, Decision.KEPT]
    # Cleared, with other code: each replaces its own rows.
    for case, sink, carrier in ((one, first, "A2"), (two, second, "U2")):
        again = replace(case, rows={"carrier": [carrier]}, code=carrier)
        if sink == "append":
            with pytest.raises(AppendedAlready):
                again.task()
        else:
            again.task()
    if end == BOTH:
        assert target.carriers() == sorted(["AA" if first == "append" else "A2", "UA" if second == "append" else "U2"])
    else:
        assert target.carriers() == (["A2"] if other == "an earlier date" else ["U2"])


@pytest.mark.control
def test_control_fault_220_without_the_owner_one_date_deletes_the_other(
    target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(region_task, "check_owner", lambda run, region, state: None)
    for module in (postgres, delta, iceberg):
        monkeypatch.setattr(module, "check_owners", lambda *given: None)
    for day, carrier in ((DAY_1, "AA"), (DAY_2, "UA")):
        target.case(target.sink(**ALL), day, carrier).task()
    assert target.carriers() == ["UA"]
    # Both commits went through. A clear of the first date finds its rows gone.
    with fails_with("sink-written-since"):
        target.case(target.sink(**ALL), DAY_1, "AA").task()


def test_fault_220_two_dates_at_once_one_is_refused_by_its_commit(target: Target) -> None:
    """Both have looked at an empty table before they claimed."""
    two = target.case(target.sink(**ALL), DAY_2, "UA")
    one = replace(target.case(target.sink(**ALL), DAY_1, "AA"), meanwhile=two.task)
    with pytest.raises(SinkRefused, match="airflow recovery abandon"):
        one.task()
    assert target.carriers() == ["UA"]
    # The way out that the message names first: rows of its own. What was prepared is committed by what is declared now.
    keyed = target.sink(**LATEST)
    result = replace(one, sink=keyed, meanwhile=lambda: None).task()
    assert target.carriers() == ["UA"]
    assert "superseded by 2026-01-02" in result.why


def test_the_message_names_both_ways_and_the_owner(target: Target) -> None:
    target.case(target.sink(**ALL), DAY_1, "AA").task()
    with pytest.raises(SinkRefused) as error:
        target.case(target.sink(**ALL), DAY_2, "UA").task()
    said = str(error.value)
    for part in (f"flights.load of dag / {DAY_1}", "run_column='<a text column", "keeps='latest'"):
        assert part in said
    with pytest.raises(SinkRefused) as error:
        target.case(target.sink(**ALL), DAY_1, "UA", dag="b").task()
    assert f"airflow recovery adopt dag/{GROUP}/load b/{GROUP}/load" in str(error.value)
    assert "keeps=" not in str(error.value)


# keeps="latest"


def test_fault_223_a_backfill_in_reverse_order_leaves_the_newest_date(target: Target) -> None:
    results: dict[str, RegionResult] = {}
    for day, carrier in ((DAY_3, "C"), (DAY_2, "B"), (DAY_1, "A")):
        case = target.case(target.sink(**LATEST), day, carrier)
        results[day] = case.task()
        assert target.carriers() == ["C"]
        kept = case.task()
        assert kept.decision is Decision.KEPT
        assert ("superseded by 2026-01-03" in kept.why) is (day != DAY_3)
    assert [results[day].why for day in (DAY_3, DAY_2, DAY_1)] == ["ran", *["ran; superseded by 2026-01-03"] * 2]
    older = target.case(target.sink(**LATEST), DAY_1, "A").state().attempts[1].committed
    assert older is not None
    assert (older.end, older.probe) == (CommitEnd.SUPERSEDED, "superseded by 2026-01-03")


def test_fault_223_whoever_declares_keeps_latest_later_goes_on_with_the_table(target: Target) -> None:
    target.case(target.sink(**ALL), DAY_2, "B").task()
    assert target.case(target.sink(**LATEST), DAY_1, "A").task().why == "ran; superseded by 2026-01-02"
    target.case(target.sink(**LATEST), DAY_3, "C").task()
    assert target.carriers() == ["C"]


@pytest.mark.control
def test_control_fault_223_without_the_order_of_dates_an_older_one_replaces_a_newer_one(
    target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (postgres, delta, iceberg):
        monkeypatch.setattr(module, "check_owners", lambda *given: None)
    for day, carrier in ((DAY_2, "B"), (DAY_1, "A")):
        target.case(target.sink(**LATEST), day, carrier).task()
    assert target.carriers() == ["A"]


@pytest.mark.control
def test_control_fault_221_with_the_date_alone_as_key_one_dag_deletes_the_rows_of_the_other(
    target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (postgres, delta, iceberg):
        monkeypatch.setattr(module, "check_owners", lambda *given: None)
    monkeypatch.setattr(CommitToken, "lineage", property(lambda self: self.run_key))
    for attempt, (dag, carrier) in enumerate((("a", "US"), ("b", "DE")), start=1):
        token = CommitToken(dag, DAY_1, GROUP, "load", attempt)
        case = target.case(target.sink(**BY_RUN), DAY_1, carrier, dag=dag)
        manifest = replace(stage(case.warehouse.store, dag, case.rows), result="load")
        target.committer(case.sink).commit(Committable(token, manifest))
    assert target.carriers() == ["DE"]


def test_keeps_latest_needs_a_date(target: Target) -> None:
    with fails_with("keeps-latest-without-date"):
        target.case(target.sink(**LATEST), "run-by-hand", "A").task()


@pytest.mark.parametrize(
    ("key", "date"),
    [
        ("date-2026-01-02T000000Z", "2026-01-02T00:00:00+00:00"),
        ("date-2026-01-02T103000.123456Z", "2026-01-02T10:30:00.123456+00:00"),
        ("partition-2026-01-02", "2026-01-02T00:00:00+00:00"),
        ("partition-us|2026-01-02T01:00:00+01:00", "2026-01-02T00:00:00+00:00"),
        ("run-asset_triggered__2026-01-02T00:00:00+00:00_x1", "2026-01-02T00:00:00+00:00"),
        ("run-by-hand", None),
        ("run-2026-99-99", None),
    ],
)
def test_the_date_of_a_run(key: str, date: str | None) -> None:
    found = date_of(key)
    assert (found.isoformat() if found else None) == date


# what versions before have left


def test_fault_224_rows_under_the_date_alone_are_refused_with_the_statement_that_migrates_them(
    warehouse: Warehouse, tmp_path: Path
) -> None:
    target = Target("postgres", tmp_path, warehouse)
    for day in (DAY_1, DAY_2):
        warehouse.ask(f"INSERT INTO {warehouse.table} (carrier, run_key) VALUES ('old', %s)", day)
    case = target.case(target.sink(**BY_RUN), DAY_1, "new")
    with fails_with("run-column-missing") as error:
        case.task()
    assert case.state().latest_attempt == 0
    statement = str(error.value).partition("new key: ")[2].partition(". If other")[0]
    assert statement.startswith(f"UPDATE {warehouse.table} SET run_key = ")
    warehouse.ask(statement.replace("%", "%%"))
    for day, left in ((DAY_1, ["new", "old"]), (DAY_2, ["new", "new"])):
        target.case(target.sink(**BY_RUN), day, "new").task()
        assert target.carriers() == left


def test_fault_224_a_run_id_is_migrated_by_itself(warehouse: Warehouse, tmp_path: Path) -> None:
    target, key = Target("postgres", tmp_path, warehouse), "run-manual__2026-01-01T00:00:00+00:00"
    warehouse.ask(f"INSERT INTO {warehouse.table} (carrier, run_key) VALUES ('old', %s)", key)
    with fails_with("run-column-missing") as error:
        target.case(target.sink(**BY_RUN), key, "new").task()
    warehouse.ask(str(error.value).partition("new key: ")[2].partition(". If other")[0])
    target.case(target.sink(**BY_RUN), key, "new").task()
    assert target.carriers() == ["new"]


def test_fault_224_a_column_that_is_too_short_is_named_before_spark(warehouse: Warehouse, tmp_path: Path) -> None:
    target = Target("postgres", tmp_path, warehouse)
    warehouse.ask(f"ALTER TABLE {warehouse.table} ALTER COLUMN run_key TYPE varchar(30)")
    case = target.case(target.sink(**BY_RUN), DAY_1, "new")
    with fails_with("run-column-unfit-in-table") as error:
        case.task()
    assert case.state().latest_attempt == 0
    warehouse.ask(str(error.value).partition("Change the column: ")[2])
    case.task()


def test_fault_224_rows_without_a_key_are_not_left_beside_new_ones(target: Target) -> None:
    """The sink had no run_column= when it committed."""
    target.case(target.sink(**ALL), DAY_1, "old").task()
    case = target.case(target.sink(**BY_RUN), DAY_1, "new")
    if target.kind == "delta":
        with fails_with("run-column-missing", column="run_key"):
            case.task()
        added = deltalake.Field("run_key", deltalake.schema.PrimitiveType("string"))
        deltalake.DeltaTable(target.uri).alter.add_columns([added])
    with fails_with("rows-without-key"):
        case.task()
    assert target.carriers() == ["old"]
    key = CommitToken(*("dag", DAY_1, GROUP, "load"), 0).lineage
    if target.kind == "delta":
        deltalake.DeltaTable(target.uri).update(updates={"run_key": f"'{key}'"}, predicate="carrier = 'old'")
    elif target.kind == "iceberg":
        target.catalog.load_table("db.t").overwrite(pa.table({"carrier": ["old"], "run_key": [key]}))
    else:
        assert target.warehouse is not None
        target.warehouse.ask(f"UPDATE {target.warehouse.table} SET run_key = %s", key)
    case.task()
    assert target.carriers() == ["new"]


def test_fault_220_a_table_that_a_version_before_has_replaced_is_not_replaced_by_another_date(target: Target) -> None:
    """Its tokens say nothing of what they replace."""
    target.case(target.sink(**ALL), DAY_1, "AA").task()
    forget_owners(target)
    with fails_with("sinks-of-two-owners"):
        target.case(target.sink(**ALL), DAY_2, "UA").task()
    assert target.carriers() == ["AA"]


def forget_owners(target: Target) -> None:
    """As tokens were in versions before."""
    lineage = CommitToken(*("dag", DAY_1, GROUP, "load"), 0).lineage
    if target.kind == "postgres":
        assert target.warehouse is not None
        target.warehouse.ask(f"ALTER TABLE {target.warehouse.schema}.airflow_recovery_commits DROP COLUMN replaces")
    elif target.kind == "delta":
        table = deltalake.DeltaTable(target.uri)
        none = deltalake.CommitProperties(app_transactions=[deltalake.Transaction("airflow-recovery#owner", 0)])
        table.create_write_transaction([], "append", table.schema(), commit_properties=none)
    else:
        told = {"airflow-recovery.lineage": lineage, "airflow-recovery.attempt": "1", "airflow-recovery.writer": ""}
        held = target.catalog.load_table("db.t")
        held.append(held.scan().to_arrow().slice(0, 0), snapshot_properties=told)


# another spelling


def test_fault_221_one_table_by_two_names_is_one_table(warehouse: Warehouse, tmp_path: Path) -> None:
    target = Target("postgres", tmp_path, warehouse)
    warehouse.ask(f"ALTER ROLE {warehouse.address['user']} SET search_path = {warehouse.schema}")
    try:
        target.case(target.sink(**ALL), DAY_1, "AA").task()
        by_name = PostgresTable(conn_id="warehouse", table="delays", mode="replace")
        with fails_with("sinks-of-two-owners"):
            target.case(by_name, DAY_1, "UA", task="other").task()
        # Its own token is found as well: nothing is appended twice.
        added = PostgresTable(conn_id="warehouse", table="delays")
        with pytest.raises(AppendedAlready):
            target.case(added, DAY_1, "UA").task()
        assert target.carriers() == ["AA"]
    finally:
        warehouse.ask(f"ALTER ROLE {warehouse.address['user']} RESET search_path")


# renamed


RENAMED: dict[str, Callable[[Case], Case]] = {
    "task": lambda case: replace(case, region="load_rows", dag_tasks=(f"{GROUP}.load_rows",)),
    "DAG": lambda case: replace(case, identity=replace(case.identity, dag_id="ren_v2"), dags=("ren_v2",)),
}
OLD_AND_NEW = {"task": f"dag/{GROUP}/load dag/{GROUP}/load_rows", "DAG": "dag ren_v2"}


def adopt(target: Target, case: Case, *words: str) -> int:
    """``airflow recovery adopt``, on a machine with this deployment's connections."""
    deployment = SimpleNamespace(
        journal=LocalStore(str(case.journal)), open_committer=lambda spec: target.committer(sink_of(spec))
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(console_adopt, "deployment_of", lambda args: deployment)
        return main(["adopt", *words])


@pytest.mark.parametrize("mode", ["append", "run"])
@pytest.mark.parametrize("what", RENAMED)
def test_fault_225_what_was_renamed_adds_its_rows_only_once(
    target: Target, what: str, mode: str, capsys: pytest.CaptureFixture[str]
) -> None:
    case = target.case(target.sink(**SINKS[mode]), DAY_1, "AA")
    case.task()
    new = RENAMED[what](case)
    names = OLD_AND_NEW[what]
    with fails_with("rows-of-old-name"):
        new.task()
    assert new.state().latest_attempt == 0
    assert target.carriers() == ["AA"]
    assert adopt(target, case, *names.split(), "--dry-run", "--json") == ExitCode.DONE
    [found] = json.loads(capsys.readouterr().out)["adopted"]
    assert (found["old"], found["new"], found["attempt"]) == (case.identity_key.path, new.identity_key.path, 1)
    with pytest.raises(SinkRefused):
        new.task()
    assert adopt(target, case, *names.split()) == ExitCode.DONE
    assert f"is {new.identity_key.path}'s." in capsys.readouterr().out
    assert adopt(target, case, *names.split()) == ExitCode.NOT_FOUND  # a second time changes nothing
    again = replace(new, rows={"carrier": ["UA"]})
    if mode == "append":
        for _ in range(2):
            kept = again.task()
            assert (kept.decision, kept.attempt) == (Decision.KEPT, 1)
        # As it is of a task that has always had this name: its code has changed, and it has appended already.
        with fails_with("appended-other-attempt"):
            replace(again, code="other").task()
        assert target.carriers() == ["AA"]
        assert findings(new) == []
    else:
        again.task()
        assert target.carriers() == ["UA"]
    # Under its old name it is the second one now.
    if what == "task":
        with pytest.raises((SinkRefused, AppendedAlready)):
            replace(case, code="other", dag_tasks=(f"{GROUP}.load",), rows={"carrier": ["DL"]}).task()


def findings(case: Case) -> list[str]:
    """What the independent checker has against the journal of the case's run."""
    opened = case.warehouse.resources.open_location
    report = verify_run(LocalStore(str(case.journal)), opened, **vars(case.identity))
    return [str(finding) for check in report.answers for finding in check.findings]


@pytest.mark.control
@pytest.mark.parametrize("what", RENAMED)
def test_control_fault_260_without_its_finish_of_before_an_adopted_task_that_appends_stays_red(
    target: Target, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commit, "copy_adopted", lambda *given: False)
    case = target.case(target.sink(**APPEND), DAY_1, "AA")
    case.task()
    assert adopt(target, case, *OLD_AND_NEW[what].split()) == ExitCode.DONE
    with fails_with("appended-unknown-to-journal"):
        RENAMED[what](case).task()


def test_fault_260_a_dag_and_its_task_are_renamed_at_once(target: Target) -> None:
    case = target.case(target.sink(**APPEND), DAY_1, "AA")
    case.task()
    new = RENAMED["DAG"](RENAMED["task"](case))
    assert adopt(target, case, f"dag/{GROUP}/load", f"ren_v2/{GROUP}/load_rows") == ExitCode.DONE
    results = [new.task() for _ in range(2)]
    assert [result.decision for result in results] == [Decision.KEPT] * 2
    assert all("; adopted from load@1 of dag" in note_of(result) for result in results)
    assert target.carriers() == ["AA"]


@pytest.mark.parametrize("what", RENAMED)
def test_fault_260_a_name_that_comes_back_is_adopted_back(target: Target, what: str) -> None:
    case = target.case(target.sink(**APPEND), DAY_1, "AA")
    case.task()
    new, names = RENAMED[what](case), OLD_AND_NEW[what].split()
    assert adopt(target, case, *names) == ExitCode.DONE
    assert new.task().decision is Decision.KEPT
    case = replace(case, dag_tasks=(f"{GROUP}.load",), dags=("dag",))
    with pytest.raises((AppendedAlready, SinkRefused)):
        case.task()
    assert adopt(target, case, *reversed(names)) == ExitCode.DONE
    assert case.task().decision is Decision.KEPT
    assert adopt(target, case, *names) == ExitCode.DONE
    assert new.task().decision is Decision.KEPT
    assert target.carriers() == ["AA"]


def test_fault_260_other_code_of_a_renamed_dag_is_not_taken_for_that_of_the_old_one(target: Target) -> None:
    case = target.case(target.sink(**APPEND), DAY_1, "AA")
    case.task()
    assert adopt(target, case, *OLD_AND_NEW["DAG"].split()) == ExitCode.DONE
    with fails_with("appended-other-attempt"):
        replace(RENAMED["DAG"](case), code="other").task()
    assert RENAMED["DAG"](case).task().decision is Decision.KEPT  # rolled back
    assert target.carriers() == ["AA"]


def test_fault_260_the_name_of_a_vertex_is_a_part_of_its_fingerprint_so_adopt_is_the_users_word(
    target: Target, caplog: pytest.LogCaptureFixture
) -> None:
    case = target.case(target.sink(**APPEND), DAY_1, "AA")
    case.task()
    assert adopt(target, case, *OLD_AND_NEW["task"].split()) == ExitCode.DONE
    new = replace(RENAMED["task"](case), code="the fingerprint under the new name")
    note = note_of(new.task())
    assert note.startswith("kept: attempt 1 is valid")
    assert "adopted from load@1 of dag, and its code is taken to be the same but for the name" in note
    assert "load_rows: its code is taken to be that of load but for the name" in caplog.text
    view = view_run(new.journal_of())
    evaluation = Evaluation(view.in_use.plan, view.in_use.state, available=lambda region, attempt, result: None)
    planned = plan_text(plan_run(view, evaluation))
    assert "adopted from load@1 of dag, and its code is taken to be the same but for the name" in planned
    with fails_with("appended-other-attempt"):
        replace(new, code="changed since").task()
    assert target.carriers() == ["AA"]


@pytest.mark.parametrize("is_there", [True, False])
def test_fault_260_xcoms_are_copied_with_the_finish(target: Target, is_there: bool) -> None:
    case = target.case(target.sink(**APPEND), DAY_1, "AA")
    case.task()
    journal, new = case.journal_of(), RENAMED["DAG"](case)
    claim, outcome = journal.read_claim("load", 1), case.state().attempts[1].outcome
    assert outcome is not None
    outcome = replace(outcome, xcoms=StoredXComs("d" * 64, 2, folder=claim.folder))
    results = case.warehouse.store
    if is_there:
        results.put(xcoms_key(journal.layout.data_of(claim), "d" * 64), b"{}")
    run: Any = SimpleNamespace(results=results, journal=new.journal_of())
    copied = adopted._copied_xcoms(run, journal, "load", outcome, claim)
    assert copied is not None
    if is_there:
        assert copied == outcome.xcoms
        assert results.get(xcoms_key(run.journal.layout.data_of(claim), copied.digest)).body == b"{}"
    else:
        assert (copied.digest, copied.why) == ("", "those of load are missing")


def test_fault_260_a_name_without_rows_adopts_nothing_and_appends(target: Target) -> None:
    case = target.case(target.sink(**APPEND), DAY_1, "AA")
    other = RENAMED["task"](replace(case, identity=replace(case.identity, run_key=DAY_2)))
    assert adopt(target, case, *OLD_AND_NEW["task"].split()) == ExitCode.NOT_FOUND
    assert other.task().decision is Decision.RAN
    assert target.carriers() == ["AA"]


@pytest.mark.parametrize("what", RENAMED)
def test_fault_260_rows_that_are_removed_after_an_adoption_are_committed_again(target: Target, what: str) -> None:
    case = target.case(target.sink(**APPEND), DAY_1, "AA")
    case.task()
    new = RENAMED[what](case)
    assert adopt(target, case, *OLD_AND_NEW[what].split()) == ExitCode.DONE
    new.task()
    empty(target)
    new.task()
    assert target.carriers() == ["AA"]
    new.task()
    assert target.carriers() == ["AA"]


@pytest.mark.control
@pytest.mark.parametrize("what", RENAMED)
def test_control_fault_225_without_the_owner_its_rows_are_there_twice(
    target: Target, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(region_task, "check_owner", lambda run, region, state: None)
    case = target.case(target.sink(**APPEND), DAY_1, "AA")
    case.task()
    RENAMED[what](case).task()
    assert target.carriers() == ["AA", "AA"]


def test_fault_225_a_date_that_the_old_name_never_wrote_runs(target: Target) -> None:
    case = target.case(target.sink(**APPEND), DAY_1, "AA")
    case.task()
    RENAMED["task"](replace(case, identity=replace(case.identity, run_key=DAY_2))).task()
    assert target.carriers() == ["AA", "AA"]


def test_two_dags_of_one_factory_that_append_are_no_new_names(target: Target) -> None:
    for dag in ("a", "b"):
        target.case(target.sink(**APPEND), DAY_1, "AA", dag=dag).task()
    assert target.carriers() == ["AA", "AA"]


def test_adopt_does_not_join_what_both_have_written(target: Target) -> None:
    cases = [target.case(target.sink(**APPEND), DAY_1, "AA", dag=dag) for dag in ("a", "b")]
    for case in cases:
        case.task()
    old, new = (CommitToken(*case.identity_key, 0) for case in cases)
    with fails_with("both-owners-committed"):
        target.committer(cases[0].sink).adopt(old, new)


@pytest.mark.parametrize("names", [("dag", "dag"), ("dag", "dag/t"), ("a/b/c/d", "a/b/c/e"), ("dag/", "dag/t")])
def test_names_that_adopt_does_not_understand(target: Target, names: tuple[str, str], capsys: Any) -> None:
    case = target.case(target.sink(**APPEND), DAY_1, "AA")
    assert adopt(target, case, *names) == ExitCode.USAGE
    assert "Expected two names as DAG, DAG/TASK or DAG/GROUP/REGION" in capsys.readouterr().err


# what a kept task finds


def empty(target: Target, carrier: str | None = None) -> None:
    """Somebody deletes the rows of a carrier, or all rows."""
    where = None if carrier is None else f"carrier = '{carrier}'"
    if target.kind == "delta":
        deltalake.DeltaTable(target.uri).delete(where)
    elif target.kind == "iceberg":
        table = target.catalog.load_table("db.t")
        table.delete() if where is None else table.delete(where)
    else:
        assert target.warehouse is not None
        target.warehouse.ask(f"DELETE FROM {target.warehouse.table}" + ("" if where is None else f" WHERE {where}"))


def committable(case: Case) -> Committable:
    """What another process finds in the journal for the case's first attempt."""
    outcome = case.state().attempts[1].outcome
    assert outcome is not None
    return Committable(token_of_finish(case.identity, outcome), prepared_of(outcome))


@pytest.mark.parametrize("order", [(DAY_1, DAY_2), (DAY_2, DAY_1)])
@pytest.mark.parametrize("is_emptied", [False, True])
def test_a_superseded_date_is_kept_and_misses_no_rows(target: Target, order: tuple[str, str], is_emptied: bool) -> None:
    """Its commit was superseded, or a later date has replaced its rows since. Only the newest commits again."""
    cases = {day: target.case(target.sink(**LATEST), day, carrier) for day, carrier in ((DAY_1, "A"), (DAY_2, "B"))}
    for day in order:
        cases[day].task()
    if is_emptied:
        empty(target)
    kept = cases[DAY_1].task()
    assert kept.decision is Decision.KEPT
    assert "superseded by 2026-01-02" in kept.why
    assert target.carriers() == ([] if is_emptied else ["B"])
    assert cases[DAY_2].task().decision is Decision.KEPT
    assert target.carriers() == ["B"]


@pytest.mark.parametrize("is_whole", [True, False])
def test_the_rows_of_other_keys_are_no_others_who_have_overwritten_mine(target: Target, is_whole: bool) -> None:
    one, two = (target.case(target.sink(**BY_RUN), day, carrier) for day, carrier in ((DAY_1, "A"), (DAY_2, "B")))
    one = replace(one, rows={"carrier": ["A", "C"]})
    for case in (one, two):
        case.task()
    if is_whole:
        empty(target, "A")
    empty(target, "C")
    assert target.carriers() == (["B"] if is_whole else ["A", "B"])
    kept = one.task()
    assert kept.decision is Decision.KEPT
    assert "committed again" in kept.why
    assert target.carriers() == ["A", "B", "C"]
    keys = {row["carrier"]: row["run_key"] for row in target.table()}
    assert keys["A"] == keys["C"] == committable(one).token.lineage != keys["B"]
    for case in (one, two):
        assert "committed again" not in case.task().why


def test_rows_under_the_date_alone_are_not_committed_a_second_time(warehouse: Warehouse, tmp_path: Path) -> None:
    target = Target("postgres", tmp_path, warehouse)
    case = target.case(target.sink(**BY_RUN), DAY_1, "A")
    case.task()
    warehouse.ask(f"UPDATE {warehouse.table} SET run_key = %s", DAY_1)
    with fails_with("run-column-missing"):
        case.task()
    assert target.carriers() == ["A"]


@pytest.mark.parametrize("sink", ["all", "run"])
def test_a_repeated_commit_checks_the_owners_as_the_first_did(target: Target, sink: str) -> None:
    """Another owner comes between the question for the rows and the second commit."""
    case = target.case(target.sink(**SINKS[sink]), DAY_1, "A", dag="a")
    case.task()
    empty(target)
    into, given = target.committer(case.sink), committable(case)
    assert into.rows(given, "").rows is Rows.REMOVED
    other = target.case(target.sink(**(ALL if sink == "all" else BY_RUN)), DAY_1, "X", dag="b")
    with pytest.MonkeyPatch.context() as patch:
        for module in (postgres, delta, iceberg):
            patch.setattr(module, "check_owners", lambda *given: None)
        other.task()
    if sink == "all":
        with pytest.raises(SinkRefused):
            into.commit_again(given, "")
        assert target.carriers() == ["X"]
    else:
        into.commit_again(given, "")
        assert target.carriers() == ["A", "X"]


def test_after_an_adoption_the_rows_are_found_by_the_new_key(target: Target) -> None:
    case = target.case(target.sink(**BY_RUN), DAY_1, "A")
    case.task()
    into, old = target.committer(case.sink), committable(case)
    new = replace(old, token=replace(old.token, region="load_rows"))
    into.adopt(old.token, new.token)
    assert into.rows(new, "").rows is Rows.THERE
    empty(target)
    assert into.rows(new, "").rows is Rows.REMOVED
    into.commit_again(new, "")
    assert [row["run_key"] for row in target.table()] == [new.token.lineage]


def test_under_its_old_name_nothing_is_appended_again_after_an_adoption(target: Target) -> None:
    """The renaming is taken back, and the run is cleared: its rows belong to the new name."""
    sink = DeltaTable(uri=target.uri) if target.kind == "delta" else target.sink(**APPEND)
    case = target.case(sink, DAY_1, "A")
    case.task()
    given = committable(case)
    target.committer(sink).adopt(given.token, replace(given.token, region="load_rows"))
    with fails_with("rows-of-old-name"):
        case.task()
    assert target.carriers() == ["A"]


def adopted_and_renamed_back(target: Target) -> Case:
    """The rows of task `load` belong to `load_rows`, and then the DAG has `load` alone again, with the same code."""
    case = target.case(target.sink(**BY_RUN), DAY_1, "A")
    case.task()
    given = committable(case)
    target.committer(case.sink).adopt(given.token, replace(given.token, region="load_rows"))
    return replace(case, dag_tasks=(f"{GROUP}.load",))


def test_fault_238_a_task_that_is_kept_does_not_commit_again_what_its_other_name_has(target: Target) -> None:
    case = adopted_and_renamed_back(target)
    names = f"dag/{GROUP}/load_rows dag/{GROUP}/load"
    with fails_with("rows-of-old-name"):
        case.task()
    assert target.carriers() == ["A"]
    # The journal has no plan with `load_rows`: its task was refused before its claim.
    assert adopt(target, case, *names.split()) == ExitCode.DONE
    case.task()
    assert target.carriers() == ["A"]


@pytest.mark.control
def test_control_fault_238_without_the_owner_its_rows_are_there_under_both_names(
    target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(region_task, "check_owner", lambda run, region, state: None)
    adopted_and_renamed_back(target).task()
    assert target.carriers() == ["A", "A"]


def renamed_while_it_runs(target: Target) -> Case:
    """Task `load` is renamed to `load_rows`, which runs while the old one is still at work."""
    case = target.case(target.sink(**BY_RUN), DAY_1, "A")
    return replace(case, meanwhile=lambda: replace(RENAMED["task"](case), rows={"carrier": ["B"]}).task())


def test_fault_239_the_old_name_of_a_task_commits_no_more(target: Target) -> None:
    with pytest.raises(RecoveryError):
        renamed_while_it_runs(target).task()
    assert target.carriers() == ["B"]


@pytest.mark.control
def test_control_fault_239_where_the_old_attempt_goes_on_its_rows_are_there_under_both_names(
    target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owners, "_end_attempts", lambda run, new, old: None)
    renamed_while_it_runs(target).task()
    assert target.carriers() == ["A", "B"]


def test_fault_239_what_the_old_name_has_finished_and_not_committed_is_named(
    target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = target.case(target.sink(**BY_RUN), DAY_1, "A")
    with monkeypatch.context() as patch:
        patch.setattr(region_task, "commit_own", Mock(side_effect=KeyboardInterrupt("its process dies")))
        with pytest.raises(KeyboardInterrupt):
            case.task()
    with fails_with("old-name-may-commit"):
        RENAMED["task"](case).task()
    assert target.carriers() == []
