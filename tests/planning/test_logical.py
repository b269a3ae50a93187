from __future__ import annotations

import pytest
from expected_errors import fails_with

from airflow_recovery.model.result_type import BLOCKING, PIPELINED
from airflow_recovery.planning.graph import JobGraph, JobVertex
from airflow_recovery.planning.logical import (
    LogicalEdge,
    LogicalResult,
    LogicalTopology,
    LogicalVertex,
)
from airflow_recovery.planning.regions import region_graph


def vertices(*names: str) -> list[LogicalVertex]:
    return [LogicalVertex(name) for name in names]


def test_a_cycle_between_logical_regions_is_merged_before_anything_is_expanded() -> None:
    #      ,~~~~> v3 ~~~.
    #    v1              ~> v4         {v1,v3,v4} waits for {v2}, and {v2} for {v1,v3,v4} (FLINK-17330)
    #      `-> v2 -------'             v1 has two results: one pipelined, one blocking
    logical = LogicalTopology(
        vertices("v1", "v2", "v3", "v4"),
        [
            LogicalResult("v1.pipelined", "v1", PIPELINED),
            LogicalResult("v1.blocking", "v1", BLOCKING),
            LogicalResult("v2", "v2", BLOCKING),
            LogicalResult("v3", "v3", PIPELINED),
        ],
        [
            LogicalEdge("v1.blocking", "v2"),
            LogicalEdge("v1.pipelined", "v3"),
            LogicalEdge("v3", "v4"),
            LogicalEdge("v2", "v4"),
        ],
    )
    assert logical.regions == [[0, 1, 2, 3]]


def test_co_located_vertices_are_one_unit_and_what_is_between_them_joins() -> None:
    #   a -> b -> c     a and c co-located: b waits for the region, and the region for b
    logical = LogicalTopology(
        [LogicalVertex("a", co_location="g"), LogicalVertex("b"), LogicalVertex("c", co_location="g")],
        [LogicalResult("a", "a", BLOCKING), LogicalResult("b", "b", BLOCKING)],
        [LogicalEdge("a", "b"), LogicalEdge("b", "c")],
    )
    assert logical.regions == [[0, 1, 2]]


def test_co_location_glues_the_regions_of_a_declared_job() -> None:
    graph = JobGraph(
        "flights",
        (
            JobVertex("days", (), BLOCKING, is_sink=True, co_location="small"),
            JobVertex("routes", (), BLOCKING, is_sink=True, co_location="small"),
            JobVertex("planes", (), BLOCKING, is_sink=True),
        ),
    )
    assert [region.vertices for region in region_graph(graph).regions] == [("days", "routes"), ("planes",)]


def test_the_topology_of_a_declared_job() -> None:
    #   raw ~> clean -> all
    graph = JobGraph(
        "flights",
        (
            JobVertex("all", ("clean",), BLOCKING, is_sink=True),
            JobVertex("clean", ("raw",), BLOCKING),
            JobVertex("raw", (), PIPELINED),
        ),
    )
    logical = LogicalTopology.of(graph)
    assert [vertex.name for vertex in logical.vertices] == ["raw", "clean", "all"]
    assert logical.edges == (LogicalEdge("raw", "clean"), LogicalEdge("clean", "all"))
    assert logical.regions == [[0, 1], [2]]


@pytest.mark.parametrize(
    ("names", "results", "edges", "code"),
    [
        (("a", "a"), (), (), "logical-name-twice"),
        (("a",), (LogicalResult("r", "b", BLOCKING),), (), "logical-name-unknown"),
        (("a",), (LogicalResult("r", "a", BLOCKING),), (LogicalEdge("q", "a"),), "logical-name-unknown"),
        (("a",), (LogicalResult("r", "a", BLOCKING),), (LogicalEdge("r", "b"),), "logical-name-unknown"),
        (("b", "a"), (LogicalResult("r", "a", BLOCKING),), (LogicalEdge("r", "b"),), "logical-order"),
        (("a",), (LogicalResult("r", "a", BLOCKING),), (LogicalEdge("r", "a"),), "logical-order"),
    ],
)
def test_what_cannot_be_a_topology_is_refused(
    names: tuple[str, ...], results: tuple[LogicalResult, ...], edges: tuple[LogicalEdge, ...], code: str
) -> None:
    with fails_with(code):
        LogicalTopology(vertices(*names), results, edges)
