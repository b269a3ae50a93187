"""Who reads whom in a plan, each edge between two groups once: n subtasks that read m others each are n + m steps.

What stands at the other end of an edge is a node: a region, by its name, or all subtasks of a region, by the name of
their group. No region has the name of a group of several.
"""

from __future__ import annotations

from collections.abc import Sequence

from airflow_recovery.model.groups import DistributionPattern, GroupEdge, RegionGroup
from airflow_recovery.model.records import PlanRecord


class Edges:
    """The edges of one plan, by region. Where all subtasks of a group have the same ones, they are made once."""

    def __init__(self, plan: PlanRecord) -> None:
        self._plan = plan
        self._several = {group.name: group for group in plan.groups if len(group) > 1}
        self._inputs: dict[str, tuple[str, ...]] = {}
        self._readers: dict[str, tuple[str, ...]] = {}

    def group(self, node: str) -> RegionGroup:
        """The group that a node is, or that a region is in."""
        return self._several.get(node) or self._plan.group_of(node)

    def members(self, node: str) -> Sequence[str]:
        """The regions of a node that is a group of several, by index; nothing for a region."""
        group = self._several.get(node)
        return () if group is None else group.names

    def inputs(self, region: str) -> tuple[str, ...]:
        """What ``region`` reads, in the order of its inputs."""
        group = self._plan.group_of(region)
        return self._inputs.get(group.name) or self._nodes(group, region, group.inputs, self._inputs)

    def readers(self, region: str) -> tuple[str, ...]:
        """Who reads ``region``, in topological order."""
        group = self._plan.group_of(region)
        edges = self._plan.reading_groups[group.name]
        return self._readers.get(group.name) or self._nodes(group, region, edges, self._readers)

    def _nodes(
        self, group: RegionGroup, region: str, edges: Sequence[GroupEdge], shared: dict[str, tuple[str, ...]]
    ) -> tuple[str, ...]:
        nodes: list[str] = []
        is_shared = True
        for edge in edges:
            other = self._plan.groups_by_name[edge.group]
            if edge.pattern is DistributionPattern.POINTWISE:
                is_shared = len(group) == 1
                nodes.append(other.names[group.index_of[region]])
            else:
                nodes += [other.name] if len(other) > 1 else other.names
        found = tuple(nodes)
        if is_shared:
            shared[group.name] = found
        return found
