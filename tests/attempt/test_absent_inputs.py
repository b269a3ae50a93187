"""An input counts only if this run has it: whatever an earlier try of the date has left behind (faults 179 to 182)."""

from __future__ import annotations

import pytest
from expected_errors import fails_with
from fakes import PUBLISH, Process, World

from airflow_recovery.attempt import region_task
from airflow_recovery.attempt.pin import pin
from airflow_recovery.attempt.publish import PublishTask
from airflow_recovery.attempt.region_task import Decision
from airflow_recovery.errors import (
    InputLost,
    RegionFailed,
)
from airflow_recovery.journal.published import published_result
from airflow_recovery.journal.run_state import RegionState
from airflow_recovery.model.records import ExternalObject
from airflow_recovery.testing.fake_airflow import FakeAirflow

PAIR = {"a": (), "b": ("a",)}
JOIN = {"x": (), "y": (), "join": ("x", "y")}
RULES = ("all_done", "always", "one_failed", "none_failed_min_one_success")


def file(etag: str) -> ExternalObject:
    return ExternalObject("a", "s3://lake/a.csv", 1, etag)


def fails(world: World, region: str, externals: tuple[ExternalObject, ...] = ()) -> None:
    """A try of ``region`` claims, and its application fails; Airflow has no retry left."""

    def fail() -> None:
        raise RegionFailed("broken")

    with pytest.raises(RegionFailed):
        world.go(region, on_start=fail, externals=externals)
    world.airflow.fail_for_good(region)


def operators(upstream=PAIR, **options) -> World:
    """A run of operators that is green."""
    world = World(upstream, by_operators=True, **options)
    world.go_all()
    return world


def deploys_broken_code(world: World, region: str = "a") -> None:
    """New code of ``region``, which fails."""
    world.fingerprints[region] = "code 2"
    world.airflow.clear(region)
    fails(world, region)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("by_operators", [True, False])
def test_fault_179_a_consumer_does_not_use_what_a_failed_producer_had_made_before(rule, by_operators):
    world = World(PAIR, by_operators=by_operators, rules={"b": rule})
    world.go_all()
    deploys_broken_code(world)
    world.airflow.clear("b")
    with fails_with("reads-what-failed", region="b", input="a"):
        world.go("b")
    assert world.attempts("b") == 1


def test_fault_179_control_without_a_look_at_airflow_the_old_rows_are_kept(monkeypatch):
    monkeypatch.setattr(region_task, "absent_inputs", lambda run, region: ())
    monkeypatch.setattr(RegionState, "outdated_since", None)
    world = operators(rules={"b": "all_done"})
    deploys_broken_code(world)
    world.airflow.clear("b")
    assert world.go("b").decision is Decision.KEPT


def test_a_consumer_by_the_default_rule_asks_airflow_for_no_state():
    world = operators()
    world.airflow.clear("b")
    asked: list[str] = []
    own = world.airflow.start("b")
    world.region_task(own, Process(asked.append)).execute()
    assert "states" not in asked


@pytest.mark.parametrize("can_clear", [True, False])
def test_fault_180_a_finish_that_its_own_task_found_outdated_counts_for_nobody(can_clear):
    """Its producer has failed with new code, and somebody has marked it as a success."""
    world = operators(can_clear=can_clear)
    deploys_broken_code(world)
    world.airflow.mark("a", "success")
    world.airflow.clear("b")
    with fails_with("input-cleared", "no-way-to-clear", lost={"a": "OUTDATED"}) as raised:
        world.go("b")
    assert isinstance(raised.value, InputLost) is can_clear
    assert world.attempts("b") == 1


def test_fault_180_so_does_one_whose_external_input_has_changed():
    world = operators()
    world.airflow.clear("a")
    fails(world, "a", externals=(file("e2"),))
    world.airflow.mark("a", "success")
    world.airflow.clear("b")
    with pytest.raises(InputLost):
        world.go("b")
    assert world.airflow.cleared == ["a"]


