"""rows --+--> added       a table that knows its tokens
       +--> told        a table that knows nothing: two functions of ours are all there is
       +--> believed    the same

A machine whose environment has COMMITS, a folder, holds each commit while there is a file ``hold`` in it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from airflow_recovery import BLOCKING, job
from airflow_recovery.sinks import (
    Committable,
    CommitToken,
    Held,
    PostgresTable,
    Probe,
    ProbedSink,
    SinkResources,
)
from airflow_recovery.sinks.staged import StagedRows

WAREHOUSE = "warehouse"

ledger = job("ledger")


@contextmanager
def held_commit(name: str) -> Iterator[None]:
    """Leaves ``<name>.reached`` before it is held, and ``<name>.done`` when it is over."""
    folder = os.environ.get("COMMITS")
    if folder is None:
        yield
        return
    root = Path(folder)
    (root / f"{name}.reached").touch()
    while (root / "hold").exists():
        time.sleep(0.05)
    yield
    (root / f"{name}.done").touch()


class HeldCommitter:
    """That of a table, which may be held."""

    def __init__(self, committer: Any, name: str) -> None:
        self._committer = committer
        self._name = name

    def commit(self, committable: Committable) -> str:
        with held_commit(self._name):
            return str(self._committer.commit(committable))

    def probe(self, token: CommitToken) -> Probe:
        return Probe(self._committer.probe(token))

    def held(self, token: CommitToken) -> Held | None:
        found: Held | None = self._committer.held(token)
        return found


@dataclass(frozen=True, kw_only=True)
class HeldTable(PostgresTable):
    def open(self, resources: SinkResources) -> Any:
        return HeldCommitter(super().open(resources), self.table)


def connect(resources: SinkResources) -> Any:
    import psycopg2

    at = resources.database(WAREHOUSE)
    return psycopg2.connect(host=at.host, port=at.port, dbname=at.database, user=at.user, password=at.password)


def insert(table: str, committable: Committable, resources: SinkResources) -> None:
    with held_commit(table):
        staged = StagedRows(committable.manifest, resources.open_location)
        rows = [tuple(row.values()) for batch in staged.batches() for row in batch.to_pylist()]
        with connect(resources) as connection, connection.cursor() as cursor:
            cursor.executemany(f"INSERT INTO {table} (id) VALUES (%s)", rows)


def has_rows(table: str, resources: SinkResources) -> bool:
    with connect(resources) as connection, connection.cursor() as cursor:
        cursor.execute(f"SELECT EXISTS (SELECT FROM {table})")
        return bool(cursor.fetchone()[0])


def tell(committable: Committable, resources: SinkResources) -> None:
    insert("told", committable, resources)


def is_told(token: CommitToken, resources: SinkResources) -> bool:
    return has_rows("told", resources)


def tell_believer(committable: Committable, resources: SinkResources) -> None:
    insert("believed", committable, resources)


def is_believed(token: CommitToken, resources: SinkResources) -> bool:
    return has_rows("believed", resources)


@ledger.source(result=BLOCKING)
def rows(spark: Any) -> Any:
    return spark.range(3)


@ledger.sink(commit=HeldTable(conn_id=WAREHOUSE, table="added"))
def added(rows: Any) -> Any:
    return rows


@ledger.sink(commit=ProbedSink(apply=tell, is_applied=is_told))
def told(rows: Any) -> Any:
    return rows


@ledger.sink(commit=ProbedSink(apply=tell_believer, is_applied=is_believed))
def believed(rows: Any) -> Any:
    return rows
