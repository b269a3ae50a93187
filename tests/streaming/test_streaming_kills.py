"""A streaming region is killed at each of its requests, and restarted, over an engine that does what Spark's does."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import pytest
from micro_batch_engine import Killed, MemoryStore, Query
from spark_streaming_run import RAW, SparkStreamingRun

from airflow_recovery.driver.progress import Progress
from airflow_recovery.job.accumulators import Accumulators
from airflow_recovery.model.channel_options import Reconnect
from airflow_recovery.model.codec import to_json
from airflow_recovery.streaming import region, source, writing
from airflow_recovery.streaming.checkpoint import lineage_key
from airflow_recovery.streaming.folder import CheckpointFolder
from airflow_recovery.streaming.source import ChannelReader, ChannelReading
from airflow_recovery.streaming.spec import StreamingSpec

LOG = logging.getLogger("tests.streaming_kills")
IDS = list(range(12))


class RegionOnEngine(region._StreamingRegion):
    """The real one, but for the frame and the query, which only Spark can make."""

    def _frame(self):
        self._keeps_state = True
        if self._source is not None:
            self._source.wait_until_open()
        return None

    def _writer(self, opened, frame):
        spec = self._region.spec
        key = lineage_key(CheckpointFolder(spec.identity, spec.region), str(spec.attempt))
        reading = ChannelReading(spec.results, opened.source.identity, spec.attempt, 4, key)
        return Query(self._region.store, opened.checkpoint.key, ChannelReader(reading), 4)


class World:
    def __init__(self, tmp_path, monkeypatch, edge: str, reconnect: Reconnect = Reconnect.REWIND) -> None:
        self.reconnect = reconnect
        self.store = MemoryStore()
        self.edge = edge
        self.region = {"raw": "scores", "scores": "board"}[edge]
        self.spark_run = SparkStreamingRun(tmp_path, store=self.store)
        self.state_rows: list[int | None] = []
        for module in (source, writing):
            monkeypatch.setattr(module, "shared_store", lambda spec: self.store)
        monkeypatch.setattr(region, "schema_of", lambda frame: RAW)
        monkeypatch.setattr(region, "streams_of", lambda frame: 1)
        monkeypatch.setattr(region, "compact", lambda opened, result: None)
        self.source = self.spark_run.producer(edge)
        for start in (0, 6):
            self.source.emit(*IDS[start : start + 6])
        self.source.finish()

    def attempt(self, number: int) -> None:
        spec = self.spark_run.spec(self.region, number, stateful=True, input={"reconnect": self.reconnect})
        vertex = SimpleNamespace(where=self.region)
        assert isinstance(spec.mode, StreamingSpec)
        region: Any = SimpleNamespace(spec=spec, store=self.store, log=LOG, vertex=lambda name: vertex)
        running = RegionOnEngine(region, spec.mode, Progress(LOG, number), Accumulators())
        running.run()
        self.state_rows.append(running._state_rows)

    def made(self) -> list[int]:
        """The ids that exist for whoever reads what the region makes."""
        return self.spark_run.published("scores") if self.edge == "raw" else self.spark_run.committed("scores")


def lives_on(tmp_path, monkeypatch, edge, kill_at, *, after, reconnect=Reconnect.REWIND) -> World:
    world = World(tmp_path, monkeypatch, edge, reconnect)
    world.store.requests, world.store.kill_at, world.store.kill_after = 0, kill_at, after
    with pytest.raises(Killed):
        world.attempt(1)
    world.store.kill_at = None
    world.attempt(2)
    return world


def requests_of_a_whole_run(tmp_path, monkeypatch, edge) -> int:
    world = World(tmp_path / "whole", monkeypatch, edge)
    world.store.requests = 0
    world.attempt(1)
    count = world.store.requests
    assert world.made() == IDS
    assert world.state_rows == [12]
    return count


@pytest.mark.slow
@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("edge", ["raw", "scores"])
def test_a_region_that_is_killed_at_any_request_loses_and_repeats_nothing(tmp_path, monkeypatch, edge, after):
    """In the middle of a chain, and at its end."""
    count = requests_of_a_whole_run(tmp_path, monkeypatch, edge)
    assert count > 50
    for kill_at in range(1, count + 1):
        world = lives_on(tmp_path / str(kill_at), monkeypatch, edge, kill_at, after=after)
        assert world.made() == IDS, kill_at
        assert world.state_rows in ([12], [None]), kill_at  # of a query that had come to its end, nobody is asked
        assert world.spark_run.state(edge).ledger == []


@pytest.mark.slow
@pytest.mark.parametrize("edge", ["raw", "scores"])
def test_what_a_region_that_skips_has_lost_is_what_is_in_the_ledger(tmp_path, monkeypatch, edge):
    """At each request: the ledger is the difference, the same records, and state is what was committed."""
    count = requests_of_a_whole_run(tmp_path, monkeypatch, edge)
    losses = set()
    for kill_at in range(1, count + 1):
        world = lives_on(tmp_path / str(kill_at), monkeypatch, edge, kill_at, after=True, reconnect=Reconnect.LATEST)
        lost = world.source.lost(world.spark_run)
        assert sorted([*world.made(), *lost]) == IDS, kill_at
        assert world.state_rows in ([12 - len(lost)], [None]), kill_at
        losses.add(len(lost))
    assert len(losses) > 2


def control(tmp_path, monkeypatch, edge: str = "scores") -> list[int]:
    """Where a kill leaves something else than it should."""
    count = requests_of_a_whole_run(tmp_path, monkeypatch, edge)
    numbers = []
    for kill_at in range(1, count + 1):
        world = lives_on(tmp_path / str(kill_at), monkeypatch, edge, kill_at, after=True)
        if world.made() != IDS or world.state_rows not in ([12], [None]):
            numbers.append(kill_at)
    return numbers


@pytest.mark.slow
def test_control_batch_0_that_is_repeated_from_where_the_log_is_by_now(tmp_path, monkeypatch):
    def now(self):
        return to_json(self._place(self._state().done))

    monkeypatch.setattr(ChannelReader, "initialOffset", now)
    assert control(tmp_path, monkeypatch)


@pytest.mark.slow
def test_control_a_completed_batch_that_is_not_read_again(tmp_path, monkeypatch):
    monkeypatch.setattr(ChannelReader, "_again", lambda *given: [])
    assert control(tmp_path, monkeypatch)