def test_fault_180_control_without_the_claims_word_the_old_finish_counts(monkeypatch):
    monkeypatch.setattr(RegionState, "outdated_since", None)
    world = operators()
    deploys_broken_code(world)
    world.airflow.mark("a", "success")
    world.airflow.clear("b")
    assert world.go("b").decision is Decision.KEPT


def test_after_a_rollback_the_old_finish_counts_again_once_its_own_task_has_looked():
    world = operators()
    deploys_broken_code(world)
    world.fingerprints["a"] = "code 1"
    world.airflow.clear("a")
    world.airflow.clear("b")
    assert world.state().of("a").outdated_since == 2
    assert world.go("a").decision is Decision.KEPT
    assert world.state().of("a").outdated_since is None
    assert world.go("b").decision is Decision.KEPT
    keys = [info.key for info in world.journal_store.list("")]
    assert [key for key in keys if key.endswith(".kept")] == [world.journal().layout.attempt("a", 2, "kept")]
    assert world.verify().violated == ()


def test_a_kept_try_writes_nothing_where_no_claim_calls_its_finish_outdated():
    world = operators()
    before = {info.key for info in world.journal_store.list("")}
    world.airflow.clear("a")
    world.go("a")
    assert {info.key for info in world.journal_store.list("")} == before


def test_the_broken_code_comes_back_after_a_rollback_and_the_old_finish_is_outdated_again():
    world = operators()
    deploys_broken_code(world)
    world.fingerprints["a"] = "code 1"
    world.airflow.clear("a")
    world.go("a")
    deploys_broken_code(world)
    assert world.state().of("a").outdated_since == 3


def test_an_attempt_that_only_makes_lost_data_again_calls_nothing_outdated():
    world = operators({"a": ()})
    world.delete_results("a", 1)
    world.airflow.clear("a")
    fails(world, "a")
    assert world.state().of("a").outdated_since is None


def test_fault_180_readers_outside_are_not_given_an_outdated_result():
    world = operators()
    world.publish()
    assert published_result(world.journal(), "b").attempt == 1
    deploys_broken_code(world)
    with fails_with("published-outdated", rests_on="a@1", now=1):
        published_result(world.journal(), "b")
    assert published_result(world.journal(), "b", accept_failed=True).attempt == 1
    world.fingerprints["a"] = "code 1"
    world.airflow.clear("a")
    world.go("a")
    assert published_result(world.journal(), "b").attempt == 1


@pytest.mark.parametrize("rule", RULES)
def test_fault_181_the_reader_of_what_this_run_has_skipped_is_skipped_whatever_an_earlier_try_had(rule):
    world = operators(JOIN, rules={"join": rule})
    world.airflow.mark("x", "skipped")
    world.airflow.clear("join")
    with fails_with("reads-what-was-skipped", region="join", input="x"):
        world.go("join")


def test_fault_181_an_optional_input_that_is_skipped_is_absent_and_its_reader_runs_without_it():
    world = operators(JOIN, rules={"join": "none_failed_min_one_success"}, optional={"join": ("x", "y")})
    assert world.content("join") == "join of ['x of []', 'y of []']"
    world.airflow.mark("x", "skipped")
    world.airflow.clear("join")
    result = world.go("join")
    assert (result.decision, result.cause) == (
        Decision.RAN,
        "join: reads other inputs now (x is absent in this run)",
    )
    assert world.content("join") == "join of ['y of []']"
    assert result.outcome.absent == ("x",)
    world.airflow.clear("join")
    assert world.go("join").decision is Decision.KEPT
    world.publish()
    assert world.journal().read_publish(1).skipped == ("x",)
    assert world.verify().violated == ()
    world.airflow.mark("x", "success")
    world.airflow.clear("join")
    assert world.go("join").cause == "join: reads other inputs now (x was absent, and is there)"
    assert world.content("join") == "join of ['x of []', 'y of []']"


