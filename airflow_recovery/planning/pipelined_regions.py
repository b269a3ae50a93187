"""Pipelined regions: which nodes are one unit of restart (FLIP-1, FLINK-17330). Job vertices and subtasks alike.

1. Producer and consumer of a result that must run together are in one region.
2. Regions that would wait for each other through other results are merged: none of them could ever be started.
3. Regions come out in topological order.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from airflow_recovery.planning.ordering import strongly_connected_components, topological_order


def region_numbers(size: int, glued: Iterable[tuple[int, int]], loose: Iterable[tuple[int, int]]) -> Sequence[int]:
    """Return the region of each of the nodes ``0 … size-1``, numbered ``0, 1, …`` in topological order.

    ``glued`` are the pairs that must be together, in whatever direction. ``loose`` are the other results, as
    ``(producer, consumer)``. Among regions that could come in either order, the one with the smaller node is first.
    """
    raw = _components(size, glued)
    crossing = {(raw[producer], raw[consumer]) for producer, consumer in loose if raw[producer] != raw[consumer]}
    if all(producer < consumer for producer, consumer in crossing):
        return raw  # the common case: no region waits for a later one, so there is no cycle, and the order is right
    return _without_cycles(raw, crossing)


def _components(size: int, pairs: Iterable[tuple[int, int]]) -> Sequence[int]:
    """Union-find. Components are numbered by their smallest nodes, so that the order of merging never shows."""
    parent = list(range(size))
    for left, right in pairs:
        while parent[left] != left:
            parent[left] = left = parent[parent[left]]
        while parent[right] != right:
            parent[right] = right = parent[parent[right]]
        # The smaller node is the root. Halving the paths alone keeps finds at O(log n), amortised.
        if left < right:
            parent[right] = left
        else:
            parent[left] = right
    number = parent  # in place: a node's parent is not needed any more once it has its number
    count = 0
    for node, above in enumerate(parent):
        if above == node:
            number[node] = count
            count += 1
        else:
            number[node] = number[above]  # above < node, so it has its number already
    return number


def _without_cycles(raw: Sequence[int], crossing: Iterable[tuple[int, int]]) -> Sequence[int]:
    successors: list[list[int]] = [[] for _ in range(max(raw) + 1)]
    for producer, consumer in sorted(crossing):
        successors[producer].append(consumer)
    merged = list(range(len(successors)))
    for component in strongly_connected_components(successors):
        first = min(component)
        for region in component:
            merged[region] = first
    inputs: dict[int, list[int]] = {region: [] for region in sorted(set(merged))}
    for producer, consumers in enumerate(successors):
        for consumer in consumers:
            if merged[producer] != merged[consumer]:
                inputs[merged[consumer]].append(merged[producer])
    position = {region: at for at, region in enumerate(topological_order(inputs))}
    return [position[merged[region]] for region in raw]
