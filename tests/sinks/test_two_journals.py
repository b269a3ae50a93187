"""Two journals, one target: the first was lost, moved or emptied, or two deployments commit to one table.

Each counts its attempts from 1. The real protocol, PostgreSQL and Delta tables; in place of Spark rows of the test's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import deltalake
import pytest
from expected_errors import fails_with
from sink_process import IDENTITY, REGION, Case
from staging import Resources, Warehouse, token

from airflow_recovery.attempt import commit, region_task
from airflow_recovery.errors import AppendedAlready, RegionFailed, SinkRefused
from airflow_recovery.model.records import CommitEnd
from airflow_recovery.sinks import CommittingSink, DeltaTable, Held, PostgresTable
from airflow_recovery.store.local import LocalStore
from airflow_recovery.store.object_store import ObjectStore

BEFORE: dict[str, list[Any]] = {"carrier": ["AA", "UA"], "delay": [1.0, 2.0]}
REPAIRED: dict[str, list[Any]] = {"carrier": ["B6"], "delay": [9.0]}
LINEAGE = f"{IDENTITY.dag_id}/{IDENTITY.run_key}/{IDENTITY.group_id}/{REGION}"
MODES = ["append", "replace"]


@dataclass
class Lake:
    """In place of a `Warehouse`: where results are prepared for a Delta table."""

    store: ObjectStore
    resources: Resources = field(default_factory=Resources)


class Target:
    """A table, and what a person does there."""

    sink: Callable[[str], CommittingSink]
    place: Callable[[LocalStore], Any]

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._journals = 0

    def case(self, mode: str, rows: dict[str, list[Any]], **given: Any) -> Case:
        """A journal, and results, that know nothing of each other's."""
        self._journals += 1
        place = self.place(LocalStore(str(self.folder / f"results-{self._journals}")))
        return Case(place, self.sink(mode), self.folder / f"journal-{self._journals}", rows=rows, **given)


class InPostgres(Target):
    def __init__(self, folder: Path, warehouse: Warehouse) -> None:
        super().__init__(folder)
        self.warehouse = warehouse

    def place(self, store: LocalStore) -> Warehouse:
        warehouse = Warehouse(self.warehouse.address, self.warehouse.schema, self.folder)
        warehouse.store = store
        return warehouse

    def sink(self, mode: str) -> PostgresTable:
        return PostgresTable(conn_id="warehouse", table=self.warehouse.table, mode=mode)

    def carriers(self) -> list[str]:
        return sorted(carrier for carrier, _ in self.warehouse.rows())

    def counted(self) -> int:
        ((_, attempt),) = self.warehouse.held()
        return attempt

    def undo(self) -> None:
        """As the message says."""
        self.warehouse.ask(f"DELETE FROM {self.warehouse.table}")
        self.warehouse.ask(
            f"DELETE FROM {self.warehouse.schema}.airflow_recovery_commits WHERE lineage = %s AND target = %s",
            LINEAGE,
            self.warehouse.table,
        )

    def commit_as_the_version_before(self, rows: dict[str, list[Any]]) -> None:
        """The table of tokens as it was, and one transaction with rows and token."""
        tokens = f"{self.warehouse.schema}.airflow_recovery_commits"
        self.warehouse.ask(
            f"CREATE TABLE IF NOT EXISTS {tokens} (lineage text, target text, attempt integer NOT NULL, "
            "committed_at timestamptz NOT NULL DEFAULT now(), PRIMARY KEY (lineage, target))"
        )
        for each in zip(*rows.values(), strict=True):
            self.warehouse.ask(f"INSERT INTO {self.warehouse.table} (carrier, delay) VALUES (%s, %s)", *each)
        self.warehouse.ask(
            f"INSERT INTO {tokens} (lineage, target, attempt) VALUES (%s, %s, 1)", LINEAGE, self.warehouse.table
        )

    def count_as_the_version_before(self, attempt: int) -> None:
        self.warehouse.ask(f"UPDATE {self.warehouse.schema}.airflow_recovery_commits SET attempt = %s", attempt)