def test_fault_181_control_where_nobody_asks_airflow_the_other_branch_is_read(monkeypatch):
    monkeypatch.setattr(region_task, "absent_inputs", lambda run, region: ())
    world = operators(JOIN, rules={"join": "none_failed_min_one_success"})
    world.airflow.mark("x", "skipped")
    world.airflow.clear("join")
    assert world.go("join").decision is Decision.KEPT


@pytest.mark.parametrize("state", ["failed", "upstream_failed", "skipped"])
def test_an_optional_input_that_never_was_there_is_absent(state):
    world = World(JOIN, by_operators=True, rules={"join": "all_done"}, optional={"join": ("x",)})
    world.go("y")
    world.airflow.mark("x", state)
    assert world.go("join").outcome.absent == ("x",)
    assert world.content("join") == "join of ['y of []']"


def test_a_reader_further_down_does_not_ask_for_what_its_producer_may_go_without():
    world = World({**JOIN, "last": ("join",)}, by_operators=True, rules={"join": "all_done"}, optional={"join": ("x",)})
    world.go("y")
    world.airflow.mark("x", "skipped")
    world.go("join")
    world.go("last")
    world.delete_results("join", 1)
    world.delete_results("last", 1)
    world.airflow.clear("last")
    with pytest.raises(InputLost):
        world.go("last")
    assert world.airflow.cleared == ["join"]
    world.go("join")
    world.go("last")
    assert world.content("last") == "last of [\"join of ['y of []']\"]"


def test_an_input_that_is_not_over_is_waited_for():
    world = World(PAIR, by_operators=True, rules={"b": "always"})
    with fails_with("reads-what-is-not-over", region="b", input="a"):
        world.go("b")
    world.go("a")
    assert world.go("b").decision is Decision.RAN


@pytest.mark.parametrize("rule", RULES)
def test_a_clean_up_task_without_inputs_runs_whatever_has_failed_above_it(rule):
    world = World({"a": (), "clean": ()}, by_operators=True, rules={"clean": rule})
    fails(world, "a")
    asked: list[str] = []
    own = world.airflow.start("clean")
    assert world.region_task(own, Process(asked.append)).execute().decision is Decision.RAN
    assert "states" not in asked


def test_a_pin_decides_nothing_new_code_runs_and_is_published():
    world = operators()
    world.publish()
    pin(world.journal(), world.state(), "a", 1, "ann", "for the audit")
    world.fingerprints["a"] = "code 2"
    world.airflow.clear_all()
    assert world.go("a").attempt == 2
    world.go("b")
    assert {region.region: region.attempt for region in world.publish().regions} == {"a": 2, "b": 2}


def test_fault_182_a_region_that_skips_itself_today_is_published_no_more():
    world = operators({**PAIR, "c": ()})
    world.publish()
    world.airflow.clear("a")
    fails(world, "a", externals=(file("e2"),))
    for region in "ab":
        world.airflow.mark(region, "skipped")
    world.airflow.clear(PUBLISH)
    world.airflow.upstream[PUBLISH] = ("c",)
    publish = world.publish()
    assert publish.skipped == ("a", "b")
    assert [region.region for region in publish.regions if region.results] == ["c"]
    with fails_with("publish-does-not-name", found="b"):
        published_result(world.journal(), "b")


def test_fault_182_control_where_states_are_not_asked_the_old_result_is_published(monkeypatch):
    monkeypatch.setattr(PublishTask, "_states", lambda self, observation: dict.fromkeys("abc", "success"))
    monkeypatch.setattr(RegionState, "outdated_since", None)
    world = operators({**PAIR, "c": ()})
    world.airflow.clear("a")
    fails(world, "a", externals=(file("e2"),))
    for region in "ab":
        world.airflow.mark(region, "skipped")
    world.airflow.upstream[PUBLISH] = ("c",)
    world.publish()
    assert published_result(world.journal(), "b").attempt == 1


def published_early() -> World:
    """The task that publishes starts before ``a``, which is cleared, and may yet be skipped in this run."""
    world = operators({**PAIR, "c": ()})
    world.publish()
    world.airflow.clear("a")
    world.airflow.clear(PUBLISH)
    world.airflow.upstream[PUBLISH] = ("c",)
    return world


