"""What the control log says about a channel. Only `airflow_recovery.streaming.channel_folding` changes it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from airflow_recovery.model.channel_options import UNLIMITED, LossBudget
from airflow_recovery.streaming.channel_records import CheckpointPlanned, Consumed, LossCause, Offsets, Segment
from airflow_recovery.streaming.ranges import Ranges


@dataclass(frozen=True)
class LedgerEntry:
    """The records ``[start, stop)`` of a subpartition were lost by ``attempt``, in its checkpoint ``batch``."""

    sub: int
    start: int
    stop: int
    cause: LossCause
    attempt: int
    batch: int

    @property
    def records(self) -> int:
        """How many records are lost."""
        return self.stop - self.start


@dataclass(frozen=True)
class UnknownLoss:
    """What producer ``attempt`` could not make again: how many records, nobody knows. It came behind ``behind``."""

    attempt: int
    behind: Offsets


@dataclass
class Subpartition:
    """One subpartition. Numbers are dense from 0, across the attempts of the producer."""

    end: int = 0
    """The next number to be published."""
    done: int = 0
    """The completed checkpoint: everything before is committed or lost."""
    released: int = 0
    committed: Ranges = ()
    lost: Ranges = ()
    dropped: Ranges = ()
    """Dropped, and not behind the checkpoint yet."""
    torn: Ranges = ()
    """Records of which a part was dropped, not behind the checkpoint yet."""
    is_torn_open: bool = False
    """The record that begins in the last segment, and has not ended, has lost its beginning."""
    trailing_of: int = 0
    """The producer's attempt whose unfinished record is last; 0 where there is none."""


@dataclass
class ChannelState:
    """The fold over a channel's records. Numbers that are -1 or 0 at first: nothing happened yet."""

    slots: int = 0
    """How many slots were folded: the number of the next one."""
    producer: int = 0
    schema: str = ""
    budget: LossBudget = UNLIMITED
    restart_budget: LossBudget = UNLIMITED
    subs: list[Subpartition] = field(default_factory=list)
    retained: dict[str, Segment] = field(default_factory=dict)
    """By key, oldest first."""
    epoch: int = -1
    """The highest barrier."""
    consumed: dict[str, Consumed] = field(default_factory=dict)
    """How far the producer's own inputs are in what is published, by edge."""
    is_finished: bool = False
    failed: str | None = None
    view: int = 0
    """The consumer's attempt that holds the only view."""
    view_began: Offsets = ()
    """The checkpoint at which it was created."""
    jump: Offsets = ()
    min_epoch: int = -1
    plan: CheckpointPlanned | None = None
    checkpoint: int = -1
    """The batch of the last completed checkpoint."""
    outputs: list[str] = field(default_factory=list)
    ledger: list[LedgerEntry] = field(default_factory=list)
    unknown: list[UnknownLoss] = field(default_factory=list)
    void: list[int] = field(default_factory=list)
    """The slots whose records count for nothing."""

    @property
    def ends(self) -> Offsets:
        """By subpartition: the sequence number behind the last record that is published."""
        return tuple(sub.end for sub in self.subs)

    @property
    def done(self) -> Offsets:
        """By subpartition: the completed checkpoint. What lies before it is committed or lost."""
        return tuple(sub.done for sub in self.subs)

    @property
    def lost(self) -> int:
        """How many records the ledger counts as lost, in all subpartitions."""
        return sum(entry.records for entry in self.ledger)

    @property
    def is_drained(self) -> bool:
        """The producer has finished, and all of it is behind the checkpoint."""
        return self.is_finished and self.done == self.ends

    def segments_of(self, sub: int) -> Iterator[Segment]:
        """What is retained of one subpartition, oldest first."""
        return (segment for segment in self.retained.values() if segment.sub == sub)
