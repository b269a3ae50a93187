"""Pipelined regions of any graph of hashable nodes: job vertices today, subtasks as well (FLIP-1, FLINK-17330).

1. Producer and consumer of a result that must run together are in one region (union-find, in topological order).
2. Regions that would wait for each other through other results are merged: none of them could ever be started.
3. Regions come out in topological order, and so do the nodes inside each.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import TypeVar

from airflow_recovery.errors import JobDefinitionError
from airflow_recovery.topology.ordering import strongly_connected_components, topological_order

Node = TypeVar("Node", bound=Hashable)


def pipelined_regions(
    nodes_in_topological_order: Iterable[Node], inputs: Callable[[Node], Iterable[tuple[Node, bool]]]
) -> tuple[tuple[Node, ...], ...]:
    """Return the regions as tuples of nodes.

    ``inputs(node)`` gives ``(producer, must run together)`` for everything that the node reads. Raises
    `JobDefinitionError` where a producer does not come before its consumer.
    """
    nodes: list[Node] = []
    raw_region: dict[Node, list[Node]] = {}
    loose_inputs: list[tuple[Node, Node]] = []
    for node in nodes_in_topological_order:
        if node in raw_region:
            raise JobDefinitionError(f"expected every node once, found {node!r} twice: remove one")
        nodes.append(node)
        raw_region[node] = [node]
        for producer, must_run_together in inputs(node):
            if producer not in raw_region or producer == node:
                raise JobDefinitionError(
                    f"expected producers before consumers, found {node!r} before its input {producer!r}: "
                    "hand the nodes in in topological order, without cycles"
                )
            if must_run_together:
                _merge(raw_region, raw_region[node], raw_region[producer])
            else:
                loose_inputs.append((producer, node))
    return _without_cycles(nodes, raw_region, loose_inputs)


def _merge(region_of: dict[Node, list[Node]], left: list[Node], right: list[Node]) -> None:
    # The smaller into the larger: a node moves at most log2(n) times.
    if left is right:
        return
    smaller, larger = sorted((left, right), key=len)
    larger.extend(smaller)
    for node in smaller:
        region_of[node] = larger


def _without_cycles(
    nodes: Sequence[Node], raw_region: dict[Node, list[Node]], loose_inputs: Sequence[tuple[Node, Node]]
) -> tuple[tuple[Node, ...], ...]:
    # Numbers follow each region's first node, so that the result never depends on how sets were merged.
    number_of_list: dict[int, int] = {}
    for node in nodes:
        number_of_list.setdefault(id(raw_region[node]), len(number_of_list))
    number = {node: number_of_list[id(raw_region[node])] for node in nodes}
    successors: list[dict[int, None]] = [{} for _ in number_of_list]
    for producer, consumer in loose_inputs:
        if number[producer] != number[consumer]:
            successors[number[producer]][number[consumer]] = None
    component_of = list(range(len(successors)))
    for component in strongly_connected_components([list(each) for each in successors]):
        for raw in component:
            component_of[raw] = min(component)

    members: dict[int, list[Node]] = {}
    for node in nodes:
        members.setdefault(component_of[number[node]], []).append(node)
    producers: dict[int, list[int]] = {component: [] for component in members}
    for raw, consumers in enumerate(successors):
        for consumer_region in consumers:
            if component_of[raw] != component_of[consumer_region]:
                producers[component_of[consumer_region]].append(component_of[raw])
    return tuple(tuple(members[component]) for component in topological_order(producers))
