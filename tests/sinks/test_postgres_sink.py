"""A real PostgreSQL server: rows and token become visible at once, and each token once."""

from __future__ import annotations

import datetime
import decimal
import threading

import pyarrow
import pytest
from staging import Warehouse, token

from airflow_recovery.errors import ConfigurationError, InputAltered, SinkRefused, SinkUnavailable
from airflow_recovery.sinks import Committer, PostgresTable, Probe
from airflow_recovery.sinks import postgres as module

GIVEN = [("AA", 1.5), ("UA", -2.0), (None, 3.0), ("", None)]


def committer(warehouse: Warehouse, mode: str = "append", **options: str) -> Committer:
    sink = PostgresTable(conn_id="warehouse", table=warehouse.table, mode=mode, **options)
    return sink.open(warehouse.resources)


def test_rows_arrive_as_they_were_prepared(warehouse):
    into = committer(warehouse)
    assert into.probe(token()) is Probe.NOT_APPLIED
    assert "4 rows" in into.commit(warehouse.committable())
    assert warehouse.rows() == GIVEN
    assert into.probe(token()) is Probe.APPLIED
    assert warehouse.held() == [("dag/date-1/flights/delays", 1)]


def test_a_token_is_applied_once(warehouse):
    into = committer(warehouse)
    into.commit(warehouse.committable())
    assert "applied before" in into.commit(warehouse.committable())
    assert warehouse.rows() == GIVEN


def test_hole_14_of_two_processes_with_one_token_one_applies_it(warehouse, monkeypatch):
    """Both have seen that it is not applied, and have copied their rows, before either takes the token."""
    both = threading.Barrier(2)
    take = module._PostgresCommitter._take

    def together(self, cursor, of):
        both.wait(20)
        return take(self, cursor, of)

    monkeypatch.setattr(module._PostgresCommitter, "_take", together)
    given, said = warehouse.committable(), []
    threads = [threading.Thread(target=lambda: said.append(committer(warehouse).commit(given))) for _ in range(2)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert sorted("applied before" in each for each in said) == [False, True]
    assert warehouse.rows() == GIVEN


def test_control_without_the_token_both_would_be_there(warehouse, monkeypatch):
    monkeypatch.setattr(module._PostgresCommitter, "_take", lambda self, cursor, of: True)
    into = committer(warehouse)
    into.commit(warehouse.committable())
    into.commit(warehouse.committable())
    assert warehouse.rows() == GIVEN * 2


def test_a_second_attempt_is_not_appended(warehouse):
    into = committer(warehouse)
    into.commit(warehouse.committable())
    with pytest.raises(SinkRefused, match="found attempt 1 of it there"):
        into.commit(warehouse.committable(2))
    assert warehouse.rows() == GIVEN


def test_another_run_is_appended(warehouse):
    into = committer(warehouse)
    into.commit(warehouse.committable())
    into.commit(warehouse.committable(run_key="date-2"))
    assert warehouse.rows() == GIVEN * 2


def test_replace_puts_the_next_attempt_over_the_first_and_refuses_a_lower_one(warehouse):
    into = committer(warehouse, "replace")
    into.commit(warehouse.committable())
    into.commit(warehouse.committable(2, {"carrier": ["B6"], "delay": [9.0]}))
    assert warehouse.rows() == [("B6", 9.0)]
    with pytest.raises(SinkRefused, match="a newer attempt counts"):
        into.commit(warehouse.committable(1))
    assert warehouse.rows() == [("B6", 9.0)]
    assert into.probe(token(1)) is Probe.NOT_APPLIED
    assert warehouse.held() == [("dag/date-1/flights/delays", 2)]


def test_replace_with_a_run_column_leaves_other_runs_rows(warehouse):
    into = committer(warehouse, "replace", run_column="run_key")
    into.commit(warehouse.committable())
    into.commit(warehouse.committable(run_key="date-2"))
    into.commit(warehouse.committable(2, {"carrier": ["B6"], "delay": [9.0]}))
    found = warehouse.ask(f"SELECT run_key, count(*) FROM {warehouse.table} GROUP BY 1 ORDER BY 1")
    assert found == [("date-1", 1), ("date-2", 4)]


def test_two_runs_that_replace_at_once_leave_the_rows_of_one(warehouse, monkeypatch):
    both = threading.Barrier(2)
    insert = module._PostgresCommitter._insert

    def together(self, cursor, of, columns):
        both.wait(20)
        return insert(self, cursor, of, columns)

    monkeypatch.setattr(module._PostgresCommitter, "_insert", together)
    given = [warehouse.committable(run_key=key) for key in ("date-1", "date-2")]
    threads = [
        threading.Thread(target=lambda each=each: committer(warehouse, "replace").commit(each)) for each in given
    ]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert sorted(warehouse.rows(), key=str) == sorted(GIVEN, key=str)


def test_fault_12_a_transaction_that_breaks_leaves_nothing(warehouse, monkeypatch):
    insert = module._PostgresCommitter._insert

    def breaks(self, cursor, of, columns):
        insert(self, cursor, of, columns)
        cursor.execute("SELECT pg_terminate_backend(pg_backend_pid())")

    given = warehouse.committable()
    with monkeypatch.context() as patched:
        patched.setattr(module._PostgresCommitter, "_insert", breaks)
        with pytest.raises(SinkUnavailable, match="nothing is committed twice"):
            committer(warehouse).commit(given)
    assert warehouse.rows() == []
    into = committer(warehouse)
    assert into.probe(token()) is Probe.NOT_APPLIED
    into.commit(given)
    assert warehouse.rows() == GIVEN


def test_whoever_is_frozen_with_the_token_holds_nobody_up(warehouse, monkeypatch):
    """The server ends a transaction that does nothing, and the next process goes on."""
    monkeypatch.setattr(module, "IDLE_TIMEOUT_S", 1)
    held, frozen = threading.Event(), threading.Event()
    take, errors = module._PostgresCommitter._take, []

    def freezes(self, cursor, of):
        taken = take(self, cursor, of)
        if threading.current_thread() is not threading.main_thread():
            held.set()
            frozen.wait(30)
        return taken

    monkeypatch.setattr(module._PostgresCommitter, "_take", freezes)
    given = warehouse.committable()

    def zombie() -> None:
        try:
            committer(warehouse).commit(given)
        except SinkUnavailable as error:
            errors.append(error)

    thread = threading.Thread(target=zombie)
    thread.start()
    assert held.wait(20)
    committer(warehouse).commit(given)
    frozen.set()
    thread.join()
    assert errors
    assert warehouse.rows() == GIVEN


def test_every_type_that_spark_writes_flat(warehouse):
    table = f"{warehouse.schema}.typed"
    warehouse.ask(
        f"CREATE TABLE {table} (i bigint, b boolean, d date, t timestamptz, m numeric(10,2), s text, f real, n integer)"
    )
    at = datetime.datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=datetime.timezone.utc)
    rows = pyarrow.table(
        {
            "i": pyarrow.array([2**60, None], pyarrow.int64()),
            "b": [True, None],
            "d": [datetime.date(2026, 1, 2), None],
            "t": pyarrow.array([at, None], pyarrow.timestamp("us", "UTC")),
            "m": pyarrow.array([decimal.Decimal("-12.34"), None], pyarrow.decimal128(10, 2)),
            "s": ['a "b", \n ü\\N', None],
            "f": pyarrow.array([float("nan"), 1.5], pyarrow.float32()),
            "n": pyarrow.array([None, 7], pyarrow.int32()),
        }
    )
    sink = PostgresTable(conn_id="warehouse", table=table)
    sink.open(warehouse.resources).commit(warehouse.committable(rows=rows))
    first, second = warehouse.ask(f"SELECT i, b, d, t, m, s, f, n FROM {table} ORDER BY i")
    assert first[:6] == (2**60, True, datetime.date(2026, 1, 2), at, decimal.Decimal("-12.34"), 'a "b", \n ü\\N')
    assert first[6] != first[6]
    assert second == (None, None, None, None, None, None, 1.5, 7)


