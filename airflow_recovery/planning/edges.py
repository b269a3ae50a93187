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
        self._groups = {name: group for group in plan.groups for name in (group.template.name, *group.names)}
        self._members = {group.name: group.names for group in plan.groups if len(group) > 1}
        self._inputs: dict[str, tuple[str, ...]] = {}
        self._readers: dict[str, tuple[str, ...]] = {}

    def group(self, node: str) -> RegionGroup:
        """The group that a node is, or that a region is in."""
        return self._groups[node]

    def members(self, node: str) -> Sequence[str]:
        """The regions of a node that is a group of several, by index; nothing for a region."""
        return self._members.get(node, ())

    def inputs(self, region: str) -> tuple[str, ...]:
        """What ``region`` reads, in the order of its inputs."""
        group = self._groups[region]
        found = self._inputs.get(group.template.name)
        return self._nodes(group, region, group.inputs, self._inputs) if found is None else found

    def readers(self, region: str) -> tuple[str, ...]:
        """Who reads ``region``, in topological order."""
        group = self._groups[region]
        found = self._readers.get(group.template.name)
        if found is not None:
            return found
        return self._nodes(group, region, self._plan.reading_groups[group.template.name], self._readers)

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
