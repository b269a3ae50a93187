"""The channel that a streaming region reads, and the one that it feeds, as its driver works with them."""

from __future__ import annotations

import logging
import threading
import uuid
from dataclasses import dataclass

from airflow_recovery.driver.region_spec import RegionSpec
from airflow_recovery.errors import ChannelFailed, ChannelInconsistent
from airflow_recovery.model.records import RunIdentity
from airflow_recovery.store.object_store import ObjectStore
from airflow_recovery.streaming.channel_records import ChannelIdentity, Consumed, ProducerOpened
from airflow_recovery.streaming.channel_state import ChannelState
from airflow_recovery.streaming.client import ChannelClient
from airflow_recovery.streaming.consuming import commit_batch, create_view, published_of, release
from airflow_recovery.streaming.draining import Draining, begin_draining
from airflow_recovery.streaming.ledger import LossReport, loss_report
from airflow_recovery.streaming.producer import ChannelProducer
from airflow_recovery.streaming.producing import WrittenSegment, open_producer
from airflow_recovery.streaming.ranges import size
from airflow_recovery.streaming.spec import ChannelSpec
from airflow_recovery.streaming.sweep import sweep

WAIT_POLL_S = 0.5


def channel_client(store: ObjectStore, run: RunIdentity, channel: ChannelSpec, generation: int) -> ChannelClient:
    """A new client of one generation of ``channel``, which writes under a name that no other process has."""
    return ChannelClient(store, ChannelIdentity(run, channel.result, generation), f"driver-{uuid.uuid4().hex}")


@dataclass(frozen=True)
class PlannedBatch:
    """What the reader has planned and nobody has committed: ``records`` by subpartition, and where it ends."""

    records: tuple[int, ...]
    consumed: Consumed
    lost: int


class ChannelInput:
    """The channel that a region reads. For several threads: the query's batches, and who waits for its end."""

    def __init__(self, store: ObjectStore, spec: RegionSpec, channel: ChannelSpec, log: logging.Logger) -> None:
        self.channel = channel
        self.attempt = spec.attempt
        self._client = channel_client(store, spec.identity, channel, channel.generation)
        self._log = log
        self._lock = threading.Lock()

    @property
    def identity(self) -> ChannelIdentity:
        """Which channel, in which generation."""
        return self._client.identity

    def wait_until_open(self) -> ChannelState:
        """Until its producer has opened it. Raises `ChannelFailed` where it gives up, or does not come in time."""
        began, is_logged = self._client.clock(), False
        while not (state := self.refresh()).producer:
            if state.failed is not None:
                raise ChannelFailed(f"channel {self.channel.result!r}: its producer has given up: {state.failed}")
            if not is_logged:
                self._log.info("Waiting for the producer of %s to open it.", self._name())
                is_logged = True
            if self._client.clock() - began > self.channel.block_timeout_s:
                raise ChannelFailed(
                    f"channel {self.channel.result!r}: nobody opened it for {self.channel.block_timeout_s:g} s. Look "
                    "whether its producer runs, or has no slot; then retry"
                )
            self._client.sleep(WAIT_POLL_S)
        return state

    def connect(self, output: ChannelState | None) -> ChannelState:
        """Take the only view. ``output``: what the region has published, which no older attempt can add to."""
        with self._lock:
            published = None if output is None else published_of(output, self.identity)
            self._client.append(
                lambda state: create_view(state, self.attempt, self.channel.reconnect, published=published)
            )
            return self._client.state

    def begin_draining(self, generation: int, output: ChannelState | None) -> Draining:
        """Take over an older generation, of which what was committed counts. Raises as its namesake."""
        return begin_draining(
            channel_client(self._client.store, self._client.identity.run, self.channel, generation),
            self.attempt,
            reconnect=self.channel.reconnect,
            overflow=self.channel.overflow,
            output=output,
        )

    def refresh(self) -> ChannelState:
        """Read what was appended since the last look, and return the state. Raises as `ChannelClient.refresh`."""
        with self._lock:
            return self._client.refresh()

    def planned(self) -> PlannedBatch | None:
        """The pending plan; `None` for a batch that holds no data, or that the log has completed."""
        state = self.refresh()
        if state.plan is None:
            return None
        consumed = Consumed(self.identity.edge, self.identity.generation, state.plan.end)
        return PlannedBatch(tuple(map(size, state.plan.read)), consumed, sum(loss.records for loss in state.plan.lost))

    def commit(self, batch: int, planned: PlannedBatch, outputs: tuple[str, ...] = ()) -> None:
        """Complete the pending checkpoint. Each read of it has handed over what was planned, else the batch failed."""
        with self._lock:
            record = self._client.append(
                lambda state: commit_batch(state, self.attempt, batch, planned.records, outputs)
            )
        if record is None or record.end != planned.consumed.end:
            raise ChannelInconsistent(
                f"batch {batch}: expected to commit the checkpoint up to {planned.consumed.end}, found "
                f"{'nothing to commit' if record is None else record.end}"
            )

    def leave(self) -> int:
        """Once all is committed: release the rest, and sweep. Returns how many orphans were deleted."""
        with self._lock:
            self._client.append(lambda state: release(state, self.attempt, state.done))
            return sweep(self._client)

    def report(self) -> LossReport:
        """What is committed and lost in this generation, as of the last request."""
        return loss_report(self.channel.result, self._client.state)

    def text(self) -> str:
        """One line for the task's log: how many of the published records are behind the checkpoint."""
        state = self._client.state
        text = f"{self._name()}: {sum(state.done)} of {sum(state.ends)} records are behind the checkpoint"
        return f"{text}, {state.lost} of them lost" if state.lost else text

    def _name(self) -> str:
        return f"channel {self.channel.result!r} (generation {self.channel.generation})"


