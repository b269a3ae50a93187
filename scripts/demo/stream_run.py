"""One run of the chain while it goes on: its tasks, its attempts, and the running table as a reader sees it."""

from __future__ import annotations

import io
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import date
from typing import Any

import psutil  # type: ignore[import-untyped]
import pyarrow.parquet as parquet  # type: ignore[import-untyped]
from jobs.rehearsal import LIMIT, PACE

from airflow_recovery.errors import ObjectMissing
from airflow_recovery.journal.journal import Journal
from airflow_recovery.journal.run_state import RunState
from airflow_recovery.streaming.channel_records import ChannelIdentity
from airflow_recovery.streaming.client import ChannelClient
from airflow_recovery.streaming.reading import batch_of, committed_outputs
from airflow_recovery.testing.patience import HANG_S
from scripts.demo.local_pipeline import LocalPipeline
from scripts.demo.pipeline_run import DemoFailed, PipelineRun, States
from scripts.spark_drivers import driver_of

GROUP = "flights"
SOURCE, SCORER, SINK = "departures", "predicted", "delays_by_day"
REGIONS = (SOURCE, SCORER, SINK)
READS = {SCORER: SOURCE, SINK: SCORER}
"""Whose channel a region reads."""
BATCH_S = 4.0
"""So long the source takes for a batch of days at least: a month is half a minute."""


@dataclass(frozen=True)
class Seen:
    """The newest committed table: in which generation, its batch, its newest day, and its flights by day."""

    generation: int
    batch: int
    newest: date
    flights: dict[date, int]


class StreamRun(PipelineRun):
    """``seen`` is the newest table that was looked at. With ``limit`` its source goes so far and waits there; without,
    it is never held."""

    def __init__(self, pipeline: LocalPipeline, dag_id: str, *, name: str = "demo", limit: date | None = None) -> None:
        self._pace = pipeline.folder / f"rehearsal-{name}-{dag_id}" / PACE
        self._pace.parent.mkdir()
        self._pace.write_text(str(BATCH_S))
        self._limit = limit
        if limit is not None:
            self.go_on_to(limit)
        conf = {"rehearsal": str(self._pace.parent)}
        super().__init__(pipeline, dag_id, GROUP, None, conf, name=f"{name}-{dag_id}")
        self.seen: Seen | None = None
        self._clients: dict[tuple[str, int], ChannelClient] = {}

    def records(self) -> Journal:
        """The run's journal, for reading."""
        return Journal(self.pipeline.journal, self.identity, writer=f"demo-{uuid.uuid4().hex}")

    def state(self) -> RunState:
        """The attempts of the three regions."""
        journal = self.records()
        return journal.load(journal.list(REGIONS))

    def published(self) -> int:
        """Flights that the source has published in the generation of now."""
        return sum(self._client(SOURCE, self.state().of(SOURCE).generations[-1]).refresh().ends)

    def look(self) -> Seen | None:
        """The newest committed table, or `None` before the first one."""
        generation = self.state().of(SCORER).generations[-1]
        client = self._client(SCORER, generation)
        keys = committed_outputs(client, newest_batch=True)
        if not keys:
            return None
        batch = batch_of(keys[0])
        if self.seen is None or (self.seen.generation, self.seen.batch) != (generation, batch):
            try:
                rows = [row for key in keys for row in _rows(client.get(key))]
            except ObjectMissing:
                return self.seen  # swept since, at the end of the run
            if rows:
                flights = {row["date"]: row["flights"] for row in rows}
                self.seen = Seen(generation, batch, max(flights), flights)
        return self.seen

    def reads_since(self, region: str, attempt: int) -> bool:
        """Whether an attempt of the region after this one has opened the channel that it reads."""
        edge = READS[region]
        return self._client(edge, self.state().of(edge).generations[-1]).refresh().view > attempt

    def until_table(self, done: Callable[[Seen | None], bool], what: str) -> None:
        """Look until ``done``. Raises as `until`, and `DemoFailed` if the stream has ended without such a table."""

        def came(states: States) -> bool:
            seen = self.look()
            if done(seen):
                return True
            if states.get(SINK, ("", 0))[0] == "success":
                newest = "no table at all" if seen is None else f"the last table goes up to {seen.newest}"
                raise DemoFailed(f"expected {what} of run {self.run_id}, but its stream has ended: {newest}")
            return False

        self.until(came, what)

    def kill(self, region: str) -> int:
        """``kill -9`` of the newest attempt of a region: spark-submit's JVM and every process below it. Its attempt."""
        attempt = self.state().of(region).latest_attempt
        driver = driver_of(f"{self.dag_id}.{region}@{attempt}", self.pipeline.airflow.home)
        if driver is None:
            raise DemoFailed(f"{region}@{attempt} has no Spark driver that could be killed")
        killed = kill_family(driver)
        print(f"  {self.seconds:6.1f} s  >>> kill -9: {region}@{attempt}, {killed} processes", flush=True)
        return attempt

    def go_on_to(self, day: date) -> None:
        """Let the source read up to ``day``. Without effect in a run that was started without a limit."""
        if self._limit is not None:
            self._limit = day
            whole = self._pace.with_name("next")
            whole.write_text(day.isoformat())
            whole.replace(self._pace.with_name(LIMIT))  # it may be read at this very moment

    def at_full_speed(self) -> None:
        """From now on the source is as fast as it can be, and goes to its end."""
        self._pace.write_text("0")  # it may be read at this very moment
        self._pace.with_name(LIMIT).unlink(missing_ok=True)

    def stop(self) -> None:
        """As a person does in the UI: mark the run as failed. Airflow ends its tasks; returns when they have."""
        airflow = self.pipeline.airflow
        airflow.api("PATCH", f"/dags/{self.dag_id}/dagRuns/{self.run_id}", {"state": "failed"})
        names = [f"{self.dag_id}.{region}@{state.latest_attempt}" for region, state in self.state().regions.items()]
        airflow.wait_until(
            lambda: not any(driver_of(name, airflow.home) for name in names), "the end of the run's drivers"
        )

    def _client(self, edge: str, generation: int) -> ChannelClient:
        if (edge, generation) not in self._clients:
            identity = ChannelIdentity(self.identity, edge, generation)
            self._clients[edge, generation] = ChannelClient(self.pipeline.results, identity, f"demo-{uuid.uuid4().hex}")
        return self._clients[edge, generation]


def kill_family(driver: psutil.Process) -> int:
    """``kill -9`` of a process and of all below it, which would die each in its own time; how many they were."""
    family = [driver, *driver.children(recursive=True)]
    for child in family:
        with suppress(psutil.NoSuchProcess):
            child.kill()
    psutil.wait_procs(family, timeout=HANG_S)
    return len(family)


def _rows(body: bytes) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = parquet.read_table(io.BytesIO(body)).to_pylist()
    return rows
