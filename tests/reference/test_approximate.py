"""FLIP-135's milestones as tables: who restarts, why, and what becomes of the channels.

``~`` is a channel, ``-`` a blocking result, ``=`` a pipelined one.
"""

from __future__ import annotations

import pytest
from topologies import chain, single_subtasks

from airflow_recovery.model.result_type import ResultType
from reference.approximate import ApproximateRestart, ApproximateStrategy, approximate_restart
from reference.execution_graph import UnknownVertex
from reference.execution_topology import ExecutionTopology

SINK, DOWNSTREAM, SINGLE = ApproximateStrategy
TYPES = {"~": ResultType.PIPELINED_APPROXIMATE, "-": ResultType.BLOCKING, "=": ResultType.PIPELINED}


class DrawnJob:
    """``"a~b b~c"``: single subtasks."""

    def __init__(self, drawn: str) -> None:
        edges = {f"{piece[0]} {piece[2]}": TYPES[piece[1]] for piece in drawn.split()}
        self.topology = ExecutionTopology(single_subtasks(edges))
        self.lost: set[str] = set()
        self.changed: set[str] = set()
        self.not_replayed: set[str] = set()

    def when_fails(self, vertex: str, strategy: ApproximateStrategy) -> ApproximateRestart:
        graph = self.topology.graph
        return approximate_restart(
            self.topology,
            graph.vertex_id(vertex),
            strategy,
            available=lambda partition: graph.partition_name(partition).result not in self.lost,
            changed=self.changed.__contains__,
            replays=lambda each: each not in self.not_replayed,
        )

    def restarted(self, vertex: str, strategy: ApproximateStrategy) -> str:
        found = self.when_fails(vertex, strategy)
        return "".join(self.topology.graph.vertex_name(vertex).vertex for vertex in found.vertices)


CHAIN = "a~b b~c"
DIAMOND = "a~b a~c b~d c~d"
MIXED = "a-b b~c c~d d-e"
GLUED = "a=b b~c c=d"


@pytest.mark.parametrize(
    ("drawn", "failed", "sink", "downstream", "single"),
    [
        #                 M1      M2      M3
        (CHAIN, "a", "abc", "abc", "a"),
        (CHAIN, "b", "abc", "bc", "b"),
        (CHAIN, "c", "c", "c", "c"),
        (DIAMOND, "a", "abcd", "abcd", "a"),
        (DIAMOND, "b", "abcd", "bd", "b"),
        (DIAMOND, "d", "d", "d", "d"),
        # What is read by a blocking result restarts always, what is made by one does not.
        (MIXED, "a", "abcde", "abcde", "ab"),
        (MIXED, "b", "bcde", "bcde", "b"),
        (MIXED, "d", "de", "de", "de"),
        (MIXED, "e", "e", "e", "e"),
        # A region is one application, hence one region.
        (GLUED, "a", "abcd", "abcd", "ab"),
        (GLUED, "b", "abcd", "abcd", "ab"),
        (GLUED, "c", "cd", "cd", "cd"),
        # Two chains have nothing to do with each other.
        ("a~b c~d", "a", "ab", "ab", "a"),
    ],
)
def test_who_restarts_with_a_failed_region(drawn, failed, sink, downstream, single):
    job = DrawnJob(drawn)
    assert job.restarted(failed, SINK) == sink
    assert job.restarted(failed, DOWNSTREAM) == downstream
    assert job.restarted(failed, SINGLE) == single


@pytest.mark.parametrize("strategy", ApproximateStrategy)
def test_a_sink_alone_is_connected_again_on_the_same_generation(strategy):
    found = DrawnJob(CHAIN).when_fails("c", strategy)
    assert found.reconnected == {"b c"}
    assert found.new_generation == frozenset()


def test_what_becomes_of_the_channels_when_the_middle_fails():
    job = DrawnJob(CHAIN)
    sink, downstream, single = (job.when_fails("b", each) for each in ApproximateStrategy)
    assert (sink.new_generation, sink.reconnected) == ({"a b", "b c"}, frozenset())
    assert (downstream.new_generation, downstream.reconnected) == (frozenset(), {"a b", "b c"})
    assert (single.new_generation, single.reconnected) == (frozenset(), {"a b"})


def test_the_reasons_are_told():
    job = DrawnJob(CHAIN)
    told = {each: job.when_fails("b", each).told(job.topology) for each in ApproximateStrategy}
    assert told == {
        SINK: ["a[0]: starts over with b[0]", "b[0]: failed", "c[0]: starts over with b[0]"],
        DOWNSTREAM: ["b[0]: failed", "c[0]: reads by a channel from b[0]"],
        SINGLE: ["b[0]: failed"],
    }


def test_the_other_reasons_are_told():
    job = DrawnJob("a-b b=c c-d")
    job.lost = {"a b"}
    assert job.when_fails("c", SINGLE).told(job.topology) == [
        "a[0]: what it makes is not available to b[0]",
        "b[0]: in one region with c[0]",
        "c[0]: failed",
        "d[0]: reads a result that is made again by c[0]",
    ]


