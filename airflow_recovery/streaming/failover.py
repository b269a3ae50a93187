"""The failover of streaming regions: what their pre-check resets and clears before it claims.

See FLIP-135, docs/protocol.md#principles.

Who restarts is `airflow_recovery.streaming.restart`; here it is read from the journal and written to it.

    reset    the others first, the own attempt last: a crash in between does it all again
    clear    the others' tasks, between the two: by one compare-and-clear. A crash before it leaves attempts at work
             that do not count, or in generations that nobody feeds; whoever looks next finds and clears them
    claim    then look at the journal once more (`check_channels`): who resets writes, and then looks for claims; who
             claims writes, and then looks for resets. One of the two sees the other
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from airflow_recovery.attempt.attempt_outcome import fenced
from airflow_recovery.attempt.run import Run
from airflow_recovery.attempt.task_instances import (
    FINISHED_STATES,
    HOW_TO_CONFIGURE_CLEARS,
    RUNNING_STATES,
    ClearRequest,
    Observation,
    TaskTry,
)
from airflow_recovery.errors import AttemptLost, ClearNotConfigured
from airflow_recovery.journal.run_state import RunState
from airflow_recovery.model.records import Claim, FenceCause, Reset
from airflow_recovery.planning.coordinators import has_started
from airflow_recovery.planning.evaluation import Evaluation
from airflow_recovery.planning.reason import Why
from airflow_recovery.streaming.channel_graph import ChannelGraph, live_attempts, other_channels
from airflow_recovery.streaming.channel_records import ChannelIdentity
from airflow_recovery.streaming.mode import ChannelRef, StreamingClaim, StreamingPlan
from airflow_recovery.streaming.reading import is_opened
from airflow_recovery.streaming.restart import (
    StreamingRestart,
    StreamingRestartMode,
    attempts_that_tell,
    has_restarted_behind,
    is_taken_along,
    new_generation,
    should_restart,
    streaming_restart,
)
from airflow_recovery.streaming.work import code_of


@dataclass(frozen=True)
class StreamingFailover:
    """What the pre-check of ``region`` does to others, and to itself, before it claims.

    ``starting_over``: who starts over, with reasons. ``resets``: what is written, the own one last. ``is_stuck``: it
    must start over, and its newest attempt bears an *altered* reset: it takes another attempt to say so.
    ``at_work``: the open attempts that their tasks must not go on with, by region. ``stale``: whose finish does not
    count any more.
    """

    region: str
    by: StreamingRestart
    starting_over: Mapping[str, str]
    resets: tuple[Reset, ...]
    is_stuck: bool
    at_work: Mapping[str, Claim]
    stale: tuple[str, ...]

    @property
    def is_needed(self) -> bool:
        """Whether others, or its own earlier attempts, are reset or cleared before the claim."""
        return bool(self.starting_over or self.resets or self.at_work or self.stale)

    @property
    def comes_first(self) -> bool:
        """Whether a region starts over: its reset is written before lost inputs are looked after."""
        return bool(self.starting_over)

    def restart(self, run: Run, observation: Observation | None) -> bool:
        """Write the resets and clear the tasks: see `restart_regions`."""
        return restart_regions(run, self, observation)


def streaming_failover(run: Run, evaluation: Evaluation, region: str) -> StreamingFailover:
    """What the evaluation asks of ``region``, a streaming region that must run and whose newest attempt is over."""
    graph, state = ChannelGraph(run.today), evaluation.state
    claims = _claims(run, graph, state, region)
    restart = _restart(run, graph, evaluation, region, claims)
    own = restart.why if restart.mode is StreamingRestartMode.START_OVER else None
    starting_over = new_generation(
        graph, state, region, own, lambda name, n: StreamingClaim.of(claims[name, n]).channels
    )
    started = [
        name for name in (*(other for other in starting_over if other != region), region) if name in starting_over
    ]
    who = run.task.airflow_run_id
    resets = [
        Reset(
            name,
            state.of(name).latest_attempt,
            who,
            f"{StreamingRestartMode.START_OVER.value}: {starting_over[name]}",
            failover=True,
        )
        for name in started
        if has_started(state.of(name))
    ]
    region_state = state.of(region)
    if restart.mode is StreamingRestartMode.ALTERED and not starting_over and has_started(region_state):
        resets = [Reset(region, region_state.latest_attempt, who, restart.why, failover=True, altered=True)]
    at_work, stale = _overtaken(graph, evaluation, region, restart, claims)
    return StreamingFailover(
        region=region,
        by=restart,
        starting_over=starting_over,
        resets=tuple(resets),
        is_stuck=region in starting_over and not has_started(region_state),
        at_work={name: claim for name, claim in at_work.items() if name not in starting_over},
        stale=tuple(name for name in stale if name not in starting_over),
    )


def _overtaken(
    graph: ChannelGraph,
    evaluation: Evaluation,
    region: str,
    restart: StreamingRestart,
    claims: Mapping[tuple[str, int], Claim],
) -> tuple[dict[str, Claim], list[str]]:
    """Of the other connected regions: the open attempts that must not go on, and whose finishes do not count."""
    state = evaluation.state
    takes_along = restart.mode in (StreamingRestartMode.BEHIND, StreamingRestartMode.ALTERED) and _takes_along(
        graph, state, region, claims
    )
    behind = graph.behind(region) if takes_along else ()
    at_work: dict[str, Claim] = {}
    stale: list[str] = []
    for name in graph.connected(region):
        opened, why = state.of(name).open_attempt, evaluation.invalid_because(name)
        claim = opened.claim if opened is not None else None
        if name == region:
            continue
        if claim is None:
            if opened is None and why is not None and why.why in (Why.RESET, Why.CHANNEL_RESTARTED):
                stale.append(name)
        elif (
            claim.attempt <= state.of(name).restarted_up_to
            or other_channels(graph.regions[name], state, StreamingClaim.of(claim).channels) is not None
            or (name in behind and not has_restarted_behind(claim, region, state.of(region).latest_attempt))
        ):
            at_work[name] = claim
    return at_work, stale


def _claims(run: Run, graph: ChannelGraph, state: RunState, region: str) -> dict[tuple[str, int], Claim]:
    """The claims that tell who began with what: two or three of each connected region, all at once."""
    wanted = [(name, n) for name in graph.connected(region) for n in attempts_that_tell(state, name)]
    opened = {(name, n): state.of(name).attempts[n].claim for name, n in wanted}
    missing = [key for key in wanted if opened[key] is None]
    claims = {(claim.region, claim.attempt): claim for claim in run.journal.read_claims(missing)}
    return claims | {key: claim for key, claim in opened.items() if claim is not None}


def _restart(
    run: Run, graph: ChannelGraph, evaluation: Evaluation, region: str, claims: Mapping[tuple[str, int], Claim]
) -> StreamingRestart:
    live = live_attempts(evaluation.state, region)
    if not live or evaluation.is_undecided(region):
        return StreamingRestart(region, StreamingRestartMode.FIRST)
    claim = claims[region, live[-1]]
    changed, is_lost = _why_changed(run, evaluation, claim), _is_lost(run, evaluation.state, claim)
    return streaming_restart(graph, evaluation.state, region, changed=changed, is_lost=is_lost)


def _why_changed(run: Run, evaluation: Evaluation, claim: Claim) -> str | None:
    """How the attempt of ``claim`` was made of something else than one of today would be.

    The newest one tells it of all: each was compared with the one before it when it was claimed.
    """
    planned = run.regions[claim.region]
    name = f"{claim.region}@{claim.attempt}"
    code = code_of(planned)
    if None not in (before := StreamingClaim.of(claim).reading, code) and before != code:
        return f"the code of {claim.region} has changed since {name}"
    if not run.today.reads(claim.region, claim.inputs):
        return f"{name} has read other inputs"
    overtaken = evaluation.why_overtaken(claim.region, claim.inputs)
    return None if overtaken is None else overtaken.text()


def _is_lost(run: Run, state: RunState, claim: Claim) -> bool:
    """The log of what it reads is not there, although it has read it: it begins behind the log's first record."""
    planned = run.regions[claim.region]
    inputs = {plan.result: plan.producer for plan in StreamingPlan.of(planned).channels_in}
    return any(
        pin.result in inputs
        and pin.generation == state.of(inputs[pin.result]).generations[-1]
        and not has_log(run, pin)
        for pin in StreamingClaim.of(claim).channels
    )


