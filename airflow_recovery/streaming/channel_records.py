"""The records of a channel's control log: every fact about a channel is one of them, in one total order.

Attempts count from 1 and are claims of the journal. A record of the producer's side is valid while its attempt is the
newest that has opened the channel, one of the consumer's side while its attempt holds the only view.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from airflow_recovery.model.channel_options import LossBudget, Reconnect
from airflow_recovery.model.codec import OrMinusOne, PathBelow, Positive
from airflow_recovery.model.records import RunIdentity
from airflow_recovery.streaming.ranges import Ranges

Offsets = tuple[int, ...]
"""One sequence number for every subpartition."""


class LossCause(str, Enum):
    """Why records that were published are lost."""

    RECONNECT = "reconnect"
    """The consumer went on at the head."""

    OVERFLOW = "overflow"
    """They were dropped for want of room."""

    TORN = "torn"
    """A part of the record was dropped."""


@dataclass(frozen=True)
class ChannelIdentity:
    """Which channel a log belongs to: ``edge`` of a run, in one ``generation`` (from 1).

    A generation ends when both sides of the channel start over.
    """

    run: RunIdentity
    edge: str
    generation: int


@dataclass(frozen=True)
class Segment:
    """One immutable object: the records ``first`` up to but not including ``first + count`` of one subpartition.

    A record belongs to the segment in which it ends. ``leading`` bytes belong to a record that began in the segment
    before, ``trailing`` bytes to one that ends in a later segment; both are 0 where segments hold whole records.
    """

    sub: int
    key: PathBelow
    first: int
    count: int
    bytes: int
    leading: int = 0
    trailing: int = 0

    @property
    def end(self) -> int:
        """The number of the next record."""
        return self.first + self.count


@dataclass(frozen=True)
class Loss:
    """The records ``[start, stop)`` of one subpartition, and why they are lost."""

    sub: int
    start: int
    stop: int
    cause: LossCause

    @property
    def records(self) -> int:
        """How many records the range has."""
        return self.stop - self.start


@dataclass(frozen=True)
class Consumed:
    """What of another channel an epoch was made of: everything of ``edge``, in one generation, up to ``end``."""

    edge: str
    generation: Positive
    end: Offsets


@dataclass(frozen=True)
class ProducerOpened:
    """A producer's attempt begins, and fences the older ones.

    ``replays``: it can make again what an earlier attempt had read and not published. ``budget`` is for the whole run,
    ``restart_budget`` for each attempt of the consumer.
    """

    attempt: Positive
    subpartitions: Positive
    schema: str
    replays: bool
    budget: LossBudget
    restart_budget: LossBudget


@dataclass(frozen=True)
class EpochPublished:
    """All subpartitions of one batch become readable at once. ``epoch`` is the producer's batch, and its barrier."""

    attempt: Positive
    epoch: int
    segments: tuple[Segment, ...]
    consumed: tuple[Consumed, ...] = ()


@dataclass(frozen=True)
class SegmentsDropped:
    """The producer gives up segments that nobody has committed."""

    attempt: Positive
    keys: tuple[PathBelow, ...]


@dataclass(frozen=True)
class ViewCreated:
    """A consumer's attempt takes the only view. The older view is evicted, and its plan aborted.

    ``jump``: what lies before is lost. ``min_epoch``: the barriers up to it are none of this view's. ``adopt``: the
    epoch of the consumer's own output that holds the pending plan already, so that it is completed here.
    """

    attempt: Positive
    reconnect: Reconnect
    jump: Offsets
    min_epoch: OrMinusOne
    adopt: int | None = None


@dataclass(frozen=True)
class CheckpointPlanned:
    """A pending checkpoint: pins what will be read, and says what is lost and why."""

    attempt: Positive
    start: Offsets
    end: Offsets
    read: tuple[Ranges, ...]
    lost: tuple[Loss, ...] = ()


@dataclass(frozen=True)
class BatchCommitted:
    """A completed checkpoint, the sink's commit and the ledger's entries in one record: they can't disagree."""

    attempt: Positive
    batch: int
    end: Offsets
    outputs: tuple[PathBelow, ...] = ()


@dataclass(frozen=True)
class Released:
    """The consumer will never ask again for what lies before ``upto``."""

    attempt: Positive
    upto: Offsets


@dataclass(frozen=True)
class Finished:
    """The producer has published everything."""

    attempt: Positive


@dataclass(frozen=True)
class GaveUp:
    """The producer has failed for good."""

    attempt: Positive
    reason: str


ProducerRecord = ProducerOpened | EpochPublished | SegmentsDropped | Finished | GaveUp
ConsumerRecord = ViewCreated | CheckpointPlanned | BatchCommitted | Released
ChannelRecord = ProducerRecord | ConsumerRecord
