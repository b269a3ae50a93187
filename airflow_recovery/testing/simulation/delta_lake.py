"""Delta tables of a simulation: what their log guarantees, and no more, below delta-rs' reader and Spark's writer.

A table is its log: one commit a version, each of which is made where no other has its number yet. The writer of a
declared region reads the log first, and leaves out a commit whose application has committed that number or a higher
one, as Delta for Spark does. One request reads or commits; a reply may be lost, with the commit made, not made, or made
later. A version's rows are in one file, which is gone once it was vacuumed. Needs deltalake.
"""

from __future__ import annotations

import logging
import re
import uuid
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from deltalake.exceptions import DeltaError

from airflow_recovery.driver import delta_result
from airflow_recovery.driver.table_commit import TableCommit
from airflow_recovery.locations import TableLocation, split_uri
from airflow_recovery.model.manifest import PartitionManifest
from airflow_recovery.results.tables import DELTA_TOKEN, Tables
from airflow_recovery.testing.simulation.lake import OF_OTHERS, SIZE, Lake
from airflow_recovery.testing.simulation.memory import MemoryStore
from airflow_recovery.testing.simulation.strands import current_runner


class Transaction(NamedTuple):
    """What Delta calls ``txn``: of an application, how far it has come."""

    application: str
    version: int

    def covers(self, other: Transaction) -> bool:
        """Whether ``other`` is no progress of the application."""
        return self.application == other.application and self.version >= other.version


@dataclass(frozen=True)
class Commit:
    """One change of a table that was sent: made where ``version`` is free when it arrives.

    ``file`` has its rows. ``restores``: the version whose file it brings back.
    """

    table: str
    version: int
    file: str
    rows: str
    token: str | None = None
    by: str | None = None
    is_sparks: bool = False
    transaction: Transaction | None = None
    restores: int | None = None


class ConcurrentWrite(Exception):
    """Somebody else has committed in between."""


@dataclass
class DeltaLake(Lake[Commit]):
    """Versions in a log. ``logs``: by the table's folder, relative to its bucket; ``files``: what lies in it."""

    refused = ConcurrentWrite
    remembers = True
    can_count_again = False
    logs: dict[str, list[Commit]] = field(default_factory=dict)
    files: dict[str, MemoryStore] = field(default_factory=dict)
    ids: dict[str, str] = field(default_factory=dict)

    def log(self, table: str) -> list[Commit]:
        """Its commits, by their versions."""
        if table not in self.logs:
            self.logs[table] = []
            self.files[table] = MemoryStore(f"s3://simulated/{table}", self.clock)
            self.ids[table] = str(uuid.UUID(int=self.rng.getrandbits(128)))
            self.others_commit(table)
        return self.logs[table]

    def send(self, commit: Commit) -> None:
        """A commit and its reply. Raises `ConcurrentWrite` where its version is taken, or `OSError` without one."""
        if self.fails():
            happens = self.rng.choice(["is made", "is on its way", "is lost"])
            if happens == "is made":
                self.make(commit)
            elif happens == "is on its way":
                self.in_flight.append(commit)
            raise OSError(f"no reply: the commit {happens} (injected)")
        self.make(commit)

    def answer_or_fail(self) -> None:
        """A request that changes nothing: its reply may be missing."""
        if self.fails():
            raise OSError("503 (injected)")

    def make(self, change: Commit) -> None:
        """Put if absent."""
        log = self.log(change.table)
        if change.version != len(log):
            raise ConcurrentWrite(f"version {change.version} of {change.table} is there")
        log.append(change)
        if change.restores is None:
            self.files[change.table].put(change.file, change.rows.encode())
        self.on_change(change.table)

    # as a process sees it

    def commit(self, tables: Tables, commit: TableCommit, rows: str, by: str) -> PartitionManifest:
        """By `driver.delta_result`."""
        session: Any = _Session(self, by)
        frame: Any = _Frame(session, rows)
        return delta_result.write_delta(session, frame, commit, _LOG)

    def overwrite(self, tables: Tables, location: TableLocation, token: str, rows: str, by: str) -> None:
        """As delta-rs does, whose commit's info has the token."""
        table = table_at(location.name)
        version = LoadedTable(self, table, None).version() + 1
        current_runner().switch(f"DELTA commits to {table}")
        self.send(Commit(table, version, self._new_file(), rows, token, by))

    def overwrite_once(self, table: str, transaction: Transaction | None, token: str, rows: str, by: str) -> None:
        """As Spark's writer: it leaves out what its application has committed already, and says nothing of it."""
        current_runner().switch(f"DELTA reads the log of {table}")
        self.answer_or_fail()
        read = list(self.log(table))
        committed = [made.transaction for made in read if made.transaction is not None]
        if transaction is not None and any(made.covers(transaction) for made in committed):
            return
        current_runner().switch(f"DELTA commits to {table}")
        self.send(Commit(table, len(read), self._new_file(), rows, token, by, True, transaction))

    def _new_file(self) -> str:
        return f"part-{self.rng.getrandbits(64):016x}.parquet"

    # what there is

    def names(self) -> Iterable[str]:
        """Those that there are."""
        return self.logs

    def id_of(self, table: str) -> str:
        """Of its metadata."""
        self.log(table)
        return self.ids[table]

    def head(self, table: str) -> int | None:
        """The newest version."""
        return len(self.log(table)) - 1

    def line(self, table: str, number: int | None) -> list[int]:
        """All versions down to the first."""
        return [] if number is None else list(range(number, -1, -1))

    def counting(self, table: str) -> set[int]:
        """Below which no later commit has restored a version."""
        counting = set[int]()
        for made in self.log(table):
            if made.restores is not None:
                counting = {number for number in counting if number <= made.restores}
            counting.add(made.version)
        return {number for number in counting if self.has(table, number)}

    def has(self, table: str, number: int) -> bool:
        """Until its file was vacuumed."""
        return self.log(table)[number].file in self.files[table]

    def rows(self, table: str, number: int) -> str | None:
        """In its file."""
        log = self.log(table)
        return log[number].rows if number < len(log) and self.has(table, number) else None

    def by(self, table: str, number: int) -> str | None:
        """In its commit."""
        return self.log(table)[number].by

    # what others do

    def expire(self, table: str) -> list[str]:
        """What is called a vacuum: files that the newest version does not have."""
        newest = self.log(table)[-1].file
        gone = [info.key for info in self.files[table].list() if info.key != newest]
        self.files[table].delete(gone)
        self.on_change(table)
        return gone

    def others_commit(self, table: str) -> None:
        """Over whatever there is."""
        self.make(Commit(table, len(self.log(table)), self._new_file(), OF_OTHERS))

    def move(self, table: str, to: int) -> None:
        """A ``RESTORE``, which is a version of its own."""
        log = self.log(table)
        self.make(Commit(table, len(log), log[to].file, log[to].rows, restores=to))