def has_log(run: Run, pin: ChannelRef) -> bool:
    """Whether the log of that generation of a channel is there: one GET, of its first slot.

    Asked where a region has read it before, and is to go on with it. Raises the store's errors: "denied" is no answer.
    """
    return run.results is None or is_opened(
        run.results, ChannelIdentity(run.journal.identity, pin.result, pin.generation)
    )


def _takes_along(graph: ChannelGraph, state: RunState, region: str, claims: Mapping[tuple[str, int], Claim]) -> bool:
    """The end of its newest attempt restarts those behind it, unless it was itself restarted behind another one."""
    region_state = state.of(region)
    newest = region_state.attempts[region_state.latest_attempt]
    if newest.outcome is None or newest.outcome.cause is not FenceCause.SUPERSEDED:
        return True
    return not is_taken_along(graph, state, claims[region, region_state.latest_attempt])


def restart_regions(run: Run, failover: StreamingFailover, observation: Observation | None) -> bool:
    """Do it, by tasks as they were observed before the state was listed. True where the journal is another one now.

    Raises `ClearNotConfigured` once where there is no way to clear others, and somebody works for nothing: the resets
    stand.
    """
    region, restart = failover.region, failover.by
    if failover.resets:
        run.task_instances.live_check()
        for reset in failover.resets:
            run.log.warning("%s@%d is reset: %s.", reset.region, reset.attempt, reset.why)
    others = [reset for reset in failover.resets if reset.region != region]
    for reset in others:
        run.journal.reset(reset)
    left = _clear(run, failover, observation)
    for reset in failover.resets:
        if reset.region == region:
            run.journal.reset(reset)
    if left and failover.resets:
        raise ClearNotConfigured(
            f"{region} {restart.mode.value}: {restart.why or 'others have'}. {', '.join(left)} must restart with it, "
            "and this deployment gives no way to clear another task. By hand: clear "
            f"{', '.join(run.task_keys[name] for name in left)}; what they make meanwhile does not count. "
            f"{HOW_TO_CONFIGURE_CLEARS}",
            code="no-way-to-clear-streams",
        )
    return bool(failover.resets)