class InDelta(Target):
    @property
    def uri(self) -> str:
        return str(self.folder / "lake" / "delays")

    def place(self, store: LocalStore) -> Lake:
        return Lake(store)

    def sink(self, mode: str) -> DeltaTable:
        return DeltaTable(uri=self.uri, mode=mode)

    def carriers(self) -> list[str]:
        if not deltalake.DeltaTable.is_deltatable(self.uri):
            return []
        return sorted(deltalake.DeltaTable(self.uri).to_pyarrow_table()["carrier"].to_pylist())

    def counted(self) -> int:
        return int(deltalake.DeltaTable(self.uri).transaction_version(LINEAGE) or 0)

    def undo(self) -> None:
        """As the message says."""
        none = deltalake.CommitProperties(app_transactions=[deltalake.Transaction(LINEAGE, 0)])
        deltalake.DeltaTable(self.uri).delete("carrier IS NOT NULL", commit_properties=none)

    def commit_as_the_version_before(self, rows: dict[str, list[Any]]) -> None:
        import pyarrow

        own = deltalake.CommitProperties(app_transactions=[deltalake.Transaction(LINEAGE, 1)])
        deltalake.write_deltalake(self.uri, pyarrow.table(rows), mode="append", commit_properties=own)

    def count_as_the_version_before(self, attempt: int) -> None:
        own = deltalake.CommitProperties(app_transactions=[deltalake.Transaction(LINEAGE, attempt)])
        deltalake.DeltaTable(self.uri).delete("carrier = 'AA'", commit_properties=own)


