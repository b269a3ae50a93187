"""A real PostgreSQL server: rows and token become visible at once, and each token once."""

from __future__ import annotations

import datetime
import decimal
import threading
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import wait as futures_wait
from contextlib import closing
from dataclasses import replace
from typing import Any, cast

import psycopg2
import pyarrow
import pytest
from staging import Resources, Warehouse, token

from airflow_recovery.errors import ConfigurationError, InputAltered, SinkRefused, SinkUnavailable
from airflow_recovery.sinks import CommitMode, Committable, Committer, DatabaseAddress, Held, PostgresTable, Probe, Rows
from airflow_recovery.sinks import postgres as module
from airflow_recovery.store.local import LocalStore
from airflow_recovery.testing.patience import HANG_S, NEVER_S

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


def test_case_14_of_two_processes_with_one_token_one_applies_it(warehouse, monkeypatch):
    """Both have seen that it is not applied, and have copied their rows, before either takes the token."""
    both = threading.Barrier(2)
    take = module._PostgresCommitter._take

    def together(self, cursor, of):
        both.wait(HANG_S)
        return take(self, cursor, of)

    monkeypatch.setattr(module._PostgresCommitter, "_take", together)
    given, said = warehouse.committable(), []
    threads = [threading.Thread(target=lambda: said.append(committer(warehouse).commit(given))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for candidate in threads:
        candidate.join()
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
    assert found == [("dag/date-1/flights/delays", 1), ("dag/date-2/flights/delays", 4)]


def test_two_runs_that_replace_at_once_leave_the_rows_of_one(warehouse, monkeypatch):
    both = threading.Barrier(2)
    insert = module._PostgresCommitter._insert

    def together(self, cursor, of, columns):
        both.wait(HANG_S)
        return insert(self, cursor, of, columns)

    monkeypatch.setattr(module._PostgresCommitter, "_insert", together)
    given = [warehouse.committable(run_key=key) for key in ("date-1", "date-2")]
    refused: list[str] = []

    def commit(each: Committable) -> None:
        try:
            committer(warehouse, "replace").commit(each)
        except SinkRefused:
            refused.append(each.token.run_key)

    threads = [threading.Thread(target=commit, args=[each]) for each in given]
    for thread in threads:
        thread.start()
    for candidate in threads:
        candidate.join()
    assert len(refused) == 1
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


@pytest.mark.slow
def test_whoever_is_frozen_with_the_token_holds_nobody_up(warehouse, monkeypatch):
    """The server ends a transaction that does nothing, and the next process goes on."""
    monkeypatch.setattr(module, "LOCK_TIMEOUT_S", NEVER_S)
    held, frozen = threading.Event(), threading.Event()
    take, errors = module._PostgresCommitter._take, []

    def freezes(self, cursor, of):
        taken = take(self, cursor, of)
        if threading.current_thread() is not threading.main_thread():
            # Not before: one that is only slow would lose its transaction, too.
            cursor.execute("SET LOCAL idle_in_transaction_session_timeout = '1s'")
            held.set()
            frozen.wait(HANG_S)
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
    assert held.wait(HANG_S)
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
        ({"carrier": [["AA"]], "delay": [1.0]}, r"column carrier .array<string>. into text: make a string of it"),
        ({"carrier": [b"AA"], "delay": [1.0]}, r"column carrier .binary. into text: cast it"),
        ({"carrier": ["AA"], "late": [1.0]}, "found no late"),
    ],
)
def test_what_does_not_fit_is_named_and_nothing_is_committed(warehouse, rows, said):
    with pytest.raises((ConfigurationError, SinkRefused), match=said):
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


# what the server refuses for good, and what is no answer


def raises(warehouse: Warehouse, code: str) -> None:
    """From now on every row that is inserted meets this SQLSTATE, as it would out of the server's own depth."""
    warehouse.ask(
        f"CREATE FUNCTION {warehouse.schema}.raises() RETURNS trigger LANGUAGE plpgsql AS "
        f"$$ BEGIN RAISE EXCEPTION 'no more' USING ERRCODE = '{code}', DETAIL = 'carrier ' || NEW.carrier; END $$; "
        f"CREATE TRIGGER raises BEFORE INSERT ON {warehouse.table} FOR EACH ROW "
        f"EXECUTE FUNCTION {warehouse.schema}.raises()"
    )


