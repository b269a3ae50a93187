from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from topologies import ALL_TO_ALL, POINTWISE, chain

from airflow_recovery.errors import JobDefinitionError, UnknownRegion
from airflow_recovery.model.result_type import BLOCKING, PIPELINED, ResultType
from reference.execution_graph import UnknownVertex
from reference.execution_topology import ExecutionTopology
from reference.logical import LogicalEdge, LogicalResult, LogicalTopology, LogicalVertex
from reference.naive_topology import NaiveTopology, logical_topologies, named


def regions_by_name(topology: ExecutionTopology) -> list[set[str]]:
    return [
        {str(topology.graph.vertex_name(vertex)) for vertex in topology.vertices_of([region])}
        for region in range(topology.region_count)
    ]


def test_every_subtask_between_blocking_results_is_a_region() -> None:
    #   v0[0] -> v1[0]
    #   v0[1] -> v1[1]
    topology = ExecutionTopology(chain(2, 2, kind=BLOCKING))
    assert regions_by_name(topology) == [{"v0[0]"}, {"v0[1]"}, {"v1[0]"}, {"v1[1]"}]


def test_pipelined_pointwise_chains_are_as_many_regions() -> None:
    #   v0[0] ~> v1[0] ~> v2[0]
    #   v0[1] ~> v1[1] ~> v2[1]
    topology = ExecutionTopology(chain(2, 2, 2, kind=PIPELINED))
    assert regions_by_name(topology) == [{"v0[0]", "v1[0]", "v2[0]"}, {"v0[1]", "v1[1]", "v2[1]"}]


def test_pipelined_two_to_three() -> None:
    #   v0[0] ~> v1[0], v1[1]
    #   v0[1] ~> v1[2]
    topology = ExecutionTopology(chain(2, 3, kind=PIPELINED))
    assert regions_by_name(topology) == [{"v0[0]", "v1[0]", "v1[1]"}, {"v0[1]", "v1[2]"}]


def test_a_pipelined_all_to_all_edge_makes_one_region_of_two_ranges() -> None:
    topology = ExecutionTopology(chain(10_000, 10_000, kind=PIPELINED, pattern=ALL_TO_ALL))
    assert topology.region_count == 1
    assert topology.ranges_of(0) == [range(10_000), range(10_000, 20_000)]


def test_a_blocking_all_to_all_edge_inside_a_logical_region_closes_it_into_one() -> None:
    #   a[i] ~> b[i] ~> c[i], and c reads all of a, blocking: each chain waits for every other one
    logical = LogicalTopology(
        [LogicalVertex(name, 3) for name in "abc"],
        [LogicalResult("a", "a", PIPELINED), LogicalResult("b", "b", PIPELINED), LogicalResult("a2", "a", BLOCKING)],
        [LogicalEdge("a", "b", POINTWISE), LogicalEdge("b", "c", POINTWISE), LogicalEdge("a2", "c", ALL_TO_ALL)],
    )
    assert ExecutionTopology(logical).region_count == 1


def test_a_pointwise_cycle_between_two_logical_regions_is_merged_subtask_by_subtask() -> None:
    #      ,~~~~> c[i] ~.
    #  a[i]              ~> d[i]     b and {a, c, d} are two logical regions that wait for each other: Flink, which
    #      `-> b[i] ----'            builds one at a time, leaves them apart
    logical = LogicalTopology(
        [LogicalVertex(name, 2) for name in "abcd"],
        [
            LogicalResult("a", "a", PIPELINED),
            LogicalResult("a2", "a", BLOCKING),
            LogicalResult("b", "b", BLOCKING),
            LogicalResult("c", "c", PIPELINED),
        ],
        [
            LogicalEdge("a2", "b", POINTWISE),
            LogicalEdge("a", "c", POINTWISE),
            LogicalEdge("c", "d", POINTWISE),
            LogicalEdge("b", "d", POINTWISE),
        ],
    )
    assert regions_by_name(ExecutionTopology(logical)) == [
        {"a[0]", "b[0]", "c[0]", "d[0]"},
        {"a[1]", "b[1]", "c[1]", "d[1]"},
    ]


def co_located(*parallelism: int) -> LogicalTopology:
    return LogicalTopology([LogicalVertex(f"v{i}", p, co_location="g") for i, p in enumerate(parallelism)], [], [])


def test_co_located_subtasks_are_one_unit() -> None:
    assert regions_by_name(ExecutionTopology(co_located(2, 2))) == [{"v0[0]", "v1[0]"}, {"v0[1]", "v1[1]"}]


def test_co_located_vertices_need_one_parallelism_also_at_run_time() -> None:
    #   v0[2] co-located with v1[?]
    topology = ExecutionTopology(
        LogicalTopology([LogicalVertex("v0", 2, co_location="g"), LogicalVertex("v1", None, co_location="g")], [], [])
    )
    with pytest.raises(JobDefinitionError, match="found 2 of 'v0' and 3 of 'v1'"):
        topology.initialise({"v1": 3})
    assert topology.initialise({"v1": 2}) == range(2)


