"""What a region at a channel writes into its plan, its claims and its outcomes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from airflow_recovery.model.channel_options import Overflow, Reconnect
from airflow_recovery.model.codec import Id, later
from airflow_recovery.model.inputs import InputRef
from airflow_recovery.model.mode import RegionMode
from airflow_recovery.model.records import AttemptTrace, Claim, Outcome
from airflow_recovery.model.region_plan import RegionPlan


@dataclass(frozen=True)
class ChannelPlan:
    """A result that is a channel: its one writer is ``producer``."""

    result: Id
    producer: Id
    reconnect: Reconnect = Reconnect.REWIND
    overflow: Overflow = Overflow.BLOCK


@dataclass(frozen=True)
class ChannelRef:
    """The channel ``result`` in one generation (from 1): what an attempt reads from, or writes to."""

    result: Id
    generation: int


@dataclass(frozen=True)
class StreamingMode(RegionMode):
    """Base of what this mode writes."""

    name: ClassVar[str] = "streaming"
    needs_own_application: ClassVar[bool] = True
    """A streaming region runs as long as its channels do."""


@dataclass(frozen=True)
class StreamingPlan(StreamingMode):
    """``channels_in``: what the region reads while it is made; it is in neither ``inputs`` nor ``reads``.
    ``channels_out``: what others read while the region makes it; it is not in ``results``. ``stateful``: the region
    keeps state from batch to batch. ``replays``: it can make again what an earlier attempt had read and not published.
    """

    channels_in: tuple[ChannelPlan, ...] = later(())
    channels_out: tuple[ChannelPlan, ...] = later(())
    stateful: bool = later(False)
    replays: bool = later(True)

    @property
    def channels(self) -> tuple[ChannelPlan, ...]:
        """All of them, inputs first."""
        return (*self.channels_in, *self.channels_out)


@dataclass(frozen=True)
class StreamingClaim(StreamingMode):
    """``channels``: those at the region's ends, in the generations that the attempt works with. ``reading``: digest of
    its code. ``after``: of each streaming region before it, the newest attempt that had ended: the attempt has
    restarted behind that one."""

    channels: tuple[ChannelRef, ...] = later(())
    reading: str | None = later(None)
    after: tuple[InputRef, ...] = later(())


@dataclass(frozen=True)
class StreamingOutcome(StreamingMode):
    """``channels``: those at the region's ends, in the generations that the attempt has worked with to their ends."""

    channels: tuple[ChannelRef, ...] = later(())


def pinned_channels(mode: RegionMode) -> tuple[ChannelRef, ...]:
    """The channels that a claim or an outcome names; of another mode, none."""
    return mode.channels if isinstance(mode, (StreamingClaim, StreamingOutcome)) else ()


IN_RECORDS = {
    RegionPlan: StreamingPlan,
    Claim: StreamingClaim,
    Outcome: StreamingOutcome,
    AttemptTrace: StreamingOutcome,
}
