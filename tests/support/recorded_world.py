"""A run whose journal and results a command line can read."""

from __future__ import annotations

import fakes

from airflow_recovery.journal.journal import Journal
from airflow_recovery.journal.stream import EventWriter
from airflow_recovery.model.records import RunIdentity
from airflow_recovery.store import ObjectStore

DIAMOND = {"raw": (), "by_route": ("raw",), "by_carrier": ("raw",), "busiest": ("by_route", "by_carrier")}


class RecordedWorld(fakes.World):
    """A `World` whose journal and results are in real stores, so that a command line can read them."""

    def __init__(self, journal: ObjectStore, results: ObjectStore, identity: RunIdentity, **settings: object) -> None:
        self._stores = (journal, results)
        self.identity = identity
        super().__init__(DIAMOND, **settings)  # type: ignore[arg-type]

    def __post_init__(self) -> None:
        super().__post_init__()
        self.journal_store, self.results = self._stores

    def journal(self, process: fakes.Process | None = None, writer: str = "test") -> Journal:
        return super().journal(process, writer).sibling(self.identity, listener=self.listener())

    def keep_events(self) -> None:
        """Write the events so far as one stream."""
        stream = EventWriter(self.journal_store, self.identity, "writer")
        for event in self.events:
            stream.record(event)
        assert stream.close().failed is None
