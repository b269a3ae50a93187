"""A table in PostgreSQL as a token sink: rows and token become visible in one transaction, or neither."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

from airflow_recovery.errors import ConfigurationError, JobDefinitionError, SinkUnavailable
from airflow_recovery.sinks.committer import Committable, CommitToken, Probe, SinkResources, refused
from airflow_recovery.sinks.declaration import CommittingSink
from airflow_recovery.sinks.staged import StagedRows
from airflow_recovery.topology.committing import CommitKind, CommitMode

TOKENS = "airflow_recovery_commits"
"""The table that holds, for each lineage and target, the attempt that is in it. Lies in the target's schema."""
CONNECT_TIMEOUT_S = 30
IDLE_TIMEOUT_S = 30
"""A process that is frozen between two statements holds its locks no longer: the server ends its transaction."""
LOCK_TIMEOUT_S = 120
_STAGE = "airflow_recovery_stage"


@dataclass(frozen=True, kw_only=True)
class PostgresTable(CommittingSink):
    """Commits into ``table`` (``name`` or ``schema.name``) of the database that the connection ``conn_id`` names.

    The table exists, and has the result's columns by name; further ones get their defaults. ``append`` adds the rows
    of one attempt of a run, once. ``replace`` puts them in place of all rows, or, with ``run_column``, of the rows that
    have this run's key in that column, which the result does not have and which is filled in.
    """

    conn_id: str
    table: str
    run_column: str | None = None
    kind: ClassVar[CommitKind] = CommitKind.TOKEN

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_text("conn_id", "warehouse")
        self._check_text("table", "mart.delays")
        if self.run_column is not None:
            self._check_text("run_column", "run_key")
        if self.table.count(".") > 1:
            raise JobDefinitionError(
                f"PostgresTable: expected table= as 'name' or 'schema.name', found {self.table!r}: the database is the "
                "connection's"
            )

    def open(self, resources: SinkResources) -> _PostgresCommitter:
        """Nothing is connected yet. Raises `ConfigurationError` where psycopg2 is not installed."""
        try:
            import psycopg2  # type: ignore[import-untyped]  # noqa: F401
        except ImportError as error:
            raise ConfigurationError(
                "Expected psycopg2 in the worker's environment, found none: install airflow-recovery[sinks]."
            ) from error
        return _PostgresCommitter(self, resources)


