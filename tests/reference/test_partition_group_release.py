from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from topologies import ALL_TO_ALL, POINTWISE, chain, single_subtasks

from airflow_recovery.model.result_type import BLOCKING, PIPELINED, ResultType
from reference.execution_graph import UnknownVertex
from reference.execution_topology import ExecutionTopology
from reference.logical import (
    RELEASED_BY_PRODUCER,
    DistributionPattern,
    LogicalEdge,
    LogicalResult,
    LogicalTopology,
    LogicalVertex,
)
from reference.naive_topology import NaiveTopology, logical_topologies
from reference.partition_group_release import PartitionGroupRelease


def pair(
    kind: ResultType, pattern: DistributionPattern = POINTWISE, producers: int = 2, consumers: int = 2
) -> ExecutionTopology:
    """v0 -> v1"""
    return ExecutionTopology(chain(producers, consumers, kind=kind, pattern=pattern))


class Release:
    """The rule, spoken to by name."""

    def __init__(self, topology: ExecutionTopology) -> None:
        self.topology = topology
        self.rule = PartitionGroupRelease(topology)

    def finished(self, vertex: str, subtask: int = 0) -> list[str]:
        """The partitions of the groups that can go."""
        graph = self.topology.graph
        groups = self.rule.vertex_finished(graph.vertex_id(vertex, subtask))
        return [str(graph.partition_name(partition)) for group in groups for partition in graph.group(group).partitions]

    def unfinished(self, vertex: str, subtask: int = 0) -> None:
        self.rule.vertex_unfinished(self.topology.graph.vertex_id(vertex, subtask))


def test_pointwise_each_group_goes_with_its_own_reader() -> None:
    #   v0[0] -> v1[0]
    #   v0[1] -> v1[1]
    release = Release(pair(BLOCKING))
    assert release.finished("v0", 0) == []
    assert release.finished("v1", 0) == ["v0[0]"]
    assert release.finished("v1", 1) == ["v0[1]"]


def test_an_all_to_all_input_goes_when_the_last_reader_is_done() -> None:
    release = Release(pair(BLOCKING, ALL_TO_ALL))
    assert release.finished("v1", 0) == []
    assert release.finished("v1", 1) == ["v0[0]", "v0[1]"]


def test_a_reader_is_done_when_its_whole_region_is() -> None:
    #   v0 -> v1 ~> v2
    release = Release(ExecutionTopology(single_subtasks({"v0 v1": BLOCKING, "v1 v2": PIPELINED})))
    assert release.finished("v1") == []
    assert release.finished("v2") == ["v0 v1[0]"]


@pytest.mark.parametrize(
    ("kind", "goes"),
    [
        (ResultType.BLOCKING, True),
        (ResultType.HYBRID_FULL, True),
        (ResultType.HYBRID_SELECTIVE, True),
        (ResultType.CACHED, True),
        (ResultType.CACHED_MEMORY_ONLY, True),
        (ResultType.BLOCKING_PERSISTENT, False),
        (ResultType.PIPELINED_APPROXIMATE, False),
        (ResultType.PIPELINED, False),
        (ResultType.PIPELINED_BOUNDED, False),
    ],
)
def test_only_what_the_scheduler_releases_and_is_not_persistent_goes(kind: ResultType, goes: bool) -> None:
    release = Release(pair(kind, producers=1, consumers=1))
    release.finished("v0")
    assert release.finished("v1") == (["v0[0]"] if goes else [])


def test_a_reset_of_any_reader_keeps_the_group() -> None:
    release = Release(pair(BLOCKING, ALL_TO_ALL))
    release.finished("v1", 0)
    release.unfinished("v1", 0)
    assert release.finished("v1", 1) == []
    assert release.finished("v1", 0) == ["v0[0]", "v0[1]"]


def test_telling_it_twice_changes_nothing() -> None:
    release = Release(pair(BLOCKING, ALL_TO_ALL))
    assert release.finished("v1", 0) == release.finished("v1", 0) == []
    assert release.finished("v1", 1) == release.finished("v1", 1) == ["v0[0]", "v0[1]"]
    release.unfinished("v1", 0)
    release.unfinished("v1", 0)
    assert release.finished("v1", 1) == []
    assert release.finished("v1", 0) == ["v0[0]", "v0[1]"]


