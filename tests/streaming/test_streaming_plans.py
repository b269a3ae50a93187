"""What a plan says of streaming regions before it happens; held against what their tasks then do."""

from __future__ import annotations

from typing import Any

import pytest
from expected_errors import fails_with
from streaming_world import DOWNSTREAM, REGION, SINGLE, SINK, StreamingWorld

from airflow_recovery.attempt.apply_plan import AppliedPlan, apply_plan
from airflow_recovery.errors import Failure
from airflow_recovery.journal.run_state import Attempt
from airflow_recovery.model.channel_options import Overflow, Reconnect
from airflow_recovery.model.failover_strategy import FailoverStrategy
from airflow_recovery.planning.plan import Plan
from airflow_recovery.planning.plan_making import plan
from airflow_recovery.planning.plan_text import plan_text
from airflow_recovery.planning.reason import Reason, Why
from airflow_recovery.planning.scenario import (
    REBUILD,
    CodeChanged,
    PartitionGone,
    RegionFailure,
    Request,
    RestartFrom,
    RestartRegion,
)
from airflow_recovery.streaming.planning import PlannedChannel, PlannedChannels
from airflow_recovery.streaming.restart import StreamingRestartMode

GOES_ON, ALONE, BEHIND, ALONG, START_OVER = (
    StreamingRestartMode.GOES_ON,
    StreamingRestartMode.ALONE,
    StreamingRestartMode.BEHIND,
    StreamingRestartMode.TAKEN_ALONG,
    StreamingRestartMode.START_OVER,
)


def planned(world: StreamingWorld, request: Request = REBUILD) -> Plan:
    found = plan(world.plan, world.state(), lambda *asked: None, request)
    assert Plan.from_json(found.to_json()) == found
    return found


def at_work(request: Request, strategy: FailoverStrategy = SINGLE, **settings: Any) -> Plan:
    """The plan while all are at work for the first time."""
    world = StreamingWorld(strategy=strategy, **settings)
    plans: list[Plan] = []
    world.together("a", "b", "c", meanwhile=lambda: plans.append(planned(world, request)))
    return plans[0]


def channels_of(found: Plan) -> tuple[PlannedChannel, ...]:
    return found.mode.channels if isinstance(found.mode, PlannedChannels) else ()


def modes(found: Plan) -> list[str | None]:
    return [found.of(each).restart for each in "abc"]


@pytest.mark.parametrize(
    ("strategy", "failed", "expected"),
    [
        (SINGLE, "a", [ALONE, GOES_ON, GOES_ON]),
        (SINGLE, "b", [GOES_ON, ALONE, GOES_ON]),
        (DOWNSTREAM, "a", [BEHIND, ALONG, ALONG]),
        (DOWNSTREAM, "b", [GOES_ON, BEHIND, ALONG]),
        (DOWNSTREAM, "c", [GOES_ON, GOES_ON, ALONE]),
        (SINK, "b", [START_OVER, START_OVER, START_OVER]),
        (SINK, "c", [GOES_ON, GOES_ON, ALONE]),
        (REGION, "c", [START_OVER, START_OVER, START_OVER]),
    ],
)
def test_who_restarts_with_a_failure_and_how(strategy, failed, expected):
    assert modes(at_work(RegionFailure(failed), strategy)) == expected


def test_nothing_restarts_where_nothing_is_asked():
    found = at_work(REBUILD, SINK)
    assert modes(found) == [GOES_ON, GOES_ON, GOES_ON]
    assert channels_of(found) == ()
    assert found.of("a").told == "never finished (attempt 1 is open); goes on, undisturbed"


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        (RestartRegion("b"), [START_OVER, START_OVER, START_OVER]),
        (RestartRegion("c"), [START_OVER, START_OVER, START_OVER]),
        (RestartFrom("b"), [START_OVER, START_OVER, START_OVER]),
        (CodeChanged("c"), [START_OVER, START_OVER, START_OVER]),
        (PartitionGone("b"), [START_OVER, START_OVER, START_OVER]),
        (PartitionGone("a.a"), [START_OVER, START_OVER, START_OVER]),
    ],
)
@pytest.mark.parametrize("ended", [False, True])
def test_what_starts_over_whatever_the_strategy(request_, expected, ended):
    if not ended:
        assert modes(at_work(request_)) == expected
        return
    world = StreamingWorld()
    world.go_all("abc")
    if isinstance(request_, PartitionGone):
        assert modes(planned(world, request_)) == [None, None, None], "nobody wants what was read to its end"
    else:
        assert modes(planned(world, request_)) == expected


def test_a_failure_after_the_end_of_the_channels_starts_over():
    world = StreamingWorld()
    world.go_all("abc")
    assert modes(planned(world, RegionFailure("b"))) == [START_OVER, START_OVER, START_OVER]


def test_a_lost_result_of_the_last_region_drags_all_in_and_who_reads_it_follows():
    world = StreamingWorld(upstream={"D": ("c",)}, finals=("c",))
    world.go_all()

    def available(region: str, attempt: Attempt, result: str) -> Reason | None:
        return Reason("c", Why.OUTPUT_MISSING) if (region, attempt.number) == ("c", 1) else None

    found = plan(world.plan, world.state(), available, REBUILD)
    assert modes(found) == [START_OVER, START_OVER, START_OVER]
    assert found.of("D").action.value == "run"


