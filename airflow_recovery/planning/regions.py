"""Recovery regions of a job: the units of restart, each one Airflow task and one Spark application (FLIP-1)."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from airflow_recovery.errors import JobDefinitionError, UnknownRegion
from airflow_recovery.model.result_type import ResultType
from airflow_recovery.planning.graph import JobGraph
from airflow_recovery.planning.logical import LogicalTopology

MAX_NAME_LENGTH = 80
_CUT_FIRST_NAME = 50


@dataclass(frozen=True)
class RegionInput:
    """A result that a region reads: the vertex that makes it, and the region which that vertex belongs to."""

    result: str
    region: str


@dataclass(frozen=True)
class Region:
    """One recovery region.

    ``vertices`` are in topological order. ``results`` are those of them whose results cross the region's border or
    are sinks, in the same order; only these are registered. ``is_final`` says that the region holds a sink. What comes
    and goes through channels (``PIPELINED_APPROXIMATE``) is neither an input nor a result: nobody waits for it.
    """

    name: str
    vertices: tuple[str, ...]
    results: tuple[str, ...]
    inputs: tuple[RegionInput, ...]
    is_final: bool
    channels_in: tuple[RegionInput, ...] = ()
    channels_out: tuple[str, ...] = ()

    @property
    def is_streaming(self) -> bool:
        """It is at an end of a channel: its application runs at the same time as others, on streams."""
        return bool(self.channels_in or self.channels_out)

    @cached_property
    def upstream(self) -> tuple[str, ...]:
        """The regions that this one reads, each once, in the order of its inputs."""
        return tuple(dict.fromkeys(edge.region for edge in self.inputs))


@dataclass(frozen=True)
class RegionGraph:
    """The regions of one job in topological order. Unknown names raise `UnknownRegion`."""

    job: str
    regions: tuple[Region, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The region names in topological order."""
        return tuple(self._by_name)

    def region(self, name: str) -> Region:
        """Return the region of that name."""
        if name not in self._by_name:
            raise UnknownRegion(
                f"job {self.job!r}: no region {name!r}; there are {', '.join(self._by_name)}",
                code="region-not-in-job",
                found=name,
            )
        return self._by_name[name]

    def region_of(self, vertex: str) -> Region:
        """Return the region that the vertex belongs to."""
        if vertex not in self._by_vertex:
            raise UnknownRegion(
                f"job {self.job!r}: no region holds a vertex {vertex!r}", code="vertex-in-no-region", found=vertex
            )
        return self._by_vertex[vertex]

    def consumers(self, region: str) -> tuple[str, ...]:
        """Return the names of the regions that read something of this one, in topological order."""
        return self._consumers[self.region(region).name]

    @cached_property
    def _by_name(self) -> dict[str, Region]:
        return {region.name: region for region in self.regions}

    @cached_property
    def _by_vertex(self) -> dict[str, Region]:
        return {vertex: region for region in self.regions for vertex in region.vertices}

    @cached_property
    def _consumers(self) -> dict[str, tuple[str, ...]]:
        readers: dict[str, list[str]] = {region.name: [] for region in self.regions}
        for region in self.regions:
            for producer in region.upstream:
                readers[producer].append(region.name)
        return {name: tuple(names) for name, names in readers.items()}


def region_graph(graph: JobGraph) -> RegionGraph:
    """Cut a job into its recovery regions."""
    vertices = {vertex.name: vertex for vertex in graph.vertices}
    logical = LogicalTopology.of(graph)
    members_of_regions = [tuple(logical.vertices[member].name for member in members) for members in logical.regions]
    number = {name: index for index, members in enumerate(members_of_regions) for name in members}
    channels = {name for name, vertex in vertices.items() if vertex.result is ResultType.PIPELINED_APPROXIMATE}
    names: list[str] = []
    regions: list[Region] = []
    for index, members in enumerate(members_of_regions):
        results = tuple(
            name
            for name in members
            if vertices[name].is_sink or any(number[reader] != index for reader in graph.consumers[name])
        )
        names.append(region_name(results))
        # Producers stand earlier in topological order, so their names are known.
        crossing = dict.fromkeys(
            producer for name in members for producer in vertices[name].inputs if number[producer] != index
        )
        region_inputs = [RegionInput(producer, names[number[producer]]) for producer in crossing]
        regions.append(
            Region(
                name=names[-1],
                vertices=members,
                results=tuple(result for result in results if result not in channels),
                inputs=tuple(region_input for region_input in region_inputs if region_input.result not in channels),
                is_final=any(vertices[name].is_sink for name in members),
                channels_in=tuple(region_input for region_input in region_inputs if region_input.result in channels),
                channels_out=tuple(result for result in results if result in channels),
            )
        )
    _check_unique(graph.name, regions)
    return RegionGraph(graph.name, tuple(regions))


def region_name(results: Iterable[str]) -> str:
    """Name a region after its results, which no other region has: ``by_route``, or ``by_carrier.by_route``.

    The name depends on nothing else, so it stays when unrelated vertices come or go. Several names that are longer than
    80 characters together become ``by_carrier.and-7-more.<hash of all>``.
    """
    ordered = sorted(results)
    full = ".".join(ordered)
    if len(full) <= MAX_NAME_LENGTH or len(ordered) == 1:
        return full
    digest = hashlib.sha256(full.encode()).hexdigest()[:10]
    return f"{ordered[0][:_CUT_FIRST_NAME]}.and-{len(ordered) - 1}-more.{digest}"


def _check_unique(job: str, regions: Iterable[Region]) -> None:
    seen: dict[str, Region] = {}
    for region in regions:
        other = seen.setdefault(region.name, region)
        if other is not region:
            raise JobDefinitionError(
                f"job {job!r}: the regions of {', '.join(other.vertices)} and of {', '.join(region.vertices)} "
                f"would both be named {region.name!r}: rename one of these vertices",
                code="regions-of-one-name",
                region=region.name,
            )
