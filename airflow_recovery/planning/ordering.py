"""Topological order and strongly connected components of any graph of hashable nodes; neither recurses."""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from typing import TypeVar

Node = TypeVar("Node")


class CycleFound(Exception):
    """The graph has no topological order. ``cycle`` is one cycle, along the data: its first node is also its last."""

    def __init__(self, cycle: Sequence[object]) -> None:
        super().__init__(" -> ".join(str(node) for node in cycle))
        self.cycle = tuple(cycle)


def topological_order(inputs: Mapping[Node, Sequence[Node]]) -> list[Node]:
    """Return the nodes with every producer before its consumers; among equals the mapping's own order decides.

    ``inputs`` names the producers of every node, and every producer must be a key. Raises `CycleFound`.
    """
    nodes = list(inputs)
    index = {node: position for position, node in enumerate(nodes)}
    consumers: list[list[int]] = [[] for _ in nodes]
    waiting_for = [0] * len(nodes)
    for node, producers in inputs.items():
        for producer in set(producers):
            consumers[index[producer]].append(index[node])
            waiting_for[index[node]] += 1
    ready = [position for position, count in enumerate(waiting_for) if count == 0]
    order: list[Node] = []
    while ready:
        position = heapq.heappop(ready)
        order.append(nodes[position])
        for consumer in consumers[position]:
            waiting_for[consumer] -= 1
            if waiting_for[consumer] == 0:
                heapq.heappush(ready, consumer)
    if len(order) < len(nodes):
        stuck: dict[Node, None] = {nodes[position]: None for position, count in enumerate(waiting_for) if count}
        cycle = _a_cycle(stuck, inputs)
        raise CycleFound(cycle)
    return order


def _a_cycle(stuck: Mapping[Node, None], inputs: Mapping[Node, Sequence[Node]]) -> list[Node]:
    # Every stuck node waits for a stuck producer, so walking upstream must come back to a node already seen.
    node = next(iter(stuck))
    seen: dict[Node, int] = {}
    path: list[Node] = []
    while node not in seen:
        seen[node] = len(path)
        path.append(node)
        node = next(producer for producer in inputs[node] if producer in stuck)
    return [node, *reversed(path[seen[node] :])]


def strongly_connected_components(successors: Sequence[Sequence[int]]) -> list[list[int]]:
    """Tarjan's algorithm with an explicit stack, on nodes ``0 … n-1``; a single node is a component of its own."""
    unvisited = -1
    number = [unvisited] * len(successors)
    low = [0] * len(successors)
    on_path = [False] * len(successors)
    path: list[int] = []
    components: list[list[int]] = []
    visited = 0
    for root in range(len(successors)):
        if number[root] != unvisited:
            continue
        calls = [(root, 0)]
        while calls:
            node, next_successor = calls.pop()
            if next_successor == 0:
                number[node] = low[node] = visited
                visited += 1
                path.append(node)
                on_path[node] = True
            else:
                low[node] = min(low[node], low[successors[node][next_successor - 1]])
            for position in range(next_successor, len(successors[node])):
                successor = successors[node][position]
                if number[successor] == unvisited:
                    calls += [(node, position + 1), (successor, 0)]
                    break
                if on_path[successor]:
                    low[node] = min(low[node], number[successor])
            else:
                if low[node] == number[node]:
                    component: list[int] = []
                    while not component or component[-1] != node:
                        component.append(path.pop())
                        on_path[component[-1]] = False
                    components.append(component)
    return components