def test_co_located_vertices_need_one_parallelism() -> None:
    with pytest.raises(JobDefinitionError, match=r"co-location group 'g', found 2 of 'v0' and 3 of 'v1'"):
        ExecutionTopology(co_located(2, 3))


@given(logical_topologies())
def test_regions_agree_with_a_naive_oracle(logical: LogicalTopology) -> None:
    topology = ExecutionTopology(logical)
    regions = [frozenset(named(topology, topology.vertices_of([number]))) for number in range(topology.region_count)]
    assert set(regions) == NaiveTopology(logical).regions()
    assert sum(map(len, regions)) == topology.graph.vertex_count
    for number, region in enumerate(regions):
        assert {topology.region_of[topology.graph.vertex_id(*each)] for each in region} == {number}


@given(logical_topologies())
def test_regions_are_in_topological_order(logical: LogicalTopology) -> None:
    topology = ExecutionTopology(logical)
    graph = topology.graph
    for consumer in range(graph.vertex_count):
        for edge, groups in graph.groups_read_by(range(consumer, consumer + 1)):
            for producer in graph.producers_of(edge, graph.partitions_in(edge, groups)):
                assert topology.region_of[producer] <= topology.region_of[consumer]


@given(logical_topologies())
def test_the_regions_of_a_logical_region_are_consecutive(logical: LogicalTopology) -> None:
    topology = ExecutionTopology(logical)
    for number, members in enumerate(logical.regions):
        expected = {topology.region_of[subtask] for member in members for subtask in topology.graph.subtasks(member)}
        assert set(topology.regions_of(number)) == expected


@given(logical_topologies(), st.randoms(use_true_random=False))
def test_the_order_of_initialisation_changes_numbers_only(logical: LogicalTopology, random: object) -> None:
    undecided = LogicalTopology(
        [LogicalVertex(vertex.name, None, co_location=vertex.co_location) for vertex in logical.vertices],
        logical.results,
        logical.edges,
    )
    topology = ExecutionTopology(undecided)
    assert topology.region_count == 0
    decisions = [(vertex.name, vertex.parallelism or 0) for vertex in logical.vertices]
    random.shuffle(decisions)  # type: ignore[attr-defined]
    grown: list[int] = []
    before: list[set[str]] = []
    for name, count in decisions:
        grown += topology.initialise({name: count})
        assert regions_by_name(topology)[: len(before)] == before, "what was there stays as it was"
        before = regions_by_name(topology)
    assert grown == list(range(topology.region_count))
    assert sorted(map(sorted, before)) == sorted(map(sorted, regions_by_name(ExecutionTopology(logical))))


def test_regions_are_added_as_vertices_become_initialised() -> None:
    #   v0[2] -> v1[?] -> v2[1]
    topology = ExecutionTopology(chain(2, None, 1, kind=BLOCKING))
    assert regions_by_name(topology) == [{"v0[0]"}, {"v0[1]"}]
    assert topology.regions_of(1) == range(0)
    assert topology.initialise({"v1": 3}) == range(2, 6)
    assert regions_by_name(topology)[2:] == [{"v1[0]"}, {"v1[1]"}, {"v1[2]"}, {"v2[0]"}]
    assert topology.initialise({"v1": 3}) == range(6, 6), "the same decision again changes nothing"


@pytest.mark.parametrize(
    ("decision", "message"),
    [
        ({"v1": 4}, "a parallelism of 2, found 4"),
        ({"v2": 1, "v0": 1}, "of this topology, found v2"),
        ({"v0": 0}, "at least 1, found 0"),
    ],
)
def test_a_decision_that_cannot_be_is_refused(decision: dict[str, int], message: str) -> None:
    topology = ExecutionTopology(chain(None, 2, kind=BLOCKING))
    with pytest.raises(JobDefinitionError, match=message):
        topology.initialise(decision)
    assert topology.region_count == 0
    assert topology.initialise({"v0": 2}) == range(4), "a refused decision leaves nothing behind"


@pytest.mark.parametrize("region", [-1, 2])
def test_an_unknown_region_is_an_error(region: int) -> None:
    with pytest.raises(UnknownRegion):
        ExecutionTopology(co_located(2, 2)).ranges_of(region)


@pytest.mark.parametrize("vertex", [-1, 4])
def test_an_unknown_vertex_is_an_error(vertex: int) -> None:
    with pytest.raises(UnknownVertex):
        ExecutionTopology(co_located(2, 2)).region_of_vertex(vertex)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "count"), [(BLOCKING, 100_000), (PIPELINED, 1)])
def test_one_chain_of_100_000_job_vertices(kind: ResultType, count: int) -> None:
    topology = ExecutionTopology(chain(*[1] * 100_000, kind=kind))
    assert topology.region_count == count
    assert len(topology.region_of) == 100_000