# --- channels that are not there any more ----------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", ApproximateStrategy)
def test_a_consumer_that_is_cleared_after_the_end_of_its_channel_needs_its_producer_too(strategy):
    job = DrawnJob("a~b")
    job.lost = {"a b"}
    found = job.when_fails("b", strategy)
    assert job.restarted("b", strategy) == "ab"
    assert found.new_generation == {"a b"}
    assert found.reconnected == frozenset()


@pytest.mark.parametrize("strategy", ApproximateStrategy)
def test_a_producer_that_starts_over_does_so_on_all_its_channels(strategy):
    # It has to read its input from the beginning, which the channel from a has let go; and what c has read of the old
    # generation is not what comes again.
    job = DrawnJob("a~b b~c b~d")
    job.lost = {"b c"}
    assert job.restarted("c", strategy) == "abcd"
    assert job.when_fails("c", strategy).new_generation == {"a b", "b c", "b d"}


def test_the_partition_of_the_cause_is_lost_whatever_the_source_of_truth_says():
    job = DrawnJob("a~b")
    graph = job.topology.graph
    found = approximate_restart(
        job.topology, graph.vertex_id("b"), SINGLE, available=lambda _: True, lost=graph.partition_id("a b")
    )
    assert found.vertices == [graph.vertex_id("a"), graph.vertex_id("b")]


def test_a_lost_blocking_input_makes_its_producer_restart_and_no_channel_anew():
    job = DrawnJob(MIXED)
    job.lost = {"a b"}
    assert job.restarted("b", SINGLE) == "ab"
    assert job.when_fails("b", SINGLE).new_generation == frozenset()


def test_an_availability_source_that_knows_no_channels_drags_the_producers_in_as_in_flink():
    job = DrawnJob(CHAIN)
    job.lost = {"a b", "b c"}
    assert job.restarted("c", DOWNSTREAM) == "abc"


# --- changed output, sources without replay --------------------------------------------------------------------------


def test_a_changed_schema_makes_single_restart_the_downstream_too():
    job = DrawnJob("a~b b~c c~d")
    job.changed = {"b c"}
    found = job.when_fails("b", SINGLE)
    assert job.restarted("b", SINGLE) == "bcd"
    assert (found.strategy, found.escalated) == (DOWNSTREAM, True)
    assert (found.new_generation, found.altered, found.reconnected) == ({"b c"}, {"b c"}, {"a b", "c d"})


def test_a_changed_schema_is_nothing_special_where_all_starts_over():
    job = DrawnJob(CHAIN)
    job.changed = {"b c"}
    found = job.when_fails("b", SINK)
    assert (found.new_generation, found.altered, found.escalated) == ({"a b", "b c"}, frozenset(), False)


def test_a_changed_schema_of_somebody_else_does_not():
    job = DrawnJob(CHAIN)
    job.changed = {"a b"}
    found = job.when_fails("b", SINGLE)
    assert (job.restarted("b", SINGLE), found.escalated) == ("b", False)


@pytest.mark.parametrize(("strategy", "failed", "unknown"), [(SINGLE, "a", "a"), (SINGLE, "b", ""), (SINK, "b", "a")])
def test_what_a_source_without_replay_has_lost_is_unknown_wherever_it_restarts(strategy, failed, unknown):
    job = DrawnJob(CHAIN)
    job.not_replayed = {"a"}
    found = job.when_fails(failed, strategy).unknown_at_origin
    assert "".join(job.topology.graph.vertex_name(each).vertex for each in found) == unknown


# --- parallel streaming regions --------------------------------------------------------------------------------------


def test_subtasks_of_pointwise_channels_restart_by_themselves():
    topology = ExecutionTopology(chain(3, 3, 3, kind=ResultType.PIPELINED_APPROXIMATE))
    graph = topology.graph
    failed = graph.vertex_id("v1", 1)
    of = {
        strategy: [
            str(graph.vertex_name(vertex))
            for vertex in approximate_restart(topology, failed, strategy, available=lambda _: True).vertices
        ]
        for strategy in ApproximateStrategy
    }
    assert of == {SINK: ["v0[1]", "v1[1]", "v2[1]"], DOWNSTREAM: ["v1[1]", "v2[1]"], SINGLE: ["v1[1]"]}


def test_an_unknown_subtask_is_a_mistake_of_the_caller():
    with pytest.raises(UnknownVertex):
        approximate_restart(DrawnJob(CHAIN).topology, 99, SINGLE, available=lambda _: True)


@pytest.mark.parametrize("drawn", [CHAIN, DIAMOND, MIXED, GLUED])
def test_single_is_within_downstream_and_downstream_within_sink(drawn):
    job = DrawnJob(drawn)
    for vertex in {each for each in drawn if each.isalpha()}:
        sink, downstream, single = (set(job.restarted(vertex, each)) for each in ApproximateStrategy)
        assert single <= downstream <= sink
