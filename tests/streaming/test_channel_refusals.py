"""What a declaration with channels is refused for, one rule a row, and what is not.

See docs/approximate.md#what-is-refused.
"""

from __future__ import annotations

import pytest
from topologies import single_subtasks

from airflow_recovery.model.channel_options import LossBudget, Overflow, Reconnect
from airflow_recovery.model.result_type import ResultType
from airflow_recovery.planning.logical import LogicalEdge, LogicalResult, LogicalTopology, LogicalVertex
from airflow_recovery.streaming.refusals import (
    ChannelDeclaration,
    RefusalRule,
    SinkGuarantee,
    VertexDeclaration,
    refusals,
)

TYPES = {"~": ResultType.PIPELINED_APPROXIMATE, "-": ResultType.BLOCKING, "=": ResultType.PIPELINED}
BUDGET = LossBudget(max_lost_records=10)
NOTHING = LossBudget(max_lost_records=0)


def drawn(edges: str) -> LogicalTopology:
    return single_subtasks({f"{piece[0]} {piece[2]}": TYPES[piece[1]] for piece in edges.split()})


CHAIN = drawn("a~b b~c")


def rules(topology=CHAIN, channels=None, vertices=None, **given) -> list[RefusalRule]:
    found = refusals(topology, channels or {}, vertices or {}, **given)
    assert all(refusal.text().startswith(f"{refusal.where}: ") for refusal in found)
    return [refusal.rule for refusal in found]


def test_a_chain_with_the_defaults_loses_nothing_and_is_not_refused():
    assert rules(max_active_tasks=3) == []


def test_a_batch_job_is_told_what_to_take_instead():
    (refusal,) = refusals(drawn("a-b"), {}, {})
    assert refusal.rule is RefusalRule.NO_CHANNEL
    assert "BLOCKING results and the failover strategy 'region'" in refusal.message


# --- shape -----------------------------------------------------------------------------------------------------------


def test_a_channel_has_one_consumer():
    topology = LogicalTopology(
        [LogicalVertex(each) for each in "abc"],
        [LogicalResult("a", "a", ResultType.PIPELINED_APPROXIMATE)],
        [LogicalEdge("a", "b"), LogicalEdge("a", "c")],
    )
    (refusal,) = refusals(topology, {}, {})
    assert refusal.rule is RefusalRule.TWO_CONSUMERS
    assert "found b, c" in refusal.message


def test_two_channels_of_one_producer_are_two_results():
    assert rules(drawn("a~b a~c")) == []


@pytest.mark.parametrize("edges", ["a~c a=b b=c", "a=b b=c a~c"])
def test_a_channel_inside_one_application_makes_no_sense(edges):
    assert rules(drawn(edges)) == [RefusalRule.ONE_APPLICATION]


@pytest.mark.parametrize(
    "edges",
    [
        "a~c a-b b-c",  # c runs with a, and waits for b, which waits for a
        "a~b a-b",  # the same with one step; two results
        "a~d b~c a-c b-d",  # two groups that wait for each other
    ],
)
def test_regions_that_run_together_and_wait_for_each_other_would_hang(edges):
    topology = drawn(edges) if edges != "a~b a-b" else parallel_edges()
    assert rules(topology) == [RefusalRule.NEVER_STARTS]


def parallel_edges() -> LogicalTopology:
    return LogicalTopology(
        [LogicalVertex(each) for each in "ab"],
        [LogicalResult("live", "a", ResultType.PIPELINED_APPROXIMATE), LogicalResult("file", "a", ResultType.BLOCKING)],
        [LogicalEdge("live", "b"), LogicalEdge("file", "b")],
    )


@pytest.mark.parametrize("edges", ["a-b b~c c-d", "a-c b~c", "a~b c~d b-d"])
def test_batch_steps_before_and_behind_a_chain_are_fine(edges):
    assert rules(drawn(edges)) == []


