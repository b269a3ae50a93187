"""Iceberg tables of a simulation: what any catalog of them guarantees, and no more, below pyiceberg's own client.

A table is metadata with snapshots, branches and tags, as pyiceberg has them. One request reads it, and one compares and
swaps: a commit is made whole where all that its sender has read still holds, else refused. A reply may be lost, with
the commit made, not made, or made later. Files are not simulated. Needs pyiceberg.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar
from weakref import WeakValueDictionary

from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException, ServerError
from pyiceberg.io import load_file_io
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.metadata import TableMetadata, TableMetadataV1, new_table_metadata
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRefType
from pyiceberg.table.snapshots import Operation, Snapshot, Summary
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.table.update import (
    AddSnapshotUpdate,
    AssertRefSnapshotId,
    AssertTableUUID,
    RemoveSnapshotsUpdate,
    SetSnapshotRefUpdate,
    TableRequirement,
    TableUpdate,
    update_table_metadata,
)
from pyiceberg.typedef import IcebergBaseModel

from airflow_recovery.driver import iceberg_result
from airflow_recovery.driver.table_commit import TableCommit
from airflow_recovery.locations import TableLocation
from airflow_recovery.model.manifest import PartitionManifest, ResultObject
from airflow_recovery.results.tables import ICEBERG_TOKEN, Tables
from airflow_recovery.testing.simulation.lake import OF_OTHERS, SIZE, Lake
from airflow_recovery.testing.simulation.strands import current_runner

ROWS, BY = "simulated-rows", "simulated-attempt"
"""In a snapshot's summary: what it has, and who has made it."""
_NO_PAUSE = {"commit.retry.min-wait-ms": "0", "commit.retry.max-wait-ms": "0"}
_IO = load_file_io({})


@dataclass(frozen=True)
class Commit:
    """One change of a table that was sent: made where ``requirements`` hold when it arrives."""

    table: str
    requirements: tuple[TableRequirement, ...]
    updates: tuple[TableUpdate, ...]


