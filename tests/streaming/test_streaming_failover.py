"""FLIP-135's milestones in the pre-check: who is reset, who is cleared, and who goes on from what. ``a~b~c``."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import pytest
from expected_errors import fails_with
from fakes import Killed, Process
from streaming_world import DOWNSTREAM, REGION, SINGLE, SINK, StreamingWorld

from airflow_recovery.errors import AttemptLost, Overtaken
from airflow_recovery.model.failover_strategy import FailoverStrategy
from airflow_recovery.streaming import failover as streaming_failover
from airflow_recovery.streaming import restart as streaming_restart
from airflow_recovery.streaming.mode import ChannelRef
from airflow_recovery.streaming.work import StreamingWork

FULL = FailoverStrategy.FULL


def failing(
    region: str,
    strategy: FailoverStrategy,
    type_: str = "RuntimeError",
    *,
    at_work: str | None = None,
    **settings: object,
) -> StreamingWorld:
    """All are at work; ``region`` fails, retries and ends; then whoever was cleared."""
    world = StreamingWorld(strategy=strategy, **settings)  # type: ignore[arg-type]

    def fails_and_retries() -> None:
        world.fail(region, type_)
        world.go(region)

    world.together(*(each for each in "abc" if each != region), meanwhile=fails_and_retries)
    world.until_green()
    return world


def restarted(world: StreamingWorld) -> str:
    """Whoever has more than one attempt."""
    return "".join(each for each in "abc" if world.attempts(each) > 1)


def check_coherent(world: StreamingWorld) -> None:
    """Every finish that counts, and every attempt that it goes on from, works with generations that count; and what an
    attempt that does not count had read is of a generation that does not count either."""
    state = world.state()
    for left, right in world.links:
        counting = state.of(left).generations
        for region in (left, right):
            mine = state.of(region)
            for n, each in mine.attempts.items():
                if each.is_claimed:
                    pinned = world.pins(region, n)[left]
                    if n > mine.restarted_up_to:
                        assert pinned in counting, f"{region}@{n} goes on in generation {pinned} of {left}"
                    elif region == right:
                        assert pinned not in counting, f"{region}@{n} had read generation {pinned} of {left}"
            current = mine.current
            assert current is not None
            assert world.pins(region, current.number)[left] == counting[-1]


# --- the strategies --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("strategy", "failed", "others", "starting_over"),
    [
        (SINGLE, "a", "", ""),
        (SINGLE, "b", "", ""),
        (SINGLE, "c", "", ""),
        (DOWNSTREAM, "a", "bc", ""),
        (DOWNSTREAM, "b", "c", ""),
        (DOWNSTREAM, "c", "", ""),
        (SINK, "a", "bc", "abc"),
        (SINK, "b", "ac", "abc"),
        (SINK, "c", "", ""),
        (REGION, "a", "bc", "abc"),
        (REGION, "c", "ab", "abc"),
        (FULL, "b", "ac", "abc"),
    ],
)
def test_who_restarts_with_a_failed_region(strategy, failed, others, starting_over):
    world = failing(failed, strategy)
    assert restarted(world) == "".join(sorted(failed + others))
    assert sorted(world.airflow.cleared) == sorted(others)
    assert world.resets() == {(each, 1) for each in starting_over}
    for each in "abc":
        if world.attempts(each) > 1:
            assert world.earlier(each, 2) == (() if starting_over else (1,)), (
                "it goes on from its first attempt, or from none"
            )
    check_coherent(world)


@pytest.mark.parametrize("strategy", [SINGLE, SINK])
def test_a_restart_that_touches_nobody_asks_nobody(strategy):
    world = StreamingWorld(strategy=strategy)
    asked: list[str] = []

    def retry() -> None:
        world.fail("c")
        own = world.airflow.start("c")
        world.region_task(own, Process(gate=asked.append)).execute()
        world.airflow.end(own, "success")

    world.together("a", "b", meanwhile=retry)
    # The last look is the settle's, before the task says that it is done.
    assert asked.index("observe") > next(at for at, each in enumerate(asked) if "2.claim" in each)
    assert "clear" not in asked


def test_a_region_that_fails_before_others_have_begun_starts_over_alone():
    world = StreamingWorld(strategy=SINK)
    world.fail("a")
    world.go("a")
    assert world.resets() == {("a", 1)}
    world.go_all("bc")
    assert world.pins("b", 1) == {"a": 2, "b": 1}
    check_coherent(world)


def test_a_failure_restarts_those_behind_it_once(monkeypatch):
    """The retry clears them, and dies before its claim: the next one finds that they have begun behind the failure."""
    assert restarts_behind_a_dying_retry() == 2
    monkeypatch.setattr(streaming_failover, "has_restarted_behind", lambda claim, region, attempt: False)
    assert restarts_behind_a_dying_retry() == 3, "the control"


def restarts_behind_a_dying_retry() -> int:
    world = StreamingWorld(strategy=DOWNSTREAM)
    process = Process()

    def b_dies_before_its_second_claim(request: str) -> None:
        if "b/00000002.claim" in request:
            process.kill()

    def c_again_then_b() -> None:
        world.together("c", meanwhile=lambda: world.go("b"))

    def b_fails() -> None:
        world.fail("b")
        process.gate = b_dies_before_its_second_claim
        with pytest.raises(Killed):
            world.go("b", process=process)

    world.together("a", "c", meanwhile=b_fails)
    assert world.airflow.state("c") == "restarting"
    world.airflow.lose_heartbeat("b")
    c_again_then_b()
    world.until_green()
    return world.attempts("c")


def test_one_failure_of_the_source_does_not_make_its_reader_take_others_along_again():
    world = StreamingWorld(strategy=DOWNSTREAM)

    def a_fails() -> None:
        world.fail("a")
        world.go("a")

    world.together("b", "c", meanwhile=a_fails)
    # c is first: when b looks, c is at work again.
    world.together("c", meanwhile=lambda: world.go("b"))
    world.until_green()
    assert (world.attempts("b"), world.attempts("c")) == (2, 2)


def test_a_person_clears_a_region_and_those_behind_it_restart():
    world = StreamingWorld(strategy=DOWNSTREAM)

    def cleared_and_again() -> None:
        world.together("b", meanwhile=lambda: world.airflow.clear("b"))
        world.go("b")

    world.together("a", "c", meanwhile=cleared_and_again)
    assert world.airflow.cleared == ["c"]
    world.until_green()
    assert restarted(world) == "bc"


def test_a_plain_clear_makes_a_region_go_on_at_its_checkpoint():
    world = StreamingWorld()
    world.together("a", "b", "c", meanwhile=lambda: world.airflow.clear("b"))
    world.until_green()
    assert restarted(world) == "b"
    assert world.earlier("b", 2) == (1,)
    assert world.resets() == set()


def test_a_reset_of_one_region_begins_all_anew_since_what_it_had_read_was_released():
    world = StreamingWorld()
    world.together("a", "b", "c", meanwhile=lambda: world.restart("b"))
    world.until_green()
    assert world.resets() == {("a", 1), ("b", 1), ("c", 1)}
    check_coherent(world)


# --- after the end of the channel ------------------------------------------------------------------------------------


def test_a_consumer_that_is_cleared_after_the_end_of_its_channel_is_kept():
    world = StreamingWorld()
    world.go_all("abc")
    world.airflow.clear("c")
    world.until_green()
    assert restarted(world) == ""


@pytest.mark.parametrize("strategy", [SINGLE, DOWNSTREAM, SINK, REGION])
def test_a_consumer_that_is_reset_after_the_end_of_its_channel_needs_its_producer_too(strategy):
    world = StreamingWorld(strategy=strategy)
    world.go_all("abc")
    world.restart("c")
    world.until_green()
    assert restarted(world) == "abc"
    assert world.earlier("c", 2) == ()
    check_coherent(world)


def test_a_lost_result_of_the_last_region_needs_all_of_them_too():
    world = StreamingWorld()
    world.go_all("abc")
    world.delete_results("c", 1)
    world.until_green()
    assert restarted(world) == "abc"
    check_coherent(world)


def test_control_a_rule_that_does_not_ask_what_was_let_go_leaves_the_consumer_with_half_a_channel(monkeypatch):
    monkeypatch.setattr(streaming_restart, "_incoherent", lambda graph, state, region, pins: {})
    world = StreamingWorld()
    world.go_all("abc")
    world.restart("c")
    world.until_green()
    assert restarted(world) == "c"
    with pytest.raises(AssertionError, match="had read generation 1 of b"):
        check_coherent(world)


# --- what can't be connected again -----------------------------------------------------------------------------------


@pytest.mark.parametrize("failed", "abc")
def test_an_inconsistent_channel_starts_over_whatever_the_strategy(failed):
    world = failing(failed, SINGLE, "ChannelInconsistent")
    assert restarted(world) == "abc"
    check_coherent(world)


def test_control_any_other_failure_of_a_region_does_not():
    assert restarted(failing("c", SINGLE, "ChannelFailed")) == "c"


@pytest.mark.parametrize("lost", ["a", "b"])
def test_a_channel_whose_log_is_gone_starts_over(lost):
    world = StreamingWorld()
    world.lost_channels = {ChannelRef(lost, 1)}
    reader = {"a": "b", "b": "c"}[lost]

    def fails_and_retries() -> None:
        world.fail(reader)
        world.go(reader)

    world.together(*(each for each in "abc" if each != reader), meanwhile=fails_and_retries)
    world.until_green()
    assert restarted(world) == "abc"
    check_coherent(world)


def test_other_code_starts_over_since_a_result_is_not_made_half_and_half():
    world = StreamingWorld()

    def fixed() -> None:
        world.fail("b")
        world.fingerprints["b"] = "code 2"
        world.go("b")

    world.together("a", "c", meanwhile=fixed)
    world.until_green()
    assert restarted(world) == "abc"
    assert world.earlier("b", 2) == ()


def test_control_of_other_code_without_the_look_it_goes_on_from_what_the_old_code_made(monkeypatch):
    monkeypatch.setattr(streaming_failover, "_why_changed", lambda run, evaluation, claim: None)
    world = StreamingWorld()

    def fixed() -> None:
        world.fail("b")
        world.fingerprints["b"] = "code 2"
        world.go("b")

    world.together("a", "c", meanwhile=fixed)
    assert world.earlier("b", 2) == (1,)


# --- another output --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", [SINGLE, DOWNSTREAM])
def test_a_changed_output_restarts_those_behind_it_on_a_new_generation(strategy):
    world = failing("b", strategy, "ChannelAltered")
    assert restarted(world) == "bc"
    assert world.resets() == {("b", 1)}
    assert world.pins("b", 2) == {"a": 1, "b": 2}, "it goes on at its checkpoint"
    assert world.earlier("b", 2) == (1,)
    assert (world.pins("c", 2), world.earlier("c", 2)) == ({"b": 2}, (1,))
    work = world.worked[-1].work
    assert isinstance(work, StreamingWork)
    assert work.drained == (1,)
    check_coherent(world)


def test_the_source_takes_all_behind_it_along_directly_or_not():
    world = failing("a", SINGLE, "ChannelAltered")
    assert restarted(world) == "abc"
    assert world.resets() == {("a", 1)}
    assert world.pins("b", 2) == {"a": 2, "b": 1}
    check_coherent(world)


def test_a_reader_that_keeps_state_of_it_starts_over_and_all_with_it():
    world = failing("b", SINGLE, "ChannelAltered", stateful="c")
    assert restarted(world) == "abc"
    assert world.earlier("c", 2) == ()
    check_coherent(world)


def test_control_state_of_something_else_does_not_matter():
    assert failing("b", SINGLE, "ChannelAltered", stateful="b").resets() == {("b", 1)}


@pytest.mark.parametrize("strategy", [SINK, REGION])
def test_where_a_failure_starts_over_so_does_a_changed_output(strategy):
    world = failing("b", strategy, "ChannelAltered")
    assert world.resets() == {("a", 1), ("b", 1), ("c", 1)}
    check_coherent(world)


def test_a_control_that_forgets_the_mark_loses_what_was_read(monkeypatch):
    """A reset that is not marked as altered is a restart from the beginning, of all."""
    reset = streaming_failover.Reset

    def unmarked(*given: object, altered: bool = False, **named: object) -> object:
        return reset(*given, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(streaming_failover, "Reset", unmarked)
    assert restarted(failing("b", SINGLE, "ChannelAltered")) == "abc"


def test_an_altered_region_whose_code_changes_before_its_next_claim_starts_over():
    """Its newest attempt bears a reset already, of the other kind: it takes one more attempt to say so."""
    world = StreamingWorld()
    process = Process()

    def dies_before_its_claim(request: str) -> None:
        if "b/00000002.claim" in request:
            process.kill()

    def altered_then_fixed() -> None:
        world.fail("b", "ChannelAltered")
        process.gate = dies_before_its_claim
        with pytest.raises(Killed):
            world.go("b", process=process)
        world.airflow.lose_heartbeat("b")
        world.fingerprints["b"] = "code 2"
        world.go("b")

    world.together("a", "c", meanwhile=altered_then_fixed)
    world.until_green()
    assert world.resets() >= {("a", 1), ("b", 1), ("b", 2)}
    assert world.earlier("b", 3) == ()
    check_coherent(world)


# --- with blocking results -------------------------------------------------------------------------------------------


def test_who_reads_the_result_of_a_region_that_starts_over_follows():
    world = StreamingWorld(upstream={"D": ("c",)})
    world.go_all()
    world.restart("a")
    world.until_green()
    assert restarted(world) == "abc"
    assert world.attempts("D") == 2
    check_coherent(world)


def test_a_lost_blocking_input_of_a_region_is_made_again_and_then_it_starts_over():
    world = StreamingWorld(upstream={"T": (), "b": ("T",)})
    world.go("T")

    def loses_its_table() -> None:
        world.fail("b")
        world.delete_results("T", 1)
        with fails_with("input-cleared", cleared=["T"]):
            world.go("b")

    world.together("a", "c", meanwhile=loses_its_table)
    world.until_green()
    assert world.attempts("T") == 2
    assert restarted(world) == "abc"
    check_coherent(world)


def test_control_a_blocking_input_that_is_there_lets_it_go_on():
    world = StreamingWorld(upstream={"T": (), "b": ("T",)})
    world.go("T")
    world.together("a", "c", meanwhile=lambda: (world.fail("b"), world.go("b")))
    assert restarted(world) == "b"


# --- races and crashes -----------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    ("strategy", "failed", "type_"),
    [
        (SINK, "b", "RuntimeError"),
        (SINK, "a", "RuntimeError"),
        (DOWNSTREAM, "a", "RuntimeError"),
        (SINGLE, "b", "RuntimeError"),
        (SINGLE, "c", "ChannelInconsistent"),
        (SINGLE, "b", "ChannelAltered"),
    ],
)
def test_a_retry_that_is_killed_at_any_request_leaves_nothing_that_is_not_repaired(strategy, failed, type_):
    at = 0
    while killed_at(at, strategy, failed, type_):
        at += 1
    assert at > 5


def killed_at(at: int, strategy: FailoverStrategy, failed: str, type_: str) -> bool:
    world = StreamingWorld(strategy=strategy, retries=9)
    process = Process()
    count = 0

    def gate(request: str) -> None:
        nonlocal count
        count += 1
        if count > at:
            process.kill()

    def dies() -> None:
        world.fail(failed, type_)
        own = world.airflow.start(failed)
        process.gate = gate
        try:
            world.region_task(own, process).execute()
        except Killed:
            world.airflow.lose_heartbeat(failed)
        else:
            world.airflow.end(own, "success")
            return
        world.together(failed)

    world.together(*(each for each in "abc" if each != failed), meanwhile=dies)
    world.until_green()
    check_coherent(world)
    return process.is_dead


def is_found(at: int) -> bool:
    try:
        killed_at(at, SINK, "b", "RuntimeError")
    except AssertionError:
        return True
    return False


def test_control_of_the_crashes_without_what_claims_tell_a_reader_stays_behind(monkeypatch):
    monkeypatch.setattr(streaming_restart, "_incoherent", lambda graph, state, region, pins: {})
    assert any(is_found(at) for at in range(30))


def test_a_claim_that_came_too_late_is_given_up_before_spark_is_started(monkeypatch):
    """c lists; b starts over, looks for claims and finds none; then c claims the generation that nobody feeds."""
    assert late_claim() == (2, {"b": 2})
    monkeypatch.setattr(streaming_failover, "check_channels", lambda run, claim: None)
    assert late_claim() == (1, {"b": 1}), "the control"


def late_claim() -> tuple[int, dict[str, int]]:
    world = StreamingWorld(strategy=SINK)
    process = Process()

    def gate(request: str) -> None:
        if "c/00000001.claim" in request:
            process.gate = lambda request: None
            world.fail("b")
            world.go("b")

    process.gate = gate
    world.together("a", meanwhile=lambda: swallow(lambda: world.go("c", process=process)))
    ran = [n for name, n in world.ran if name == "c"]
    if not ran:
        world.go("c")
    first = next(n for name, n in world.ran if name == "c")
    return first, world.pins("c", first)


def swallow(call: Callable[[], object]) -> None:
    with suppress(AttemptLost, Overtaken):
        call()


def test_without_a_clear_client_a_restart_of_others_says_whom_to_clear_and_stands():
    world = StreamingWorld(strategy=SINK, can_clear=False)

    def fails() -> None:
        world.fail("b")
        with fails_with("no-way-to-clear-streams"):
            world.go("b")
        world.airflow.clear("a")
        world.airflow.clear("c")

    world.together("a", "c", meanwhile=fails)
    world.until_green()
    assert restarted(world) == "abc"
    check_coherent(world)


def test_without_a_clear_client_m2_goes_on_alone_and_says_so(caplog):
    world = StreamingWorld(strategy=DOWNSTREAM, can_clear=False)
    world.together("a", "c", meanwhile=lambda: (world.fail("b"), world.go("b")))
    assert restarted(world) == "b"
    assert "c should restart: clear it by hand" in caplog.text


def test_recompute_begins_every_region_anew_once_an_epoch():
    world = StreamingWorld()
    world.go_all("abc")
    world.airflow.clear_all()
    for each in "abc":
        world.go(each, epoch="2")
    for each in "abc":
        if world.airflow.state(each) != "success":
            world.go(each, epoch="2")
    assert world.airflow.state("a") == "success"
    check_coherent(world)
    assert max(world.attempts(each) for each in "abc") <= 3
