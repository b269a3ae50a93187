"""Which results a Spark Connect server may keep instead of their being written (``CACHED``, ``CACHED_MEMORY_ONLY``).

Spark evicts silently, and then computes the evicted part again, for one reader and not for another. So whatever a
cached result is made of must give the same rows again, from files that recovery knows.
"""

from __future__ import annotations

from collections.abc import Mapping

from airflow_recovery.errors import JobDefinitionError
from airflow_recovery.job.sources import FilePattern
from airflow_recovery.job.vertex import Vertex, VertexKind
from airflow_recovery.model.determinism import Determinism
from airflow_recovery.planning.regions import Region, RegionGraph


def cached_results(region: Region, vertices: Mapping[str, Vertex]) -> tuple[str, ...]:
    """The cached results among those that the region makes and those that it reads."""
    named = (*region.results, *(edge.result for edge in region.inputs))
    return tuple(name for name in named if vertices[name].result.is_cached)


def check_cached(graph: RegionGraph, vertices: Mapping[str, Vertex]) -> None:
    """Raise `JobDefinitionError` for a cached result that Spark could silently compute again with other rows."""
    for region in graph.regions:
        for name in region.results:
            if vertices[name].result.is_cached:
                _check_lineage(vertices[name], region, vertices)


def _check_lineage(cached: Vertex, region: Region, vertices: Mapping[str, Vertex]) -> None:
    """Up from the cached vertex, inside its region, to what is read from files."""
    where = f"{cached.where}: is {cached.result.name}"
    seen, queue = {cached.name}, [cached.name]
    while queue:
        vertex = vertices[queue.pop()]
        it = "it" if vertex is cached else f"{vertex.name!r}, of which it is made,"
        if vertex.determinism is Determinism.ALWAYS:
            raise JobDefinitionError(
                f"{where}, and nothing says that {it} gives the same rows each time: what Spark evicts it computes "
                f"again, silently. Declare {vertex.name!r} with deterministic='verify' or 'assume', if it does; else "
                f"{cached.name!r} with result=BLOCKING"
            )
        if vertex.kind is VertexKind.SOURCE and not isinstance(vertex.splits, FilePattern):
            raise JobDefinitionError(
                f"{where}, and {it} reads something that is not registered: what Spark evicts would be read once more, "
                f"as it is by then. Declare {vertex.name!r} with splits=files(...), or {cached.name!r} with "
                "result=BLOCKING",
                code="cached-reads-undeclared",
            )
        for edge in vertex.inputs:
            producer = vertices[edge.vertex]
            is_inside = producer.name in region.vertices
            if not is_inside and producer.result.is_cached:
                raise JobDefinitionError(
                    f"{where}, and it is made of {producer.name!r}, which is {producer.result.name} too: what Spark "
                    "evicts is computed again from files, and a cached result has none. Declare one of the two with "
                    "result=BLOCKING"
                )
            is_written = producer.name in region.results and not producer.result.is_cached
            if is_inside and not is_written and producer.name not in seen:
                seen.add(producer.name)
                queue.append(producer.name)
