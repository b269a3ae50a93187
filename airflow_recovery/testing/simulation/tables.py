"""Results that are snapshots of tables: how simulated drivers and jobs commit and read them, and what must hold.

Needs pyiceberg and deltalake, so it is imported where a job has such a result alone.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

from airflow_recovery.driver.table_commit import TableCommit
from airflow_recovery.errors import Failure, RecoveryError, RegionFailed, StoreError
from airflow_recovery.journal.journal import Journal
from airflow_recovery.locations import TableLocation
from airflow_recovery.model.keys import RegionKey
from airflow_recovery.model.manifest import PartitionManifest
from airflow_recovery.model.records import Claim
from airflow_recovery.results.tables import ROUNDS, Tables, tag_of, token_of
from airflow_recovery.testing.simulation.delta_lake import DeltaLake, LoadedTable, table_at
from airflow_recovery.testing.simulation.iceberg_lake import IcebergLake
from airflow_recovery.testing.simulation.lake import SIZE, Lake
from airflow_recovery.testing.simulation.ledger import Ledger
from airflow_recovery.testing.simulation.memory import Clock, MemoryStore
from airflow_recovery.testing.simulation.strands import current_runner


class Maker(NamedTuple):
    """Whose snapshot it is. ``run``: the prefix of its run in the journal."""

    run: str
    region: str
    attempt: int


class SimulatedClient(Tables):
    """What a process of ours asks tables with: pyiceberg's own client, and `LoadedTable` in place of delta-rs'."""

    def __init__(self, iceberg: IcebergLake, delta: DeltaLake) -> None:
        properties = iceberg.client()
        super().__init__(lambda catalog: properties, lambda folder: {}, self._folder)
        self._lake = delta

    def delta_loader(self, folder: str) -> Any:
        """What makes one request a load."""
        return partial(LoadedTable, self._lake, table_at(folder))

    def _folder(self, folder: str) -> MemoryStore:
        table = table_at(folder)
        self._lake.log(table)
        return self._lake.files[table]


class SimulatedTables:
    """The tables of one simulation. Each ledger hears what becomes of the snapshots of its run.

    ``committing``: the regions whose driver commits, once an attempt; others are jobs that do so by themselves.
    ``client``: what a process of ours asks them with.
    """

    def __init__(
        self,
        clock: Clock,
        rng: random.Random,
        faults: tuple[float, int],
        ledger_of: Callable[[str], Ledger],
        committing: Collection[str],
        wrong: list[str],
    ) -> None:
        self.iceberg = IcebergLake(clock, rng, *faults)
        self.delta = DeltaLake(clock, rng, *faults)
        self.lakes: tuple[Lake[Any], ...] = (self.iceberg, self.delta)
        self.client: Tables = SimulatedClient(self.iceberg, self.delta)
        self._ledger_of = ledger_of
        self._committing = frozenset(committing)
        self._wrong = wrong
        self._makers: dict[tuple[str, int], Maker] = {}
        self._counting: dict[str, set[int]] = {}
        self._moved: set[str] = set()
        for lake in self.lakes:
            lake.on_change = partial(self._changed, lake)

    # as a driver, and as a job of a user's own

    def commit(self, journal: Journal, claim: Claim, result: str, uri: str, rows: str) -> PartitionManifest:
        """As the driver of a declared region, but for the files: its rows stand in the snapshot itself.

        Raises `RegionFailed`, where it may be made all the same.
        """
        key = RegionKey.of(journal.identity, claim.region)
        token = token_of(key, claim.attempt, claim.writer)
        commit = TableCommit(result, uri, f"{key.path}#{result}", claim.attempt, token, None)
        try:
            lake, _ = self._table_of(uri)
            manifest = lake.commit(self.client, commit, rows, self._maker_text(journal, claim))
        except Exception as error:
            raise RegionFailed(f"{type(error).__name__}: {error}") from error
        self._keep(manifest, journal, claim)
        return manifest

    def overwrite(self, journal: Journal, claim: Claim, uri: str, rows: str) -> bool:
        """As a job that is told a token, and looks for no commit of its own. Returns whether it has ended well."""
        token = token_of(RegionKey.of(journal.identity, claim.region), claim.attempt, claim.writer)
        lake, _ = self._table_of(uri)
        for _ in range(ROUNDS):
            try:
                location = TableLocation.parse(uri)
                lake.overwrite(self.client, location, token, rows, self._maker_text(journal, claim))
            except lake.refused:
                continue
            except Exception:  # the table gave no answer
                return False
            return True
        return False

    def register(self, journal: Journal, claim: Claim, result: str, uri: str) -> PartitionManifest | None:
        """As the task of such a job: the snapshot of its token, with a tag."""
        key = RegionKey.of(journal.identity, claim.region)
        manifest = self.client.committed(result, uri, token_of(key, claim.attempt, claim.writer))
        if manifest is not None:
            _, table = self._table_of(uri)
            maker = self._makers.get((table, int(manifest.objects[0].path)))
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
        except RecoveryError as error:
            raise RegionFailed(str(error)) from error
        current_runner().switch(f"reads {manifest.location}")  # it may expire before that
        text = self._rows(manifest)
        if lost is not None or text is None:
            message = f"{manifest.location} has no snapshot {manifest.objects[0].path}"
            raise RegionFailed(message, Failure("PartitionMissing", message))
        return text

    def rows_of(self, manifest: PartitionManifest) -> str:
        """The rows of a snapshot that has just been registered, asked of nobody."""
        return self._rows(manifest) or ""

    def _rows(self, manifest: PartitionManifest) -> str | None:
        lake, table = self._table_of(manifest.location)
        return lake.rows(table, int(manifest.objects[0].path))

    def _table_of(self, uri: str) -> tuple[Lake[Any], str]:
        location = TableLocation.parse(uri)
        return (self.iceberg, location.name) if location.is_iceberg else (self.delta, table_at(location.name))

    def _maker_text(self, journal: Journal, claim: Claim) -> str:
        return f"{journal.layout.prefix}\n{claim.region}\n{claim.attempt}"

    # what people do

    def acts(self) -> Iterator[tuple[str, Callable[[], object]]]:
        """What somebody may do to tables: each in words, and how."""
        for lake, table in self.named():
            earlier = [number for number in lake.line(table, lake.head(table))[1:] if lake.has(table, number)]
            yield f"OTHERS commit to {table}", partial(self._others, lake, table)
            if earlier:
                yield f"SOMEBODY rolls {table} back", partial(self._move, lake, table, earlier[0])
                yield f"SOMEBODY forces {table} elsewhere", partial(self._move_and_commit, lake, table, earlier[-1])

    def named(self) -> Iterator[tuple[Lake[Any], str]]:
        """All tables that there are."""
        for lake in self.lakes:
            for table in lake.names():
                yield lake, table

    def put_back(self, ledger: Ledger) -> None:
        """A person has the branches begin again at what counts in a run, where their tables still have it."""
        lakes = {table: lake for lake, table in self.named() if lake.can_count_again}
        for table in lakes:
            for (of, number), (run, region, attempt) in list(self._makers.items()):
                counts = self._ledger_of(run) is ledger and ledger.regions[region].current == attempt
                lost = of == table and number not in self._counting[table] and lakes[table].has(table, number)
                if counts and lost:
                    self._move(lakes[table], table, number)

    def _others(self, lake: Lake[Any], table: str) -> None:
        self._moved.add(table)
        lake.others_commit(table)

    def _move(self, lake: Lake[Any], table: str, to: int) -> None:
        self._moved.add(table)
        lake.move(table, to)

    def _move_and_commit(self, lake: Lake[Any], table: str, to: int) -> None:
        self._move(lake, table, to)
        self._others(lake, table)

    # what must hold

    def why_not_held(self, prefix: str, region: str, attempt: int, uri: str) -> str | None:
        """Why a table to which nobody else has committed is not at the snapshot of the attempt that counts."""
        lake, table = self._table_of(uri)
        makers = {maker.run for maker in self._makers.values()}
        if table in self._moved or region not in self._committing or len(makers) != 1:
            return None
        head = self._makers.get((table, lake.head(table) or 0))
        return None if head == Maker(prefix, region, attempt) else f"I10: {table} is at {head}, not {region}@{attempt}"

    def _changed(self, lake: Lake[Any], table: str) -> None:
        before, now = self._counting.get(table, set()), lake.counting(table)
        self._counting[table] = now
        for number in now - before:
            maker = self._makers.get((table, number)) or self._first_seen(lake, table, number)
            if maker is not None:
                self._ledger_of(maker.run).table_put(f"{table}/{number}", SIZE, lake.id_of(table))
        for number in before - now:
            maker = self._makers.get((table, number))
            if maker is not None:
                self._ledger_of(maker.run).table_lost(maker.region, maker.attempt, f"{table}/{number}")

    def _first_seen(self, lake: Lake[Any], table: str, number: int) -> Maker | None:
        maker_text = lake.by(table, number)
        if maker_text is None:
            return None  # of others
        run, region, attempt = maker_text.split("\n")
        self._makers[table, number] = maker = Maker(run, region, int(attempt))
        if region in self._committing:
            earlier = (n for n in lake.line(table, number)[1:] if lake.remembers or lake.has(table, n))
            self._check(maker, (self._makers.get((table, n)) for n in earlier))
        return maker

    def _check(self, maker: Maker, earlier: Iterable[Maker | None]) -> None:
        for other in earlier:
            if other is None or other[:2] != maker[:2]:
                continue
            if other.attempt == maker.attempt:
                self._wrong.append(f"I10: {maker.region}@{maker.attempt} was committed to its table twice")
            elif other.attempt > maker.attempt:
                self._wrong.append(
                    f"I10: {maker.region}@{maker.attempt} was put in place of {maker.region}@{other.attempt}"
                )
