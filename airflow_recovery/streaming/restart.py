"""What restarts with a streaming region that must run again (FLIP-135): one rule for pre-check and plan.

It is read from the journal alone. A *live* attempt was claimed, and what it has read still counts: no reset but an
*altered* one (its output is another thing now) has named it, or a later one. The first row that fits decides:

    live attempts of the region                            mode
    none                                                   FIRST       it begins, nobody else is touched
    one has finished, and does not count any more (*)      START_OVER  what it had read was released
    made by other code, or with other inputs than today's  START_OVER  else its result would be made half and half
    the channel's log that they read is not there          START_OVER
    the newest failed with ``ChannelInconsistent``         START_OVER
    the newest failed with ``ChannelAltered``              ALTERED     M2, M3, reader without state; else START_OVER
    else, by the strategy of the plan:
      approximate-single                                   ALONE       M3
      approximate-downstream                               BEHIND      M2; ALONE where nobody is behind it
      approximate-sink, it feeds no channel                ALONE       M1
      approximate-sink, it feeds one                       START_OVER  M1: FLIP-135's fall-back
      region, full, individual                             START_OVER

(*) not so where only its producer's output was altered: what it has finished with is a part of the result then.

    mode        is reset                                   is cleared, where it runs
    ALONE       nobody                                     nobody: the task's own retry is the restart
    BEHIND      nobody                                     all behind it, once for each attempt that has ended
    ALTERED     it alone, as *altered*                     all behind it
    START_OVER  every connected region with a live attempt the same

So a plain clear of a region's task in Airflow makes it go on at its checkpoint, by the strategy; "restart this region"
is a reset of it, and all that channels connect with it starts over.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import Enum

from airflow_recovery.journal.run_state import RunState
from airflow_recovery.model.failover_strategy import FailoverStrategy
from airflow_recovery.model.inputs import InputRef
from airflow_recovery.model.records import Claim, Reset
from airflow_recovery.streaming.channel_graph import (
    ChannelGraph,
    feeder,
    generations_of,
    is_only_altered,
    live_attempts,
)
from airflow_recovery.streaming.mode import ChannelRef, StreamingClaim, StreamingOutcome, StreamingPlan

INCONSISTENT = "ChannelInconsistent"
ALTERED = "ChannelAltered"
"""`airflow_recovery.errors.Failure.type` of what a streaming region fails with, where the channel is what failed."""


class StreamingRestartMode(str, Enum):
    """How a streaming region comes to run, or that it does not have to."""

    FIRST = "begins"
    GOES_ON = "goes on, undisturbed"
    ALONE = "restarts alone, at its checkpoint"
    BEHIND = "restarts at its checkpoint, and so do those behind it"
    TAKEN_ALONG = "restarts at its checkpoint, behind another one"
    ALTERED = "restarts at its checkpoint, on a new generation of its output, and so do those behind it"
    START_OVER = "starts over"


@dataclass(frozen=True)
class StreamingRestart:
    """How ``region`` restarts, and because of what (``why``, in words; empty for FIRST).

    Who restarts with it, and what becomes of each channel, is in `airflow_recovery.streaming.preview`.
    """

    region: str
    mode: StreamingRestartMode
    why: str = ""


def streaming_restart(
    graph: ChannelGraph, state: RunState, region: str, *, changed: str | None = None, is_lost: bool = False
) -> StreamingRestart:
    """What restarts with ``region``, whose newest attempt is over, and which must run.

    ``changed``: how its live attempts were made of something else than today's code and inputs. ``is_lost``: the log of
    the channel that they read is not there.
    """
    mode, why = _mode(graph, state, region, changed, is_lost)
    return StreamingRestart(region, mode, why)


def _mode(
    graph: ChannelGraph, state: RunState, region: str, changed: str | None, is_lost: bool
) -> tuple[StreamingRestartMode, str]:
    live = live_attempts(state, region)
    if not live:
        return StreamingRestartMode.FIRST, ""
    region_state = state.of(region)
    newest = region_state.attempts[live[-1]]
    ended = f"{region}@{newest.number} has ended"
    failure = newest.outcome.failure if newest.outcome is not None else None
    finished = next((region_state.attempts[n] for n in reversed(live) if region_state.attempts[n].is_finished), None)
    pins = (
        StreamingOutcome.of(finished.outcome).channels if finished is not None and finished.outcome is not None else ()
    )
    if finished is not None and not is_only_altered(graph.regions[region], state, pins):
        return (
            StreamingRestartMode.START_OVER,
            f"{region}@{finished.number} had read its channels to their ends, and does not count",
        )
    if changed is not None:
        return StreamingRestartMode.START_OVER, changed
    if is_lost:
        return (
            StreamingRestartMode.START_OVER,
            f"the channel that {region}@{newest.number} has read is not there any more",
        )
    if failure is not None and failure.type == INCONSISTENT:
        return StreamingRestartMode.START_OVER, f"{ended}: {failure.type}"
    strategy = graph.plan.failover_strategy
    if failure is not None and failure.type == ALTERED:
        stateful = [reader for reader in graph.readers(region) if StreamingPlan.of(graph.regions[reader]).stateful]
        if strategy in _GOES_ON_WHERE_ALTERED and not stateful:
            return StreamingRestartMode.ALTERED, f"{ended}: {failure.type}"
        why = f"{stateful[0]} keeps state of it" if stateful else f"the failover strategy is {strategy.value}"
        return StreamingRestartMode.START_OVER, f"{ended}: {failure.type}, and {why}"
    if strategy is FailoverStrategy.APPROXIMATE_SINGLE:
        return StreamingRestartMode.ALONE, ended
    if strategy is FailoverStrategy.APPROXIMATE_DOWNSTREAM:
        return StreamingRestartMode.BEHIND if graph.behind(region) else StreamingRestartMode.ALONE, ended
    if strategy is FailoverStrategy.APPROXIMATE_SINK and not graph.readers(region):
        return StreamingRestartMode.ALONE, ended
    return StreamingRestartMode.START_OVER, f"{ended}, and the failover strategy is {strategy.value}"


_GOES_ON_WHERE_ALTERED = (FailoverStrategy.APPROXIMATE_SINGLE, FailoverStrategy.APPROXIMATE_DOWNSTREAM)


# --- who starts over with whom ---------------------------------------------------------------------------------------

Pins = Callable[[str, int], "tuple[ChannelRef, ...]"]
"""The channels that an attempt of a streaming region was claimed with."""


def attempts_that_tell(state: RunState, region: str) -> tuple[int, ...]:
    """The attempts whose pins `new_generation` asks for: the oldest and the newest live one, the newest that is not."""
    region_state = state.of(region)
    live = live_attempts(state, region)
    void = [
        n
        for n, attempt in region_state.attempts.items()
        if attempt.is_claimed and region_state.closed_at < n <= region_state.restarted_up_to
    ]
    return tuple(sorted({*live[:1], *live[-1:], *sorted(void)[-1:]}))


def new_generation(graph: ChannelGraph, state: RunState, region: str, own: str | None, pins: Pins) -> dict[str, str]:
    """Which regions connected with ``region`` start over, each with its reason, in topological order.

    ``own``: why ``region`` itself does. The others follow from what their attempts were claimed with, so that a reset
    whose author died before he had written the others is completed by whoever looks next:

    - a live attempt works with a generation that does not count any more: its region starts over;
    - an attempt that does not count has read a generation that counts: it let go what nobody else has, so that the
      channel's producer starts over.
    """
    reasons: dict[str, str] = {}
    new = {} if own is None else {region: own}
    new |= _incoherent(graph, state, region, pins)
    while new:
        reasons |= new
        state = _scenario(state, new)
        new = {name: why for name, why in _incoherent(graph, state, region, pins).items() if name not in reasons}
    return {name: reasons[name] for name in graph.connected(region) if name in reasons}


def _incoherent(graph: ChannelGraph, state: RunState, region: str, pins: Pins) -> dict[str, str]:
    reasons: dict[str, str] = {}
    for name in graph.connected(region):
        live = live_attempts(state, name)
        for n in attempts_that_tell(state, name):
            for pin in pins(name, n):
                counts = pin.generation in generations_of(graph.regions[name], state, pin.result)
                if n in live and not counts:
                    reasons.setdefault(name, f"{name}@{n} works with generation {pin.generation} of {pin.result}")
                producer = feeder(graph.regions[name], pin.result)
                if n not in live and counts and producer != name and live_attempts(state, producer):
                    why = f"{name} starts over, and has let go what it had read of {pin.result}"
                    reasons.setdefault(producer, why)
    return reasons


def _scenario(state: RunState, regions: Mapping[str, str]) -> RunState:
    """``state`` once the newest attempts of ``regions`` are reset."""
    states = dict(state.regions)
    for name, why in regions.items():
        region_state = state.of(name)
        if region_state.latest_attempt in region_state.attempts:
            reset = Reset(name, region_state.latest_attempt, "", why, failover=True)
            marked = replace(region_state.attempts[region_state.latest_attempt], is_reset=True, reset=reset)
            states[name] = replace(
                region_state, attempts={**region_state.attempts, region_state.latest_attempt: marked}
            )
    return replace(state, regions=states)


# --- who restarts behind whom ----------------------------------------------------------------------------------------


def ended_before(graph: ChannelGraph, state: RunState, region: str) -> tuple[InputRef, ...]:
    """Of each region before ``region``, the newest attempt that has ended: a claim says so (`Claim.after`)."""
    refs = []
    for name in graph.before(region):
        ended = [n for n, attempt in state.of(name).attempts.items() if attempt.is_claimed and attempt.has_outcome]
        if ended:
            refs.append(InputRef(name, max(ended)))
    return tuple(refs)


def has_restarted_behind(claim: Claim, region: str, attempt: int) -> bool:
    """The attempt of ``claim`` has begun behind the end of ``region@attempt``: it need not restart for that."""
    return any(ref.region == region and ref.attempt >= attempt for ref in StreamingClaim.of(claim).after)


def is_taken_along(graph: ChannelGraph, state: RunState, claim: Claim) -> bool:
    """The attempt of ``claim`` was ended by a restart that takes along all behind it, and so by no cause of its own.

    Some region before it has ended an attempt since it began.
    """
    known = {ref.region: ref.attempt for ref in StreamingClaim.of(claim).after}
    return any(ref.attempt > known.get(ref.region, 0) for ref in ended_before(graph, state, claim.region))


def should_restart(graph: ChannelGraph, state: RunState, claim: Claim) -> bool:
    """The open attempt of ``claim`` was to be ended by a clear, since a region before it has restarted with all behind.

    Under ``approximate-downstream`` that is every end of an attempt before it; else one whose output was altered.
    """
    every = graph.plan.failover_strategy is FailoverStrategy.APPROXIMATE_DOWNSTREAM
    known = {ref.region: ref.attempt for ref in StreamingClaim.of(claim).after}
    for ref in ended_before(graph, state, claim.region):
        resets = (attempt.reset for n, attempt in state.of(ref.region).attempts.items() if n > known.get(ref.region, 0))
        if ref.attempt > known.get(ref.region, 0) and (
            every or any(reset is not None and reset.altered for reset in resets)
        ):
            return True
    return False
