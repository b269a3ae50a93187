from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from topologies import ALL_TO_ALL, chain, single_subtasks

from airflow_recovery.errors import ConfigurationError
from airflow_recovery.model.result_type import BLOCKING, PIPELINED, ResultType
from reference import restart_set
from reference.execution_graph import PartitionUnavailable, UnknownVertex
from reference.execution_topology import ExecutionTopology
from reference.logical import LogicalTopology, readable_again
from reference.naive_topology import NaiveTopology, Partition, Subtask, logical_topologies, named
from reference.restart_set import (
    full_restart_set,
    individual_restart_set,
    lost_partition,
    region_restart_set,
)


class Job:
    """A topology of single subtasks by name; ``edges`` are ``"v1 v3"`` with the type of v1's result to v3."""

    def __init__(self, edges: dict[str, ResultType], more: Iterable[str] = ()) -> None:
        self.topology = ExecutionTopology(single_subtasks(edges, more))
        self.lost: set[str] = set()
        self.created: set[str] = set()
        self.asked: list[str] = []

    def restarted(self, failed: str, *, cause_names: str | None = None) -> str:
        """The vertices that the region strategy restarts, as one text."""
        graph = self.topology.graph
        found = region_restart_set(
            self.topology,
            graph.vertex_id(failed),
            available=self._available,
            lost=None if cause_names is None else graph.partition_id(cause_names),
            is_created=lambda each: graph.vertex_name(each).vertex in self.created,
        )
        return " ".join(graph.vertex_name(each).vertex for each in found)

    def _available(self, partition: int) -> bool:
        result = self.topology.graph.partition_name(partition).result
        self.asked.append(result)
        return result not in self.lost


def blocking(*edges: str) -> Job:
    return Job(dict.fromkeys(edges, BLOCKING))


# --- what Flink's tests promise --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lost", "when_v1_fails", "when_v2_fails", "when_v3_fails"),
    [
        ((), "v1 v3", "v2 v3", "v3"),
        (("v1 v3",), "v1 v3", "v1 v2 v3", "v1 v3"),
        (("v2 v3",), "v1 v2 v3", "v2 v3", "v2 v3"),
        (("v1 v3", "v2 v3"), "v1 v2 v3", "v1 v2 v3", "v1 v2 v3"),
    ],
)
def test_two_inputs_lost_or_present_times_three_failing_vertices(
    lost: tuple[str, ...], when_v1_fails: str, when_v2_fails: str, when_v3_fails: str
) -> None:
    #   v1 -> v3 <- v2
    job = blocking("v1 v3", "v2 v3")
    job.lost.update(lost)
    assert job.restarted("v1") == when_v1_fails
    assert job.restarted("v2") == when_v2_fails
    assert job.restarted("v3") == when_v3_fails


def seven() -> Job:
    #   v1 ~> v2 -> v4 ~> v5 -> v7
    #         v3 -' `-> v6 ----'          v2's and v3's results are blocking, and v4 reads both
    return Job(
        {
            "v1 v2": PIPELINED, "v2 v4": BLOCKING, "v3 v4": BLOCKING, "v4 v5": PIPELINED, "v4 v6": BLOCKING,
            "v5 v7": BLOCKING, "v6 v7": BLOCKING,
        }
    )  # fmt: skip


@pytest.mark.parametrize(
    ("failed", "restarted"),
    [
        ("v1", "v1 v2 v4 v5 v6 v7"),
        ("v2", "v1 v2 v4 v5 v6 v7"),
        ("v3", "v3 v4 v5 v6 v7"),
        ("v4", "v4 v5 v6 v7"),
        ("v5", "v4 v5 v6 v7"),
        ("v6", "v6 v7"),
        ("v7", "v7"),
    ],
)
def test_an_internal_error_restarts_its_region_and_all_consumers(failed: str, restarted: str) -> None:
    assert seven().restarted(failed) == restarted