def _clear(run: Run, failover: StreamingFailover, observation: Observation | None) -> tuple[str, ...]:
    """Clear the others' tasks. Returns those that should be, and nobody here can."""
    if observation is None:
        left = tuple({**{name: None for name in failover.starting_over if name != failover.region}, **failover.at_work})
        if left and not failover.resets:
            run.log.warning(
                "%s %s, and %s should restart: clear it by hand. %s",
                failover.region,
                failover.by.mode.value,
                ", ".join(left),
                HOW_TO_CONFIGURE_CLEARS,
            )
        return left
    tries = run.tries(observation)
    targets = {
        run.task_keys[name]: seen.ti_id
        for name, seen in tries.items()
        if name != failover.region and _is_to_be_cleared(failover, name, seen)
    }
    if targets:
        cleared = run.task_instances.clear(ClearRequest(consumers=targets, unblock=True)).cleared
        why = failover.by.why or "what they work with does not count any more"
        run.log.warning("%s: %s; cleared: %s.", failover.region, why, ", ".join(cleared) or "nobody, all have moved on")
    return ()


def _is_to_be_cleared(failover: StreamingFailover, name: str, seen: TaskTry) -> bool:
    if name in failover.starting_over:
        return seen.state in FINISHED_STATES | RUNNING_STATES
    if name in failover.at_work:
        # Where another try has taken over, it has its own pre-check before it.
        return seen.state in RUNNING_STATES and seen.ti_id == failover.at_work[name].ti_id
    return name in failover.stale and seen.state == "success"


def check_channels(run: Run, claim: Claim) -> None:
    """Was a channel of the claim started over before the claim was there? Then the attempt is fenced.

    It would wait for ever in a generation that nobody feeds. Raises `AttemptLost`, `PagesDisagree`, and the store's
    errors.
    """
    if not StreamingClaim.of(claim).channels:
        return
    planned = run.regions[claim.region]
    state = run.load({claim.region, *(plan.producer for plan in StreamingPlan.of(planned).channels_in)})
    other = other_channels(planned, state, StreamingClaim.of(claim).channels)
    if other is None and claim.attempt > state.of(claim.region).invalid_up_to:
        return
    detail = other[0] if other is not None else "it was reset"
    run.journal.fence(fenced(run, claim.region, claim.attempt, FenceCause.SUPERSEDED, detail))
    raise AttemptLost(
        f"{claim.region}@{claim.attempt}: {detail}, before it was claimed; the next try begins with the new one."
    )


def is_current_attempt(run: Run, state: RunState, claim: Claim) -> bool:
    """Would what the open attempt makes be used? Not in another generation, nor where it should have restarted."""
    other = other_channels(run.regions[claim.region], state, StreamingClaim.of(claim).channels)
    return other is None and not should_restart(ChannelGraph(run.today), state, claim)
