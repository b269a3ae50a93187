"""A table in PostgreSQL as a token sink: rows and token become visible in one transaction, or neither."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from airflow_recovery.checks import check_arguments
from airflow_recovery.errors import ConfigurationError, JobDefinitionError, SinkRefused, SinkUnavailable
from airflow_recovery.model.codec import later
from airflow_recovery.model.committing import CommitKind, CommitMode, Replaces
from airflow_recovery.model.keys import RegionKey
from airflow_recovery.model.names import encode
from airflow_recovery.model.spark_types import Kind, sql_name
from airflow_recovery.sinks.committer import (
    Committable,
    CommitToken,
    FoundRows,
    Held,
    Owner,
    Probe,
    Rows,
    SinkResources,
    not_again,
    refused,
)
from airflow_recovery.sinks.declaration import CommittingSink, check_replaced_rows
from airflow_recovery.sinks.owners import check_adoptable, check_owners, no_keys
from airflow_recovery.sinks.postgres_columns import Fit, TableColumn, cast_to, columns_of, copied, fit, native
from airflow_recovery.sinks.staged import StagedRows, cure, unfit_columns

TOKENS = "airflow_recovery_commits"
"""The table of tokens, in the target's schema: for each lineage and target table, the attempt whose rows are there.

Column ``writer`` is ``<attempt>/<process that finished it>``. Earlier versions don't update it, so that it counts only
where its attempt is that of column ``attempt``. Column ``replaces`` is a `Replaces`: which rows that commit deleted.
"""
_LATER_COLUMNS = ("writer", "replaces")
"""Columns of the table of tokens that earlier versions did not have."""
CONNECT_TIMEOUT_S = 30
IDLE_TIMEOUT_S = 30
"""The server ends a transaction that is idle for longer, so that a frozen process does not keep its locks."""
LOCK_TIMEOUT_S = 120
COUNT_TIMEOUT_S = 60
"""The server stops counting after that long. Then it has given no answer."""
_STAGE = "airflow_recovery_stage"
_OPTIONS = {
    "application_name", "channel_binding", "connect_timeout", "gssdelegation", "gssencmode", "gsslib", "keepalives",
    "keepalives_count", "keepalives_idle", "keepalives_interval", "krbsrvname", "load_balance_hosts", "options",
    "require_auth", "requirepeer", "ssl_max_protocol_version", "ssl_min_protocol_version", "sslcert", "sslcertmode",
    "sslcompression", "sslcrl", "sslcrldir", "sslkey", "sslmode", "sslnegotiation", "sslpassword", "sslrootcert",
    "sslsni", "target_session_attrs", "tcp_user_timeout",
}  # fmt: skip
"""libpq's keywords that a connection's extra may set. The others are fields of the connection, or Airflow's own: libpq
refuses what it does not know. Not the encoding: what is copied is UTF-8."""
_REFUSING = (
    "09", "0A", "0L", "0P", "10", "20", "21", "22", "23", "27", "28", "2B", "2D", "2F", "34", "38", "39", "3D", "3F",
    "42", "44", "54", "55000", "55P02", "55P04", "P0", "XX001", "XX002",
)  # fmt: skip
"""SQLSTATEs, or their classes, that are final: what is not supported, data, constraints, authorisation, names, syntax
and rights, limits of the server, tables that are not made for it, what a trigger or a function raises or does wrong,
and a damaged table or index. The page target-errors.md lists all classes."""
_REFUSED_TO_CONNECT = (
    "password authentication failed", "no pg_hba.conf entry", "does not exist", "no password supplied",
    "is not permitted to log in", "permission denied for database", "invalid dsn", "invalid connection option",
    "does not support SSL", "certificate verify failed",
)  # fmt: skip
"""Parts of messages that are final: libpq gives no SQLSTATE where no connection was made."""


@dataclass(frozen=True, kw_only=True)
class PostgresTable(CommittingSink):
    """Commits into ``table`` (``name`` or ``schema.name``) of the database of Airflow's connection ``conn_id``.

    The table must exist, and have the result's columns by name; further columns get their defaults. ``append`` adds the
    rows of one attempt of a run, once. ``replace`` puts them in place of all rows, or, with ``run_column``, of the rows
    that have the key of this DAG, run and task in that text column, which the result does not have and which is filled
    in. ``keeps="latest"``: all rows are replaced, but never those of a later date of this task.
    """

    conn_id: str
    table: str
    run_column: str | None = None
    keeps: str | None = later(None)
    kind: ClassVar[CommitKind] = CommitKind.TOKEN

    def __post_init__(self) -> None:
        super().__post_init__()
        check_arguments(PostgresTable.__init__, vars(self), "PostgresTable")
        parts = self.table.split(".")
        if len(parts) > 2 or not all(part.strip() for part in parts):
            raise JobDefinitionError(
                f"PostgresTable: expected table= as 'name' or 'schema.name', found {self.table!r}: the database is the "
                "connection's",
                code="table-name-unfit",
            )
        for name, text in (("conn_id", self.conn_id), ("table", self.table), ("run_column", self.run_column or "-")):
            if not text.isprintable():
                raise JobDefinitionError(
                    f"PostgresTable: expected {name}= without control characters, found {text!r}: write it without "
                    "them",
                    code="name-has-control-characters",
                    name=name,
                )

        check_replaced_rows(self, "PostgresTable")

    @property
    def place(self) -> str:
        """As `CommittingSink.place`."""
        return f"table {self.table} of connection {self.conn_id}"

    def open(self, resources: SinkResources) -> _PostgresCommitter:
        """A committer, which has not connected yet. Raises `ConfigurationError` where psycopg2 is not installed."""
        try:
            import psycopg2  # type: ignore[import-untyped]  # noqa: F401
        except ImportError as error:
            raise ConfigurationError(
                "Expected psycopg2 in the worker's environment, found none: install airflow-recovery[sinks]."
            ) from error
        return _PostgresCommitter(self, resources)


class _PostgresCommitter:
    """Commits in one transaction, in this order:

    copy into a temporary table   may take long, and locks nothing that others want
    take the token                an upsert of the lineage's row: of two processes the second waits here for the first
    delete, insert                on the server alone
    commit                        the one moment
    """

    def __init__(self, sink: PostgresTable, resources: SinkResources) -> None:
        self._sink = sink
        self._resources = resources
        self._schema, _, self._name = sink.table.rpartition(".")

    def probe(self, token: CommitToken) -> Probe:
        held = self.held(token)
        return Probe.APPLIED if held is not None and held.is_of(token) else Probe.NOT_APPLIED

    def held(self, token: CommitToken) -> Held | None:
        """As `RemembersAttempts`."""
        with self._transaction(token) as cursor:
            return self._held(cursor, token)

    def others(self, token: CommitToken) -> list[Owner]:
        """As `KnowsOwners`."""
        with self._transaction(token) as cursor:
            owners = self._check_owners(cursor, token)
            self._check_sees_all(cursor, token)
            self._check_run_column(cursor, token)
            return owners

    def adopt(self, old: CommitToken, new: CommitToken) -> None:
        """As `KnowsOwners`: in one transaction."""
        with self._transaction(new) as cursor:
            held = self._held(cursor, old)
            if held is None:
                return
            check_adoptable(new, f"table {self._sink.table}", self._held(cursor, new))
            schema, name = self._target(cursor)
            _execute(
                cursor,
                "UPDATE {tokens} SET lineage = %s WHERE lineage = %s AND target IN %s",
                (new.lineage, old.lineage, self._spellings(schema)),
                tokens=(schema, TOKENS),
            )
            if self._sink.run_column is not None:
                _execute(
                    cursor,
                    "UPDATE {target} SET {own} = %s WHERE {own} = %s",
                    (new.lineage, old.lineage),
                    target=(schema, name),
                    own=[self._sink.run_column],
                )

    def commit(self, committable: Committable) -> str:
        return self._commit(committable)

    def _commit(self, committable: Committable, again: str | None = None) -> str:
        """``again``: what the commit before was called, which this one repeats if its rows were removed."""
        token = committable.token
        staged = StagedRows(committable.manifest, self._resources.open_location)
        self._make_tokens(token)
        with self._transaction(token) as cursor:
            # Asked before all the work, and decided again below.
            held = self._held(cursor, token)
            is_held = held is not None and held.is_of(token)
            if is_held and again is None:
                return f"{self._sink.table}: applied before"
            self._check_owners(cursor, token)
            self._check_sees_all(cursor, token)
            columns = self._copy(cursor, token, staged)
            if is_held and not self._may_repeat(cursor, committable, again or ""):
                return f"{self._sink.table}: applied before"
            if is_held:
                self._retake(cursor, token)
            elif not self._take(cursor, token):
                return f"{self._sink.table}: applied before"
            rows = self._insert(cursor, token, columns)
            # Now the table is locked, and others that commit there wait for this transaction, and see its token.
            self._check_owners(cursor, token)
            cursor.execute("SELECT pg_current_xact_id()::text")
            transaction = cursor.fetchone()[0]
        return f"{self._sink.table}: transaction {transaction}, {rows} rows"

    def rows(self, committable: Committable, commit_id: str) -> FoundRows:
        """As `ChecksRows`: count the rows in the table, and those among them that the token's transaction wrote."""
        with self._transaction(committable.token) as cursor:
            return self._found(cursor, committable, commit_id)

    def commit_again(self, committable: Committable, commit_id: str) -> str:
        """As `ChecksRows`."""
        return self._commit(committable, commit_id)

    def take_out(self, committable: Committable, commit_id: str) -> None:
        """As `ChecksRows`."""
        token = committable.token
        with self._transaction(token) as cursor:
            schema = self._lock_token(cursor, token)
            found = self._found(cursor, committable, commit_id)
            if found.rows is not Rows.REMOVED:
                raise not_again(token, self._sink.table, found)
            where = (token.lineage, self._spellings(schema))
            _execute(cursor, "DELETE FROM {tokens} WHERE lineage = %s AND target IN %s", where, tokens=(schema, TOKENS))

    def _lock_token(self, cursor: Any, token: CommitToken) -> str:
        """Wait for any other transaction that changes the token. Returns the schema of the tokens."""
        schema, _ = self._target(cursor)
        statement = "SELECT 1 FROM {tokens} WHERE lineage = %s AND target IN %s FOR UPDATE"
        _execute(cursor, statement, (token.lineage, self._spellings(schema)), tokens=(schema, TOKENS))
        return schema

    def _found(self, cursor: Any, committable: Committable, commit_id: str) -> FoundRows:
        """What became of the rows.

        A row that was edited or restored from a dump is a stranger's, but may be ours: it counts as there.
        """
        token, run_column = committable.token, self._sink.run_column
        target = self._target(cursor)
        if self._sink.replaces is Replaces.LATEST:
            self._check_owners(cursor, token)
        held = self._held(cursor, token)
        if held is not None and not held.is_of(token):
            return FoundRows(Rows.OVERWRITTEN, f"{self._sink.table} holds {held.text}")
        total, own, strange = self._count(cursor, token, target, holds_token=held is not None)
        where = self._sink.table if run_column is None else f"{self._sink.table} under the key {token.lineage}"
        written = re.search(r", (\d+) rows$", commit_id)
        expected = int(written[1]) if written else committable.manifest.rows
        if held is not None and expected == 0:
            return FoundRows(Rows.THERE)
        if total < (expected or 1) and self._hides_rows(cursor, target):
            raise SinkUnavailable(
                f"{token.text}: {where} has {total} rows that this role sees: a policy of row-level security may hide "
                f"others. Give the role a policy for SELECT, or BYPASSRLS."
            )
        if total == 0:
            self._check_keys(cursor, token)
            return FoundRows(Rows.REMOVED, f"{where} has no rows")
        if held is None:
            text = f"{where} has {total} rows, and the token is gone"
            return FoundRows(Rows.OVERWRITTEN if self._sink.mode is CommitMode.REPLACE else Rows.PARTLY, text)
        if expected is None:
            raise SinkUnavailable(f"{token.text}: {where} has {total} rows; how many were committed is not recorded.")
        if own + strange >= expected:
            return FoundRows(Rows.THERE)
        text = f"{where} has {own} of the {expected} rows"
        if total > own:
            text += f", and {total - own} rows that others have written or edited"
        if self._sink.mode is CommitMode.REPLACE:
            return FoundRows(Rows.OVERWRITTEN if total > own else Rows.PARTLY, text)
        return FoundRows(Rows.PARTLY if own or strange else Rows.REMOVED, text)

    def _hides_rows(self, cursor: Any, target: tuple[str, str]) -> bool:
        """Whether row-level security may hide rows of the table from this role."""
        name = "pg_catalog.format('%%I.%%I', %s::text, %s::text)::regclass"
        cursor.execute(f"SELECT pg_catalog.row_security_active({name})", target)
        return bool(cursor.fetchone()[0])

    def _check_sees_all(self, cursor: Any, token: CommitToken) -> None:
        """Raise `SinkRefused` if all rows of the table are to be replaced, and this role may not see each of them."""
        if self._sink.replaces in (Replaces.ALL, Replaces.LATEST) and self._hides_rows(cursor, self._target(cursor)):
            raise SinkRefused(
                f"{token.text}: expected a role that sees each row of {self._sink.table}, because a commit replaces "
                "all of them, found row-level security, which may hide some. Nothing was done, and no retry helps: "
                "give the role BYPASSRLS, replace the rows of one run (run_column=), or append."
            )

    def _count(self, cursor: Any, token: CommitToken, target: tuple[str, str], *, holds_token: bool) -> tuple[int, ...]:
        """The rows of this run, or of the table without ``run_column``; of these the own ones; and those of strangers.

        An own row was written by the transaction that wrote the token, a stranger's by none that has a token for this
        table. A view and a foreign table do not tell: then all rows are strangers'.
        """
        cursor.execute(f"SET LOCAL statement_timeout = '{COUNT_TIMEOUT_S}s'")
        cursor.execute(
            "SELECT relkind IN ('r', 'p') FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n "
            "ON n.oid = c.relnamespace WHERE n.nspname = %s AND c.relname = %s",
            target,
        )
        knows_writers = holds_token and cursor.fetchone()[0]
        run_column = self._sink.run_column
        where, values = ("", ()) if run_column is None else (" WHERE {own} = %s", (token.lineage,))
        names: dict[str, Any] = {"target": target, "tokens": (target[0], TOKENS), "own": [run_column or ""]}
        if not knows_writers:
            _execute(cursor, f"SELECT count(*) FROM {{target}}{where}", values, **names)
            total = int(cursor.fetchone()[0])
            return total, 0, total
        # The row of a token is written by the transaction that writes its rows.
        tokens = "SELECT xmin::text FROM {tokens} WHERE target IN %s"
        spellings = self._spellings(target[0])
        _execute(
            cursor,
            f"SELECT count(*), count(*) FILTER (WHERE row.xmin::text = ANY(ARRAY({tokens} AND lineage = %s))), "
            f"count(*) FILTER (WHERE row.xmin::text <> ALL(ARRAY({tokens}))) FROM {{target}} AS row{where}",
            (spellings, token.lineage, spellings, *values),
            **names,
        )
        return tuple(map(int, cursor.fetchone()))

    def _held(self, cursor: Any, token: CommitToken) -> Held | None:
        """What the target holds of this lineage."""
        schema = self._schema_of_target(cursor)
        if schema is None or not _columns(cursor, schema, TOKENS):
            return None
        # The version before has left a table without the column.
        _execute(
            cursor,
            "SELECT attempt, to_jsonb(held) ->> 'writer' FROM {tokens} AS held WHERE lineage = %s AND target IN %s "
            "ORDER BY attempt DESC LIMIT 1",
            (token.lineage, self._spellings(schema)),
            tokens=(schema, TOKENS),
        )
        row = cursor.fetchone()
        if row is None:
            return None
        number, _, writer = (row[1] or "").partition("/")
        return Held(row[0], writer if number == str(row[0]) else None)

    def _spellings(self, schema: str) -> tuple[str, str]:
        """How sinks may name this table: with and without its schema."""
        return self._name, f"{schema}.{self._name}"

    def _check_owners(self, cursor: Any, token: CommitToken) -> list[Owner]:
        """The owners of rows that ``token`` may meet. Raises as `check_owners`."""
        schema, _ = self._target(cursor)
        if not _columns(cursor, schema, TOKENS):
            check_owners(token, self._sink.table, self._sink.replaces, [], "")
            return []
        own_run = f"/{encode(token.run_key)}/"
        is_clearing = self._sink.replaces in (Replaces.ALL, Replaces.LATEST)
        _execute(
            cursor,
            "SELECT lineage, to_jsonb(held) ->> 'replaces' FROM {tokens} AS held WHERE lineage <> %s AND target IN %s "
            "AND (%s OR to_jsonb(held) ->> 'replaces' IN ('all', 'latest') OR strpos(lineage, %s) > 0)",
            (token.lineage, self._spellings(schema), is_clearing, own_run),
            tokens=(schema, TOKENS),
        )
        found = cursor.fetchall()
        owners = [Owner(RegionKey.of_path(lineage), replaces and Replaces(replaces)) for lineage, replaces in found]
        remove = f"remove its rows, and its token: DELETE FROM {schema}.{TOKENS} WHERE lineage = ... AND target = ..."
        check_owners(token, f"table {self._sink.table}", self._sink.replaces, owners, remove)
        return owners

    def _check_run_column(self, cursor: Any, token: CommitToken) -> None:
        """Raise `SinkRefused` if the run column can't separate the rows of ``token`` from others, with what to do."""
        column = self._sink.run_column
        if self._sink.replaces is not Replaces.RUN or column is None:
            return
        target = self._target(cursor)
        cursor.execute(
            "SELECT pg_catalog.format_type(a.atttypid, a.atttypmod), t.typcategory, a.atttypmod - 4 "
            "FROM pg_catalog.pg_attribute a JOIN pg_catalog.pg_type t ON t.oid = a.atttypid "
            "WHERE a.attrelid = pg_catalog.format('%%I.%%I', %s::text, %s::text)::regclass AND a.attname = %s "
            "AND NOT a.attisdropped",
            (*target, column),
        )
        found = cursor.fetchone()
        if found is None:
            return  # what is missing, the commit names with all other columns
        kind, category, length = found
        if category != "S" or 0 < length < len(token.lineage):
            raise SinkRefused(
                f"{token.text}: expected column {column} of {self._sink.table} to hold texts of {len(token.lineage)} "
                f"characters, found {kind}. A commit fills it with {token.lineage!r}. Nothing was done. Change the "
                f"column: ALTER TABLE {self._sink.table} ALTER COLUMN {column} TYPE text",
                code="run-column-unfit-in-table",
            )
        self._check_keys(cursor, token)

    def _check_keys(self, cursor: Any, token: CommitToken) -> None:
        """Raise `SinkRefused` if rows of ``token`` may be there under another key, with what to do."""
        column, target = self._sink.run_column, self._target(cursor)
        if column is None:
            return
        names: dict[str, Any] = {"target": target, "own": [column]}
        _execute(cursor, "SELECT EXISTS (SELECT FROM {target} WHERE {own} = %s)", (token.run_key,), **names)
        if cursor.fetchone()[0]:
            raise SinkRefused(self._migration(token), code="run-column-missing")
        held = self._held(cursor, token)
        if held is None:
            return
        _execute(
            cursor,
            "SELECT NOT EXISTS (SELECT FROM {target} WHERE {own} = %s) AND EXISTS "
            "(SELECT FROM {target} WHERE {own} IS NULL)",
            (token.lineage,),
            **names,
        )
        if cursor.fetchone()[0]:
            raise SinkRefused(
                f"{no_keys(token, f'table {self._sink.table}', column, held)} Give its rows the key: UPDATE "
                f"{self._sink.table} SET {column} = '{token.lineage}' WHERE <its rows>. If it has no rows there, take "
                f"its token out{self._remove(token, target[0])}",
                code="rows-without-key",
            )

    def _migration(self, token: CommitToken) -> str:
        """The message for rows whose key is the date alone, as in versions before."""
        column, table = self._sink.run_column, self._sink.table
        before, after = token.lineage.split(f"/{encode(token.run_key)}/")
        is_plain = encode(token.run_key) == token.run_key
        many = f"'{before}/' || {column} || '/{after}' WHERE {column} LIKE '{token.run_key.partition('-')[0]}-%'"
        one = f"'{token.lineage}' WHERE {column} = '{token.run_key}'"
        return (
            f"{token.text}: expected the rows of this run in {table} to have the key {token.lineage!r} in column "
            f"{column}, found rows with {token.run_key!r}: the key of versions before, which names no DAG and no task. "
            f"Nothing was done. Give them the new key: UPDATE {table} SET {column} = {many if is_plain else one}. If "
            "other tasks write into this table as well, restrict it to the rows of this one."
        )

    def _schema_of_target(self, cursor: Any) -> str | None:
        """The schema in which the target's table is, and its tokens beside it; `None`: there is no such table.

        The tokens are never looked for by the search path: whoever may create tables in an earlier schema of it could
        put others before them.
        """
        if self._schema:
            return self._schema
        cursor.execute(
            "SELECT n.nspname FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace "
            "WHERE c.relname = %s AND c.relkind IN ('r', 'p', 'v', 'f') AND pg_catalog.pg_table_is_visible(c.oid)",
            (self._name,),
        )
        row = cursor.fetchone()
        return None if row is None else str(row[0])

    def _target(self, cursor: Any) -> tuple[str, str]:
        """Schema and name of a table that is there. Raises `ConfigurationError` where it is not."""
        schema = self._schema_of_target(cursor)
        if schema is None or not _columns(cursor, schema, self._name):
            raise ConfigurationError(f"Expected a table {self._sink.table} in the database, found none: create it.")
        return schema, self._name

    def _make_tokens(self, token: CommitToken) -> None:
        with self._transaction(token) as cursor:
            schema, _ = self._target(cursor)
            if {*_LATER_COLUMNS} <= _columns(cursor, schema, TOKENS):
                return
            # Two that create it at once would meet in the catalogue, IF NOT EXISTS or not.
            cursor.execute("SELECT pg_advisory_xact_lock(hashtext(%s))", (TOKENS,))
            columns = _columns(cursor, schema, TOKENS)
            if not columns:
                self._check_no_other_tokens(cursor, schema)
                _execute(
                    cursor,
                    "CREATE TABLE {tokens} (lineage text, target text, attempt integer NOT NULL, "
                    "committed_at timestamptz NOT NULL DEFAULT now(), writer text, replaces text, "
                    "PRIMARY KEY (lineage, target))",
                    tokens=(schema, TOKENS),
                )
                return
            added = ", ".join(f"ADD COLUMN {column} text" for column in _LATER_COLUMNS if column not in columns)
            if added:
                self._check_own(cursor, schema, added)
                _execute(cursor, f"ALTER TABLE {{tokens}} {added}", tokens=(schema, TOKENS))

    def _check_no_other_tokens(self, cursor: Any, schema: str) -> None:
        """Raise `SinkRefused` for a table of tokens elsewhere: earlier versions put it where the search path said."""
        if self._schema:
            return
        cursor.execute("SELECT pg_catalog.to_regclass(%s)::text", (TOKENS,))
        other = cursor.fetchone()[0]
        if other is not None:
            raise SinkRefused(
                f"Expected the table of tokens as {schema}.{TOKENS}, beside {self._sink.table}, found only {other}, in "
                "an earlier schema of the role's search path. Where a version before has made it: ALTER TABLE "
                f"{other} SET SCHEMA {schema}. Else somebody has put it there: look who may create tables in that "
                f"schema, and declare table='{schema}.{self._name}'."
            )

    def _check_own(self, cursor: Any, schema: str, added: str) -> None:
        cursor.execute(
            "SELECT pg_catalog.pg_has_role(c.relowner, 'USAGE') FROM pg_catalog.pg_class c "
            "JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = %s AND c.relname = %s",
            (schema, TOKENS),
        )
        if not cursor.fetchone()[0]:
            raise SinkRefused(
                f"Expected the columns {' and '.join(_LATER_COLUMNS)} in {schema}.{TOKENS}, the table of tokens, found "
                "a table of a version before, which belongs to another role. Have its owner run, once: "
                f"ALTER TABLE {schema}.{TOKENS} {added}"
            )

    def _may_repeat(self, cursor: Any, committable: Committable, commit_id: str) -> bool:
        """Whether the rows are still gone, now that no other transaction can change that; False: they are there.

        Raises `SinkRefused` if somebody else has written there.
        """
        mode = CommitMode(self._sink.mode)
        self._lock_token(cursor, committable.token)
        self._lock(cursor)
        found = self._found(cursor, committable, commit_id)
        if found.rows is not Rows.THERE and not found.may_be_committed_again(mode):
            raise not_again(committable.token, self._sink.table, found)
        return found.rows is not Rows.THERE

    def _lock(self, cursor: Any) -> None:
        """In mode replace nobody else may write to the table until the transaction ends."""
        if self._sink.mode is CommitMode.REPLACE:
            _execute(cursor, "LOCK TABLE {target} IN SHARE ROW EXCLUSIVE MODE", target=self._target(cursor))

    def _retake(self, cursor: Any, token: CommitToken) -> None:
        """Write the token that is there once more, so that it is of the same transaction as the rows."""
        statement = "UPDATE {tokens} SET committed_at = now(), replaces = %s WHERE lineage = %s AND target IN %s"
        schema, _ = self._target(cursor)
        values = (self._sink.replaces.value, token.lineage, self._spellings(schema))
        _execute(cursor, statement, values, tokens=(schema, TOKENS))

    def _take(self, cursor: Any, token: CommitToken) -> bool:
        """Write the token; False where this very token was there. Raises `HoldsOther` for another that must stay.

        An upsert waits for another transaction on the same row, and then sees what that has committed.
        """
        schema, _ = self._target(cursor)
        mode = CommitMode(self._sink.mode)
        follows = "held.attempt < EXCLUDED.attempt" if mode is CommitMode.REPLACE else "FALSE"
        writer = None if token.writer is None else f"{token.attempt}/{token.writer}"
        _execute(
            cursor,
            "INSERT INTO {tokens} AS held (lineage, target, attempt, writer, replaces) VALUES (%s, %s, %s, %s, %s) "
            "ON CONFLICT (lineage, target) DO UPDATE SET attempt = EXCLUDED.attempt, writer = EXCLUDED.writer, "
            f"replaces = EXCLUDED.replaces, committed_at = now() WHERE {follows} RETURNING attempt",
            (token.lineage, self._spelled(cursor, token, schema), token.attempt, writer, self._sink.replaces.value),
            tokens=(schema, TOKENS),
        )
        if cursor.fetchone() is not None:
            return True
        held = self._held(cursor, token)
        if held is not None and held.is_of(token):
            return False
        raise refused(token, f"table {self._sink.table}", held, mode, self._remove(token, schema))

    def _remove(self, token: CommitToken, schema: str) -> str:
        return f": DELETE FROM {schema}.{TOKENS} WHERE lineage = '{token.lineage}' AND target = '{self._sink.table}'"

    def _spelled(self, cursor: Any, token: CommitToken, schema: str) -> str:
        """As which target the lineage has a token: as this sink writes it, or as an earlier commit did."""
        _execute(
            cursor,
            "SELECT target FROM {tokens} WHERE lineage = %s AND target IN %s",
            (token.lineage, self._spellings(schema)),
            tokens=(schema, TOKENS),
        )
        found = [row[0] for row in cursor.fetchall()]
        return self._sink.table if self._sink.table in found or not found else str(found[0])

    def _copy(self, cursor: Any, token: CommitToken, staged: StagedRows) -> dict[str, Any]:
        """Copy the rows. Returns the result's columns, each with the SQL that reads its value for the table."""
        target, kinds = self._target(cursor), staged.kinds
        columns = self._check_columns(token, kinds, columns_of(cursor, *target))
        fits = {name: fit(kinds[name], column) or Fit() for name, column in columns.items()}
        _execute(
            cursor,
            "CREATE TEMPORARY TABLE {stage} ON COMMIT DROP AS SELECT {columns} FROM {target} WITH NO DATA",
            stage=(_STAGE,),
            columns=[
                name if each.via is None else _Piece(f"CAST(NULL AS {each.via}) AS {{0}}", name)
                for name, each in fits.items()
            ],
            target=target,
        )
        copy = _statement("COPY {stage} ({columns}) FROM STDIN WITH (FORMAT csv)", stage=(_STAGE,), columns=[*columns])
        for batch in _kept_alive(cursor, staged.batches()):
            self._copy_batch(cursor, token, copy, batch, kinds, columns)
        values: dict[str, Any] = {}
        for name, each in fits.items():
            values[name] = name
            if each.unlike is not None:
                self._check_values(cursor, token, name, sql_name(kinds[name]), columns[name], each.unlike)
                values[name] = _Piece(cast_to(columns[name]), name)
        return values

    def _copy_batch(
        self,
        cursor: Any,
        token: CommitToken,
        copy: Any,
        batch: Any,
        kinds: Mapping[str, Kind],
        columns: Mapping[str, TableColumn],
    ) -> None:
        import psycopg2
        import pyarrow  # type: ignore[import-untyped]

        arrays = [
            copied(array, kinds[name], columns[name])
            for name, array in zip(batch.schema.names, batch.columns, strict=True)
        ]
        try:
            cursor.copy_expert(copy, _csv(pyarrow.RecordBatch.from_arrays(arrays, names=batch.schema.names)))
        except psycopg2.DataError as error:
            # The context of the error has the row, too.
            context = re.match(r"COPY \w+, line \d+, column (.+?)(?:: |$)", str(error.diag.context or ""))
            texts = [name for name, kind in kinds.items() if kind == "string"]
            named = [context[1]] if context is not None and context[1] in columns else texts
            unfit = [
                f"column {name} ({sql_name(kinds[name])}) into {columns[name].sql}: {_safe_message(error)}: a value is "
                "none there"
                for name in named
            ]
            raise unfit_columns(token, self._sink.table, unfit) from None

    def _check_values(
        self, cursor: Any, token: CommitToken, name: str, kind: str, column: TableColumn, unlike: str
    ) -> None:
        """Raise `SinkRefused` if a value would be another one in the table."""
        import psycopg2

        cursor.execute("SET LOCAL DateStyle = 'ISO'; SET LOCAL IntervalStyle = 'postgres'")
        names: dict[str, Any] = {"stage": (_STAGE,), "unlike": [_Piece(unlike, name)]}
        try:
            _execute(cursor, "SELECT EXISTS (SELECT FROM {stage} WHERE {unlike})", **names)
            if not cursor.fetchone()[0]:
                return
        except psycopg2.DataError:
            pass
        raise unfit_columns(
            token,
            self._sink.table,
            [f"column {name} ({kind}) into {column.sql}: a value would be another one there, or is too large"],
        ) from None

    def _check_columns(
        self, token: CommitToken, kinds: Mapping[str, Kind], columns: Mapping[str, TableColumn]
    ) -> dict[str, TableColumn]:
        """The table's columns that the result has. Raises `ConfigurationError` and `SinkRefused` if they don't fit."""
        own = {self._sink.run_column} if self._sink.run_column is not None else set()
        missing = sorted(({*kinds} | own) - {*columns})
        if missing or own & {*kinds}:
            what = f"no {', '.join(missing)}" if missing else f"{self._sink.run_column} in the result as well"
            raise ConfigurationError(
                f"Expected the columns {', '.join(sorted({*kinds} | own))} in {self._sink.table}, found {what}: "
                "add them to the table, or change the sink's function."
            )
        unfit = [
            f"column {name} ({sql_name(kind)}) into {columns[name].sql}: {_cure(kind)}"
            for name, kind in kinds.items()
            if fit(kind, columns[name]) is None
        ]
        if unfit:
            raise unfit_columns(token, self._sink.table, unfit)
        return {name: columns[name] for name in kinds}

    def _insert(self, cursor: Any, token: CommitToken, values: Mapping[str, Any]) -> int:
        run_column = self._sink.run_column
        own = [] if run_column is None else [run_column]
        names: dict[str, Any] = {"target": self._target(cursor), "stage": (_STAGE,), "own": own}
        names |= {"columns": [*values], "given": [*values.values()]}
        key = () if run_column is None else (token.lineage,)
        # Else two runs that replace at once would each leave the rows that the other has just inserted.
        self._lock(cursor)
        if self._sink.mode is CommitMode.REPLACE:
            where = "" if run_column is None else " WHERE {own} = %s"
            _execute(cursor, f"DELETE FROM {{target}}{where}", key, **names)
        if run_column is None:
            _execute(cursor, "INSERT INTO {target} ({columns}) SELECT {given} FROM {stage}", **names)
        else:
            _execute(cursor, "INSERT INTO {target} ({own}, {columns}) SELECT %s, {given} FROM {stage}", key, **names)
        return int(cursor.rowcount)

    @contextmanager
    def _transaction(self, token: CommitToken) -> Iterator[Any]:
        """Committed where the block ends, rolled back where it raises.

        Raises `SinkRefused` and `SinkUnavailable` for the driver's errors, without those themselves: PostgreSQL's
        details and contexts hold the row.
        """
        import psycopg2

        try:
            connection = self._connect()
            try:
                with connection, connection.cursor() as cursor:
                    cursor.execute(
                        f"SET LOCAL lock_timeout = '{LOCK_TIMEOUT_S}s'; "
                        f"SET LOCAL idle_in_transaction_session_timeout = '{IDLE_TIMEOUT_S}s'"
                    )
                    yield cursor
            finally:
                connection.close()
        except psycopg2.Error as error:
            raise self._answer(token, error) from None

    def _answer(self, token: CommitToken, error: Any) -> SinkRefused | SinkUnavailable:
        code, message = error.pgcode or "", _safe_message(error)
        where = f"{token.text}: PostgreSQL said of {self._sink.table}: {message}"
        if code.startswith(_REFUSING) or (not code and any(name in str(error) for name in _REFUSED_TO_CONNECT)):
            return SinkRefused(
                f"{where}. Nothing was committed, and no retry helps: change the table, the role's rights, or what the "
                "sink's function returns, and clear the task."
            )
        return SinkUnavailable(
            f"{where}. Whether it was committed, the next try finds by the token: nothing is committed twice.",
            code="target-no-answer",
        )

    def _connect(self) -> Any:
        import psycopg2

        address = self._resources.database(self._sink.conn_id)
        own = {
            "host": address.host,
            "port": address.port,
            "dbname": address.database,
            "user": address.user,
            "password": address.password,
        }
        arguments = {
            "connect_timeout": CONNECT_TIMEOUT_S,
            "application_name": "airflow-recovery",
            **{name: value for name, value in address.options if name in _OPTIONS},
            **own,
        }
        connection = psycopg2.connect(**arguments)
        connection.set_client_encoding("UTF8")  # what is copied
        return connection


