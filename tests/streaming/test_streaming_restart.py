"""The truth tables of `airflow_recovery.streaming.restart`, row by row; and channels in the evaluation. a~b~c."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from airflow_recovery.errors import Failure
from airflow_recovery.journal.run_state import Attempt, RegionState, RunState
from airflow_recovery.model.failover_strategy import FailoverStrategy
from airflow_recovery.model.inputs import InputRef
from airflow_recovery.model.records import AttemptState, Claim, FenceCause, Outcome, PlanRecord, Reset
from airflow_recovery.model.region_plan import RegionPlan
from airflow_recovery.planning.evaluation import Evaluation
from airflow_recovery.planning.reason import Why
from airflow_recovery.streaming.channel_graph import ChannelGraph, live_attempts, other_channels
from airflow_recovery.streaming.mode import (
    ChannelPlan,
    ChannelRef,
    StreamingClaim,
    StreamingOutcome,
    StreamingPlan,
    pinned_channels,
)
from airflow_recovery.streaming.preview import taken_along
from airflow_recovery.streaming.restart import (
    StreamingRestartMode,
    attempts_that_tell,
    ended_before,
    has_restarted_behind,
    is_taken_along,
    new_generation,
    should_restart,
    streaming_restart,
)

SINGLE = FailoverStrategy.APPROXIMATE_SINGLE
DOWNSTREAM = FailoverStrategy.APPROXIMATE_DOWNSTREAM
SINK = FailoverStrategy.APPROXIMATE_SINK
REGION = FailoverStrategy.REGION
FULL = FailoverStrategy.FULL
FIRST, ALONE, BEHIND, ALTERED, START_OVER = (
    StreamingRestartMode.FIRST,
    StreamingRestartMode.ALONE,
    StreamingRestartMode.BEHIND,
    StreamingRestartMode.ALTERED,
    StreamingRestartMode.START_OVER,
)
A, B = ChannelPlan("raw", "a"), ChannelPlan("scored", "b")


def graph(strategy: FailoverStrategy = SINGLE, *, stateful: str = "") -> ChannelGraph:
    regions = (
        RegionPlan("t", ("t",), ("t",), (), False, "code 1"),
        RegionPlan("a", ("a",), (), ("t",), False, "code 1", reads=("t",), mode=StreamingPlan(channels_out=(A,))),
        RegionPlan("b", ("b",), (), (), False, "code 1", mode=StreamingPlan(channels_in=(A,), channels_out=(B,))),
        RegionPlan("c", ("c",), ("c",), (), False, "code 1", mode=StreamingPlan(channels_in=(B,))),
        RegionPlan("d", ("d",), ("d",), ("c",), True, "code 1", reads=("c",)),
        RegionPlan("x", ("x",), (), (), False, "code 1", mode=StreamingPlan(channels_out=(ChannelPlan("x", "x"),))),
        RegionPlan("y", ("y",), ("y",), (), True, "code 1", mode=StreamingPlan(channels_in=(ChannelPlan("x", "x"),))),
    )
    found = tuple(
        replace(region, mode=replace(StreamingPlan.of(region), stateful=True)) if region.name in stateful else region
        for region in regions
    )
    return ChannelGraph(PlanRecord("job", found, failover_strategy=strategy))


class Told:
    """A run by saying what happened. Every attempt pins the generations of its time."""

    def __init__(self, strategy: FailoverStrategy = SINGLE, *, stateful: str = "") -> None:
        self.graph = graph(strategy, stateful=stateful)
        self.attempts: dict[str, dict[int, Attempt]] = {}

    def state(self) -> RunState:
        return RunState({name: RegionState(dict(found)) for name, found in self.attempts.items()})

    def start(self, *regions: str) -> Told:
        for name in regions:
            n, state = self.state().of(name).latest_attempt + 1, self.state()
            claim = Claim(name, n, "w", "plan", (), "run", n, "ti", "tag", "now")
            planned = self.graph.regions[name]
            pins = [
                ChannelRef(channel.result, state.of(channel.producer).generations[-1])
                for channel in StreamingPlan.of(planned).channels
            ]
            after = ended_before(self.graph, state, name)
            claim = replace(claim, mode=StreamingClaim(tuple(pins), after=after))
            self.attempts.setdefault(name, {})[n] = Attempt(n, is_claimed=True, claim=claim)
        return self

    def end(self, region: str, **fields: Any) -> Told:
        """The newest attempt, as it is open."""
        n = self.state().of(region).latest_attempt
        claim = self.claim(region)
        outcome = Outcome(region, n, AttemptState.FENCED, "w", "now", **fields)
        if outcome.cause is None:
            pins = StreamingOutcome(StreamingClaim.of(claim).channels)
            outcome = replace(outcome, state=AttemptState.FINISHED, fingerprint="code 1", mode=pins)
        self.attempts[region][n] = replace(self.attempts[region][n], has_outcome=True, outcome=outcome)
        return self

    def fail(self, region: str, type_: str = "RuntimeError", cause: FenceCause = FenceCause.OWN_FAILURE) -> Told:
        return self.end(region, cause=cause, failure=Failure(type_, "boom"))

    def reset(self, region: str, *, altered: bool = False) -> Told:
        n = self.state().of(region).latest_attempt
        reset = Reset(region, n, "w", "why", failover=True, altered=altered)
        self.attempts[region][n] = replace(self.attempts[region][n], is_reset=True, reset=reset)
        return self

    def claim(self, region: str, n: int = 0) -> Claim:
        claim = self.attempts[region][n or self.state().of(region).latest_attempt].claim
        assert claim is not None
        return claim

    def mode(self, region: str, **given: Any) -> StreamingRestartMode:
        return streaming_restart(self.graph, self.state(), region, **given).mode

    def starting_over(self, region: str, own: str | None = None) -> str:
        found = new_generation(
            self.graph, self.state(), region, own, lambda name, n: StreamingClaim.of(self.claim(name, n)).channels
        )
        return "".join(found)


def running(strategy: FailoverStrategy = SINGLE, **settings: Any) -> Told:
    return Told(strategy, **settings).start("a", "b", "c")


# --- the first table -------------------------------------------------------------------------------------------------


def test_a_region_without_attempts_that_count_begins():
    assert Told(SINK).mode("b") is FIRST
    assert running(SINK).fail("b").reset("b").mode("b") is FIRST
    assert streaming_restart(Told().graph, RunState(), "b").why == ""


@pytest.mark.parametrize("strategy", FailoverStrategy)
def test_what_has_finished_and_does_not_count_starts_over(strategy):
    assert running(strategy).end("c").mode("c") is START_OVER


@pytest.mark.parametrize("strategy", [SINGLE, DOWNSTREAM])
def test_but_not_where_only_its_producer_s_output_was_altered(strategy):
    told = running(strategy).end("c").fail("b", "ChannelAltered").reset("b", altered=True)
    assert told.mode("c") is ALONE
    assert running(strategy).end("c").fail("b").reset("b").mode("c") is START_OVER


@pytest.mark.parametrize("strategy", FailoverStrategy)
@pytest.mark.parametrize("region", "abc")
def test_other_code_a_lost_log_and_an_inconsistent_channel_start_over(strategy, region):
    assert running(strategy).fail(region).mode(region, changed="its code") is START_OVER
    assert running(strategy).fail(region).mode(region, is_lost=True) is START_OVER
    assert running(strategy).fail(region, "ChannelInconsistent").mode(region) is START_OVER


@pytest.mark.parametrize(
    ("strategy", "stateful", "expected"),
    [
        (SINGLE, "", ALTERED),
        (SINGLE, "b", ALTERED),
        (SINGLE, "c", START_OVER),
        (DOWNSTREAM, "", ALTERED),
        (DOWNSTREAM, "c", START_OVER),
        (SINK, "", START_OVER),
        (REGION, "", START_OVER),
        (FULL, "", START_OVER),
        (FailoverStrategy.INDIVIDUAL, "", START_OVER),
    ],
)
def test_a_changed_output(strategy, stateful, expected):
    assert running(strategy, stateful=stateful).fail("b", "ChannelAltered").mode("b") is expected


@pytest.mark.parametrize(
    ("strategy", "a", "b", "c"),
    [
        (SINGLE, ALONE, ALONE, ALONE),
        (DOWNSTREAM, BEHIND, BEHIND, ALONE),
        (SINK, START_OVER, START_OVER, ALONE),
        (REGION, START_OVER, START_OVER, START_OVER),
        (FULL, START_OVER, START_OVER, START_OVER),
        (FailoverStrategy.INDIVIDUAL, START_OVER, START_OVER, START_OVER),
    ],
)
@pytest.mark.parametrize("cause", FenceCause)
def test_any_other_end_by_the_strategy(strategy, a, b, c, cause):
    for region, expected in zip("abc", (a, b, c), strict=True):
        assert running(strategy).fail(region, cause=cause).mode(region) is expected


@pytest.mark.parametrize(
    ("told", "region", "restarts", "new"),
    [
        (running(SINGLE), "b", "b", set()),
        (running(DOWNSTREAM), "a", "abcd", set()),
        (running(SINK), "b", "abcd", {"raw", "scored"}),
        (running(REGION), "c", "abcd", {"raw", "scored"}),
    ],
)
def test_who_restarts_with_it_and_on_which_channels(told, region, restarts, new):
    restart = streaming_restart(told.fail(region).graph, told.state(), region)
    found = taken_along(told.graph, region, restart.mode)
    assert "".join(sorted(found.regions)) == restarts
    regions = (told.graph.regions[name] for name in found.starting_over)
    assert {each.result for planned in regions for each in StreamingPlan.of(planned).channels_out} == new


def test_all_that_is_connected_starts_over_with_one_that_was_reset():
    assert "".join(sorted(taken_along(graph(), "c", START_OVER).regions)) == "abcd"
    assert "".join(sorted(taken_along(graph(), "y", START_OVER).regions)) == "xy"


# --- who starts over with whom ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("region", "abc")
def test_all_that_have_begun_start_over_with_one_of_them(region):
    assert running().starting_over(region, "why") == "abc"
    assert Told().start("a").starting_over("a", "why") == "a"
    assert Told().start("a", "b").starting_over("b", "why") == "ab"


def test_nobody_does_without_a_cause():
    told = running().fail("b").start("b").end("a").end("b").end("c")
    assert [told.starting_over(each) for each in "abc"] == ["", "", ""]


@pytest.mark.parametrize("done", ["a", "b", "c", "ab", "bc", "ac"])
@pytest.mark.parametrize("looks", "abc")
def test_what_a_crash_between_the_resets_has_left_is_completed_by_whoever_looks(done, looks):
    told = running()
    for each in done:
        told.reset(each)
    assert set(told.starting_over(looks)) == set("abc") - set(done)
    told = running().reset("a").reset("b").reset("c")
    assert told.starting_over(looks) == ""
    assert told.start("a", "b", "c").starting_over(looks) == ""


def test_who_has_claimed_again_in_an_old_generation_starts_over_once_more():
    told = running().reset("c").start("c").reset("b").reset("a")
    assert told.starting_over("a") == "c"


def test_an_altered_output_lets_nobody_start_over():
    told = running().fail("b", "ChannelAltered").reset("b", altered=True)
    assert told.starting_over("b") == ""
    assert told.start("b").fail("c").start("c").starting_over("c") == ""
    assert told.starting_over("c", "why") == "abc"


def test_the_attempts_that_tell():
    told = running().fail("c").start("c").fail("c").start("c")
    assert attempts_that_tell(told.state(), "c") == (1, 3)
    told.fail("c").reset("c").start("c").fail("c").start("c")
    assert attempts_that_tell(told.state(), "c") == (3, 4, 5)
    assert attempts_that_tell(RunState({"c": RegionState({}, closed_at=3)}), "c") == ()


def test_other_chains_are_left_alone():
    told = running().start("x", "y").reset("x")
    assert told.starting_over("x") == "y"
    assert told.starting_over("a", "why") == "abc"


# --- who restarts behind whom ----------------------------------------------------------------------------------------


def test_a_claim_says_behind_which_ends_it_begins():
    told = running().fail("a").start("a").fail("b").start("c")
    assert StreamingClaim.of(told.claim("c")).after == (InputRef("a", 1), InputRef("b", 1))
    assert has_restarted_behind(told.claim("c"), "b", 1)
    assert not has_restarted_behind(told.claim("c"), "b", 2)
    assert not has_restarted_behind(told.claim("b"), "a", 1)


def test_who_was_ended_behind_another_one_takes_nobody_along_itself():
    told = running(DOWNSTREAM).fail("a").fail("b", cause=FenceCause.SUPERSEDED)
    assert is_taken_along(told.graph, told.state(), told.claim("b"))
    control = running(DOWNSTREAM).fail("b", cause=FenceCause.SUPERSEDED)
    assert not is_taken_along(control.graph, control.state(), control.claim("b"))


@pytest.mark.parametrize(
    ("strategy", "altered", "expected"), [(DOWNSTREAM, False, True), (SINGLE, False, False), (SINGLE, True, True)]
)
def test_an_attempt_that_a_lost_clear_was_to_end_is_known_all_the_same(strategy, altered, expected):
    told = running(strategy).fail("a", "ChannelAltered" if altered else "RuntimeError")
    if altered:
        told.reset("a", altered=True)
    assert should_restart(told.graph, told.state(), told.claim("c")) is expected
    told.fail("c").start("c")
    assert not should_restart(told.graph, told.state(), told.claim("c"))


# --- the shape, and the evaluation ----------------------------------------------------------------------------------


def test_who_is_connected_with_whom():
    found = graph()
    assert found.before("c") == ("a", "b")
    assert found.behind("a") == ("b", "c")
    assert found.connected("b") == ("a", "b", "c")
    assert found.connected("y") == ("x", "y")
    assert (found.producers("a"), found.readers("c")) == ((), ())
    assert set(found.regions) == set("abcxy")
    assert live_attempts(RunState(), "a") == []


def evaluation(told: Told) -> Evaluation:
    told.attempts.setdefault("t", {1: Attempt(1, True, True, outcome=_finish("t"))})
    return Evaluation(told.graph.plan, told.state(), available=lambda *asked: None)


def _finish(region: str) -> Outcome:
    return Outcome(region, 1, AttemptState.FINISHED, "w", "now", fingerprint="code 1")


def test_a_finish_in_a_generation_of_before_does_not_stand():
    told = running().end("b").end("c")
    assert evaluation(told).invalid_because("c") is None
    told.fail("a").reset("a")
    found = evaluation(told)
    reason = found.invalid_because("c")
    assert reason is not None
    assert (reason.why, reason.source) == (Why.INPUT_INVALID, "b"), "although its own channel is what it has read"
    assert not found.is_undecided("c")
    reason = found.invalid_because("b")
    assert reason is not None
    assert (reason.why, reason.source) == (Why.CHANNEL_RESTARTED, "a")
    assert reason.text() == "b: its channel starts a new generation (raw was in generation 1, now 2)"
    assert found.why_must_run("b") == reason
    assert found.lost_inputs("b") == {}, "a channel is no input: nobody waits for its producer's end"


def test_a_reader_stands_while_who_feeds_it_has_only_not_said_that_it_has_finished():
    """It died behind its last record in the channel: its next attempt finds nothing left to do."""
    told = running().end("c").fail("b")
    assert evaluation(told).invalid_because("c") is None
    assert evaluation(told).why_must_run("b") is not None


def test_a_region_is_not_valid_in_its_own_older_generation_either():
    told = running().end("b").reset("b", altered=True)
    reason = other_channels(told.graph.regions["b"], told.state(), StreamingClaim.of(told.claim("b")).channels)
    assert reason == ("scored was in generation 1, now 2", "b")


def test_a_finish_with_other_channels_than_today_s_does_not_stand():
    told = running().end("c")
    outcome = told.attempts["c"][1].outcome
    assert outcome is not None
    told.attempts["c"][1] = replace(told.attempts["c"][1], outcome=replace(outcome, mode=StreamingOutcome()))
    reason = evaluation(told).invalid_because("c")
    assert reason is not None
    assert (reason.why, reason.detail) == (Why.INPUTS_CHANGED, "channels [], now ['scored']")


def test_what_a_task_relies_on_is_its_own_open_claim_else_the_finish():
    told = running().end("c").start("c")
    found = evaluation(told)
    assert pinned_channels(found.mode_basis("c", "ti")) == (ChannelRef("scored", 1),)
    assert pinned_channels(found.mode_basis("c", "another")) == (ChannelRef("scored", 1),)
    assert pinned_channels(found.mode_basis("b", "another")) == ()
