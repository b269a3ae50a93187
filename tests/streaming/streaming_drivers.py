"""Drivers of streaming regions without Spark: they open, feed, read and commit real channels, in the task's process."""

from __future__ import annotations

import logging
import uuid
from pathlib import Path

from channel_consumer import ChannelConsumer
from job_tasks import Drivers

from airflow_recovery.driver.attempt_result import AttemptResult
from airflow_recovery.driver.outcome import finish_attempt
from airflow_recovery.driver.region_spec import RegionSpec
from airflow_recovery.model.manifest import PartitionManifest
from airflow_recovery.model.records import RunIdentity
from airflow_recovery.store.local import LocalStore
from airflow_recovery.streaming.channel_records import ChannelIdentity
from airflow_recovery.streaming.channel_state import ChannelState
from airflow_recovery.streaming.client import ChannelClient
from airflow_recovery.streaming.producer import ChannelProducer, SegmentBody
from airflow_recovery.streaming.reading import read_channel
from airflow_recovery.streaming.spec import ChannelSpec, StreamingSpec

RUN = RunIdentity("d", "date-2024-01-02T000000Z", "g")
EPOCHS, RECORDS = 3, 4


def results_in(folder: Path) -> LocalStore:
    return LocalStore(f"file://{folder}/results")


def log_of(folder: Path, edge: str, generation: int = 1) -> ChannelState:
    return read_channel(results_in(folder), ChannelIdentity(RUN, edge, generation))


def client_of(folder: Path, edge: str, generation: int = 1) -> ChannelClient:
    return ChannelClient(results_in(folder), ChannelIdentity(RUN, edge, generation), uuid.uuid4().hex)


class StreamingDrivers(Drivers):
    """Each region goes through its whole channels at once: a source publishes, the others read what is there.

    ``meanwhile`` is called when its channels are open, and before anything passes them. ``views_above``: the number of
    consumers' attempts that a test has made up.
    """

    views_above = 0

    def run(self, spec: RegionSpec, folder: Path) -> None:
        self.specs.append(spec)
        meanwhile, self.meanwhile = self.meanwhile, lambda: None
        streaming = spec.mode
        assert isinstance(streaming, StreamingSpec)
        output = None if streaming.output is None else self._open(spec, streaming.output, replays=streaming.replays)
        reader = None
        if streaming.input is not None:
            reader = ChannelConsumer(self._client(spec, streaming.input), spec.attempt + self.views_above)
            reader.connect(streaming.input.reconnect, output=None if output is None else output.client)
        meanwhile()
        if reader is None:
            assert output is not None
            for epoch in range(output.client.state.epoch + 1, EPOCHS):
                output.publish(epoch, [SegmentBody(0, RECORDS, b"....")])
        while reader is not None and (batch := reader.next_batch()) is not None:
            if output is not None:
                counts = [SegmentBody(0, sum(r[1] - r[0] for r in segment.ranges), b".") for segment in batch.slices]
                output.publish(batch.number, counts, (batch.consumed,))
            records = tuple(sum(stop - start for start, stop in each) for each in batch.plan.read)
            reader.commit(batch, records)
        if output is not None:
            output.finish()
        names = [vertex.name for vertex in spec.vertices if vertex.is_result] if streaming.output is None else []
        schema = '{"type":"struct","fields":[]}'
        outputs = tuple(PartitionManifest(name, f"{spec.location}/{name}", (), 0, schema) for name in names)
        finish_attempt(spec, AttemptResult(outputs, 2.0, None), logging.getLogger("tests"))

    def _client(self, spec: RegionSpec, channel: ChannelSpec) -> ChannelClient:
        store = LocalStore(spec.results.uri)
        return ChannelClient(store, ChannelIdentity(spec.identity, channel.result, channel.generation), spec.tag)

    def _open(self, spec: RegionSpec, channel: ChannelSpec, *, replays: bool) -> ChannelProducer:
        producer = ChannelProducer(self._client(spec, channel), spec.attempt)
        producer.open(
            subpartitions=1,
            schema="",
            replays=replays,
            budget=channel.budget,
            restart_budget=channel.restart_budget,
        )
        return producer
