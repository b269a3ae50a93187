"""One run of streaming regions in a real Airflow, and the lake that their source reads."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import psutil
from journal_objects import JournalObjects
from pipeline import DagRun, Pipeline, is_gone

from airflow_recovery.model.records import RunIdentity
from airflow_recovery.store.local import LocalStore
from airflow_recovery.streaming.channel_records import ChannelIdentity
from airflow_recovery.streaming.channel_state import ChannelState
from airflow_recovery.streaming.reading import read_channel

FILES, IDS = 12, 50
"""The lake of a run: so many micro-batches, of so many ids each."""

REGIONS = ("events", "scores", "table")
"""Of the job `scoring` (`tests/integration/dags/integration_jobs/streams.py`)."""


@dataclass
class Streams:
    """One run of streaming regions, and its lake."""

    run: DagRun

    def hold_at(self, limit: int | None) -> None:
        """Ids from ``limit`` on are not let into the source; `None`: all are."""
        gate = self.run.gates / "events.hold"
        if limit is None:
            gate.unlink()
            return
        part = gate.with_suffix(".part")
        part.write_text(str(limit))
        part.rename(gate)

    def wait(self, claim: Callable[[], bool], what: str) -> None:
        self.run.airflow.wait_until(claim, what, self.run.story)

    def ends(self, state: str = "success") -> JournalObjects:
        found = self.run.airflow.wait_run(self.run.dag_id, self.run.run_id)
        assert found == state, self.run.story()
        return self.run.journal()

    def log(self, edge: str, generation: int = 1) -> ChannelState:
        run = RunIdentity(self.run.dag_id, f"date-{self.run.day}T000000Z", "g")
        store = LocalStore(f"file://{self.run.pipeline.folder}/results")
        return read_channel(store, ChannelIdentity(run, edge, generation))

    def wait_done(self, edge: str, records: int, generation: int = 1) -> None:
        """Until the channel's consumer has so many behind it, committed or lost."""
        self.wait(lambda: sum(self.log(edge, generation).done) >= records, f"{records} behind {edge}")

    def wait_view(self, edge: str, attempt: int, generation: int = 1) -> None:
        """Until that attempt of its consumer is connected."""
        self.wait(lambda: self.log(edge, generation).view >= attempt, f"attempt {attempt} at {edge}")

    def jvm(self, region: str, attempt: int) -> psutil.Process:
        return self.run.jvm(region, attempt)

    def ids(self) -> set[int]:
        """What is in the result, by its rows; each once."""
        rows = [row[0] for row in self.run.journal().rows("table")]
        assert len(rows) == len(set(rows)), "rows are there twice"
        return set(rows)

    def missing(self) -> set[int]:
        return set(range(FILES * IDS)) - self.ids()

    def told(self) -> dict[str, Any]:
        """What the audit returned, by channel."""
        document: dict[str, Any] = self.run.said("audit")["channels"]
        return document

    def tries(self) -> dict[str, int]:
        return {region: self.run.tries(region) for region in REGIONS}


def started(pipeline: Pipeline, dag_id: str, *holds: str, hold_at: int | None = None) -> Streams:
    run = pipeline.run(dag_id)
    run.hold(*holds)
    lake = run.gates / "lake"
    lake.mkdir()
    for number in range(FILES):
        path = lake / f"{number:03d}.csv"
        path.write_text("".join(f"{candidate}\n" for candidate in range(number * IDS, (number + 1) * IDS)))
        os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))
    streams = Streams(run)
    if hold_at is not None:
        streams.hold_at(hold_at)
    run.start()
    return streams


@contextmanager
def untouched(streams: Streams, *regions: tuple[str, int]) -> Iterator[None]:
    """These attempts keep their process; told by region and attempt."""
    before = {region: streams.jvm(*region) for region in regions}
    yield
    for (region, attempt), process in before.items():
        assert not is_gone(process), f"{region}@{attempt}"
        assert streams.jvm(region, attempt).pid == process.pid


def assert_account(streams: Streams, journal: JournalObjects, *, channel: str = "scores") -> None:
    """The ledger is what is missing in the result, and every id is in one or the other. ``channel`` is the last one."""
    told = streams.told()
    lost = sum(each["lost_records"] for each in told.values())
    assert len(streams.missing()) == lost
    assert len(streams.ids()) + lost == FILES * IDS
    assert told[channel]["committed"] == len(streams.ids())
    journal.check()