@pytest.mark.parametrize(
    "code", ["0A000", "22003", "23505", "28000", "42501", "3F000", "44000", "54000", "55000", "P0001"]
)
def test_fault_98_by_its_sqlstate_it_is_refused_for_good(warehouse, code):
    raises(warehouse, code)
    with pytest.raises(SinkRefused, match=f"SQLSTATE {code}.* no retry helps"):
        committer(warehouse).commit(warehouse.committable())
    assert committer(warehouse).probe(token()) is Probe.NOT_APPLIED


@pytest.mark.parametrize("code", ["08006", "40001", "40P01", "53300", "55P03", "57014", "57P01"])
def test_fault_98_by_its_sqlstate_it_is_no_answer(warehouse, code):
    raises(warehouse, code)
    with pytest.raises(SinkUnavailable, match=f"SQLSTATE {code}"):
        committer(warehouse).commit(warehouse.committable())


UNFIT = [
    ("ADD UNIQUE (carrier)", {"carrier": ["Jo Doe", "Jo Doe"], "delay": [1.0, 1.0]}, "unique constraint"),
    ("ADD CHECK (carrier <> 'Jo Doe')", {"carrier": ["Jo Doe"], "delay": [1.0]}, "check constraint"),
    ("ALTER delay SET NOT NULL", {"carrier": ["Jo Doe"], "delay": [None]}, "null value in column"),
    (
        "ALTER carrier TYPE integer USING 1",
        {"carrier": ["Jo Doe"], "delay": [1.0]},
        "column carrier .string. into integer",
    ),
    (
        "ALTER carrier TYPE varchar(2)",
        {"carrier": ["Jo Doe"], "delay": [1.0]},
        "column carrier .string. into character varying",
    ),
    (
        "ADD CHECK (true); CREATE FUNCTION {schema}.says() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
        "RAISE EXCEPTION 'no %% here', NEW.carrier; END $$; CREATE TRIGGER says BEFORE INSERT ON {schema}.delays "
        "FOR EACH ROW EXECUTE FUNCTION {schema}.says()",
        {"carrier": ["Jo Doe"], "delay": [1.0]},
        "raise exception .SQLSTATE P0001",
    ),
]


@pytest.mark.parametrize(("change", "rows", "said"), UNFIT)
def test_fault_98_what_is_said_of_a_refusal_does_not_hold_the_row(warehouse, change, rows, said):
    warehouse.ask(f"ALTER TABLE {warehouse.table} {change.format(schema=warehouse.schema)}")
    given = warehouse.committable(rows=rows)
    with pytest.raises(SinkRefused, match=said) as error:
        committer(warehouse).commit(given)
    assert "Jo Doe" not in "".join(traceback.format_exception(error.value))
    assert warehouse.rows() == []


def test_control_the_driver_says_the_row(warehouse, monkeypatch):
    monkeypatch.setattr(module, "_safe_message", str)
    change, rows, _ = UNFIT[0]
    warehouse.ask(f"ALTER TABLE {warehouse.table} {change.format(schema=warehouse.schema)}")
    with pytest.raises(SinkRefused, match="Jo Doe"):
        committer(warehouse).commit(warehouse.committable(rows=rows))


def test_a_role_that_is_not_let_in_is_refused_for_good(warehouse):
    warehouse.resources = Resources({**warehouse.address, "user": "nobody_here"})
    with pytest.raises(SinkRefused, match="nobody_here"):
        committer(warehouse).probe(token())


# names, options of the connection, slow files


def server_side(warehouse: Warehouse, statement: str) -> None:
    """Without values, so that a percent sign is one."""
    connection = psycopg2.connect(**warehouse.address)
    with connection, connection.cursor() as cursor:
        cursor.execute(statement)
    connection.close()