def table_at(folder: str) -> str:
    """The name of the table in a folder."""
    return split_uri(folder)[1]


class LoadedTable:
    """What `results.tables` asks of delta-rs' ``DeltaTable``: a version, as it was when it was read.

    Raises `DeltaError` for a version that is not there, and `OSError` without an answer.
    """

    def __init__(self, lake: DeltaLake, table: str, version: int | None) -> None:
        current_runner().switch(f"DELTA loads {table}")
        lake.answer_or_fail()
        self._lake, self._table = lake, table
        self._log = list(lake.log(table))
        if version is not None:
            if version >= len(self._log):
                raise DeltaError(f"Invalid table version: {version}")
            del self._log[version + 1 :]

    def metadata(self) -> LoadedTable:
        """Of which its id is asked alone."""
        return self

    @property
    def id(self) -> str:
        """The table's own."""
        return self._lake.id_of(self._table)

    def version(self) -> int:
        """The one that was loaded."""
        return len(self._log) - 1

    def history(self, limit: int) -> list[dict[str, Any]]:
        """What the newest commits say of themselves, one request."""
        current_runner().switch(f"DELTA lists the commits of {self._table}")
        self._lake.answer_or_fail()
        return [_info_of(made) for made in reversed(self._log[-limit:])]

    def get_add_actions(self, flatten: bool) -> dict[str, list[Any]]:
        """Its one file."""
        return {"path": [self._log[-1].file], "size_bytes": [SIZE]}


def _info_of(made: Commit) -> dict[str, Any]:
    info: dict[str, Any] = {"version": made.version, "operation": "WRITE" if made.restores is None else "RESTORE"}
    if made.restores is not None:
        info["operationParameters"] = {"version": str(made.restores)}
    if made.token is not None:
        info["userMetadata" if made.is_sparks else DELTA_TOKEN] = made.token
    return info


class _Session:
    """What `driver.delta_result` asks of Spark: a table's history and its id, one request each."""

    def __init__(self, lake: DeltaLake, by: str) -> None:
        self.lake, self.by = lake, by

    def sql(self, statement: str) -> _Rows:
        asked = _DESCRIBED.fullmatch(statement)
        assert asked is not None, statement
        table = table_at(asked["folder"])
        current_runner().switch(f"SPARK describes {table}")
        self.lake.answer_or_fail()
        if asked["what"] == "DETAIL":
            return _Rows([{"id": self.lake.id_of(table)}])
        metrics = {"numOutputBytes": str(SIZE)}
        return _Rows(
            [
                {
                    "version": made.version,
                    "userMetadata": made.token,
                    "operationMetrics": {**metrics, "numOutputRows": str(len(made.rows))},
                }
                for made in reversed(self.lake.log(table))
            ]
        )


class _Rows(list[dict[str, Any]]):
    def collect(self) -> _Rows:
        return self


class _Frame:
    """Rows, and what Spark's writer is told of them."""

    def __init__(self, session: _Session, rows: str) -> None:
        self._session, self._rows = session, rows
        self._options: dict[str, str] = {}

    @property
    def write(self) -> _Frame:
        return self

    @property
    def schema(self) -> _Frame:
        return self

    def json(self) -> str:
        return "{}"

    def format(self, name: str) -> _Frame:
        assert name == "delta"
        return self

    def mode(self, name: str) -> _Frame:
        assert name == "overwrite"
        return self

    def option(self, name: str, value: str) -> _Frame:
        self._options[name] = value
        return self

    def save(self, path: str) -> None:
        told, session = self._options, self._session
        transaction = Transaction(told["txnAppId"], int(told["txnVersion"])) if "txnAppId" in told else None
        session.lake.overwrite_once(table_at(path), transaction, told["userMetadata"], self._rows, session.by)


_DESCRIBED = re.compile(r"DESCRIBE (?P<what>HISTORY|DETAIL) delta\.`(?P<folder>[^`]+)`(?: LIMIT [0-9]+)?")
_LOG = logging.Logger("simulated tables", logging.ERROR)
