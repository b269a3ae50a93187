"""What planning asks of streaming regions: are the channels of a finish still those of now, and is who fed it valid?

A channel is no input: both its ends run at the same time, and neither waits for the other to finish.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from airflow_recovery.journal.run_state import Attempt, RunState
from airflow_recovery.model.codec import later
from airflow_recovery.model.mode import RegionMode
from airflow_recovery.model.region_plan import RegionPlan
from airflow_recovery.planning.mode import PlannedMode, PlanningMode
from airflow_recovery.planning.reason import Reason, Why
from airflow_recovery.streaming.channel_graph import is_only_altered, other_channels
from airflow_recovery.streaming.mode import StreamingOutcome, StreamingPlan, pinned_channels
from airflow_recovery.streaming.preview import ChannelPreview, LossPreview, RepeatPreview


@dataclass(frozen=True)
class PlannedChannel:
    """What the plan does to one channel: ``generation`` is the one that its ends work with afterwards."""

    generation: int
    is_new: bool
    preview: ChannelPreview

    def text(self) -> str:
        """One line."""
        return f"{self.preview.text()}; {'new ' if self.is_new else ''}generation {self.generation}"

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values; `from_json` is the inverse."""
        return {
            "result": self.preview.result,
            "generation": self.generation,
            "is_new": self.is_new,
            "lost": self.preview.loss.value,
            "repeated": self.preview.repeat.value,
        }

    @classmethod
    def from_json(cls, value: Any) -> PlannedChannel:
        """Inverse of `to_json`. Raises `KeyError`, `TypeError` or `ValueError` on anything else."""
        preview = ChannelPreview(value["result"], LossPreview(value["lost"]), RepeatPreview(value["repeated"]))
        return cls(value["generation"], value["is_new"], preview)


@dataclass(frozen=True)
class PlannedChannels(PlannedMode):
    """What becomes of each channel of the job, where a streaming region restarts; else nothing."""

    channels: tuple[PlannedChannel, ...] = later(())

    def text(self) -> str:
        """A line for each channel."""
        lines = "\n".join(f"  {channel.text()}" for channel in self.channels)
        return f"Channels:\n{lines}" if lines else ""


class StreamingPlanning(PlanningMode):
    """Why a finish of a streaming region is not valid any more, and what a simulated attempt of it leaves."""

    planned = PlannedChannels

    def why_disconnected(
        self, regions: Mapping[str, RegionPlan], region: str, state: RunState, basis: RegionMode
    ) -> Reason | None:
        """Are the channels in ``basis`` not the channels of now?"""
        pins = pinned_channels(basis)
        worked = {pin.result for pin in pins}
        today = {channel.result for channel in StreamingPlan.of(regions[region]).channels}
        if worked != today:
            detail = f"channels {sorted(worked)}, now {sorted(today)}"
            return Reason(region, Why.INPUTS_CHANGED, detail)
        other = other_channels(regions[region], state, pins)
        if other is None:
            return None
        detail, producer = other
        return Reason(region, Why.CHANNEL_RESTARTED, detail, source=producer if producer != region else None)

    def why_peer_invalid(
        self, regions: Mapping[str, RegionPlan], region: str, state: RunState, invalid: Mapping[str, Reason | None]
    ) -> Reason | None:
        """A region that it reads from had finished, and starts over: so does it. One that has not finished goes on."""
        for producer in self.producers(regions[region]):
            current, below = state.of(producer).current, invalid[producer]
            outcome = current.outcome if current is not None else None
            if below is None or outcome is None:
                continue
            if not is_only_altered(regions[producer], state, StreamingOutcome.of(outcome).channels):
                return Reason(region, Why.INPUT_INVALID, producer, below, source=producer)
        return None

    def results(self, region: RegionPlan) -> tuple[str, ...]:
        """The channels that it feeds."""
        return tuple(channel.result for channel in StreamingPlan.of(region).channels_out)

    def producers(self, region: RegionPlan) -> tuple[str, ...]:
        """Who feeds the channels that it reads."""
        return tuple(channel.producer for channel in StreamingPlan.of(region).channels_in)

    def after_failure(self, attempts: Mapping[int, Attempt], number: int) -> dict[int, Attempt]:
        """The finishes are gone without a reset, which would begin its channels anew: a failure does not."""
        return {n: replace(attempt, outcome=None) if n < number else attempt for n, attempt in attempts.items()}


MODE = StreamingPlanning()