@dataclass
class IcebergLake(Lake[Commit]):
    """Snapshots on a branch. ``parents``: of every one that there ever was, which its table forgets when it expires."""

    refused = CommitFailedException
    remembers = False
    can_count_again = True
    tables: dict[str, TableMetadata] = field(default_factory=dict)
    parents: dict[int, int | None] = field(default_factory=dict)
    sent: int = 0

    def __post_init__(self) -> None:
        self.key = uuid.UUID(int=self.rng.getrandbits(128)).hex
        _lakes[self.key] = self

    def metadata(self, table: str) -> TableMetadata:
        """As it is now."""
        if table not in self.tables:
            self.tables[table] = made = new_table_metadata(
                Schema(),
                UNPARTITIONED_PARTITION_SPEC,
                UNSORTED_SORT_ORDER,
                f"memory://{table}",
                dict(_NO_PAUSE),
                uuid.UUID(int=self.rng.getrandbits(128)),
            )
            self.make(self.overwriting(table, made, OF_OTHERS, {}))
        return self.tables[table]

    def send(self, commit: Commit) -> TableMetadata:
        """A commit and its reply. Raises `CommitFailedException` where something else came between, or without one."""
        if self.fails():
            happens = self.rng.choice(
                ["is made", "is made, and refused when it is sent again", "is on its way", "is lost"]
            )
            if happens.startswith("is made"):
                self.make(commit)
            elif happens == "is on its way":
                self.in_flight.append(commit)
            message = f"no reply: the commit {happens} (injected)"
            raise (CommitFailedException if "again" in happens else CommitStateUnknownException)(message)
        return self.make(commit)

    def answer_or_fail(self) -> None:
        """A request that changes nothing: its reply may be missing."""
        if self.fails():
            raise ServerError("503 (injected)")

    def make(self, change: Commit) -> TableMetadata:
        """Compare and swap."""
        now = self.metadata(change.table)
        for requirement in change.requirements:
            requirement.validate(now)
        try:
            self.tables[change.table] = changed = update_table_metadata(now, change.updates)
        except ValueError as error:  # its sequence number, where the branch was moved away and back
            raise CommitFailedException(str(error)) from error
        self.parents |= {
            update.snapshot.snapshot_id: update.snapshot.parent_snapshot_id
            for update in change.updates
            if isinstance(update, AddSnapshotUpdate)
        }
        self.on_change(change.table)
        return changed

    def overwriting(self, table: str, on: TableMetadata, rows: str, properties: Mapping[str, str]) -> Commit:
        """What a client sends that has read ``on`` and puts ``rows`` in place of all that the table has."""
        head = on.refs.get(MAIN_BRANCH)
        parent = None if head is None else head.snapshot_id
        self.sent += 1
        number = self.sent * 2_654_435_761 % 2**32  # an id of its own, in no order
        snapshot = _model(
            Snapshot,
            snapshot_id=number,
            parent_snapshot_id=parent,
            sequence_number=_last_number(on) + 1,
            timestamp_ms=int(self.clock.now_s * 1000),
            manifest_list=f"memory://{table}/{number}",
            summary=Summary(
                Operation.OVERWRITE, **{"total-files-size": str(SIZE), "added-records": str(len(rows)), ROWS: rows}
            ),
        )
        assert snapshot.summary is not None
        for name, value in properties.items():
            snapshot.summary[name] = value
        return Commit(
            table,
            (AssertTableUUID(uuid=on.table_uuid), _model(AssertRefSnapshotId, ref=MAIN_BRANCH, snapshot_id=parent)),
            (AddSnapshotUpdate(snapshot=snapshot), self._moved_to(snapshot.snapshot_id)),
        )

    # as a process sees it

    def client(self) -> dict[str, str]:
        """The properties with which pyiceberg's client finds this catalog."""
        return {"py-catalog-impl": f"{__name__}.{SimulatedCatalog.__name__}", "lake": self.key}

    def commit(self, tables: Tables, commit: TableCommit, rows: str, by: str) -> PartitionManifest:
        """By `driver.iceberg_result`."""
        location = TableLocation.parse(commit.table)
        own = {**iceberg_result.snapshot_properties(commit), BY: by}

        def prepare(table: Table | None) -> Callable[[], TableMetadata]:
            return partial(self._overwrite, _there(table), rows, own)

        snapshot, table_id = iceberg_result.commit_once(tables, location, commit, prepare, _LOG)
        registered = ResultObject(str(snapshot.snapshot_id), SIZE, table_id)
        return PartitionManifest(commit.result, location.uri, (registered,), rows=len(rows), managed=False)

    def overwrite(self, tables: Tables, location: TableLocation, token: str, rows: str, by: str) -> None:
        """As pyiceberg does."""
        self._overwrite(_there(tables.iceberg(location)), rows, {ICEBERG_TOKEN: token, BY: by})

    def _overwrite(self, table: Table, rows: str, properties: Mapping[str, str]) -> TableMetadata:
        commit = self.overwriting(".".join(table.name()), table.metadata, rows, properties)
        return table.catalog.commit_table(table, commit.requirements, commit.updates).metadata

    # what there is

    def names(self) -> Iterable[str]:
        """Those that there are."""
        return self.tables

    def id_of(self, table: str) -> str:
        """Its UUID."""
        return str(self.metadata(table).table_uuid)

    def head(self, table: str) -> int | None:
        """That of its branch."""
        ref = self.metadata(table).refs.get(MAIN_BRANCH)
        return None if ref is None else ref.snapshot_id

    def line(self, table: str, number: int | None) -> list[int]:
        """By its parents."""
        snapshots: list[int] = []
        while number is not None:
            snapshots.append(number)
            number = self.parents[number]
        return snapshots

    def counting(self, table: str) -> set[int]:
        """Those on which the head of the branch stands.

        One that has a tag, and is older than all that is left of the branch, is taken for one of them: what was between
        has expired.
        """
        metadata = self.metadata(table)
        there = {snapshot.snapshot_id: snapshot for snapshot in metadata.snapshots}
        left: list[int] = []
        number = self.head(table)
        while number in there:
            left.append(number)
            number = there[number].parent_snapshot_id
        oldest = min((there[number].timestamp_ms for number in left), default=0)
        tagged = {ref.snapshot_id for name, ref in metadata.refs.items() if name != MAIN_BRANCH}
        return {*left, *(number for number in tagged if there[number].timestamp_ms < oldest)}

    def has(self, table: str, number: int) -> bool:
        """Until it has expired."""
        return self.metadata(table).snapshot_by_id(number) is not None

    def rows(self, table: str, number: int) -> str | None:
        """In its summary."""
        return self._noted(table, number, ROWS)

    def by(self, table: str, number: int) -> str | None:
        """In its summary."""
        return self._noted(table, number, BY)

    def _noted(self, table: str, number: int, name: str) -> str | None:
        snapshot = self.metadata(table).snapshot_by_id(number)
        return None if snapshot is None or snapshot.summary is None else snapshot.summary[name]

    # what others do

    def expire(self, table: str) -> list[int]:
        """Every snapshot goes that no branch's head and no tag is."""
        metadata = self.metadata(table)
        kept = {ref.snapshot_id for ref in metadata.refs.values()}
        gone = [snapshot.snapshot_id for snapshot in metadata.snapshots if snapshot.snapshot_id not in kept]
        if gone:
            self.make(Commit(table, (), (_model(RemoveSnapshotsUpdate, snapshot_ids=gone),)))
        return gone

    def others_commit(self, table: str) -> None:
        """Over whatever there is."""
        self.make(self.overwriting(table, self.metadata(table), OF_OTHERS, {}))

    def move(self, table: str, to: int) -> None:
        """The branch begins there: a rollback, or its end."""
        self.make(Commit(table, (), (self._moved_to(to),)))

    def _moved_to(self, snapshot: int) -> SetSnapshotRefUpdate:
        return _model(SetSnapshotRefUpdate, ref_name=MAIN_BRANCH, type=SnapshotRefType.BRANCH, snapshot_id=snapshot)