def test_a_blocking_input_that_is_made_again_begins_its_region_anew():
    world = StreamingWorld(upstream={"T": (), "b": ("T",)})
    world.go_all()
    assert modes(planned(world, RestartRegion("T"))) == [START_OVER, START_OVER, START_OVER]
    assert planned(world, RestartRegion("T")).of("T").restart is None


def test_two_chains_have_nothing_to_do_with_each_other():
    world = StreamingWorld("a~b c~d")
    world.go_all("abcd")
    assert planned(world, RestartRegion("a")).running == ("a", "b")


# --- the channels ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "strategy", "failed", "a", "b"),
    [
        ({}, SINGLE, "b", "lost nothing", "lost nothing"),
        (
            {"reconnect": Reconnect.LATEST},
            SINGLE,
            "b",
            "lost from the checkpoint to the head at the reconnection",
            "lost nothing",
        ),
        (
            {"reconnect": Reconnect.LATEST},
            DOWNSTREAM,
            "b",
            "lost from the checkpoint to the head at the reconnection",
            "lost from the checkpoint to the head at the reconnection",
        ),
        ({"reconnect": Reconnect.LATEST}, SINK, "b", "lost nothing", "lost nothing"),
        ({"overflow": Overflow.DROP}, SINGLE, "c", "lost nothing", "lost what overflow had dropped"),
    ],
)
def test_what_each_channel_loses_is_told_beforehand(options, strategy, failed, a, b):
    found = at_work(RegionFailure(failed), strategy, options=options)
    told = [channel.text() for channel in channels_of(found)]
    generation = "new generation 2" if strategy is SINK else "generation 1"
    assert told == [
        f"a: {a}; repeated nothing; {generation}",
        f"b: {b}; repeated nothing; {generation}",
    ]
    assert f"Channels:\n  {told[0]}\n  {told[1]}" in plan_text(found)


@pytest.mark.parametrize(
    ("strategy", "failed", "is_told"), [(SINGLE, "a", True), (SINGLE, "b", False), (SINK, "b", True)]
)
def test_what_a_source_that_cannot_replay_loses_is_unknown_and_said_so(strategy, failed, is_told):
    found = at_work(RegionFailure(failed), strategy, not_replayed="a")
    assert ("lost unknown: its source can't replay" in channels_of(found)[0].text()) is is_told


def test_the_tree_shows_who_takes_whom_along():
    found = at_work(RegionFailure("b"), SINK)
    assert [each.name for each in found.chain("c")] == ["c", "b"]
    assert found.of("b").told == (
        "its channel starts a new generation (b@1 has ended, and the failover strategy is approximate-sink)"
    )


def test_an_unknown_channel_is_told_with_the_closest():
    with fails_with("result-unknown"):
        planned(StreamingWorld(), PartitionGone("bb"))


def test_a_plan_of_a_job_without_channels_says_nothing_of_them():
    found = planned(StreamingWorld("a~b")).to_json()
    assert "stage" in found["regions"][0]
    world = StreamingWorld("a~b")
    world.links = []
    plain = planned(world).to_json()
    assert not any("stage" in each for each in plain["regions"])
    assert "channels" not in plain


# --- a plan, and then the tasks --------------------------------------------------------------------------------------


@pytest.mark.parametrize("restarted", "abc")
def test_restart_region_resets_and_clears_what_channels_connect(restarted):
    world = StreamingWorld()
    applied: list[AppliedPlan] = []

    def restart() -> None:
        applied.append(apply_plan(world.journal(), planned(world, RestartRegion(restarted, "ann")), "ann"))
        for each in applied[0].clear:
            world.airflow.clear(each)

    world.together("a", "b", "c", meanwhile=restart)
    world.until_green()
    assert sorted(applied[0].clear) == ["a", "b", "c"]
    assert world.resets() == {("a", 1), ("b", 1), ("c", 1)}
    assert [world.earlier(each, 2) for each in "abc"] == [(), (), ()]
    assert modes(planned(world)) == [None, None, None], "and then all is kept"


@pytest.mark.parametrize("strategy", [SINGLE, DOWNSTREAM, SINK, REGION])
@pytest.mark.parametrize("failed", "abc")
@pytest.mark.parametrize("type_", ["RuntimeError", "ChannelInconsistent", "ChannelAltered"])
def test_what_is_planned_after_a_failure_is_what_the_tasks_do(strategy, failed, type_):
    world = StreamingWorld(strategy=strategy)
    found: list[Plan] = []

    def fails() -> None:
        world.fail(failed, type_)
        found.append(planned(world))
        world.go(failed)

    world.together(*(each for each in "abc" if each != failed), meanwhile=fails)
    world.until_green()
    undisturbed = {each for each in "abc" if found[0].of(each).restart == GOES_ON}
    assert {each for each in "abc" if world.attempts(each) == 1} == undisturbed
    anew = {each for each in "abc" if found[0].of(each).restart == START_OVER}
    assert {each for each in "abc" if world.attempts(each) > 1 and not world.earlier(each, 2)} == anew
    for channel in channels_of(found[0]):
        assert world.state().of(channel.preview.result).generations[-1] == channel.generation


def test_a_recorded_failure_type_survives_into_the_plan():
    world = StreamingWorld()
    world.fail("a", "ChannelInconsistent")
    outcome = world.state().of("a").attempts[1].outcome
    assert outcome is not None
    assert isinstance(outcome.failure, Failure)
    assert planned(world).of("a").restart == START_OVER