def test_fault_350_a_publish_waits_for_a_region_that_is_not_over():
    world = published_early()
    with fails_with("publish-of-pending"):
        world.publish()
    assert world.state().newest_publish == 1
    for region in "ab":
        world.airflow.mark(region, "skipped")
    assert [region.region for region in world.publish().regions if region.results] == ["c"]


@pytest.mark.control
def test_fault_350_control_without_the_wait_what_is_skipped_a_moment_later_is_published(monkeypatch):
    monkeypatch.setattr("airflow_recovery.attempt.publish.not_over", lambda named, states: ())
    world = published_early()
    world.publish()
    for region in "ab":
        world.airflow.mark(region, "skipped")
    assert published_result(world.journal(), "a").attempt == 1


def waits(world: World, times: int = 20) -> str | None:
    """The task that publishes looks so often, and ``a`` is at work. Returns the state of the publish then."""
    for _ in range(times):
        if PUBLISH in world.airflow.ready():
            with fails_with("publish-of-pending"):
                world.publish()
    return world.airflow.state(PUBLISH)


def never_made() -> World:
    """The task that publishes does not wait for ``a``, which has made nothing yet."""
    world = World({"a": (), "c": ()})
    world.go("c")
    world.airflow.upstream[PUBLISH] = ("c",)
    return world


@pytest.mark.parametrize("world", [published_early, never_made])
def test_fault_352_a_publish_that_waits_for_long_uses_no_retry(world):
    world = world()
    assert waits(world) == "up_for_reschedule"
    world.go("a")
    assert {region.region: region.results for region in world.publish().regions}["a"] == ("a",)


@pytest.mark.control
@pytest.mark.parametrize("world", [published_early, never_made])
def test_fault_352_control_where_a_wait_is_a_failed_try_the_publish_fails(world, monkeypatch):
    monkeypatch.setattr(FakeAirflow, "reschedule", lambda self, own: self.end(own, "failed"))
    assert waits(world()) == "failed"


def test_fault_352_what_is_over_and_lost_is_cleared_before_the_publish_waits():
    world = operators({"a": (), "c": ()})
    world.delete_results("c", 1)
    world.delete_results("a", 1)
    world.airflow.clear("a")
    world.airflow.upstream[PUBLISH] = ("c",)
    with pytest.raises(InputLost):
        world.publish()
    assert world.airflow.cleared == ["c"]


@pytest.mark.parametrize("world", [published_early, never_made])
def test_fault_352_a_publish_does_not_wait_for_what_waits_for_it(world):
    world = world()
    run = world.run(world.airflow.start(PUBLISH), Process(), "writer")
    with fails_with("publish-before-its-results"):
        PublishTask(run, below={"a"}).execute()


def test_fault_182_even_where_the_publish_task_is_skipped_as_well():
    world = operators()
    world.publish()
    world.airflow.clear("a")
    fails(world, "a", externals=(file("e2"),))
    with fails_with("published-outdated"):
        published_result(world.journal(), "b")


def test_a_final_region_that_has_failed_is_not_published_by_what_it_had_before():
    world = operators({"a": (), "b": ()})
    deploys_broken_code(world, "b")
    world.airflow.upstream[PUBLISH] = ()
    world.airflow.clear(PUBLISH)
    with fails_with("publish-of-failed", failed=["b"]):
        world.publish()


def test_a_failover_does_not_take_a_region_along_that_was_made_without_what_is_made_again():
    world = World({"x": (), "join": ("x",), "other": ("x",)}, rules={"join": "all_done"}, optional={"join": ("x",)})
    world.airflow.mark("x", "failed")
    world.go("join")
    world.airflow.clear("x", downstream=True)
    world.go("x")
    world.delete_results("x", 1)
    with pytest.raises(InputLost):
        world.go("other")
    assert world.airflow.cleared == ["x"]