class _PostgresCommitter:
    """The order inside the transaction:

    copy into a temporary table   may take long, and locks nothing that others want
    take the token                an upsert of the lineage's row: of two processes the second waits here for the first
    delete, insert                on the server alone
    commit                        the one moment
    """

    def __init__(self, sink: PostgresTable, resources: SinkResources) -> None:
        self._sink = sink
        self._resources = resources
        self._target = _quoted(sink.table)
        schema = sink.table.rpartition(".")[0]
        self._tokens = _quoted(f"{schema}.{TOKENS}" if schema else TOKENS)

    def probe(self, token: CommitToken) -> Probe:
        with self._transaction(token) as cursor:
            return Probe.APPLIED if self._held(cursor, token) == token.attempt else Probe.NOT_APPLIED

    def commit(self, committable: Committable) -> str:
        token = committable.token
        staged = StagedRows(committable.manifest, self._resources.open_location)
        self._make_tokens(token)
        with self._transaction(token) as cursor:
            # Asked before all the work, and decided again below.
            held = self._held(cursor, token)
            if held == token.attempt:
                return f"{self._sink.table}: applied before"
            columns = self._copy(cursor, staged)
            if not self._take(cursor, token):
                return f"{self._sink.table}: applied before"
            rows = self._insert(cursor, token, columns)
            cursor.execute("SELECT pg_current_xact_id()::text")
            transaction = cursor.fetchone()[0]
        return f"{self._sink.table}: transaction {transaction}, {rows} rows"

    def _held(self, cursor: Any, token: CommitToken) -> int | None:
        """The attempt that the target holds of this lineage."""
        cursor.execute("SELECT to_regclass(%s)", (self._tokens,))
        if cursor.fetchone()[0] is None:
            return None
        cursor.execute(
            f"SELECT attempt FROM {self._tokens} WHERE lineage = %s AND target = %s", (token.lineage, self._sink.table)
        )
        found = cursor.fetchone()
        return None if found is None else int(found[0])

    def _make_tokens(self, token: CommitToken) -> None:
        with self._transaction(token) as cursor:
            cursor.execute("SELECT to_regclass(%s)", (self._tokens,))
            if cursor.fetchone()[0] is not None:
                return
            # Two that create it at once would meet in the catalogue, IF NOT EXISTS or not.
            cursor.execute("SELECT pg_advisory_xact_lock(hashtext(%s))", (TOKENS,))
            cursor.execute(
                f"CREATE TABLE IF NOT EXISTS {self._tokens} (lineage text, target text, attempt integer NOT NULL, "
                "committed_at timestamptz NOT NULL DEFAULT now(), PRIMARY KEY (lineage, target))"
            )

    def _take(self, cursor: Any, token: CommitToken) -> bool:
        """The lineage's row says this attempt from now on. False: it did before. Raises `SinkRefused`.

        An upsert waits for another transaction on the same row, and then sees what that has committed.
        """
        follows = f"{self._tokens}.attempt < EXCLUDED.attempt" if self._sink.mode is CommitMode.REPLACE else "FALSE"
        cursor.execute(
            f"INSERT INTO {self._tokens} (lineage, target, attempt) VALUES (%s, %s, %s) ON CONFLICT (lineage, target) "
            f"DO UPDATE SET attempt = EXCLUDED.attempt, committed_at = now() WHERE {follows} RETURNING attempt",
            (token.lineage, self._sink.table, token.attempt),
        )
        if cursor.fetchone() is not None:
            return True
        held = self._held(cursor, token)
        if held == token.attempt:
            return False
        raise refused(token, f"table {self._sink.table}", held, CommitMode(self._sink.mode))

    def _copy(self, cursor: Any, staged: StagedRows) -> list[str]:
        columns = [each.name for each in staged.schema]
        self._check_columns(cursor, staged.schema)
        listed = ", ".join(map(_quoted_name, columns))
        cursor.execute(
            f"CREATE TEMPORARY TABLE {_STAGE} ON COMMIT DROP AS SELECT {listed} FROM {self._target} WITH NO DATA"
        )
        for batch in staged.batches():
            cursor.copy_expert(f"COPY {_STAGE} ({listed}) FROM STDIN WITH (FORMAT csv)", _csv(batch))
        return columns

    def _check_columns(self, cursor: Any, schema: Any) -> None:
        import pyarrow  # type: ignore[import-untyped]

        unfit = [
            f"{each.name} ({each.type})"
            for each in schema
            if pyarrow.types.is_nested(each.type) or pyarrow.types.is_binary(each.type)
        ]
        if unfit:
            raise ConfigurationError(
                f"Expected columns that COPY can take for {self._sink.table}, found {', '.join(unfit)}: cast them to "
                "strings in the sink's function, nested ones with to_json()."
            )
        cursor.execute(
            "SELECT attname FROM pg_attribute WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped",
            (self._target,),
        )
        there = {row[0] for row in cursor.fetchall()}
        if not there:
            raise ConfigurationError(f"Expected a table {self._sink.table} in the database, found none: create it.")
        own = {self._sink.run_column} if self._sink.run_column is not None else set()
        missing = sorted(({*schema.names} | own) - there)
        if missing or own & {*schema.names}:
            what = f"no {', '.join(missing)}" if missing else f"{self._sink.run_column} in the result as well"
            raise ConfigurationError(
                f"Expected the columns {', '.join(sorted({*schema.names} | own))} in {self._sink.table}, found {what}: "
                "add them to the table, or change the sink's function."
            )

    def _insert(self, cursor: Any, token: CommitToken, columns: list[str]) -> int:
        listed, run_column = ", ".join(map(_quoted_name, columns)), self._sink.run_column
        if self._sink.mode is CommitMode.REPLACE:
            # Else two runs that replace at once would each leave the rows that the other has just inserted.
            cursor.execute(f"LOCK TABLE {self._target} IN SHARE ROW EXCLUSIVE MODE")
            if run_column is None:
                cursor.execute(f"DELETE FROM {self._target}")
            else:
                cursor.execute(f"DELETE FROM {self._target} WHERE {_quoted_name(run_column)} = %s", (token.run_key,))
        if run_column is None:
            cursor.execute(f"INSERT INTO {self._target} ({listed}) SELECT {listed} FROM {_STAGE}")
        else:
            cursor.execute(
                f"INSERT INTO {self._target} ({_quoted_name(run_column)}, {listed}) SELECT %s, {listed} FROM {_STAGE}",
                (token.run_key,),
            )
        return int(cursor.rowcount)

    @contextmanager
    def _transaction(self, token: CommitToken) -> Iterator[Any]:
        """Committed where the block ends, rolled back where it raises. Raises `SinkUnavailable` for the driver's."""
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
            raise SinkUnavailable(
                f"{token.text}: PostgreSQL said of {self._sink.table}: {type(error).__name__}: {str(error).strip()}. "
                "Whether it was committed, the next try finds by the token: nothing is committed twice."
            ) from error

    def _connect(self) -> Any:
        import psycopg2

        address = self._resources.database(self._sink.conn_id)
        return psycopg2.connect(
            host=address.host,
            port=address.port,
            dbname=address.database,
            user=address.user,
            password=address.password,
            connect_timeout=CONNECT_TIMEOUT_S,
            application_name="airflow-recovery",
            **dict(address.options),
        )


def _csv(batch: Any) -> io.BytesIO:
    """As COPY reads it: a null is nothing at all, an empty string is quoted."""
    import pyarrow.csv  # type: ignore[import-untyped]

    body = io.BytesIO()
    pyarrow.csv.write_csv(batch, body, pyarrow.csv.WriteOptions(include_header=False, quoting_style="needed"))
    body.seek(0)
    return body


def _quoted(table: str) -> str:
    return ".".join(map(_quoted_name, table.split(".")))


def _quoted_name(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
