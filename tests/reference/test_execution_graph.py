from __future__ import annotations

import pytest
from hypothesis import given

from airflow_recovery.errors import JobDefinitionError
from airflow_recovery.model.result_type import BLOCKING
from reference.execution_graph import ExecutionGraph, ExecutionVertexId, ResultPartitionId, UnknownVertex
from reference.execution_topology import ExecutionTopology
from reference.logical import (
    DistributionPattern,
    LogicalEdge,
    LogicalResult,
    LogicalTopology,
    LogicalVertex,
)
from reference.naive_topology import NaiveTopology, logical_topologies


def two_to_three() -> LogicalTopology:
    #   a[0] --> b[0], b[1]       a[0], a[1] --> c
    #   a[1] --> b[2]
    return LogicalTopology(
        [LogicalVertex("a", 2), LogicalVertex("b", 3), LogicalVertex("c")],
        [LogicalResult("a", "a", BLOCKING)],
        [LogicalEdge("a", "b", DistributionPattern.POINTWISE), LogicalEdge("a", "c")],
    )


def test_consumers_that_read_the_same_partitions_share_one_group() -> None:
    graph = ExecutionTopology(two_to_three()).graph
    groups = [graph.groups_read_by(range(b, b + 1)) for b in map(graph.vertex_id, "bbb", range(3))]
    assert groups[0] == groups[1] != groups[2]
    ((_, numbers),) = groups[0]
    group = graph.group(numbers.start)
    assert [str(graph.partition_name(partition)) for partition in group.partitions] == ["a[0]"]
    assert [str(graph.vertex_name(consumer)) for consumer in group.consumers] == ["b[0]", "b[1]"]


def test_an_all_to_all_edge_is_one_group_however_wide() -> None:
    logical = LogicalTopology(
        [LogicalVertex("a", 10_000), LogicalVertex("b", 10_000)],
        [LogicalResult("a", "a", BLOCKING)],
        [LogicalEdge("a", "b")],
    )
    graph = ExecutionTopology(logical).graph
    assert graph.group_count == 1
    assert graph.group(0).partitions == range(10_000)
    assert graph.group(0).consumers == range(10_000, 20_000)


def test_names_and_numbers() -> None:
    graph = ExecutionTopology(two_to_three()).graph
    assert [str(graph.vertex_name(number)) for number in range(graph.vertex_count)] == [
        "a[0]", "a[1]", "b[0]", "b[1]", "b[2]", "c[0]",
    ]  # fmt: skip
    assert graph.vertex_name(graph.vertex_id("b", 2)) == ExecutionVertexId("b", 2)
    assert graph.partition_name(graph.partition_id("a", 1)) == ResultPartitionId("a", 1)
    assert graph.producer_of(graph.partition_id("a", 1)) == graph.vertex_id("a", 1)


@pytest.mark.parametrize(("vertex", "subtask"), [("x", 0), ("b", 3), ("b", -1)])
def test_an_unknown_name_is_an_error(vertex: str, subtask: int) -> None:
    graph = ExecutionTopology(two_to_three()).graph
    with pytest.raises(UnknownVertex, match=rf"{vertex}\[{subtask}\]"):
        graph.vertex_id(vertex, subtask)
    with pytest.raises(UnknownVertex, match=rf"{vertex}\[{subtask}\]"):
        graph.partition_id(vertex, subtask)


@pytest.mark.parametrize("number", [-1, 99])
def test_an_unknown_number_is_an_error(number: int) -> None:
    graph = ExecutionTopology(two_to_three()).graph
    for ask in (graph.vertex_name, graph.partition_name, graph.group, graph.producer_of):
        with pytest.raises(UnknownVertex):
            ask(number)


def test_producers_are_initialised_before_consumers_and_only_once() -> None:
    graph = ExecutionGraph(two_to_three())
    with pytest.raises(JobDefinitionError, match="'b': expected its input 'a' to be initialised"):
        graph.initialise(1, 3)
    graph.initialise(0, 2)
    graph.initialise(0, 2)
    assert graph.vertex_count == 2
    with pytest.raises(JobDefinitionError, match="a parallelism of 2, found 3"):
        graph.initialise(0, 3)


@pytest.mark.slow
@given(logical_topologies())
def test_every_link_is_there_from_both_ends(logical: LogicalTopology) -> None:
    graph = ExecutionTopology(logical).graph
    expected = {(consumer, partition) for consumer, read in NaiveTopology(logical).reads.items() for partition in read}
    read, fed = set(), set()
    for vertex in range(graph.vertex_count):
        name = graph.vertex_name(vertex)
        for edge, groups in graph.groups_read_by(range(vertex, vertex + 1)):
            for partition in map(graph.partition_name, graph.partitions_in(edge, groups)):
                read.add(((name.vertex, name.subtask), (partition.result, partition.subtask)))
        for edge, groups in graph.groups_fed_by(range(vertex, vertex + 1)):
            for consumer in map(graph.vertex_name, graph.consumers_of(edge, groups)):
                fed.add(((consumer.vertex, consumer.subtask), (logical.edges[edge].result, name.subtask)))
    assert read == fed == expected
