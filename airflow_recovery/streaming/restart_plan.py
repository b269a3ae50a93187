"""The streaming regions of a plan: which restart, how, and what becomes of the channels between them."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from dataclasses import replace

from airflow_recovery.journal.run_state import Attempt, RunState
from airflow_recovery.model.records import PlanRecord
from airflow_recovery.planning.coordinators import has_started
from airflow_recovery.planning.evaluation import Available, Evaluation
from airflow_recovery.planning.reason import Reason, Why
from airflow_recovery.planning.restart_mode import PlannedRestarts, RestartMode
from airflow_recovery.planning.restart_set import RestartSet
from airflow_recovery.planning.scenario import Scenario, restart_together
from airflow_recovery.streaming.channel_graph import ChannelGraph, live_attempts
from airflow_recovery.streaming.mode import ChannelRef, StreamingClaim, StreamingOutcome, StreamingPlan
from airflow_recovery.streaming.planning import PlannedChannel, PlannedChannels
from airflow_recovery.streaming.preview import ChannelPreview, LossPreview, RepeatPreview, preview, taken_along
from airflow_recovery.streaming.restart import StreamingRestart, StreamingRestartMode, new_generation, streaming_restart


class StreamingRestarts(RestartMode):
    """What a plan says of the restarts of streaming regions, before they happen. Writes nothing."""

    def plan(
        self, run: Scenario, seen: RunState, today: PlanRecord, evaluate: Callable[[Scenario], Evaluation]
    ) -> PlannedRestarts:
        """What happens to the streaming regions of the run that is supposed.

        Each that must run, and is not at work, restarts as `streaming_restart` says. The request's own resets, and
        those of the journal, drag in what they make incoherent. Repeated until nothing is added, since what starts over
        makes its blocking result again, which others read.
        """
        run = replace(run, available=_asked_once(run.available))  # evaluated again and again
        planning = _Planning(ChannelGraph(run.topology), run, seen, today, evaluate)
        planning.close()
        return planning.planned()


def _asked_once(available: Available) -> Available:
    """``available``, which asks for each result of an attempt once."""
    answers: dict[tuple[str, int, str], Reason | None] = {}

    def ask(region: str, attempt: Attempt, result: str) -> Reason | None:
        key = region, attempt.number, result
        if key not in answers:
            answers[key] = available(region, attempt, result)
        return answers[key]

    return ask


class _Planning:
    def __init__(
        self,
        graph: ChannelGraph,
        run: Scenario,
        seen: RunState,
        today: PlanRecord,
        evaluate: Callable[[Scenario], Evaluation],
    ) -> None:
        self._graph = graph
        self._run = run
        self._seen = seen
        self._code = {region.name: region.fingerprint for region in today.regions}
        self._evaluate = evaluate
        self._must: Container[str] = ()
        self._restarts: dict[str, StreamingRestart] = {}
        self._reasons: dict[str, Reason] = {}
        for name in graph.regions:
            if live_attempts(seen, name) and not live_attempts(run.state, name):
                self._restarts[name] = StreamingRestart(name, StreamingRestartMode.START_OVER, f"{name} was reset")

    def close(self) -> None:
        """Apply the rules again and again, until no region is added to those that start over."""
        while True:
            evaluation = self._evaluate(self._run)
            self._must = RestartSet(evaluation, same_rows=True)
            new: dict[str, Reason] = {}
            for name in self._graph.regions:
                own = self._own(evaluation, name)
                for region, why in new_generation(self._graph, self._run.state, name, own, self._pins).items():
                    if has_started(self._run.state.of(region)):
                        cause = self._cause(name, own)
                        new.setdefault(
                            region,
                            Reason(region, Why.CHANNEL_RESTARTED, why, source=cause if cause != region else None),
                        )
            if not new:
                return
            self._reasons |= new
            for name, reason in new.items():
                self._run = restart_together(
                    self._run, [name], f"{StreamingRestartMode.START_OVER.value}: {reason.detail}"
                )

    def planned(self) -> PlannedRestarts:
        """The simulated run, how each region comes to run, the reasons, and the channels. Call `close` first."""
        along = {
            name
            for restart in self._restarts.values()
            if restart.mode in (StreamingRestartMode.BEHIND, StreamingRestartMode.ALTERED)
            for name in taken_along(self._graph, restart.region, restart.mode).regions
        }
        how = {name: self._mode(name, along).value for name in self._graph.regions if name in self._must}
        return PlannedRestarts(self._run, how, self._reasons, PlannedChannels(self._channels()))

    def _cause(self, name: str, own: str | None) -> str | None:
        """Who takes others along: the region itself, else one that was reset."""
        if own is not None:
            return name
        return next((text for text in self._graph.connected(name) if text in self._restarts), None)

    def _own(self, evaluation: Evaluation, name: str) -> str | None:
        """Why a region starts over, if it does so by itself. Notes how it restarts."""
        state = self._run.state
        live = live_attempts(state, name)
        if name not in self._must or not live:
            return None
        changed, is_lost = self._why_changed(evaluation, name, live[-1]), self._is_lost(name)
        if state.of(name).open_attempt is not None and changed is None and not is_lost:
            return None
        restart = streaming_restart(self._graph, state, name, changed=changed, is_lost=is_lost)
        self._restarts[name] = restart
        return restart.why if restart.mode is StreamingRestartMode.START_OVER else None

    def _why_changed(self, evaluation: Evaluation, name: str, newest: int) -> str | None:
        """As far as outcomes and open claims tell; the region's own pre-check reads every claim."""
        planned, attempt = self._graph.regions[name], self._run.state.of(name).attempts[newest]
        had_finished = self._seen.of(name).current
        if had_finished is not None and self._run.state.of(name).current is None:
            return f"{name}@{had_finished.number} had read its channels to their ends"
        before = attempt.outcome.fingerprint if attempt.outcome is not None else self._code.get(name)
        if before is not None and before != planned.fingerprint:
            return f"the code of {name} has changed since {name}@{newest}"
        remade = [
            producer
            for producer in planned.inputs
            if producer in self._must and evaluation.always_follows(name, producer)
        ]
        if remade:
            return f"{name}@{newest} has read {remade[0]}, which is to be made again"
        inputs = attempt.claim.inputs if attempt.claim is not None else ()
        overtaken = evaluation.why_overtaken(name, inputs)
        return None if overtaken is None else overtaken.text()

    def _is_lost(self, name: str) -> bool:
        return any(
            plan.result in self._run.lost_results for plan in StreamingPlan.of(self._graph.regions[name]).channels_in
        )

    def _pins(self, name: str, n: int) -> tuple[ChannelRef, ...]:
        """What an attempt was claimed with. Where it isn't read: those of the run as it is, if the attempt counts."""
        before = self._seen.of(name)
        attempt = before.attempts.get(n)
        if attempt is not None and attempt.claim is not None:
            return StreamingClaim.of(attempt.claim).channels
        if attempt is not None and attempt.outcome is not None and StreamingOutcome.of(attempt.outcome).channels:
            return StreamingOutcome.of(attempt.outcome).channels
        if n <= before.restarted_up_to:
            return ()
        planned = self._graph.regions[name]
        return tuple(
            ChannelRef(plan.result, self._seen.of(plan.producer).generations[-1])
            for plan in (*StreamingPlan.of(planned).channels_in, *StreamingPlan.of(planned).channels_out)
        )

    def _mode(self, name: str, along: Iterable[str]) -> StreamingRestartMode:
        region_state = self._run.state.of(name)
        if not live_attempts(self._run.state, name):
            return (
                StreamingRestartMode.START_OVER
                if region_state.restarted_up_to > region_state.closed_at
                else StreamingRestartMode.FIRST
            )
        if name in self._restarts:
            return self._restarts[name].mode
        return StreamingRestartMode.TAKEN_ALONG if name in along else StreamingRestartMode.GOES_ON

    def _channels(self) -> tuple[PlannedChannel, ...]:
        worst: dict[str, ChannelPreview] = {}
        for restart in self._restarts.values():
            for channel in preview(self._graph, restart.region, restart.mode):
                known = worst.get(channel.result, channel)
                worst[channel.result] = ChannelPreview(
                    channel.result,
                    max(known.loss, channel.loss, key=list(LossPreview).index),
                    max(known.repeat, channel.repeat, key=list(RepeatPreview).index),
                )
        return tuple(self._channel(preview) for preview in worst.values())

    def _channel(self, channel: ChannelPreview) -> PlannedChannel:
        producer = next(
            name
            for name, planned in self._graph.regions.items()
            if channel.result in [output.result for output in StreamingPlan.of(planned).channels_out]
        )
        before, after = self._seen.of(producer).generations[-1], self._run.state.of(producer)
        generation = after.generations[-1]
        restart = self._restarts.get(producer)
        if restart is not None and restart.mode is StreamingRestartMode.ALTERED and generation == before:
            generation = after.latest_attempt + 1
        return PlannedChannel(generation, generation != before, channel)


MODE = StreamingRestarts()