class SimulatedCatalog(NoopCatalog):
    """A process's way to an `IcebergLake`, as pyiceberg makes one: before each request another process may go on."""

    def __init__(self, name: str, **properties: Any) -> None:
        super().__init__(name, **properties)
        self._lake = _lakes[properties["lake"]]

    def load_table(self, identifier: str | tuple[str, ...]) -> Table:
        """One request."""
        name = identifier if isinstance(identifier, str) else ".".join(identifier)
        current_runner().switch(f"CATALOG loads {name}")
        self._lake.answer_or_fail()
        metadata = self._lake.metadata(name)
        # The client writes into the properties of what it has read.
        own = metadata.model_copy(update={"properties": dict(metadata.properties)})
        return Table(tuple(name.split(".")), own, f"memory://{name}", _IO, self)

    def commit_table(
        self, table: Table, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]
    ) -> CommitTableResponse:
        """One request."""
        name = ".".join(table.name())
        current_runner().switch(f"CATALOG commits to {name}")
        metadata = self._lake.send(Commit(name, requirements, updates))
        return _model(CommitTableResponse, metadata=metadata, metadata_location=f"memory://{name}")


Model = TypeVar("Model", bound=IcebergBaseModel)


def _model(kind: type[Model], **fields: Any) -> Model:
    """One of pyiceberg's, which takes its fields by these names too: a type checker knows those of JSON alone."""
    return kind(**fields)


def _last_number(metadata: TableMetadata) -> int:
    assert not isinstance(metadata, TableMetadataV1)
    return metadata.last_sequence_number


_lakes: WeakValueDictionary[str, IcebergLake] = WeakValueDictionary()


def _there(table: Table | None) -> Table:
    """Nobody drops a table of the simulation."""
    assert table is not None
    return table


_LOG = logging.Logger("simulated tables", logging.ERROR)
