"""Flink's restart rule over results: every region that will have run when all is done.

`Evaluation` says what must run *now*. What that makes again may be an input of others, which then must run as well, and
may want results that are gone:

    a region runs       its own trace is not valid, or a result of it is gone that somebody wants who runs
    all its results     are made again, so that whoever has read one of them runs too, unless determinism says keep
    all that it reads   has to be there: each single result is asked for, and its producer runs where it is gone
    its siblings        run too, where they have started and the coordinator of their vertex is volatile

A decision is looked at once: what it changes goes on a list, and nothing else is judged again. So the cost is that of
the regions that run and of the edges around them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from airflow_recovery.model.determinism import Determinism
from airflow_recovery.model.inputs import InputRef
from airflow_recovery.planning.coordinators import VertexRestarts, has_started, restarted_with
from airflow_recovery.planning.evaluation import Evaluation
from airflow_recovery.planning.reason import Evidence, Reason, Why
from airflow_recovery.planning.scenario import SUPPOSED


def restart_set(evaluation: Evaluation, *, same_rows: bool, ask: bool = True) -> dict[str, Reason]:
    """Every region that will have run when all is done, in topological order, each with its reason.

    With ``same_rows`` whatever is made again has the rows that its readers had read, so that a ``verify`` edge holds;
    else it has other ones. Asks for the results that are wanted, each once, through ``evaluation``; without ``ask``
    nobody is asked, and what ``evaluation`` was not told of is taken to be there.
    """
    return _RestartSet(evaluation, same_rows=same_rows, ask=ask).close()


class _RestartSet:
    def __init__(self, evaluation: Evaluation, *, same_rows: bool, ask: bool) -> None:
        self._evaluation = evaluation
        self._topology = evaluation.topology
        self._same_rows = same_rows
        self._ask = ask
        self._runs: set[str] = set()
        self._lost: dict[str, Reason] = {}
        """Why a region runs whose trace is valid: its data is gone, or its siblings take it along."""
        self._vertices = VertexRestarts(evaluation.topology, evaluation.state)
        self._restarted_vertices: set[str] = set()
        self._to_follow: list[str] = []
        """Regions that run, whose consumers are still to be looked at."""
        self._to_ask: list[str] = []
        """Regions that run, whose inputs are still to be asked for."""

    def close(self) -> dict[str, Reason]:
        """Apply the rule until nothing is added."""
        for region in self._topology.regions:
            if self._evaluation.why_not_kept(region.name) is not None:
                self._add(region.name)
        # First all that is sure to run: its own data is not asked for.
        self._follow()
        for region in reversed(self._topology.regions):
            if region.name not in self._runs:
                self._look(region.name, self._evaluation.wanted_in_any_case(region.name))
        while self._to_ask:
            self._follow()
            name = self._to_ask.pop()
            for producer in self._topology.by_name[name].inputs:
                if producer not in self._runs:
                    self._look(producer, self._evaluation.results_read(name, producer))
        return self._reasons()

    def _add(self, name: str) -> None:
        self._runs.add(name)
        self._to_follow.append(name)
        self._to_ask.append(name)

    def _follow(self) -> None:
        while self._to_follow:
            name = self._to_follow.pop()
            for consumer in self._topology.readers[name]:
                if consumer not in self._runs and self._follows(consumer, name):
                    self._add(consumer)
            self._take_siblings_along(name)

    def _follows(self, consumer: str, producer: str) -> bool:
        """Must ``consumer``, which has finished, run again after ``producer``?"""
        edge = self._evaluation.edge(consumer, producer)
        verified = [result for result, mode in edge if mode is Determinism.VERIFY]
        if any(mode is Determinism.ALWAYS for _, mode in edge):
            return True
        if not self._same_rows or not verified:
            return bool(verified)
        digested = dict(self._evaluation.pins(consumer)[producer].digests)
        return any(result not in digested for result in verified)

    def _look(self, name: str, results: Iterable[str]) -> None:
        evaluation = self._evaluation
        current = evaluation.state.of(name).current
        if not self._ask and not (current is not None and current.is_released):
            results = [result for result in results if evaluation.was_asked(name, result)]
        reason = evaluation.why_not_available(name, results)
        if reason is not None:
            self._lost[name] = reason
            self._add(name)

    def _take_siblings_along(self, name: str) -> None:
        region, state = self._topology.by_name[name], self._evaluation.state
        if region.subtask is None or not region.is_volatile or region.subtask.of in self._restarted_vertices:
            return
        reason = self._evaluation.invalid_because(name) or self._lost.get(name) or Reason(name, Why.INPUT_REMADE)
        cause = self._vertices.why(region, reason)
        if cause is None:
            return
        self._restarted_vertices.add(region.subtask.of)
        for sibling in restarted_with(self._topology, region):
            if sibling not in self._runs and has_started(state.of(sibling)):
                evidence = Evidence(f"reset of {sibling}@{state.of(sibling).latest_attempt}", f"{SUPPOSED}: {cause}")
                self._lost[sibling] = Reason(sibling, Why.RESET, evidence.said, evidence=(evidence,))
                self._add(sibling)

    def _reasons(self) -> dict[str, Reason]:
        reasons: dict[str, Reason] = {}
        for region in self._topology.regions:
            if region.name in self._runs:
                reason = self._reason(region.name, reasons)
                if reason is not None:
                    reasons[region.name] = reason
        return reasons

    def _reason(self, name: str, before: Mapping[str, Reason]) -> Reason | None:
        """Why ``name`` runs, where ``before`` are the regions before it that do. `None`: it does not after all.

        What it has read was superseded, and that is made again, perhaps as it was read.
        """
        evaluation = self._evaluation
        own = evaluation.why_invalid_by_itself(name)
        if own is not None:
            return own
        for producer, pin in evaluation.pins(name).items():
            reason = self._why_made_again(name, pin) if producer in before else evaluation.why_superseded(name, pin)
            if reason is not None:
                return reason
        return evaluation.why_disconnected_now(name) or self._lost.get(name)

    def _why_made_again(self, name: str, pin: InputRef) -> Reason | None:
        if not self._follows(name, pin.region):
            return None
        return Reason(name, Why.INPUT_REMADE, f"read {pin.region}@{pin.attempt}", source=pin.region)
