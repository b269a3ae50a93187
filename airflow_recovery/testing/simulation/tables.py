"""Results that are snapshots of tables: how simulated drivers and jobs commit and read them, and what must hold.

Needs pyiceberg, so it is imported where a job has such a result alone.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from typing import NamedTuple

from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata

from airflow_recovery.driver import iceberg_result
from airflow_recovery.driver.table_commit import TableCommit
from airflow_recovery.errors import Failure, RecoveryError, RegionFailed, StoreError
from airflow_recovery.journal.journal import Journal
from airflow_recovery.locations import TableLocation
from airflow_recovery.model.keys import RegionKey
from airflow_recovery.model.manifest import PartitionManifest, ResultObject
from airflow_recovery.model.records import Claim
from airflow_recovery.results.tables import ICEBERG_TOKEN, ROUNDS, Tables, tag_of, token_of
from airflow_recovery.testing.simulation.lake import ROWS, SIZE, Lake
from airflow_recovery.testing.simulation.ledger import Ledger

BY = "simulated-attempt"
"""In a snapshot's summary: who has made it."""


class Maker(NamedTuple):
    """Whose snapshot it is. ``run``: the prefix of its run in the journal."""

    run: str
    region: str
    attempt: int


class SimulatedTables:
    """The tables of one simulation. Each ledger hears what becomes of the snapshots of its run.

    ``committing``: the regions whose driver commits, once an attempt; others are jobs that do so by themselves.
    ``client``: what a process of ours asks them with.
    """

    def __init__(
        self, lake: Lake, ledger_of: Callable[[str], Ledger], committing: Collection[str], wrong: list[str]
    ) -> None:
        self.lake = lake
        self.client: Tables = lake.client()
        self._ledger_of = ledger_of
        self._committing = frozenset(committing)
        self._wrong = wrong
        self._makers: dict[int, Maker] = {}
        self._counting: dict[str, set[int]] = {}
        self._moved: set[str] = set()
        lake.on_change = self._changed

    # as a driver, and as a job of a user's own

    def commit(self, journal: Journal, claim: Claim, result: str, uri: str, rows: str) -> PartitionManifest:
        """As the driver of a declared region, but for the files: its rows stand in the snapshot itself.

        Raises `RegionFailed`, where it may be made all the same.
        """
        key, location = RegionKey.of(journal.identity, claim.region), TableLocation.parse(uri)
        token = token_of(key, claim.attempt, claim.writer)
        commit = TableCommit(result, uri, f"{key.path}#{result}", claim.attempt, token, None)
        own = {**iceberg_result.snapshot_properties(commit), BY: self._maker_text(journal, claim)}

        def prepare(table: Table | None) -> Callable[[], TableMetadata]:
            return partial(self._send, _there(table), rows, own)

        try:
            snapshot, table_id = iceberg_result.commit_once(self.client, location, commit, prepare, _LOG)
        except Exception as error:
            raise RegionFailed(f"{type(error).__name__}: {error}") from error
        registered = ResultObject(str(snapshot.snapshot_id), SIZE, table_id)
        manifest = PartitionManifest(result, location.uri, (registered,), rows=len(rows), managed=False)
        self._keep(manifest, journal, claim)
        return manifest

    def overwrite(self, journal: Journal, claim: Claim, uri: str, rows: str) -> bool:
        """As a job that is told a token, and looks for no commit of its own. Returns whether it has ended well."""
        own = {ICEBERG_TOKEN: token_of(RegionKey.of(journal.identity, claim.region), claim.attempt, claim.writer)}
        for _ in range(ROUNDS):
            try:
                table = _there(self.client.iceberg(TableLocation.parse(uri)))
                self._send(table, rows, {**own, BY: self._maker_text(journal, claim)})
            except CommitFailedException:
                continue
            except Exception:  # the catalog gave no answer
                return False
            return True
        return False

    def register(self, journal: Journal, claim: Claim, result: str, uri: str) -> PartitionManifest | None:
        """As the task of such a job: the snapshot of its token, with a tag."""
        key = RegionKey.of(journal.identity, claim.region)
        manifest = self.client.committed(result, uri, token_of(key, claim.attempt, claim.writer))
        if manifest is not None:
            maker = self._makers.get(int(manifest.objects[0].path))
            own = Maker(journal.layout.prefix, claim.region, claim.attempt)
            if maker != own:
                self._wrong.append(f"I10: {own.region}@{own.attempt} is given as its result what {maker} has committed")
            self._keep(manifest, journal, claim)
        return manifest

    def _keep(self, manifest: PartitionManifest, journal: Journal, claim: Claim) -> None:
        key = RegionKey.of(journal.identity, claim.region)
        with suppress(StoreError):
            self.client.keep(manifest, tag_of(journal.store.base_uri, key, claim.attempt))

    def let_go(self, journal: Journal, claim: Claim, uri: str) -> None:
        """As that task, of an attempt that was fenced: its tag. Best effort."""
        key = RegionKey.of(journal.identity, claim.region)
        with suppress(StoreError):
            self.client.let_go(uri, tag_of(journal.store.base_uri, key, claim.attempt))

    def read(self, manifest: PartitionManifest) -> str:
        """The rows of the snapshot that was registered. Raises `RegionFailed` where its table does not have it."""
        try:
            lost = self.client.why_lost(manifest)
            [registered] = manifest.objects
            table = _there(self.client.iceberg(TableLocation.parse(manifest.location)))
            snapshot = table.snapshot_by_id(int(registered.path))
        except RecoveryError as error:
            raise RegionFailed(str(error)) from error
        if lost is not None or snapshot is None or snapshot.summary is None:
            message = f"{manifest.location} has no snapshot {registered.path}"
            raise RegionFailed(message, Failure("PartitionMissing", message))
        return str(snapshot.summary[ROWS])

    def rows_of(self, manifest: PartitionManifest) -> str:
        """The rows of a snapshot that has just been registered, asked of nobody."""
        [registered] = manifest.objects
        snapshot = self.lake.metadata(TableLocation.parse(manifest.location).name).snapshot_by_id(int(registered.path))
        return "" if snapshot is None or snapshot.summary is None else str(snapshot.summary[ROWS])

    def _maker_text(self, journal: Journal, claim: Claim) -> str:
        return f"{journal.layout.prefix}\n{claim.region}\n{claim.attempt}"

    def _send(self, table: Table, rows: str, properties: Mapping[str, str]) -> TableMetadata:
        commit = self.lake.overwrite(".".join(table.name()), table.metadata, rows, properties)
        return table.catalog.commit_table(table, commit.requirements, commit.updates).metadata

    # what people do

    def acts(self) -> Iterator[tuple[str, Callable[[], object]]]:
        """What somebody may do to the branches of tables: each in words, and how."""
        lake = self.lake
        for table, metadata in lake.tables.items():
            head = lake.head(table)
            earlier = [number for number in lake.line(head)[1:] if metadata.snapshot_by_id(number) is not None]
            yield f"OTHERS commit to {table}", partial(self._others, table)
            if earlier:
                yield f"SOMEBODY rolls {table} back", partial(self._move, table, earlier[0])
                yield f"SOMEBODY forces {table} elsewhere", partial(self._move_and_commit, table, earlier[-1])

    def put_back(self, ledger: Ledger) -> None:
        """A person has the branches begin again at what counts in a run, where their tables still have it."""
        for table, metadata in list(self.lake.tables.items()):
            for number, (run, region, attempt) in list(self._makers.items()):
                counts = self._ledger_of(run) is ledger and ledger.regions[region].current == attempt
                lost = number not in self._counting[table] and metadata.snapshot_by_id(number) is not None
                if counts and lost:
                    self._move(table, number)

    def _others(self, table: str) -> None:
        self._moved.add(table)
        self.lake.make(self.lake.overwrite(table, self.lake.metadata(table), "of others", {}))

    def _move(self, table: str, to: int) -> None:
        self._moved.add(table)
        self.lake.move(table, to)

    def _move_and_commit(self, table: str, to: int) -> None:
        self._move(table, to)
        self._others(table)

    # what must hold

    def why_not_held(self, prefix: str, region: str, attempt: int, uri: str) -> str | None:
        """Why a table to which nobody else has committed is not at the snapshot of the attempt that counts."""
        table = TableLocation.parse(uri).name
        makers = {maker.run for maker in map(self._makers.get, self.lake.parents) if maker is not None}
        if table in self._moved or region not in self._committing or len(makers) != 1:
            return None
        head = self._makers.get(self.lake.head(table) or 0)
        return None if head == Maker(prefix, region, attempt) else f"I10: {table} is at {head}, not {region}@{attempt}"

    def _changed(self, table: str, metadata: TableMetadata) -> None:
        before, now = self._counting.get(table, set()), self.lake.counting(table)
        self._counting[table] = now
        for number in now - before:
            maker = self._makers.get(number) or self._first_seen(metadata, number)
            if maker is not None:
                self._ledger_of(maker.run).table_put(f"{table}/{number}", SIZE, str(metadata.table_uuid))
        for number in before - now:
            maker = self._makers.get(number)
            if maker is not None:
                self._ledger_of(maker.run).table_lost(maker.region, maker.attempt, f"{table}/{number}")

    def _first_seen(self, metadata: TableMetadata, number: int) -> Maker | None:
        snapshot = metadata.snapshot_by_id(number)
        maker_text = None if snapshot is None or snapshot.summary is None else snapshot.summary[BY]
        if snapshot is None or maker_text is None:
            return None  # of others
        run, region, attempt = str(maker_text).split("\n")
        self._makers[number] = maker = Maker(run, region, int(attempt))
        if region in self._committing:
            self._check(maker, metadata, self.lake.line(number)[1:])
        return maker

    def _check(self, maker: Maker, metadata: TableMetadata, earlier: Iterable[int]) -> None:
        for number in earlier:
            other = self._makers.get(number)
            if metadata.snapshot_by_id(number) is None or other is None or other[:2] != maker[:2]:
                continue
            if other.attempt == maker.attempt:
                self._wrong.append(f"I10: {maker.region}@{maker.attempt} was committed to its table twice")
            elif other.attempt > maker.attempt:
                self._wrong.append(
                    f"I10: {maker.region}@{maker.attempt} was put in place of {maker.region}@{other.attempt}"
                )


def _there(table: Table | None) -> Table:
    """Nobody drops a table of the simulation."""
    assert table is not None
    return table


_LOG = logging.Logger("simulated tables", logging.ERROR)
