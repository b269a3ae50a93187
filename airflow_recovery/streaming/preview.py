"""What a restart takes along, and what it loses and repeats, channel by channel: what a plan shows before it happens.

FLIP-135's rules for a job whose regions are recorded (`tests/reference/approximate.py` has them for subtasks). With the
region restart, by its mode:

    ALONE             nobody
    BEHIND, ALTERED   all behind it, by channels
    START_OVER        all that channels connect with it, and these start over, on a new generation of their channels;
                      and so does, with its own, each region that feeds a channel and restarts for another reason

and, in every mode, all that read a blocking result of what restarts. What was really lost is in the ledger
(`airflow_recovery.streaming.ledger`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from airflow_recovery.model.channel_options import Overflow, Reconnect
from airflow_recovery.streaming.channel_graph import ChannelGraph
from airflow_recovery.streaming.mode import ChannelPlan, StreamingPlan
from airflow_recovery.streaming.restart import StreamingRestartMode


class LossPreview(str, Enum):
    """What will be missing behind a channel; the worst last."""

    NOTHING = "nothing"
    DROPPED = "what overflow had dropped"
    TO_THE_HEAD = "from the checkpoint to the head at the reconnection"
    OLD_GENERATION = "what was not committed of the old generation"
    UNKNOWN = "unknown: its source can't replay"


class RepeatPreview(str, Enum):
    """What will be there twice; the worst last."""

    NOTHING = "nothing"
    LAST_EPOCH = "at most the last epoch of a source that can't replay"


@dataclass(frozen=True)
class ChannelPreview:
    """What a restart does to what passes one channel."""

    result: str
    loss: LossPreview
    repeat: RepeatPreview

    def text(self) -> str:
        """One line."""
        return f"{self.result}: lost {self.loss.value}; repeated {self.repeat.value}"


@dataclass(frozen=True)
class TakenAlong:
    """The regions that restart, the one that has failed among them; and those of them that start over."""

    regions: frozenset[str]
    starting_over: frozenset[str]


def taken_along(graph: ChannelGraph, region: str, mode: StreamingRestartMode) -> TakenAlong:
    """What restarts when the streaming region ``region`` restarts in ``mode``: ALONE, BEHIND, ALTERED or START_OVER."""
    readers: dict[str, list[str]] = defaultdict(list)
    for reader in graph.plan.regions:
        for producer in reader.inputs:
            readers[producer].append(reader.name)
    restarted: set[str] = set()
    starting_over: set[str] = set()
    todo = [region]
    while todo:
        name = todo.pop()
        group = {name}
        if mode in (StreamingRestartMode.BEHIND, StreamingRestartMode.ALTERED) and name in graph.regions:
            group.update(graph.behind(name))
        if (
            mode is StreamingRestartMode.START_OVER
            and name in graph.regions
            and (name == region or graph.readers(name))
        ):
            group.update(graph.connected(name))
            starting_over |= group
        new = group - restarted
        restarted |= new
        todo += [reader for producer in new for reader in readers[producer] if reader not in restarted]
    return TakenAlong(frozenset(restarted), frozenset(starting_over))


def preview(graph: ChannelGraph, region: str, mode: StreamingRestartMode) -> tuple[ChannelPreview, ...]:
    """What that restart does to each channel of the job, in the order of the regions that feed them."""
    along = taken_along(graph, region, mode)
    return tuple(
        ChannelPreview(channel.result, *_row(graph, along, channel, is_altered))
        for name, planned in graph.regions.items()
        for channel in StreamingPlan.of(planned).channels_out
        for is_altered in [mode is StreamingRestartMode.ALTERED and name == region]
    )


def _row(
    graph: ChannelGraph, along: TakenAlong, channel: ChannelPlan, is_altered: bool
) -> tuple[LossPreview, RepeatPreview]:
    """The table: the first line that fits."""
    is_restarted = channel.producer in along.regions
    if is_restarted and not StreamingPlan.of(graph.regions[channel.producer]).replays:
        return LossPreview.UNKNOWN, RepeatPreview.LAST_EPOCH
    if is_altered:
        return LossPreview.OLD_GENERATION, RepeatPreview.NOTHING
    is_reconnected = channel.producer not in along.starting_over and not along.regions.isdisjoint(
        _readers(graph, channel)
    )
    if is_reconnected and channel.reconnect is Reconnect.LATEST:
        return LossPreview.TO_THE_HEAD, RepeatPreview.NOTHING
    if is_reconnected and channel.overflow is Overflow.DROP:
        return LossPreview.DROPPED, RepeatPreview.NOTHING
    return LossPreview.NOTHING, RepeatPreview.NOTHING  # connected through, or made again from the beginning


def _readers(graph: ChannelGraph, channel: ChannelPlan) -> Iterator[str]:
    for name, planned in graph.regions.items():
        if channel.result in (read.result for read in StreamingPlan.of(planned).channels_in):
            yield name
