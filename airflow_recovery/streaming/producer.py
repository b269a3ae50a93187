"""A producer's end of a channel."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass

from airflow_recovery.errors import ChannelAltered, ChannelFailed
from airflow_recovery.model.channel_options import UNLIMITED, LossBudget, Overflow
from airflow_recovery.store.probe import probe
from airflow_recovery.streaming.channel_records import Consumed
from airflow_recovery.streaming.channel_retention import Room, make_room
from airflow_recovery.streaming.client import ChannelClient
from airflow_recovery.streaming.producing import WrittenSegment, finish, give_up, is_published, open_producer, publish


@dataclass(frozen=True)
class SegmentBody:
    """``count`` whole records of one subpartition as bytes."""

    sub: int
    count: int
    body: bytes


class ChannelProducer:
    """Attempt ``attempt`` of the region that feeds a channel.

    ``max_bytes``: how far the consumer may be behind, and ``overflow`` what happens then; a producer that waits looks
    again every ``poll_s`` seconds, and fails after ``block_timeout_s``.
    """

    def __init__(
        self,
        client: ChannelClient,
        attempt: int,
        *,
        overflow: Overflow = Overflow.BLOCK,
        max_bytes: int = 256 * 1024 * 1024,
        block_timeout_s: float = 600.0,
        poll_s: float = 1.0,
    ) -> None:
        self.client = client
        self.attempt = attempt
        self._overflow = overflow
        self._max_bytes = max_bytes
        self._block_timeout_s = block_timeout_s
        self._poll_s = poll_s
        self._token = uuid.uuid4().hex[:12]
        self._written = 0

    def open(
        self,
        *,
        subpartitions: int,
        schema: str,
        replays: bool = True,
        budget: LossBudget = UNLIMITED,
        restart_budget: LossBudget = UNLIMITED,
    ) -> None:
        """Take the producer's side.

        Raises as `open_producer`; `ChannelAltered` where earlier attempts have published something else, and
        `StoreUnsuitable` where writes aren't conditional.

        The next epoch is ``client.state.epoch + 1``; where ``client.state.is_finished``, there is nothing left to do.
        """
        state = self.client.refresh()
        if not state.producer:
            probe(self.client.store)
        elif self.attempt > state.producer and (len(state.subs), state.schema) != (subpartitions, schema):
            raise ChannelAltered(
                f"channel {self.client.identity.edge!r}: expected {len(state.subs)} subpartitions of {state.schema}, "
                f"as in the attempts before, found {subpartitions} of {schema}: what it carries is another thing now, "
                "so that it goes on as a new generation, and its consumers restart",
                code="channel-cut-otherwise",
            )
        self.client.append(
            lambda state: open_producer(
                state,
                self.attempt,
                subpartitions=subpartitions,
                schema=schema,
                replays=replays,
                budget=budget,
                restart_budget=restart_budget,
            )
        )

    def publish(self, epoch: int, segments: Sequence[SegmentBody], consumed: tuple[Consumed, ...] = ()) -> bool:
        """Write the segments, wait for room, and publish them as one epoch. False where the epoch was there already.

        Raises `ChannelFailed` where there was no room for ``block_timeout_s``, and as `publish` of the pure room.
        """
        if self.is_published(epoch, consumed):
            return False
        return self.publish_written(
            epoch, [self._write(task, segment) for task, segment in enumerate(segments)], consumed
        )

    def is_published(self, epoch: int, consumed: tuple[Consumed, ...] = ()) -> bool:
        """Whether the epoch is there already, so that nothing need be written. Raises as `publish`."""
        return is_published(self.client.refresh(), self.attempt, epoch, consumed)

    def publish_written(
        self, epoch: int, written: Sequence[WrittenSegment], consumed: tuple[Consumed, ...] = ()
    ) -> bool:
        """As `publish`, with segments that other processes have written already."""
        self._wait_for_room(sum(segment.bytes for segment in written))
        record = self.client.append(lambda state: publish(state, self.attempt, epoch, written, consumed))
        if record is None:
            # Published in the meantime by an earlier write of this attempt's own; after an error the sweep decides.
            self.client.delete(segment.key for segment in written)
        return record is not None

    def finish(self) -> None:
        """Everything is published."""
        self.client.append(lambda state: finish(state, self.attempt))

    def give_up(self, reason: str) -> None:
        """Tell the consumer that no more will come."""
        self.client.append(lambda state: give_up(state, self.attempt, reason))

    def _write(self, task: int, segment: SegmentBody) -> WrittenSegment:
        self._written += 1
        key = f"seg/{self.attempt}/{self._token}-{self._written:06d}/{segment.sub}"
        self.client.put(key, segment.body)
        return WrittenSegment(segment.sub, task, key, segment.count, len(segment.body))

    def _wait_for_room(self, size: int) -> None:
        began = self.client.clock()
        while True:
            state = self.client.refresh()
            decision = make_room(state, self.attempt, size, overflow=self._overflow, max_bytes=self._max_bytes)
            if decision.drop is not None:
                # Decided anew against the state right before the record: a plan may have pinned something meanwhile.
                self.client.append(
                    lambda state: (
                        make_room(state, self.attempt, size, overflow=self._overflow, max_bytes=self._max_bytes).drop
                    )
                )
                continue
            if decision.room is not Room.WAIT:
                return
            if self.client.clock() - began > self._block_timeout_s:
                raise ChannelFailed(
                    f"channel {self.client.identity.edge!r}: {decision.reason}, and it did not for "
                    f"{self._block_timeout_s:g} s. Look whether the consumer runs, or has no slot; then retry",
                    code="consumer-takes-nothing",
                )
            self.client.sleep(self._poll_s)
