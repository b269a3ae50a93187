"""Who reads whom in a plan, each edge between two groups once: n subtasks that read m others each are n + m steps.

What stands at the other end of an edge is a node: a region, by its name, or all subtasks of a region, by the name of
their group. No region has the name of a group of several.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import repeat

from airflow_recovery.model.groups import DistributionPattern, GroupEdge, RegionGroup
from airflow_recovery.model.records import PlanRecord


class Edges:
    """The edges of one plan, by region: found out for all regions of a group at once, when one is asked for."""

    def __init__(self, plan: PlanRecord) -> None:
        self._plan = plan
        self._groups = {name: group for group in plan.groups for name in (group.name, *group.names)}
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
        if region not in self._inputs:
            group = self._groups[region]
            self._inputs.update(self._nodes(group, group.inputs))
        return self._inputs[region]

    def readers(self, region: str) -> tuple[str, ...]:
        """Who reads ``region``, in topological order."""
        if region not in self._readers:
            group = self._groups[region]
            self._readers.update(self._nodes(group, self._plan.reading_groups[group.name]))
        return self._readers[region]

    def _nodes(self, group: RegionGroup, edges: Sequence[GroupEdge]) -> Mapping[str, tuple[str, ...]]:
        """What stands at the other ends of ``edges``, by region of ``group``."""
        others = [self._plan.groups_by_name[edge.group] for edge in edges]
        if all(edge.pattern is DistributionPattern.ALL_TO_ALL for edge in edges):
            return dict.fromkeys(group.names, tuple(map(_node, others)))
        columns = [
            other.names if edge.pattern is DistributionPattern.POINTWISE else repeat(_node(other))
            for edge, other in zip(edges, others, strict=True)
        ]
        return dict(zip(group.names, zip(*columns, strict=False), strict=True))


def _node(group: RegionGroup) -> str:
    """All regions of ``group`` as one node; of a group of one, its region."""
    return group.name if len(group) > 1 else group.names[0]