@pytest.mark.parametrize("mode", ["append", "replace"])
def test_fault_99_a_percent_sign_is_part_of_a_name(warehouse, mode):
    schema = f"{warehouse.schema}%s"
    for table in ("t%%", "t%"):
        server_side(
            warehouse,
            f'CREATE SCHEMA IF NOT EXISTS "{schema}"; '
            f'CREATE TABLE "{schema}"."{table}" ("a%" text, "100%s" text, ord serial)',
        )
    sink = PostgresTable(conn_id="warehouse", table=f"{schema}.t%%", run_column="100%s", mode=mode)
    into = sink.open(warehouse.resources)
    for _ in range(2):
        into.commit(warehouse.committable(rows={"a%": ["AA", "UA"]}))
    read = f'SELECT "a%%", "100%%s" FROM "{warehouse.schema}%%s"."t%%%%" ORDER BY ord'
    assert warehouse.ask(read + " LIMIT %s", 9) == [(carrier, "dag/date-1/flights/delays") for carrier in ("AA", "UA")]
    assert warehouse.ask(f'SELECT * FROM "{warehouse.schema}%%s"."t%%" LIMIT %s', 1) == []


def test_control_as_a_statement_with_values_takes_it_a_name_is_broken(warehouse, monkeypatch):
    statement = module._statement
    monkeypatch.setattr(module, "_statement", lambda text, has_values=False, **names: statement(text, **names))
    server_side(warehouse, f'CREATE TABLE {warehouse.schema}."t%s" (a text, b text)')
    sink = PostgresTable(conn_id="warehouse", table=f"{warehouse.schema}.t%s", run_column="a", mode="replace")
    with pytest.raises((IndexError, TypeError)):
        sink.open(warehouse.resources).commit(warehouse.committable(rows={"b": ["AA"]}))


class WithOptions(Resources):
    """A connection whose extra holds these."""

    def __init__(self, address: dict[str, str | int], **options: str) -> None:
        super().__init__(address)
        self._options = tuple(options.items())

    def database(self, conn_id: str) -> DatabaseAddress:
        return replace(super().database(conn_id), options=self._options)


EXTRA = {
    "cursor": "DictCursor",  # Airflow's own
    "application_name": "etl",
    "connect_timeout": "7",
    "options": "-c search_path=pg_catalog",
    "host": "nowhere.invalid",
    "client_encoding": "LATIN1",
}


def test_fault_99_of_a_connections_extra_libpq_gets_what_is_libpqs_and_the_connections_own_wins(warehouse):
    warehouse.resources = WithOptions(warehouse.address, **EXTRA)
    into = committer(warehouse)
    into.commit(warehouse.committable(rows={"carrier": ["Jü"], "delay": [1.0]}))
    assert warehouse.rows() == [("Jü", 1.0)]
    with cast(Any, into)._transaction(token()) as cursor:
        cursor.execute("SELECT current_setting('application_name'), current_setting('search_path')")
        assert cursor.fetchone() == ("etl", "pg_catalog")


def test_control_libpq_refuses_what_is_airflows(warehouse, monkeypatch):
    monkeypatch.setattr(module, "_OPTIONS", set(EXTRA))
    warehouse.resources = WithOptions(warehouse.address, **EXTRA)
    with pytest.raises(SinkRefused, match="invalid dsn"):
        committer(warehouse).probe(token())