@pytest.mark.parametrize(
    ("failed", "names", "restarted"),
    [
        ("v4", "v2 v4", "v1 v2 v4 v5 v6 v7"),
        ("v4", "v3 v4", "v3 v4 v5 v6 v7"),
        ("v6", "v4 v6", "v4 v5 v6 v7"),
        ("v7", "v5 v7", "v4 v5 v6 v7"),
        ("v7", "v6 v7", "v6 v7"),
    ],
)
def test_a_data_error_restarts_the_producers_region_and_its_other_consumers_too(
    failed: str, names: str, restarted: str
) -> None:
    assert seven().restarted(failed, cause_names=names) == restarted


def test_approximate_edges_restart_the_failed_vertex_and_everything_downstream_and_nothing_upstream() -> None:
    #   v1 ~~> v2 ~~> v4       all approximate
    #     `~~> v3 ~~~'
    job = Job(dict.fromkeys(["v1 v2", "v1 v3", "v2 v4", "v3 v4"], ResultType.PIPELINED_APPROXIMATE))
    assert [job.restarted(name) for name in ("v1", "v2", "v3", "v4")] == ["v1 v2 v3 v4", "v2 v4", "v3 v4", "v4"]


# --- corner cases ----------------------------------------------------------------------------------------------------


def test_created_vertices_are_walked_through_and_not_named() -> None:
    #   v1 -> v2 -> v3       v2 was never started
    job = blocking("v1 v2", "v2 v3")
    job.created = {"v2"}
    assert job.restarted("v1") == "v1 v3"
    assert job.restarted("v2") == "v3"


def test_failing_a_vertex_that_was_never_started_restarts_nothing() -> None:
    job = blocking("v1 v2")
    job.created = {"v2"}
    assert job.restarted("v2") == ""


def test_a_vertex_that_was_never_started_is_left_out_of_its_region() -> None:
    #   v1 ~> v2
    job = Job({"v1 v2": PIPELINED})
    job.created = {"v2"}
    assert job.restarted("v1") == "v1"


def test_full_names_everything_also_what_was_never_started() -> None:
    #   v1 -> v2     v3
    job = Job({"v1 v2": BLOCKING}, more=["v3"])
    assert full_restart_set(job.topology, job.topology.graph.vertex_id("v1")) == [0, 1, 2]


def test_a_lost_mark_lives_for_one_decision() -> None:
    #   v1 -> v2
    job = blocking("v1 v2")
    assert job.restarted("v2", cause_names="v1 v2") == "v1 v2"
    assert job.restarted("v2") == "v2"


def test_every_input_of_every_involved_region_is_asked_for() -> None:
    #   v1 -> v3 <- v2 <- v0       v1 fails; v3 restarts as its consumer and needs v2's lost result, and v2 needs v0's
    job = blocking("v0 v2", "v1 v3", "v2 v3")
    job.lost = {"v2 v3"}
    assert job.restarted("v1") == "v1 v2 v3"
    assert sorted(job.asked) == ["v0 v2", "v1 v3", "v2 v3"]


def test_what_no_involved_region_reads_is_not_asked_for() -> None:
    #   v1 -> v2      v3 -> v4
    job = blocking("v1 v2", "v3 v4")
    job.restarted("v2")
    assert job.asked == ["v1 v2"]


@pytest.mark.parametrize(
    ("kind", "restarted"),
    [
        (ResultType.BLOCKING, "v2"),
        (ResultType.BLOCKING_PERSISTENT, "v2"),
        (ResultType.HYBRID_FULL, "v2"),
        (ResultType.CACHED, "v2"),
        (ResultType.CACHED_MEMORY_ONLY, "v2"),
        (ResultType.PIPELINED_APPROXIMATE, "v2"),
        (ResultType.HYBRID_SELECTIVE, "v1 v2"),
        (ResultType.PIPELINED, "v1 v2"),
        (ResultType.PIPELINED_BOUNDED, "v1 v2"),
    ],
)
def test_an_input_that_can_be_read_only_once_drags_its_producer_in(kind: ResultType, restarted: str) -> None:
    #   v1 -> v2       everything is there
    assert Job({"v1 v2": kind}).restarted("v2") == restarted


@pytest.mark.parametrize("failed", [-1, 2])
def test_an_unknown_vertex_is_an_error(failed: int) -> None:
    topology = blocking("v1 v2").topology
    with pytest.raises(UnknownVertex):
        region_restart_set(topology, failed, available=lambda _: True)
    with pytest.raises(UnknownVertex):
        full_restart_set(topology, failed)
    with pytest.raises(UnknownVertex):
        individual_restart_set(topology, failed, available=lambda _: True, assumed=lambda _: True)


