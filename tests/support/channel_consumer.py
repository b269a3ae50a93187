"""A consumer's end of a channel, by the product's own steps: what Spark's source and its region do between them."""

from __future__ import annotations

from dataclasses import dataclass

from airflow_recovery.errors import ChannelEvicted, ChannelFailed, ChannelInconsistent, ObjectMissing
from airflow_recovery.model.channel_options import Reconnect
from airflow_recovery.streaming.channel_records import CheckpointPlanned, Consumed, Offsets
from airflow_recovery.streaming.client import ChannelClient
from airflow_recovery.streaming.consuming import commit_batch, create_view, make_plan, next_end, published_of, release
from airflow_recovery.streaming.ranges import Ranges, between, common


@dataclass(frozen=True)
class SegmentSlice:
    """The records ``ranges`` of a segment whose first record is ``first``."""

    sub: int
    key: str
    first: int
    ranges: Ranges


@dataclass(frozen=True)
class Batch:
    """A pending checkpoint. ``number`` is what it is committed as, ``consumed`` what an output epoch says of it."""

    number: int
    plan: CheckpointPlanned
    slices: tuple[SegmentSlice, ...]
    consumed: Consumed


class ChannelConsumer:
    """Attempt ``attempt`` of the region that reads a channel."""

    def __init__(self, client: ChannelClient, attempt: int) -> None:
        self.client = client
        self.attempt = attempt
        self._next = 0

    def connect(self, reconnect: Reconnect = Reconnect.REWIND, *, output: ChannelClient | None = None) -> None:
        """Take the only view. ``output``: the region's own output channel, which this attempt has opened already.

        Raises as `create_view`. The first batch is the one behind both logs.
        """
        published = None if output is None else published_of(output.state, self.client.identity)
        self.client.append(lambda state: create_view(state, self.attempt, reconnect, published=published))
        self._next = max(self.client.state.checkpoint, -1 if output is None else output.state.epoch) + 1

    @property
    def is_drained(self) -> bool:
        """The producer has finished, and all of it is behind the checkpoint; as of the last request."""
        return self.client.state.is_drained

    def next_batch(self, max_records: int | None = None) -> Batch | None:
        """Plan the next batch; `None` where nothing is there now.

        Raises `ChannelFailed` where the producer has given up and everything before was read, and as `make_plan`.
        """
        state = self.client.refresh()
        start, end = state.done, next_end(state, max_records)
        if start == end:
            if state.failed is not None:
                raise ChannelFailed(
                    f"channel {self.client.identity.edge!r}: its producer has given up: {state.failed}. Restart it; "
                    "this attempt may go on afterwards"
                )
            return None
        plan = self.client.append(lambda state: make_plan(state, self.attempt, start, end)) or self.client.state.plan
        if plan is None:
            raise ChannelInconsistent(f"batch {self._next}: expected a plan up to {end}, found none")
        slices = [
            SegmentSlice(number, segment.key, segment.first, wanted)
            for number, ranges in enumerate(plan.read)
            for segment in self.client.state.segments_of(number)
            if (wanted := common(ranges, between(segment.first, segment.end)))
        ]
        identity = self.client.identity
        return Batch(self._next, plan, tuple(slices), Consumed(identity.edge, identity.generation, plan.end))

    def read(self, slice_: SegmentSlice) -> bytes:
        """The whole segment of a slice.

        Raises `ChannelEvicted` where another attempt has the view now, and `ChannelInconsistent` where it has not and
        the segment is gone: never fewer rows.
        """
        try:
            return self.client.get(slice_.key)
        except ObjectMissing as missing:
            if (owner := self.client.refresh().view) != self.attempt:
                raise ChannelEvicted(f"consumer attempt {self.attempt}: attempt {owner} holds the only view") from None
            raise ChannelInconsistent(
                f"segment {slice_.key} was deleted from outside: the log says that it is retained. Begin a new "
                "generation of the channel, and keep lifecycle rules and clean-up jobs off its prefix"
            ) from missing

    def commit(self, batch: Batch, records: Offsets, outputs: tuple[str, ...] = ()) -> None:
        """Complete the batch, and release what lies before it. Raises as `commit_batch`."""
        self.client.append(lambda state: commit_batch(state, self.attempt, batch.number, records, outputs))
        self._next = batch.number + 1
        self.client.append(lambda state: release(state, self.attempt, batch.plan.start))