@pytest.mark.parametrize("is_kept_alive", [True, False])
def test_fault_99_a_file_that_is_slow_to_fetch_ends_no_transaction(warehouse, monkeypatch, is_kept_alive):
    """While the second file is fetched, the transaction is used three times; else, the control, the server ends it."""
    pauses: list[float] = []

    def wait_less(futures, pause_s):
        pauses.append(pause_s)
        return futures_wait(futures, 0.05)

    if is_kept_alive:
        monkeypatch.setattr(module, "wait", wait_less)
    else:
        monkeypatch.setattr(module, "IDLE_TIMEOUT_S", 1)
        monkeypatch.setattr(module, "_kept_alive", lambda cursor, batches: batches)
    get, of_ours = LocalStore.get, "FROM pg_stat_activity WHERE application_name = 'airflow-recovery'"
    uses: set[object] = set()

    def slow(self, key, **given):
        while key.endswith("part-1.parquet"):
            if not is_kept_alive and not warehouse.ask(f"SELECT 1 {of_ours}"):
                break
            uses.update(warehouse.ask(f"SELECT query_start {of_ours} AND query = 'SELECT 1'"))
            if len(uses) >= 3:
                break
        return get(self, key, **given)

    monkeypatch.setattr(LocalStore, "get", slow)
    given = warehouse.committable()
    if is_kept_alive:
        committer(warehouse).commit(given)
        assert warehouse.rows() == GIVEN
        assert {*pauses} == {module.IDLE_TIMEOUT_S / 3}
    else:
        with pytest.raises(SinkUnavailable):
            committer(warehouse).commit(given)


# where the tokens lie


@pytest.fixture
def shadowed(warehouse: Warehouse) -> Warehouse:
    """``delays`` is found by the search path, in whose first schema somebody else may create tables, and has.

    His table of tokens says that attempt 1 is there.
    """
    own = f"{warehouse.schema}_shadow"
    warehouse.ask(
        f"CREATE SCHEMA {own}; CREATE TABLE {own}.airflow_recovery_commits (lineage text, target text, "
        "attempt integer, committed_at timestamptz DEFAULT now(), writer text, PRIMARY KEY (lineage, target))"
    )
    warehouse.ask(f"INSERT INTO {own}.airflow_recovery_commits VALUES (%s, 'delays', 1)", token().lineage)
    path = f"-c search_path={own},{warehouse.schema}"
    warehouse.resources = WithOptions(warehouse.address, options=path)
    return warehouse


def test_fault_101_the_tokens_lie_beside_the_table_whatever_the_search_path_finds_first(shadowed):
    by_its_name = PostgresTable(conn_id="warehouse", table=shadowed.table).open(shadowed.resources)
    by_its_name.commit(shadowed.committable(run_key="date-0"))  # which makes the table of tokens
    into = PostgresTable(conn_id="warehouse", table="delays").open(shadowed.resources)
    assert into.probe(token()) is Probe.NOT_APPLIED
    into.commit(shadowed.committable())
    assert "applied before" in into.commit(shadowed.committable())
    assert shadowed.rows() == GIVEN * 2
    assert [n for _, n in shadowed.held()] == [1, 1]


def test_a_table_of_tokens_in_an_earlier_schema_alone_is_refused_by_name(shadowed):
    into = PostgresTable(conn_id="warehouse", table="delays").open(shadowed.resources)
    with pytest.raises(SinkRefused, match="in an earlier schema of the role's search path"):
        into.commit(shadowed.committable())
    assert shadowed.rows() == []


def test_control_found_by_the_search_path_the_rows_are_taken_for_written(shadowed, monkeypatch):
    def by_the_path(self, cursor, of):
        cursor.execute("SELECT attempt FROM airflow_recovery_commits WHERE lineage = %s", (of.lineage,))
        return Held(cursor.fetchone()[0])

    monkeypatch.setattr(module._PostgresCommitter, "_held", by_the_path)
    monkeypatch.setattr(module._PostgresCommitter, "_make_tokens", lambda self, of: None)
    into = PostgresTable(conn_id="warehouse", table="delays").open(shadowed.resources)
    assert "applied before" in into.commit(shadowed.committable())
    assert shadowed.rows() == []


# what the table holds of a commit later on


def committed(warehouse: Warehouse, mode: str, run_column: str | None, run_key: str = "date-1") -> tuple[Any, ...]:
    """A sink's committer, what it has committed, and the name of that."""
    into: Any = committer(warehouse, mode, **({} if run_column is None else {"run_column": run_column}))
    given = warehouse.committable(run_key=run_key)
    return into, given, into.commit(given)