def test_what_does_not_read_a_group_does_not_touch_it() -> None:
    #   v0 -> v1      finishing or resetting the producer, which reads nothing
    release = Release(pair(BLOCKING, producers=1, consumers=1))
    assert release.finished("v0") == []
    release.unfinished("v0")
    assert release.finished("v1") == ["v0[0]"]


def test_a_vertex_that_was_never_finished_can_be_reset() -> None:
    release = Release(pair(BLOCKING, producers=1, consumers=1))
    release.unfinished("v1")
    assert release.finished("v1") == ["v0[0]"]


@pytest.mark.parametrize("vertex", [-1, 4])
def test_an_unknown_vertex_is_an_error(vertex: int) -> None:
    rule = PartitionGroupRelease(pair(BLOCKING))
    with pytest.raises(UnknownVertex):
        rule.vertex_finished(vertex)
    with pytest.raises(UnknownVertex):
        rule.vertex_unfinished(vertex)


def fan_out() -> ExecutionTopology:
    #   v0 -> v1
    #     `-> v2[?]      one result, read along two edges; v2's parallelism is decided at run time
    return ExecutionTopology(
        LogicalTopology(
            [LogicalVertex("v0", 2), LogicalVertex("v1", 2), LogicalVertex("v2", None)],
            [LogicalResult("v0", "v0", BLOCKING)],
            [LogicalEdge("v0", "v1", POINTWISE), LogicalEdge("v0", "v2", ALL_TO_ALL)],
        )
    )


def test_what_was_told_survives_a_topology_update() -> None:
    topology = fan_out()
    release = Release(topology)
    assert release.finished("v1", 0) == ["v0[0]"]
    topology.initialise({"v2": 2})
    assert release.finished("v2", 0) == []
    assert release.finished("v1", 1) == ["v0[1]"]
    assert release.finished("v1", 0) == ["v0[0]"], "still known to be finished"
    assert release.finished("v2", 1) == ["v0[0]", "v0[1]"]


def test_a_partition_goes_when_all_of_its_groups_can_and_all_readers_are_initialised() -> None:
    topology = fan_out()
    graph = topology.graph
    rule = PartitionGroupRelease(topology)
    groups = [group for i in (0, 1) for group in rule.vertex_finished(graph.vertex_id("v1", i))]
    assert rule.releasable_partitions(groups) == [], "v2 may still come"
    topology.initialise({"v2": 1})
    assert rule.releasable_partitions(groups) == [], "v2 has not read it"
    last = rule.vertex_finished(graph.vertex_id("v2"))
    assert rule.releasable_partitions(last) == [0, 1]
    rule.vertex_unfinished(graph.vertex_id("v1", 1))
    assert rule.releasable_partitions(last) == [0], "v1[1] reads v0[1] again"


@given(logical_topologies(), st.data())
def test_the_rule_agrees_with_a_naive_oracle(logical: LogicalTopology, data: st.DataObject) -> None:
    topology = ExecutionTopology(logical)
    graph, naive = topology.graph, NaiveTopology(logical)
    rule = PartitionGroupRelease(topology)
    finished: set[tuple[str, int]] = set()
    for _ in range(data.draw(st.integers(0, 12))):
        subtask = data.draw(st.sampled_from(naive.subtasks))
        if data.draw(st.booleans()):
            finished.add(subtask)
            found = rule.vertex_finished(graph.vertex_id(*subtask))
        else:
            finished.discard(subtask)
            rule.vertex_unfinished(graph.vertex_id(*subtask))
            continue
        expected = set()
        for number in range(graph.group_count):
            group = graph.group(number)
            kind = logical.results[group.result].type
            readers = {(name.vertex, name.subtask) for name in map(graph.vertex_name, group.consumers)}
            if (
                kind not in RELEASED_BY_PRODUCER
                and not kind.persistent
                and readers & naive.region[subtask]
                and all(naive.region[reader] <= finished for reader in readers)
            ):
                expected.add(number)
        assert set(found) == expected
        assert len(found) == len(set(found)), "each group once"


def test_ten_thousand_readers_of_one_group() -> None:
    topology = pair(BLOCKING, ALL_TO_ALL, 10_000, 10_000)
    rule = PartitionGroupRelease(topology)
    readers = range(10_000, 20_000)
    released = [group for reader in readers for group in rule.vertex_finished(reader)]
    assert released == [0]
    assert len(rule.releasable_partitions(released)) == 10_000