def test_an_unknown_lost_partition_is_an_error() -> None:
    with pytest.raises(UnknownVertex):
        region_restart_set(blocking("v1 v2").topology, 0, available=lambda _: True, lost=2)


# --- the cause -------------------------------------------------------------------------------------------------------


def test_the_lost_partition_is_found_anywhere_in_the_chain_of_the_cause() -> None:
    topology = blocking("v1 v2").topology
    cause = RuntimeError("task failed")
    cause.__cause__ = OSError("read")
    cause.__cause__.__context__ = PartitionUnavailable("v1 v2")
    assert lost_partition(topology, cause) == topology.graph.partition_id("v1 v2")


def test_a_cause_that_names_no_partition_or_runs_in_a_circle_loses_none() -> None:
    topology = blocking("v1 v2").topology
    circle = RuntimeError("a")
    circle.__context__ = RuntimeError("b")
    circle.__context__.__context__ = circle
    assert lost_partition(topology, circle) is None
    assert lost_partition(topology, None) is None


# --- individual ------------------------------------------------------------------------------------------------------


def individually(job: Job, failed: str, *assumed: str) -> str:
    graph = job.topology.graph
    found = individual_restart_set(
        job.topology, graph.vertex_id(failed), available=job._available, assumed=assumed.__contains__
    )
    return " ".join(graph.vertex_name(each).vertex for each in found)


def test_individual_restarts_no_consumer_of_an_assumed_result() -> None:
    #   v1 -> v2 -> v3
    assert individually(blocking("v1 v2", "v2 v3"), "v2", "v2 v3") == "v2"


def test_individual_restarts_the_producer_of_a_lost_input() -> None:
    #   v1 -> v2 -> v3
    job = blocking("v1 v2", "v2 v3")
    job.lost = {"v2 v3"}
    assert individually(job, "v3", "v2 v3") == "v2 v3"


def test_individual_is_refused_where_a_consumer_would_be_left_behind() -> None:
    #   v1 -> v2
    #     `-> v3       v1 -> v3 is not declared `assume`
    job = blocking("v1 v2", "v1 v3")
    with pytest.raises(ConfigurationError, match="expected deterministic='assume' on 'v1 v3', which 'v3' reads"):
        individually(job, "v1", "v1 v2")


def test_individual_restarts_a_region_as_a_whole() -> None:
    #   v1 ~> v2
    assert individually(Job({"v1 v2": PIPELINED}), "v2") == "v1 v2"


# --- against the oracle ----------------------------------------------------------------------------------------------


@st.composite
def failures(draw: st.DrawFn) -> tuple[LogicalTopology, Subtask, frozenset[Partition], Partition | None]:
    """A topology, the subtask that failed, what is gone, and what the cause names."""
    logical = draw(logical_topologies())
    naive = NaiveTopology(logical)
    partitions = sorted(naive.producer)
    gone = draw(st.frozensets(st.sampled_from(partitions))) if partitions else frozenset[Partition]()
    named_lost = draw(st.sampled_from([None, *partitions]))
    return logical, draw(st.sampled_from(naive.subtasks)), gone, named_lost


Failures = tuple[LogicalTopology, Subtask, frozenset[Partition], "Partition | None"]


def is_there(topology: ExecutionTopology, gone: frozenset[Partition]) -> Callable[[int], bool]:
    unavailable = {topology.graph.partition_id(*partition) for partition in gone}
    return lambda partition: partition not in unavailable


def restart(failure: Failures) -> tuple[ExecutionTopology, list[int]]:
    logical, failed, gone, lost = failure
    topology = ExecutionTopology(logical)
    graph = topology.graph
    return topology, region_restart_set(
        topology,
        graph.vertex_id(*failed),
        available=is_there(topology, gone),
        lost=None if lost is None else graph.partition_id(*lost),
    )


@given(failures())
def test_the_region_strategy_agrees_with_a_naive_fixed_point(failure: Failures) -> None:
    logical, failed, gone, lost = failure
    topology, found = restart(failure)
    naive = NaiveTopology(logical)
    assert named(topology, found) == naive.restart(failed, lambda each: each not in gone and each != lost)
    assert found == sorted(set(found))


