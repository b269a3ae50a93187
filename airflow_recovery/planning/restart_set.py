"""Flink's restart set over results: every region that will have run when all is done.

`Evaluation` says what is valid and there, who wants which result, and who follows. What runs is made again. That may be
an input of others, which then must run as well, and may want results that are gone:

    a region runs       it has failed (asked of the whole run: it must run now), or follows one that runs
    all its results     are made again, so that whoever has read one of them may follow
    all that it reads   has to be valid, and there: each single result is asked for, and its producer runs where not
    its siblings        run too, where they have started and the coordinator of their vertex is volatile

A decision is looked at once: what it changes goes on a list, and nothing else is evaluated. So the cost is that of the
regions that run, of the edges around them, and of what decides whether their inputs are valid. All regions of a group
that follow together are one step. Why a region runs is found out when it is asked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from airflow_recovery.planning.coordinators import VertexRestarts, restarted_with
from airflow_recovery.planning.evaluation import Evaluation
from airflow_recovery.planning.reason import Evidence, Reason, Why
from airflow_recovery.planning.scenario import SUPPOSED


class RestartSet:
    """The regions that will have run when all is done; iterated in topological order.

    ``failed``: those that run because these regions do, as after a failure in Flink; `None`: all of the run. With
    ``same_rows`` whatever is made again has the rows that its readers had read, so that a ``verify`` edge holds;
    else it has other ones. Asks for the results that are wanted, each once, through ``evaluation``.
    """

    def __init__(self, evaluation: Evaluation, *, same_rows: bool, failed: Iterable[str] | None = None) -> None:
        self._evaluation = evaluation
        self._topology = evaluation.topology
        self._edges = evaluation.edges
        self._same_rows = same_rows
        self._runs: set[str] = set()
        self._lost: dict[str, Reason] = {}
        """Why a region runs that others read: what they read of it is not valid, or gone."""
        self._vertices = VertexRestarts(evaluation.topology, evaluation.state)
        self._restarted_vertices: dict[str, str] = {}
        """Why the subtasks of a vertex restart together."""
        self._to_follow: list[str] = []
        """Nodes that run, whose consumers are still to be looked at."""
        self._to_ask: list[str] = []
        """Nodes that run, whose inputs are still to be looked at."""
        self._undecided: set[str] = set()
        """Regions that those wait for which run, and of which only others' runs will tell whether they run."""
        self._followed: set[tuple[str, str]] = set()
        self._asked: set[tuple[str, str]] = set()
        self._running: dict[str, list[str]] = {}
        """The regions of a node that run; asked for when all is closed."""
        self._failed = frozenset(failed or ())
        for name in evaluation.must_run() if failed is None else failed:
            if failed is None and evaluation.is_undecided(name):
                self._undecided.add(name)
            else:
                self._add(name)
        self._close()

    def __contains__(self, region: object) -> bool:
        return region in self._runs

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._runs, key=self._edges.position))

    def __len__(self) -> int:
        return len(self._runs)

    def why(self, region: str) -> Reason:
        """Why ``region``, one of the set, runs: its own cause, else the first of its inputs that it follows."""
        evaluation = self._evaluation
        own = None
        if evaluation.invalid_because(region) is not None:
            own = evaluation.why_invalid_by_itself(region)
        if own is not None:
            return own
        for node in self._evaluation.inputs_of(region):
            followed = self._why_followed(region, node)
            superseded = evaluation.why_node_superseded(region, node, self._runs.__contains__)
            reasons = [reason for reason in (followed, superseded) if reason is not None]
            if reasons:
                return min(reasons, key=lambda reason: self._edges.position(reason.source or ""))
        last = (
            evaluation.why_disconnected_now(region)
            or self._lost.get(region)
            or evaluation.why_must_run(region)
            or self._why_taken_along(region)
        )
        if last is None and region in self._failed:
            last = Reason(region, Why.FAILED)
        if last is None:
            raise AssertionError(f"{region} runs without a reason")
        return last

    def _why_taken_along(self, region: str) -> Reason | None:
        group, index = self._edges.place(region)
        subtask = group.subtask(index)
        cause = None if subtask is None else self._restarted_vertices.get(subtask[0])
        if cause is None:
            return None
        newest = f"{region}@{self._evaluation.state.of(region).latest_attempt}"
        detail = f"{SUPPOSED}: {cause}"
        return Reason(region, Why.RESET, detail, evidence=(Evidence(f"reset of {newest}", detail),))

    def _why_followed(self, region: str, node: str) -> Reason | None:
        if node not in self._running:
            self._running[node] = [name for name in self._edges.members(node) or (node,) if name in self._runs]
        running = self._running[node]
        if self._edges.group(node).is_wide and self._edges.members(self._edges.group(region).name):
            running = running[:1]  # as in `_follow_by_digests`
        follows, same_rows = self._evaluation.follows, self._same_rows
        producer = next((name for name in running if follows(region, name, same_rows=same_rows)), None)
        if producer is None:
            return None
        read = self._evaluation.attempt_read(region, producer)
        return Reason(region, Why.INPUT_REMADE, f"read {producer}@{read}", source=producer)

    def _close(self) -> None:
        """Apply the rule until nothing is added."""
        self._drain()
        looked_at: set[str] = set()
        # Who read something else than what counts as it is, once all that is made again has been made.
        while left := self._undecided - looked_at:
            for name in sorted(left, key=self._edges.position):
                if name not in self._runs and self._is_superseded(name):
                    self._add(name)
                    self._drain()
            looked_at |= left

    def _is_superseded(self, name: str) -> bool:
        superseded = self._evaluation.why_node_superseded
        return any(
            superseded(name, node, self._runs.__contains__) is not None for node in self._evaluation.inputs_of(name)
        )

    def _drain(self) -> None:
        self._follow()
        while self._to_ask:
            name = self._to_ask.pop()
            for node in self._evaluation.inputs_of(name):
                if node not in self._runs and self._is_new_edge(name, node, self._asked):
                    self._ask(name, node)
            self._follow()

    def _ask(self, name: str, node: str) -> None:
        """What ``name``, which runs, reads of ``node`` has to be valid, and there."""
        evaluation = self._evaluation
        for producer, reason in evaluation.unreadable(name, node, but=self._runs):
            lost: Reason | None = reason
            if evaluation.may_come_right(producer):  # its data is wanted all the same
                lost = evaluation.why_not_available(producer, evaluation.results_read(name, node))
            if lost is None:
                self._await(producer)
                continue
            self._lost[producer] = lost
            self._add(producer)

    def _await(self, region: str) -> None:
        """Until it is known what becomes of ``region``, which comes right or not with what it has read."""
        waiting = [region]
        while waiting:
            name = waiting.pop()
            if name in self._undecided:
                continue
            self._undecided.add(name)
            for node in self._evaluation.inputs_of(name):
                for producer, _ in self._evaluation.unreadable(name, node, wants_data=False, but=self._runs):
                    if self._evaluation.may_come_right(producer):
                        waiting.append(producer)
                    else:
                        self._add(producer)

    def _add(self, node: str) -> None:
        """It runs: a region, or what is left of a group."""
        members = self._edges.members(node) or (node,)
        if self._runs.issuperset(members):
            return
        self._runs.update(members)
        self._to_follow.append(node)
        self._to_ask.append(node)

    def _is_new_edge(self, name: str, node: str, known: set[tuple[str, str]]) -> bool:
        """False where ``node``, a group, was met from the group of ``name``: what is true of one is of all of them."""
        if not self._edges.members(node):
            return True
        edge = self._edges.group(name).name, node
        is_new = edge not in known
        known.add(edge)
        return is_new

    def _follow(self) -> None:
        while self._to_follow:
            node = self._to_follow.pop()
            members = self._edges.members(node)
            for reader in self._edges.readers(node):
                if node in self._evaluation.absent(reader):
                    continue  # its finish was made without it: whether it is absent again its own task asks
                follows = self._evaluation.edge_follows(reader, node, same_rows=self._same_rows)
                if follows and self._is_new_edge(node, reader, self._followed):
                    self._add(reader)
                elif follows is None and not members:
                    self._follow_by_digests(node, reader)
                elif follows is None:
                    # What each of them was read at decides.
                    self._to_follow += members
                    break
            if not members:
                self._take_siblings_along(node)

    def _follow_by_digests(self, name: str, reader: str) -> None:
        # The record of a group that is named once has the digests of all its regions, or none.
        if self._edges.group(name).is_wide and not self._is_new_edge(name, reader, self._followed):
            return
        for consumer in self._edges.members(reader) or (reader,):
            if consumer not in self._runs and self._evaluation.follows(consumer, name):
                self._add(consumer)

    def _take_siblings_along(self, name: str) -> None:
        group = self._edges.group(name)
        if not group.template.is_volatile:
            return
        region = self._topology.by_name[name]
        if region.subtask is None or region.subtask.of in self._restarted_vertices:
            return
        reason = self._evaluation.why_must_run(name) or self._lost.get(name) or Reason(name, Why.INPUT_REMADE)
        cause = self._vertices.why(region, reason)
        if cause is None:
            return
        self._restarted_vertices[region.subtask.of] = cause
        siblings = [sibling for sibling in restarted_with(self._topology, region) if sibling not in self._runs]
        has_started = self._vertices.started(region.subtask.of)
        started = [sibling for sibling in siblings if sibling in has_started]
        if self._edges.members(group.name) and len(started) == len(siblings):
            self._add(group.name)
        else:
            for sibling in started:
                self._add(sibling)
