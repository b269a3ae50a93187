"""What a new attempt works with: the channels at the region's ends, and the attempts whose work it goes on from."""

from __future__ import annotations

from dataclasses import dataclass

from airflow_recovery.journal.plans import reading_of
from airflow_recovery.journal.run_state import RunState
from airflow_recovery.model.inputs import InputRef
from airflow_recovery.model.mode import AttemptWork
from airflow_recovery.model.region_plan import RegionPlan
from airflow_recovery.streaming.channel_graph import ChannelGraph, live_attempts
from airflow_recovery.streaming.mode import ChannelRef, StreamingClaim, StreamingOutcome, StreamingPlan
from airflow_recovery.streaming.restart import ended_before


@dataclass(frozen=True)
class StreamingWork(AttemptWork):
    """``pins``: the channels at its ends, inputs first, in the generations of now.

    ``earlier``: its own attempts whose checkpoints and outputs count, ascending; ``checkpoints``: the names of the
    folders that these have their checkpoints in. ``drained``: of its input channel, the
    generations before, of which what was committed counts as well. ``code`` and ``after``: what its claim says of its
    code (`Claim.reading`), and of the ends that it begins behind (`Claim.after`).
    """

    pins: tuple[ChannelRef, ...] = ()
    earlier: tuple[int, ...] = ()
    checkpoints: tuple[str, ...] = ()
    drained: tuple[int, ...] = ()
    code: str | None = None
    after: tuple[InputRef, ...] = ()

    @property
    def in_claim(self) -> StreamingClaim:
        """What the claim records: the channels, the code, and the ends of attempts that it begins behind."""
        return StreamingClaim(self.pins, self.code, self.after)

    @property
    def in_outcome(self) -> StreamingOutcome:
        """The channels: an attempt ends in the generations that it was claimed with."""
        return StreamingOutcome(self.pins)


def streaming_work(state: RunState, region: RegionPlan, graph: ChannelGraph) -> StreamingWork:
    """Of a new attempt of ``region``, as of ``state``. ``graph``: all streaming regions of the run."""
    planned = StreamingPlan.of(region)
    pins = [ChannelRef(channel.result, state.of(channel.producer).generations[-1]) for channel in planned.channels]
    return StreamingWork(
        tuple(pins),
        tuple(live_attempts(state, region.name)),
        (),
        tuple(number for plan in planned.channels_in for number in state.of(plan.producer).generations[:-1]),
        code_of(region),
        ended_before(graph, state, region.name),
    )


def code_of(region: RegionPlan) -> str | None:
    """Digest of the code of a region: attempts of other code can't go on from each other."""
    return None if region.fingerprint is None else reading_of(region.fingerprint, ())