def _kept_alive(cursor: Any, batches: Iterator[Any]) -> Iterator[Any]:
    """Yield ``batches``, fetched in the background, while the transaction is kept from being idle for too long."""
    with ThreadPoolExecutor(1, "fetch prepared rows") as fetcher:
        while True:
            fetched = fetcher.submit(next, batches, None)
            while not wait([fetched], IDLE_TIMEOUT_S / 3).done:
                cursor.execute("SELECT 1")
            batch = fetched.result()
            if batch is None:
                return
            yield batch


def _cure(kind: Kind) -> str:
    """What to do with a column that does not fit, as the end of a sentence."""
    known = native(kind)
    return cure(kind) if known is None else f"make the table's column {known}, or cast it in the sink's function"


def _safe_message(error: Any) -> str:
    """The server's message without rows: no detail and no context; class 22, and a trigger, quote values: the code."""
    from psycopg2 import errorcodes

    code = error.pgcode
    if code is None:
        return f"{type(error).__name__}: {str(error).strip()}"
    try:
        name = errorcodes.lookup(code).lower().replace("_", " ")
    except KeyError:
        name = "unknown"
    text = f"{name} (SQLSTATE {code})"
    return text if code.startswith(("22", "P0")) else f"{text}: {error.diag.message_primary}"