@pytest.mark.parametrize(("edges", "needed"), [("a~b b~c", 3), ("a~b c~d", 2), ("a=b b~c", 2), ("a~c b~c", 3)])
def test_regions_that_run_together_need_a_slot_each(edges, needed):
    assert rules(drawn(edges), max_active_tasks=needed) == []
    found = rules(drawn(edges), max_active_tasks=needed - 1)
    assert set(found) == {RefusalRule.TOO_FEW_SLOTS}
    assert len(found) == (2 if edges == "a~b c~d" else 1)


# --- streaming regions -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("guarantee", "refused"),
    [
        (SinkGuarantee.CHANNEL_LOG, False),
        (SinkGuarantee.EXACTLY_ONCE, True),
        (SinkGuarantee.FOREIGN, True),
    ],
)
def test_a_sink_that_must_not_miss_or_repeat_needs_the_authors_word(guarantee, refused):
    assert rules(vertices={"c": VertexDeclaration(sink=guarantee)}) == [RefusalRule.EXACT_SINK] * refused
    assert rules(vertices={"c": VertexDeclaration(sink=guarantee, allow_approximate=True)}) == []


def test_a_sink_elsewhere_in_the_job_is_none_of_ours():
    vertices = {"d": VertexDeclaration(sink=SinkGuarantee.EXACTLY_ONCE)}
    assert rules(drawn("a~b b~c c-d"), vertices=vertices) == []


def test_a_source_without_replay_needs_the_authors_word():
    assert rules(vertices={"a": VertexDeclaration(replays=False)}) == [RefusalRule.NO_REPLAY]
    assert rules(vertices={"a": VertexDeclaration(replays=False, allow_unknown_loss=True)}) == []


def test_latest_into_state_needs_the_authors_word():
    channels = {"b c": ChannelDeclaration(reconnect=Reconnect.LATEST, budget=BUDGET)}
    assert rules(channels=channels, vertices={"c": VertexDeclaration(is_stateful=True)}) == [
        RefusalRule.STATEFUL_LATEST
    ]
    assert rules(channels=channels, vertices={"c": VertexDeclaration(is_stateful=True, allow_stateful_loss=True)}) == []
    assert rules(channels=channels, vertices={"b": VertexDeclaration(is_stateful=True)}) == []


# --- channels --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("channel", "expected"),
    [
        (ChannelDeclaration(reconnect=Reconnect.LATEST), [RefusalRule.NO_BUDGET]),
        (ChannelDeclaration(overflow=Overflow.DROP), [RefusalRule.NO_BUDGET]),
        (ChannelDeclaration(reconnect=Reconnect.LATEST, budget=BUDGET), []),
        (ChannelDeclaration(overflow=Overflow.DROP, budget=BUDGET), []),
        (ChannelDeclaration(overflow=Overflow.DROP, budget=NOTHING), [RefusalRule.DROP_WITHOUT_BUDGET]),
        (ChannelDeclaration(overflow=Overflow.DROP, budget=LossBudget(5, 0.0)), [RefusalRule.DROP_WITHOUT_BUDGET]),
        (ChannelDeclaration(overflow=Overflow.BLOCK, budget=NOTHING), []),
        (ChannelDeclaration(max_bytes=0), [RefusalRule.NO_ROOM]),
    ],
)
def test_a_channel_that_may_lose_says_how_much(channel, expected):
    assert rules(channels={"a b": channel}) == expected


def test_everything_that_is_wrong_is_told_at_once():
    channels = {"a b": ChannelDeclaration(reconnect=Reconnect.LATEST, max_bytes=0)}
    vertices = {"a": VertexDeclaration(replays=False), "b": VertexDeclaration(is_stateful=True)}
    assert rules(channels=channels, vertices=vertices, max_active_tasks=1) == [
        RefusalRule.TOO_FEW_SLOTS,
        RefusalRule.NO_REPLAY,
        RefusalRule.STATEFUL_LATEST,
        RefusalRule.NO_BUDGET,
        RefusalRule.NO_ROOM,
    ]