def test_no_rows_are_a_commit_as_well(warehouse):
    empty = pyarrow.table({"carrier": pyarrow.array([], pyarrow.string()), "delay": pyarrow.array([], "double")})
    into = committer(warehouse)
    into.commit(warehouse.committable(rows=empty))
    assert into.probe(token()) is Probe.APPLIED
    assert warehouse.rows() == []


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ({"carrier": [["AA"]], "delay": [1.0]}, "cast them to strings"),
        ({"carrier": [b"AA"], "delay": [1.0]}, "cast them to strings"),
        ({"carrier": ["AA"], "late": [1.0]}, "found no late"),
    ],
)
def test_what_does_not_fit_is_named_and_nothing_is_committed(warehouse, rows, said):
    with pytest.raises(ConfigurationError, match=said):
        committer(warehouse).commit(warehouse.committable(rows=rows))
    assert warehouse.rows() == []
    assert committer(warehouse).probe(token()) is Probe.NOT_APPLIED


def test_a_table_that_is_not_there_is_named(warehouse):
    sink = PostgresTable(conn_id="warehouse", table=f"{warehouse.schema}.nothing")
    with pytest.raises(ConfigurationError, match="found none: create it"):
        sink.open(warehouse.resources).commit(warehouse.committable())


def test_a_file_that_was_altered_is_not_committed(warehouse):
    given = warehouse.committable()
    warehouse.store.put("date-1/delays/1/part-0.parquet", b"other")
    with pytest.raises(InputAltered, match="Nothing was committed"):
        committer(warehouse).commit(given)
    assert warehouse.rows() == []


def test_a_server_that_is_away_is_no_answer(warehouse):
    warehouse.resources._address = {**warehouse.address, "port": 1}
    with pytest.raises(SinkUnavailable):
        committer(warehouse).probe(token())


def test_names_are_quoted_and_values_are_values(warehouse):
    warehouse.ask(f'CREATE TABLE {warehouse.schema}."de""lays; DROP" ("a b" text)')
    sink = PostgresTable(conn_id="warehouse", table=f'{warehouse.schema}.de"lays; DROP')
    key = "x'; DROP TABLE delays; --"
    sink.open(warehouse.resources).commit(warehouse.committable(rows={"a b": [key]}, run_key="date-1"))
    assert warehouse.ask(f'SELECT "a b" FROM {warehouse.schema}."de""lays; DROP"') == [(key,)]
