"""Flink's restart set over results: every region that will have run when all is done.

`Evaluation` says what must run *now*, who wants which result, and who follows. What runs now is made again. That may be
an input of others, which then must run as well, and may want results that are gone:

    a region runs       it must run now, or follows one that runs
    all its results     are made again, so that whoever has read one of them may follow
    all that it reads   has to be there: each single result is asked for, and its producer runs where it is gone
    its siblings        run too, where they have started and the coordinator of their vertex is volatile

A decision is looked at once: what it changes goes on a list, and nothing else is evaluated again. So the cost is that
of the regions that run and of the edges around them. Why a region runs is found out when it is asked for.
"""

from __future__ import annotations

from collections.abc import Iterator

from airflow_recovery.planning.coordinators import VertexRestarts, has_started, restarted_with
from airflow_recovery.planning.evaluation import Evaluation
from airflow_recovery.planning.reason import Evidence, Reason, Why
from airflow_recovery.planning.scenario import SUPPOSED


class RestartSet:
    """The regions that will have run when all is done; iterated in topological order.

    With ``same_rows`` whatever is made again has the rows that its readers had read, so that a ``verify`` edge holds;
    else it has other ones. Asks for the results that are wanted, each once, through ``evaluation``.
    """

    def __init__(self, evaluation: Evaluation, *, same_rows: bool) -> None:
        self._evaluation = evaluation
        self._topology = evaluation.topology
        self._edges = evaluation.edges
        self._same_rows = same_rows
        self._runs: set[str] = set()
        self._lost: dict[str, Reason] = {}
        """Why a region runs that is kept as of now: its data is gone, or its siblings take it along."""
        self._vertices = VertexRestarts(evaluation.topology, evaluation.state)
        self._restarted_vertices: set[str] = set()
        self._to_follow: list[str] = []
        """Regions that run, whose consumers are still to be looked at."""
        self._to_ask: list[str] = []
        """Regions that run, whose inputs are still to be asked for."""
        self._followed: set[tuple[str, str]] = set()
        self._asked: set[tuple[str, str]] = set()
        self._first: dict[str, str | None] = {}
        """The first region of a node that runs; asked for when all is closed."""
        self._close()

    def __contains__(self, region: object) -> bool:
        return region in self._runs

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._runs, key=self._topology.position.__getitem__))

    def __len__(self) -> int:
        return len(self._runs)

    def why(self, region: str) -> Reason:
        """Why ``region``, one of the set, runs: its own cause, else the first of its inputs that it follows."""
        evaluation = self._evaluation
        own = evaluation.why_invalid_by_itself(region)
        if own is not None:
            return own
        for node in self._edges.inputs(region):
            followed = self._why_followed(region, node)
            superseded = evaluation.why_node_superseded(region, node, self._runs.__contains__)
            reasons = [reason for reason in (followed, superseded) if reason is not None]
            if reasons:
                return min(reasons, key=lambda reason: self._topology.position[reason.source or ""])
        last = evaluation.why_disconnected_now(region) or self._lost.get(region) or evaluation.why_must_run(region)
        if last is None:
            raise AssertionError(f"{region} runs without a reason")
        return last

    def _why_followed(self, region: str, node: str) -> Reason | None:
        if node not in self._first:
            members = self._edges.members(node) or (node,)
            self._first[node] = next((name for name in members if name in self._runs), None)
        producer = self._first[node]
        if producer is None or not self._evaluation.follows(region, producer, same_rows=self._same_rows):
            return None
        read = self._evaluation.attempt_read(region, producer)
        return Reason(region, Why.INPUT_REMADE, f"read {producer}@{read}", source=producer)

    def _close(self) -> None:
        """Apply the rule until nothing is added."""
        undecided = []
        for name in self._evaluation.must_run():
            if self._evaluation.is_undecided(name):
                undecided.append(name)
            else:
                self._add(name)
        self._drain()
        # Who read something else than what counts as it is, once all that is made again has been made.
        for name in undecided:
            if name not in self._runs and self._is_superseded(name):
                self._add(name)
                self._drain()

    def _is_superseded(self, name: str) -> bool:
        superseded = self._evaluation.why_node_superseded
        return any(superseded(name, node, self._runs.__contains__) is not None for node in self._edges.inputs(name))

    def _drain(self) -> None:
        self._follow()
        while self._to_ask:
            name = self._to_ask.pop()
            for node in self._edges.inputs(name):
                if node in self._runs:
                    continue
                results = self._evaluation.results_read(name, node)
                for producer in self._left(name, node, self._asked):
                    reason = self._evaluation.why_not_available(producer, results)
                    if reason is not None:
                        self._lost[producer] = reason
                        self._add(producer)
            self._follow()

    def _add(self, name: str) -> None:
        self._runs.add(name)
        self._to_follow.append(name)
        self._to_ask.append(name)

    def _left(self, name: str, node: str, done: set[tuple[str, str]], *, is_alike: bool = True) -> Iterator[str]:
        """The regions of ``node`` that do not run yet.

        None where its edge to the group of ``name`` is ``done``, which it is from now on where it ``is_alike`` for all.
        """
        members = self._edges.members(node)
        if members:
            edge = self._edges.group(name).name, node
            if edge in done:
                return
            if is_alike:
                done.add(edge)
        for other in members or (node,):
            if other not in self._runs:
                yield other

    def _follow(self) -> None:
        while self._to_follow:
            name = self._to_follow.pop()
            for node in self._edges.readers(name):
                if node in self._runs:
                    continue
                told = self._evaluation.edge_follows(node, name, same_rows=self._same_rows)
                is_alike = told is not None or self._edges.group(name).is_wide
                for consumer in self._left(name, node, self._followed, is_alike=is_alike):
                    if told or (told is None and self._evaluation.follows(consumer, name)):
                        self._add(consumer)
            self._take_siblings_along(name)

    def _take_siblings_along(self, name: str) -> None:
        group, state = self._edges.group(name), self._evaluation.state
        if not group.template.is_volatile:
            return
        region = self._topology.by_name[name]
        if region.subtask is None or region.subtask.of in self._restarted_vertices:
            return
        reason = self._evaluation.why_must_run(name) or self._lost.get(name) or Reason(name, Why.INPUT_REMADE)
        cause = self._vertices.why(region, reason)
        if cause is None:
            return
        self._restarted_vertices.add(region.subtask.of)
        for sibling in restarted_with(self._topology, region):
            if sibling not in self._runs and has_started(state.of(sibling)):
                evidence = Evidence(f"reset of {sibling}@{state.of(sibling).latest_attempt}", f"{SUPPOSED}: {cause}")
                self._lost[sibling] = Reason(sibling, Why.RESET, evidence.said, evidence=(evidence,))
                self._add(sibling)
