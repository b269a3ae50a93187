"""A run's journal in a folder, with what its tasks would have written."""

from __future__ import annotations

from pathlib import Path

from airflow_recovery.journal.journal import Journal
from airflow_recovery.journal.layout import run_key
from airflow_recovery.model.inputs import InputRef
from airflow_recovery.model.manifest import PartitionManifest, ResultObject
from airflow_recovery.model.records import AttemptState, Claim, Outcome, Publish, PublishedRegion, RunIdentity
from airflow_recovery.store import open_store

DATE = "2024-01-02T00:00:00+00:00"


class PublishedRun:
    """Region ``by_route`` makes result ``by_route``; region ``delays`` reads it and makes result ``delays``."""

    def __init__(
        self,
        base: Path,
        *,
        date: str = DATE,
        run_id: str | None = None,
        partition_key: str | None = None,
        dag_id: str = "flights",
    ) -> None:
        dated = date if run_id is None else None
        key = run_key(logical_date=dated, partition_key=partition_key, run_id=run_id or "")
        identity = RunIdentity(dag_id, key, "group")
        self.base = base
        self.journal = Journal(open_store(base.as_uri()), identity, writer="w")

    def finish(self, region: str, attempt: int, *inputs: InputRef) -> str:
        """One attempt from claim to finish; the etag of its outcome."""
        self.journal.claim(
            Claim(region, attempt, "w", "plan", inputs, "run", attempt, "ti", "tag", "2024-01-02T01:00:00+00:00")
        )
        manifest = PartitionManifest(
            region, f"file:///results/{region}/{attempt}", (ResultObject("part-0.parquet", 10, "etag"),), 3, "{}"
        )
        outcome = Outcome(
            region, attempt, AttemptState.FINISHED, "w", "2024-01-02T01:01:00+00:00", inputs=inputs, outputs=(manifest,)
        )
        return self.journal.finish(outcome).etag

    def publish(self, number: int, by_route: int, delays: int) -> None:
        regions = (
            PublishedRegion("by_route", by_route, "etag", ("by_route",)),
            PublishedRegion("delays", delays, "etag", ("delays",)),
        )
        self.journal.publish(Publish(number, regions))

    def with_data(self, results: Path | None = None) -> Path:
        """Publish ``delays`` with its data below ``results``. Returns its file."""
        location = f"{(results or self.base).as_uri()}/{self.journal.layout.data}delays/1/delays"
        stored = open_store(location).put("part-0.parquet", b"rows")
        manifest = PartitionManifest("delays", location, (ResultObject(stored.key, stored.size, stored.etag),), 3, "{}")
        self.journal.claim(Claim("delays", 1, "w", "plan", (), "run", 1, "ti", "tag", DATE))
        self.journal.finish(Outcome("delays", 1, AttemptState.FINISHED, "w", DATE, outputs=(manifest,)))
        self.journal.publish(Publish(1, (PublishedRegion("delays", 1, "etag", ("delays",)),)))
        return Path(location.removeprefix("file://")) / stored.key

    def complete(self) -> None:
        self.finish("by_route", 1)
        self.finish("delays", 1, InputRef("by_route", 1))
        self.publish(1, 1, 1)