@pytest.fixture(params=["postgres", "delta"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Target:
    if request.param == "delta":
        return InDelta(tmp_path)
    return InPostgres(tmp_path, request.getfixturevalue("warehouse"))


def end_of(case: Case, attempt: int) -> CommitEnd | None:
    found = case.state().attempts[attempt].committed
    return found.end if found is not None else None


def test_the_repaired_rows_of_a_new_journal_go_above_what_the_old_one_had_replaced(target):
    target.case("replace", BEFORE).task()
    new = target.case("replace", REPAIRED)
    new.task()
    assert target.carriers() == ["B6"]
    assert target.counted() == 2
    # Its own number is the journal's: who comes later goes on as ever.
    assert new.state().latest_attempt == 1
    new.task()
    replace(new, rows=BEFORE, code="other").task()
    assert target.carriers() == ["AA", "UA"]
    assert (new.state().latest_attempt, target.counted()) == (2, 3)


def test_a_new_journal_appends_nothing_to_what_the_old_one_had_and_says_so_before_spark(target):
    target.case("append", BEFORE).task()
    new = target.case("append", REPAIRED)
    with fails_with("appended-unknown-to-journal"):
        new.task()
    assert target.carriers() == ["AA", "UA"]
    assert new.state().latest_attempt == 0
    target.undo()
    new.task()
    assert target.carriers() == ["B6"]
    assert end_of(new, 1) is CommitEnd.COMMITTED


def test_fault_176_rows_that_a_person_removed_are_appended_anew_when_their_code_comes_back(target):
    first = target.case("append", BEFORE)
    first.task()

    def fails() -> None:
        raise RegionFailed("the new code has a bug")

    new = replace(first, rows=REPAIRED, code="other", meanwhile=fails)
    with pytest.raises(AppendedAlready):
        new.task()
    target.undo()
    with pytest.raises(RegionFailed):
        new.task()
    assert target.carriers() == []
    first.task()
    assert target.carriers() == ["AA", "UA"]
    assert end_of(first, 3) is CommitEnd.COMMITTED


@pytest.mark.parametrize("mode", MODES)
def test_control_with_tokens_that_name_no_writer_the_rows_are_missing_and_all_is_green(target, mode, monkeypatch):
    """As the version before did."""
    monkeypatch.setattr(region_task, "check_not_appended", lambda run, region, state: None)
    monkeypatch.setattr(region_task, "number_in_target", lambda run, region, state: None)
    target.case(mode, BEFORE).task()
    new = target.case(mode, REPAIRED)
    new.task()
    assert target.carriers() == ["AA", "UA"]
    assert end_of(new, 1) is CommitEnd.COMMITTED


def test_two_at_once_in_mode_replace_the_later_one_is_abandoned_and_counted_above(target):
    """Both have asked an empty target before they claimed."""
    first = target.case("replace", BEFORE)
    new = target.case("replace", REPAIRED, meanwhile=first.task)
    with fails_with("counted-above"):
        new.task()
    assert target.carriers() == ["AA", "UA"]
    assert end_of(new, 1) is CommitEnd.ABANDONED
    replace(new, meanwhile=lambda: None).task()
    assert target.carriers() == ["B6"]
    assert end_of(new, 2) is CommitEnd.COMMITTED
    assert end_of(first, 1) is CommitEnd.COMMITTED


def test_two_at_once_in_mode_append_the_later_one_is_refused_until_the_rows_are_removed(target):
    first = target.case("append", BEFORE)
    new = target.case("append", REPAIRED, meanwhile=first.task)
    for _ in range(2):
        with pytest.raises(SinkRefused, match="airflow recovery abandon dag date-1 delays --group flights") as error:
            new.task()
        assert "another deployment commits there. Remove that attempt's rows, and then its token" in str(error.value)
        assert target.carriers() == ["AA", "UA"]
    target.undo()
    new.task()
    assert target.carriers() == ["B6"]
    assert (new.state().latest_attempt, end_of(new, 1)) == (1, CommitEnd.COMMITTED)


# what the version before has left behind


def prepared_by_the_version_before(target: Target, mode: str, monkeypatch: pytest.MonkeyPatch) -> Case:
    """A finish whose commit nobody has begun, with a claim and an outcome as that version writes them."""
    case = target.case(mode, BEFORE)
    with monkeypatch.context() as old:
        old.setattr(region_task, "check_not_appended", lambda run, region, state: None)
        old.setattr(region_task, "number_in_target", lambda run, region, state: None)
        old.setattr(region_task, "commit_own", lambda run, outcome: None)
        case.task()
    assert case.state().attempts[1].is_prepared
    outcome = case.journal_of().store.get(f"dag/date-1/flights/t/{REGION}/00000001.outcome")
    assert b'"number"' not in outcome.body
    return case


@pytest.mark.parametrize("was_committed", [True, False])
@pytest.mark.parametrize("mode", MODES)
def test_what_the_version_before_has_prepared_is_committed_once(target, mode, was_committed, monkeypatch):
    case = prepared_by_the_version_before(target, mode, monkeypatch)
    if was_committed:
        target.commit_as_the_version_before(BEFORE)
    for _ in range(2):
        case.task()
        assert target.carriers() == ["AA", "UA"]
    assert (case.state().latest_attempt, end_of(case, 1), target.counted()) == (1, CommitEnd.COMMITTED, 1)


def test_control_asked_by_its_writer_it_would_be_refused(target, monkeypatch):
    case = prepared_by_the_version_before(target, "append", monkeypatch)
    target.commit_as_the_version_before(BEFORE)
    with_writer = commit.token_of_finish
    monkeypatch.setattr(
        commit, "token_of_finish", lambda identity, of: replace(with_writer(identity, of), writer=of.writer)
    )
    with pytest.raises(SinkRefused):
        case.task()


def test_what_the_version_before_has_committed_stands_and_is_followed(target, monkeypatch):
    case = prepared_by_the_version_before(target, "replace", monkeypatch)
    target.commit_as_the_version_before(BEFORE)
    case.task()
    replace(case, rows=REPAIRED, code="other").task()
    assert target.carriers() == ["B6"]
    assert (case.state().latest_attempt, target.counted()) == (2, 2)


def test_a_lost_journal_of_the_version_before_is_seen_as_well(target):
    target.commit_as_the_version_before(BEFORE)
    with fails_with("appended-unknown-to-journal"):
        target.case("append", REPAIRED).task()
    target.case("replace", REPAIRED).task()
    assert target.carriers() == ["B6"]


def test_a_worker_of_the_version_before_leaves_no_writer_of_another_attempt(target):
    case = target.case("replace", BEFORE)
    case.task()
    committer = case.sink.open(case.warehouse.resources)
    first = committer.held(token())
    assert first is not None
    assert (first.attempt, first.writer is not None) == (1, True)
    target.count_as_the_version_before(2)
    assert committer.held(token()) == Held(2)


def test_a_table_of_tokens_that_is_somebody_elses_is_named_with_what_its_owner_runs(warehouse, tmp_path):
    target = InPostgres(tmp_path, warehouse)
    target.commit_as_the_version_before(BEFORE)
    role = f"{warehouse.schema}_loader"
    warehouse.ask(
        f"CREATE ROLE {role} LOGIN PASSWORD 'p'; GRANT USAGE ON SCHEMA {warehouse.schema} TO {role}; "
        f"GRANT ALL ON ALL TABLES IN SCHEMA {warehouse.schema} TO {role}; "
        f"GRANT ALL ON ALL SEQUENCES IN SCHEMA {warehouse.schema} TO {role}"
    )
    case = target.case("replace", REPAIRED)
    case.warehouse.resources = Resources({**warehouse.address, "user": role, "password": "p"})
    statement = (
        f"ALTER TABLE {warehouse.schema}.airflow_recovery_commits ADD COLUMN writer text, ADD COLUMN replaces text"
    )
    with pytest.raises(SinkRefused, match=f"Have its owner run, once: {statement}"):
        case.task()
    warehouse.ask(statement)
    case.task()
    assert target.carriers() == ["B6"]
