"""Who reads whom in a plan, each edge between two groups once: n subtasks that read m others each are n + m steps.

What stands at the other end of an edge is a node: a region, by its name, or all subtasks of a region, by the name of
their group. No region has the name of a group of several.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from itertools import count, repeat

from airflow_recovery.model.groups import DistributionPattern, RegionGroup
from airflow_recovery.model.mode import modes_of
from airflow_recovery.model.records import PlanRecord
from airflow_recovery.planning.mode import PlanningMode, planning


class Edges:
    """The edges of one plan. Nothing is found out of regions that nobody asks for."""

    def __init__(self, plan: PlanRecord) -> None:
        self._plan = plan
        self._groups = plan.groups_by_name
        self._places: dict[str, tuple[RegionGroup, int]] = {}
        """The subtasks that were met. What is reached pointwise needs no look at the other subtasks of its group."""
        self._members: dict[str, Sequence[str]] = {}
        self._inputs: dict[str, tuple[str, ...]] = {}
        self._readers: dict[str, tuple[str, ...]] = {}

    def place(self, region: str) -> tuple[RegionGroup, int]:
        """The group that has the region of that name, and the region's index in it. Raises `KeyError`."""
        group = self._groups.get(region)
        if group is not None and group.keys is None:
            return group, 0
        place = self._places.get(region)
        if place is None:
            place = self._places[region] = self._plan.place(region)
        return place

    def position(self, region: str) -> tuple[int, int]:
        """Sorts regions into topological order."""
        group, index = self.place(region)
        return self._numbers[group.name], index

    def group(self, node: str) -> RegionGroup:
        """The group that a node is, or that a region is in."""
        group = self._groups.get(node)
        return self.place(node)[0] if group is None else group

    def node(self, group: RegionGroup) -> str:
        """All regions of ``group`` as one node; of a group of one, its region."""
        keys = group.keys
        return group.template.name if keys is None or len(keys) > 1 else group.name_at(0)

    def members(self, node: str) -> Sequence[str]:
        """The regions of a node that is a group of several, by index; nothing for a region."""
        group = self._groups.get(node)
        if group is None or group.keys is None or len(group.keys) == 1:
            return ()
        if node not in self._members:
            self._members[node] = group.names
            self._places.update(zip(group.names, zip(repeat(group), count()), strict=False))
        return self._members[node]

    def inputs(self, node: str) -> tuple[str, ...]:
        """What a node reads, in the order of its inputs. All regions of a group together read whole groups."""
        inputs = self._inputs.get(node)
        if inputs is None:
            edges = self.group(node).inputs
            inputs = self._ends(node, [(self._groups[edge.group], edge.pattern) for edge in edges])
            self._inputs[node] = inputs
        return inputs

    def required_inputs(self, node: str) -> Sequence[str]:
        """`inputs` but for those that may be absent."""
        optional = self.group(node).template.optional
        return [name for name in self.inputs(node) if name not in optional] if optional else self.inputs(node)

    def readers(self, node: str) -> tuple[str, ...]:
        """Who reads a node, in topological order."""
        readers = self._readers.get(node)
        if readers is None:
            readers = self._readers[node] = self._ends(node, self._reading[self.group(node).name])
        return readers

    def downstream(self, regions: Iterable[str]) -> set[str]:
        """``regions``, whoever reads them over however many steps, and every group that has some of these."""
        reached: set[str] = set()
        whole: set[str] = set()
        waiting = list(regions)
        while waiting:
            node = waiting.pop()
            if node not in reached:
                reached.add(node)
                reached.update(self.members(node))
                waiting += self.readers(node)
                if node not in self._groups:
                    whole.add(self.place(node)[0].name)
        return reached | whole

    @cached_property
    def of_modes(self) -> Sequence[str]:
        """The nodes whose mode has answers of its own: it may look at more of a run than their records and inputs."""
        groups = self._plan.groups
        modes = {
            mode for mode in modes_of(group.template for group in groups) if type(planning(mode)) is not PlanningMode
        }
        return [self.node(group) for group in groups if group.template.mode.name in modes] if modes else ()

    def _ends(self, node: str, edges: Sequence[tuple[RegionGroup, DistributionPattern]]) -> tuple[str, ...]:
        """What stands at the other ends of ``edges``."""
        index = None if node in self._groups else self.place(node)[1]
        ends = []
        for other, pattern in edges:
            if index is None or pattern is DistributionPattern.ALL_TO_ALL:
                ends.append(self.node(other))
            else:
                ends.append(other.name_at(index))
                self._places[ends[-1]] = other, index
        return tuple(ends)

    @cached_property
    def _reading(self) -> Mapping[str, Sequence[tuple[RegionGroup, DistributionPattern]]]:
        return self._plan.reading_groups

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {group.name: number for number, group in enumerate(self._plan.groups)}
