"""The oracle of the topology and restart tests: every subtask and every link an object, and fixed points over sets.

It shares no code with the product beyond the declarations, the result types' answers, and no idea either: a region is
defined here as the subtasks that lead to each other, where what is glued leads both ways.
"""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import strategies as st

from airflow_recovery.model.result_type import RESULT_TYPES, ResultType
from reference.execution_topology import ExecutionTopology
from reference.logical import (
    RE_CONSUMABLE,
    DistributionPattern,
    LogicalEdge,
    LogicalResult,
    LogicalTopology,
    LogicalVertex,
)

Subtask = tuple[str, int]
Partition = tuple[str, int]


def naive_links(pattern: DistributionPattern, producers: int, consumers: int) -> list[tuple[int, int]]:
    """Every (producer, consumer)."""
    if pattern is DistributionPattern.ALL_TO_ALL:
        return [(p, c) for p in range(producers) for c in range(consumers)]
    found = []
    if producers >= consumers:
        for c in range(consumers):
            found += [(p, c) for p in range(c * producers // consumers, (c + 1) * producers // consumers)]
    else:
        for p in range(producers):
            first = (p * consumers + producers - 1) // producers
            last = ((p + 1) * consumers + producers - 1) // producers
            found += [(p, c) for c in range(first, last)]
    return found


class NaiveTopology:
    def __init__(self, logical: LogicalTopology) -> None:
        parallelism = {vertex.name: vertex.parallelism or 0 for vertex in logical.vertices}
        results = {result.name: result for result in logical.results}
        self.subtasks: list[Subtask] = [(name, i) for name, count in parallelism.items() for i in range(count)]
        self.type_of = {name: each.type for name, each in results.items()}
        self.producer: dict[Partition, Subtask] = {
            (name, i): (each.producer, i) for name, each in results.items() for i in range(parallelism[each.producer])
        }
        self.reads: dict[Subtask, set[Partition]] = {subtask: set() for subtask in self.subtasks}
        for edge in logical.edges:
            counts = parallelism[results[edge.result].producer], parallelism[edge.consumer]
            for p, c in naive_links(edge.pattern, *counts):
                self.reads[edge.consumer, c].add((edge.result, p))
        leads_to: dict[Subtask, set[Subtask]] = {subtask: {subtask} for subtask in self.subtasks}
        for consumer, partitions in self.reads.items():
            for partition in partitions:
                leads_to[self.producer[partition]].add(consumer)
                if self.type_of[partition[0]].must_run_together:
                    leads_to[consumer].add(self.producer[partition])
        for left in logical.vertices:
            for right in logical.vertices:
                if left.co_location is not None and left.co_location == right.co_location:
                    for i in range(parallelism[left.name]):
                        leads_to[left.name, i].add((right.name, i))
        changed = True
        while changed:
            changed = False
            for reached in leads_to.values():
                more = set().union(*(leads_to[each] for each in reached))
                changed |= not more <= reached
                reached |= more
        self.region: dict[Subtask, frozenset[Subtask]] = {
            a: frozenset(b for b in leads_to[a] if a in leads_to[b]) for a in self.subtasks
        }

    def regions(self) -> set[frozenset[Subtask]]:
        return set(self.region.values())

    def restart(
        self, failed: Subtask, available: Callable[[Partition], bool], *, with_consumers: bool = True
    ) -> set[Subtask]:
        subtasks: set[Subtask] = set()
        more: set[Subtask] = {failed}
        while not more <= subtasks:
            subtasks |= more
            more = set()
            for subtask in subtasks:
                more |= self.region[subtask]
                for partition in self.reads[subtask]:
                    type_ = self.type_of[partition[0]]
                    readable = type_ in RE_CONSUMABLE or type_ is ResultType.PIPELINED_APPROXIMATE
                    if not (readable and available(partition)):
                        more.add(self.producer[partition])
            if with_consumers:
                more |= {
                    subtask
                    for subtask in self.subtasks
                    if any(self.producer[partition] in subtasks for partition in self.reads[subtask])
                }
        return subtasks


def named(topology: ExecutionTopology, vertices: list[int] | range) -> set[Subtask]:
    """Numbers as names."""
    found = [topology.graph.vertex_name(vertex) for vertex in vertices]
    return {(each.vertex, each.subtask) for each in found}


@st.composite
def logical_topologies(draw: st.DrawFn) -> LogicalTopology:
    """Random DAGs: several results a vertex, all types, both patterns, different parallelism, co-location."""
    count = draw(st.integers(1, 6))
    parallelism = draw(st.lists(st.integers(1, 4), min_size=count, max_size=count))
    # A group needs one parallelism, so its name says which.
    grouped = draw(st.lists(st.sampled_from([False, False, True]), min_size=count, max_size=count))
    vertices = [
        LogicalVertex(f"v{i}", p, co_location=f"by {p}" if inside else None)
        for i, (p, inside) in enumerate(zip(parallelism, grouped, strict=True))
    ]
    results, edges = [], []
    for i in range(count):
        for k in range(draw(st.integers(0, 2))):
            results.append(LogicalResult(f"r{i}.{k}", f"v{i}", draw(st.sampled_from(list(RESULT_TYPES.values())))))
            readers = draw(st.sets(st.integers(i + 1, count - 1))) if i + 1 < count else set()
            edges += [
                LogicalEdge(f"r{i}.{k}", f"v{reader}", draw(st.sampled_from(DistributionPattern))) for reader in readers
            ]
    return LogicalTopology(vertices, results, edges)
