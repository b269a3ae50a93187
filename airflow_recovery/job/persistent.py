"""Which regions are shared between runs, and what cannot be (``result=BLOCKING_PERSISTENT``).

A shared result is found again by what it is made of. So everything that decides its rows must be known before it is
made: code and parameters (the fingerprint), external files, and other shared results.
"""

from __future__ import annotations

from collections.abc import Mapping

from airflow_recovery.errors import JobDefinitionError
from airflow_recovery.job.vertex import Vertex, VertexKind
from airflow_recovery.planning.regions import Region, RegionGraph


def is_persistent(region: Region, vertices: Mapping[str, Vertex]) -> bool:
    """Whether all that the region registers outlives the run. Mixed regions are refused by `check_persistent`."""
    return bool(region.results) and all(vertices[name].result.persistent for name in region.results)


def check_persistent(graph: RegionGraph, vertices: Mapping[str, Vertex]) -> None:
    """Raise `JobDefinitionError` for a persistent result that could not be told from another one of its name."""
    for region in graph.regions:
        persistent = [name for name in region.results if vertices[name].result.persistent]
        if not persistent:
            continue
        where = vertices[persistent[0]].where
        others = [name for name in region.results if name not in persistent]
        if others:
            raise JobDefinitionError(
                f"{where}: is BLOCKING_PERSISTENT, and its region also makes {', '.join(others)}, which belongs to the "
                "run: one Spark application can't be both. Declare a vertex between them with result=BLOCKING or "
                f"BLOCKING_PERSISTENT, or make {', '.join(others)} persistent too",
                code="persistent-beside-other",
                others=others,
            )
        for edge in region.inputs:
            if not vertices[edge.result].result.persistent:
                raise JobDefinitionError(
                    f"{where}: is BLOCKING_PERSISTENT and reads {edge.result!r}, which belongs to one run: another "
                    f"run could not tell whether it would be the same. Declare {edge.result!r} with "
                    "result=BLOCKING_PERSISTENT too, or this one with result=BLOCKING",
                    code="persistent-reads-other",
                    input=edge.result,
                )
        for name in region.vertices:
            _check_vertex(vertices[name], where)


def _check_vertex(vertex: Vertex, where: str) -> None:
    if vertex.wants_context:
        raise JobDefinitionError(
            f"{vertex.where}: takes context, which tells it of its run, and a result that is made with it is "
            f"BLOCKING_PERSISTENT ({where}): runs that share it have different ones. Take what it needs as params=",
            code="persistent-takes-context",
        )
    says_what = vertex.splits is not None and vertex.splits.names_content
    if vertex.kind is VertexKind.SOURCE and not says_what and vertex.version is None:
        raise JobDefinitionError(
            f"{vertex.where}: reads something that is not declared, and a result that is made of it is "
            f"BLOCKING_PERSISTENT ({where}): a change out there would never be seen. Declare splits=files(...), "
            "or key_ranges() with as_of=, or a version= that you change when what it reads has changed",
            code="persistent-reads-undeclared",
            where=vertex.where,
        )