@pytest.mark.slow
@given(failures())
def test_the_individual_strategy_agrees_with_a_naive_fixed_point(failure: Failures) -> None:
    logical, failed, gone, _ = failure
    topology = ExecutionTopology(logical)
    found = individual_restart_set(
        topology,
        topology.graph.vertex_id(*failed),
        available=is_there(topology, gone),
        assumed=lambda _: True,
    )
    naive = NaiveTopology(logical)
    assert named(topology, found) == naive.restart(failed, lambda each: each not in gone, with_consumers=False)


@given(failures())
def test_i7_a_restart_set_is_closed(failure: Failures) -> None:
    _, failed, gone, lost = failure
    topology, found = restart(failure)
    graph, logical = topology.graph, topology.logical
    restarted = set(found)
    assert graph.vertex_id(*failed) in restarted
    for vertex in found:
        assert restarted.issuperset(topology.vertices_of([topology.region_of[vertex]])), "whole regions"
        one = range(vertex, vertex + 1)
        for edge, groups in graph.groups_fed_by(one):
            assert restarted.issuperset(graph.consumers_of(edge, groups)), "consumers"
        for edge, groups in graph.groups_read_by(one):
            readable = readable_again(logical.results[logical.result_of[edge]].type)
            for partition in graph.partitions_in(edge, groups):
                name = graph.partition_name(partition)
                partition_there = (name.result, name.subtask) not in {*gone, lost}
                if not (readable and partition_there):
                    assert graph.producer_of(partition) in restarted, "producers of unavailable inputs"


@pytest.mark.slow
@given(failures())
def test_a_bigger_loss_never_restarts_less(failure: Failures) -> None:
    logical, failed, gone, lost = failure
    _, all_of_it = restart(failure)
    _, without_the_named = restart((logical, failed, gone, None))
    _, without_the_gone = restart((logical, failed, frozenset(), lost))
    assert set(all_of_it) >= {*without_the_named, *without_the_gone}


def test_without_asking_for_every_input_a_producer_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    # The control: v1 fails, v3 needs v2's lost result as well, and only the partition in the cause is believed.
    job = blocking("v1 v3", "v2 v3")
    job.lost = {"v2 v3"}
    assert job.restarted("v1") == "v1 v2 v3"
    monkeypatch.setattr(restart_set, "_unavailable", lambda *_: [])
    assert job.restarted("v1") == "v1 v3"


# --- Flink's scale: its own counts -----------------------------------------------------------------------------------


def wide(kind: ResultType) -> ExecutionTopology:
    return ExecutionTopology(chain(10_000, 10_000, kind=kind, pattern=ALL_TO_ALL))


def test_ten_thousand_by_ten_thousand_blocking() -> None:
    topology = wide(BLOCKING)
    asked: list[int] = []

    def available(partition: int) -> bool:
        asked.append(partition)
        return True

    source, sink = topology.graph.vertex_id("v0"), topology.graph.vertex_id("v1")
    assert len(region_restart_set(topology, source, available=available)) == 10_001
    assert len(asked) == 10_000, "one group is looked into once, though ten thousand consumers restart"
    assert region_restart_set(topology, sink, available=available) == [sink]
    assert len(region_restart_set(topology, sink, available=available, lost=0)) == 10_001
    assert len(region_restart_set(topology, sink, available=lambda _: False)) == 20_000


def test_ten_thousand_by_ten_thousand_pipelined() -> None:
    topology = wide(PIPELINED)
    assert len(region_restart_set(topology, 0, available=lambda _: True)) == 20_000


@pytest.mark.slow
def test_a_chain_of_100_000_job_vertices() -> None:
    size = 100_000
    topology = ExecutionTopology(chain(*[1] * size, kind=BLOCKING))
    assert len(region_restart_set(topology, 0, available=lambda _: True)) == size
    assert len(region_restart_set(topology, size - 1, available=lambda _: False)) == size
    assert len(region_restart_set(topology, size // 2, available=lambda _: True, lost=size // 2 - 1)) == size // 2 + 1