DONE_TO_IT = {
    "nothing": ("", Rows.THERE, Rows.THERE),
    "truncated": ("TRUNCATE {table}", Rows.REMOVED, Rows.REMOVED),
    "made anew": (
        "CREATE TABLE {table}_2 (LIKE {table}); ALTER TABLE {table}_2 ALTER ord DROP NOT NULL; DROP TABLE {table}; "
        "ALTER TABLE {table}_2 RENAME TO delays",
        Rows.REMOVED,
        Rows.REMOVED,
    ),
    "all deleted": ("DELETE FROM {table}", Rows.REMOVED, Rows.REMOVED),
    "one deleted": ("DELETE FROM {table} WHERE carrier = 'AA'", Rows.PARTLY, Rows.PARTLY),
    "one edited": ("UPDATE {table} SET delay = 7 WHERE carrier = 'AA'", Rows.THERE, Rows.THERE),
    "rows on top": (
        "INSERT INTO {table} (carrier, run_key) VALUES ('XX', 'dag/date-1/flights/delays')",
        Rows.THERE,
        Rows.THERE,
    ),
    "other rows instead": (
        "DELETE FROM {table}; INSERT INTO {table} (carrier, run_key) VALUES ('XX', 'dag/date-1/flights/delays')",
        Rows.OVERWRITTEN,
        Rows.PARTLY,
    ),
    "restored from a dump": (
        "CREATE TEMPORARY TABLE dump AS TABLE {table}; TRUNCATE {table}; INSERT INTO {table} SELECT * FROM dump",
        Rows.THERE,
        Rows.THERE,
    ),
    "the token deleted": ("DELETE FROM {tokens}", Rows.OVERWRITTEN, Rows.PARTLY),
    "the token deleted, and the rows": ("DELETE FROM {table}; DELETE FROM {tokens}", Rows.REMOVED, Rows.REMOVED),
}


@pytest.mark.parametrize("run_column", [None, "run_key"])
@pytest.mark.parametrize("mode", ["append", "replace"])
@pytest.mark.parametrize("done", DONE_TO_IT)
def test_fault_210_211_what_was_done_to_a_table_is_found(warehouse, done, mode, run_column):
    into, given, name = committed(warehouse, mode, run_column)
    statements, of_replace, of_append = DONE_TO_IT[done]
    if statements:
        tokens = f"{warehouse.schema}.airflow_recovery_commits"
        warehouse.ask(statements.format(table=warehouse.table, tokens=tokens))
    # How the commit is called is not known if another process has found it by its token.
    for commit_id in (name, "dag / date-1"):
        found = into.rows(given, commit_id)
        assert found.rows is (of_replace if mode == "replace" else of_append), found
    if not found.may_be_committed_again(CommitMode(mode)):
        before = warehouse.rows()
        if found.rows is not Rows.THERE and warehouse.held():
            with pytest.raises(SinkRefused, match="Nothing was changed"):
                into.commit_again(given, name)
        assert warehouse.rows() == before
        return
    again = into.commit_again(given, name)
    assert "4 rows" in again
    assert sorted(warehouse.rows(), key=str) == sorted(GIVEN, key=str)
    assert into.rows(given, again).rows is Rows.THERE
    assert "applied before" in into.commit_again(given, again)
    assert sorted(warehouse.rows(), key=str) == sorted(GIVEN, key=str)


def test_fault_210_rows_of_other_runs_stay_and_are_not_taken_for_the_removed_ones(warehouse):
    for run_column in (None, "run_key"):
        into, given, name = committed(warehouse, "append", run_column)
        committed(warehouse, "append", run_column, "date-2")
        warehouse.ask(f"DELETE FROM {warehouse.table} WHERE ord <= 4")
        assert into.rows(given, name).rows is Rows.REMOVED
        into.commit_again(given, name)
        assert warehouse.rows() == GIVEN * 2
        warehouse.ask(f"TRUNCATE {warehouse.table} RESTART IDENTITY; DELETE FROM {warehouse.schema}.{module.TOKENS}")


def test_fault_211_the_rows_of_another_token_are_never_taken_for_the_removed_ones(warehouse):
    into, given, name = committed(warehouse, "replace", None, "date-2026-01-01")
    into_latest = committer(warehouse, "replace", keeps="latest")
    into_latest.commit(warehouse.committable(run_key="date-2026-01-02"))
    assert into.rows(given, name).rows is Rows.OVERWRITTEN


