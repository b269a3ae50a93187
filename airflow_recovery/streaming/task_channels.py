"""The channels of a run, as the tasks at their ends see them: is it open, what does it say, tell that no more comes.

Nothing here takes a side of a channel: that do the attempts, in Spark. What a task writes is `give_up`, in the name of
the producer's attempt that has it, and only where nobody has taken it since.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass

from airflow_recovery.attempt.run import Run
from airflow_recovery.errors import ChannelEvicted
from airflow_recovery.journal.run_state import RunState
from airflow_recovery.model.records import RunIdentity
from airflow_recovery.model.region_plan import RegionPlan
from airflow_recovery.store.object_store import ObjectStore
from airflow_recovery.streaming.channel_records import ChannelIdentity
from airflow_recovery.streaming.client import ChannelClient
from airflow_recovery.streaming.mode import StreamingPlan
from airflow_recovery.streaming.producing import give_up
from airflow_recovery.streaming.reading import read_channel
from airflow_recovery.streaming.run_channels import ChannelReport, report_of, run_channels

MAX_REASON = 500
"""Characters of what a producer says of its end: each consumer's error repeats it."""


@dataclass(frozen=True)
class InputChannel:
    """What a streaming region reads: the channel ``result`` of region ``producer``, in the generation of now."""

    identity: ChannelIdentity
    producer: str

    @property
    def generation(self) -> int:
        """From 1; another one where both ends started over, or the producer's output was altered."""
        return self.identity.generation


def input_channel(run: RunIdentity, region: RegionPlan, state: RunState) -> InputChannel | None:
    """What ``region`` reads as of ``state``; `None` for one that reads no channel."""
    for plan in StreamingPlan.of(region).channels_in:
        return InputChannel(ChannelIdentity(run, plan.result, state.of(plan.producer).generations[-1]), plan.producer)
    return None


def output_channel(run: RunIdentity, region: RegionPlan, state: RunState) -> ChannelIdentity | None:
    """What ``region`` feeds as of ``state``; `None` for one that feeds no channel."""
    for plan in StreamingPlan.of(region).channels_out:
        return ChannelIdentity(run, plan.result, state.of(region.name).generations[-1])
    return None


def region_reports(run: Run, region: str, store: ObjectStore) -> tuple[ChannelReport, ...]:
    """The accounts of the channels at the ends of ``region``, in the generations of now. Raises as `read_channel`."""
    return tuple(
        report_of(channel, read_channel(store, channel.identity(run.journal.identity)))
        for channel in run_channels(run.today, run.load())
        if channel.is_newest and region in (channel.producer, channel.consumer)
    )


def give_up_output(run: Run, region: str, store: ObjectStore, reason: str) -> bool:
    """Say in the output channel of ``region`` that no more will come, so that its consumer ends by name.

    For the task of ``region`` that fails for good. False where there is nobody to tell: no channel, none opened, or all
    of it is there. Raises `NotMine` where the task instance is another process's by now: that one goes on.
    """
    channel = output_channel(run.journal.identity, run.regions[region], run.load())
    return channel is not None and _give_up(run, channel, store, f"{region} has failed for good: {reason}")


def give_up_input(run: Run, region: str, store: ObjectStore, state: str) -> bool:
    """The same in the input channel of ``region``, for a producer whose task is over and has not said so itself.

    Killed in its last try, marked as failed by a person: ``state`` is what Airflow says.
    """
    channel = input_channel(run.journal.identity, run.regions[region], run.load())
    if channel is None:
        return False
    return _give_up(run, channel.identity, store, f"the task of {channel.producer} is {state} in Airflow")


def _give_up(run: Run, channel: ChannelIdentity, store: ObjectStore, reason: str) -> bool:
    client = ChannelClient(store, channel, uuid.uuid4().hex, deadline_s=30.0)
    owner = client.refresh().producer
    if not owner or client.state.is_finished or client.state.failed is not None:
        return False
    # Asked behind the look at the log: who opens the channel from now on has another attempt, and is not meant.
    run.task_instances.live_check()
    try:
        client.append(lambda state: give_up(state, owner, reason[:MAX_REASON]))
    except ChannelEvicted:
        return False
    return True