def _columns(cursor: Any, schema: str, table: str) -> set[str]:
    """The names of a table's columns, by its exact name; empty where there is no such table."""
    cursor.execute(
        "SELECT a.attname FROM pg_catalog.pg_attribute a JOIN pg_catalog.pg_class c ON c.oid = a.attrelid "
        "JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace "
        "WHERE n.nspname = %s AND c.relname = %s AND a.attnum > 0 AND NOT a.attisdropped",
        (schema, table),
    )
    return {row[0] for row in cursor.fetchall()}


class _Piece(NamedTuple):
    """A piece of SQL with a name in it, as ``{0}``."""

    text: str
    name: str


def _execute(cursor: Any, statement: str, values: tuple[Any, ...] = (), **names: Any) -> None:
    cursor.execute(_statement(statement, has_values=bool(values), **names), values or None)


def _statement(text: str, *, has_values: bool = False, **names: Any) -> Any:
    """``text`` with quoted names: a tuple is one name of several parts, a list several names, or pieces of SQL.

    With values psycopg2 takes a percent sign for theirs, in a quoted name too.
    """
    from psycopg2 import sql

    def escaped(part: str) -> str:
        return part.replace("%", "%%") if has_values else part

    def quoted(part: str | _Piece) -> Any:
        if isinstance(part, _Piece):
            return sql.SQL(escaped(part.text)).format(sql.Identifier(escaped(part.name)))
        return sql.Identifier(escaped(part))

    return sql.SQL(text).format(
        **{
            key: sql.Identifier(*map(escaped, name))
            if isinstance(name, tuple)
            else sql.SQL(", ").join(map(quoted, name))
            for key, name in names.items()
        }
    )


def _csv(batch: Any) -> io.BytesIO:
    """A batch as CSV for COPY: a null is an empty field, an empty string is quoted."""
    import pyarrow.csv  # type: ignore[import-untyped]

    body = io.BytesIO()
    pyarrow.csv.write_csv(batch, body, pyarrow.csv.WriteOptions(include_header=False, quoting_style="needed"))
    body.seek(0)
    return body