@pytest.mark.parametrize("mode", ["append", "replace"])
def test_fault_210_of_two_that_commit_again_at_once_the_rows_are_there_once(warehouse, monkeypatch, mode):
    _, given, name = committed(warehouse, mode, None)
    warehouse.ask(f"TRUNCATE {warehouse.table}")
    both = threading.Barrier(2)
    lock = module._PostgresCommitter._lock_token

    def together(self, cursor, of):
        both.wait(HANG_S)
        return lock(self, cursor, of)

    monkeypatch.setattr(module._PostgresCommitter, "_lock_token", together)
    said: list[str] = []
    threads = [
        threading.Thread(target=lambda: said.append(cast(Any, committer(warehouse, mode)).commit_again(given, name)))
        for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for candidate in threads:
        candidate.join()
    assert sorted("applied before" in each for each in said) == [False, True]
    assert warehouse.rows() == GIVEN


def test_a_token_whose_rows_were_removed_is_taken_out_and_no_other(warehouse):
    into, given, name = committed(warehouse, "append", None)
    committed(warehouse, "append", None, "date-2")
    with pytest.raises(SinkRefused, match="Nothing was changed"):
        into.take_out(given, name)
    warehouse.ask(f"DELETE FROM {warehouse.table} WHERE ord <= 4")
    into.take_out(given, name)
    assert warehouse.held() == [("dag/date-2/flights/delays", 1)]
    into.commit(warehouse.committable(2))
    assert warehouse.rows() == GIVEN * 2


def test_fault_210_a_partitioned_table_and_a_view(warehouse):
    parts, view = f"{warehouse.schema}.parts", f"{warehouse.schema}.seen"
    warehouse.ask(
        f"CREATE TABLE {parts} (carrier text, delay double precision) PARTITION BY LIST (carrier); "
        f"CREATE TABLE {parts}_all PARTITION OF {parts} DEFAULT; "
        f"CREATE VIEW {view} AS SELECT carrier, delay FROM {warehouse.table}"
    )
    for table, emptied in ((parts, f"TRUNCATE {parts}"), (view, f"TRUNCATE {warehouse.table}")):
        sink = PostgresTable(conn_id="warehouse", table=table)
        into: Any = sink.open(warehouse.resources)
        given = warehouse.committable()
        name = into.commit(given)
        assert into.rows(given, name).rows is Rows.THERE
        warehouse.ask(emptied)
        assert into.rows(given, name).rows is Rows.REMOVED
        into.commit_again(given, name)
        assert warehouse.ask(f"SELECT count(*) FROM {table}") == [(4,)]


def test_fault_212_a_count_that_takes_too_long_is_no_answer(warehouse, monkeypatch):
    into, given, name = committed(warehouse, "replace", None)
    monkeypatch.setattr(module, "COUNT_TIMEOUT_S", 0.05)
    with closing(psycopg2.connect(**warehouse.address)) as other, other.cursor() as cursor:
        cursor.execute(f"LOCK TABLE {warehouse.table} IN ACCESS EXCLUSIVE MODE")
        with pytest.raises(SinkUnavailable, match="query canceled"):
            into.rows(given, name)


def test_fault_213_the_advice_takes_out_a_token_and_deletes_no_rows(warehouse):
    into, given, _ = committed(warehouse, "append", None)
    committed(warehouse, "append", None, "date-2")
    with pytest.raises(SinkRefused) as refused:
        into.commit(warehouse.committable(2))
    assert "mode='replace'" not in str(refused.value)  # it would delete the rows of the other run
    warehouse.ask(str(refused.value).partition("its token: ")[2].partition("; and clear")[0])
    assert into.held(given.token) is None
    assert warehouse.rows() == GIVEN * 2


def test_a_table_that_was_dropped_is_named(warehouse):
    into, given, name = committed(warehouse, "replace", None)
    warehouse.ask(f"DROP TABLE {warehouse.table}")
    with pytest.raises(ConfigurationError, match="found none: create it"):
        into.rows(given, name)


# --- row-level security -----------------------------------------------------------------------------------------------


@pytest.fixture
def as_tenant(warehouse: Warehouse) -> Iterator[Callable[[str], Resources]]:
    """Restrict the table by a policy, and return what connects as a role to which it applies."""
    role = f"tenant_{warehouse.schema}"

    def restricted(policy: str) -> Resources:
        warehouse.ask(
            f"CREATE ROLE {role} LOGIN PASSWORD 'p'; GRANT ALL ON SCHEMA {warehouse.schema} TO {role}; "
            f"GRANT ALL ON ALL TABLES IN SCHEMA {warehouse.schema} TO {role}; "
            f"GRANT ALL ON ALL SEQUENCES IN SCHEMA {warehouse.schema} TO {role}; "
            f"ALTER TABLE {warehouse.table} ENABLE ROW LEVEL SECURITY; "
            f"CREATE POLICY own ON {warehouse.table} {policy}"
        )
        return Resources({**warehouse.address, "user": role, "password": "p"})

    yield restricted
    warehouse.ask(f"DROP SCHEMA {warehouse.schema} CASCADE; DROP OWNED BY {role}; DROP ROLE {role}")


SEES_SOME = "USING (carrier IS DISTINCT FROM 'hidden')"
ONLY_INSERTS = "FOR INSERT WITH CHECK (true)"


def with_a_hidden_row(warehouse: Warehouse, resources: Resources) -> Any:
    warehouse.ask(f"INSERT INTO {warehouse.table} (carrier, delay) VALUES ('hidden', 1)")
    return PostgresTable(conn_id="warehouse", table=warehouse.table, mode="replace").open(resources)


def test_fault_399_all_rows_are_not_replaced_by_a_role_that_may_not_see_each(
    warehouse: Warehouse, as_tenant: Callable[[str], Resources]
) -> None:
    into = with_a_hidden_row(warehouse, as_tenant(SEES_SOME))
    with pytest.raises(SinkRefused, match="found row-level security, which may hide some"):
        into.others(token())
    with pytest.raises(SinkRefused, match="found row-level security, which may hide some"):
        into.commit(warehouse.committable())
    assert warehouse.rows() == [("hidden", 1)]


@pytest.mark.control
def test_fault_399_control_unasked_hidden_rows_stay(
    warehouse: Warehouse, as_tenant: Callable[[str], Resources], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module._PostgresCommitter, "_hides_rows", lambda *given: False)
    into = with_a_hidden_row(warehouse, as_tenant(SEES_SOME))
    into.commit(warehouse.committable())
    assert warehouse.rows() == [("hidden", 1), *GIVEN]


def appended_by(warehouse: Warehouse, resources: Resources) -> tuple[Any, Committable, str]:
    into: Any = PostgresTable(conn_id="warehouse", table=warehouse.table).open(resources)
    given = warehouse.committable()
    return into, given, into.commit(given)


def test_fault_399_rows_that_a_policy_hides_are_not_taken_for_removed(
    warehouse: Warehouse, as_tenant: Callable[[str], Resources]
) -> None:
    into, given, name = appended_by(warehouse, as_tenant(ONLY_INSERTS))
    with pytest.raises(SinkUnavailable, match="has 0 rows that this role sees: a policy of row-level security"):
        into.rows(given, name)
    with pytest.raises(SinkUnavailable, match="row-level security"):
        into.commit_again(given, name)
    assert warehouse.rows() == GIVEN


@pytest.mark.control
def test_fault_399_control_unasked_the_rows_are_there_twice(
    warehouse: Warehouse, as_tenant: Callable[[str], Resources], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module._PostgresCommitter, "_hides_rows", lambda *given: False)
    into, given, name = appended_by(warehouse, as_tenant(ONLY_INSERTS))
    assert into.rows(given, name).rows is Rows.REMOVED
    into.commit_again(given, name)
    assert warehouse.rows() == GIVEN * 2