class ChannelOutput:
    """The channel that a region feeds. For one thread at a time."""

    def __init__(self, store: ObjectStore, spec: RegionSpec, channel: ChannelSpec) -> None:
        self.channel = channel
        self._run = spec.identity
        self.client = channel_client(store, spec.identity, channel, channel.generation)
        self._producer = ChannelProducer(
            self.client,
            spec.attempt,
            overflow=channel.overflow,
            max_bytes=channel.max_bytes,
            block_timeout_s=channel.block_timeout_s,
        )

    def open(self, schema: str, *, replays: bool) -> ChannelState:
        """Take the producer's side, and fence earlier attempts. Raises as `ChannelProducer.open`."""
        self._producer.open(
            subpartitions=self.channel.subpartitions,
            schema=schema,
            replays=replays,
            budget=self.channel.budget,
            restart_budget=self.channel.restart_budget,
        )
        return self.client.state

    def newest_of_earlier(self, first: int) -> ChannelState | None:
        """The newest generation from ``first`` up to this one in which anything was published. All are fenced.

        Where what it carries was altered, the region goes on at its checkpoint, but on a new generation.
        """
        newest = None
        for generation in range(first, self.channel.generation):
            client = channel_client(self.client.store, self._run, self.channel, generation)
            state = client.refresh()
            if state.producer and state.producer < self._producer.attempt:
                client.append(self._fence)
            newest = client.state if client.state.epoch >= 0 else newest
        return newest

    def _fence(self, state: ChannelState) -> ProducerOpened:
        return open_producer(
            state,
            self._producer.attempt,
            subpartitions=len(state.subs),
            schema=state.schema,
            budget=state.budget,
            restart_budget=state.restart_budget,
        )

    def is_published(self, batch: int) -> bool:
        """Whether an earlier attempt, or this one, has published the batch."""
        return self._producer.is_published(batch)

    def publish(self, batch: int, written: list[WrittenSegment], consumed: tuple[Consumed, ...]) -> bool:
        """Name the ``written`` segments in the log as epoch ``batch``. See `ChannelProducer.publish_written`."""
        return self._producer.publish_written(batch, written, consumed)

    def finish(self) -> None:
        """Say in the log that everything is published. Raises as `ChannelProducer.finish`."""
        self._producer.finish()

    def text(self) -> str:
        """One line for the task's log: how many records are published."""
        return f"channel {self.channel.result!r} (generation {self.channel.generation}): {sum(self.client.state.ends)}"


def check_both_logs(completed: int, output: ChannelState | None) -> None:
    """Raise `ChannelInconsistent` where more is published than was read: it would be published once more."""
    if output is not None and output.epoch > completed:
        raise ChannelInconsistent(
            f"expected the input's log to have completed batch {output.epoch}, which is published, found batch "
            f"{completed}: the logs were altered from outside; begin a new generation",
            code="published-batch-unknown",
        )
