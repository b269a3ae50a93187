"""Availability belongs to the single result (FLIP-1): what is gone matters where somebody who runs reads it."""

from __future__ import annotations

from contextlib import suppress

import pytest
from expected_errors import fails_with
from fakes import PUBLISH, World

from airflow_recovery.errors import RecoveryError, RegionFailed
from airflow_recovery.journal.published import published_result
from airflow_recovery.journal.run_state import Attempt
from airflow_recovery.model.region_plan import RegionPlan
from airflow_recovery.planning.evaluation import Evaluation
from airflow_recovery.planning.plan import Plan
from airflow_recovery.planning.plan_making import plan
from airflow_recovery.planning.reason import Reason
from airflow_recovery.planning.scenario import REBUILD, PartitionGone, RegionFailure, Request, RestartRegion
from airflow_recovery.results.prober import ResultProber


@pytest.fixture
def world() -> World:
    """Region a.b makes two results, c reads a, and d reads b."""
    return World(
        {"a.b": (), "c": ("a.b",), "d": ("a.b",)},
        makes={"a.b": ("a", "b")},
        reads={"c": ("a",), "d": ("b",)},
        retries=20,
    )


def plan_for(world: World, request: Request = REBUILD) -> Plan:
    return plan(world.plan, world.state(), ResultProber(lambda location: world.results), request)


def fail(world: World, region: str) -> None:
    def break_down() -> None:
        raise RegionFailed("the executor is gone")

    with suppress(RecoveryError):
        world.go(region, on_start=break_down)


def runs_again(world: World) -> set[str]:
    before = len(world.ran)
    world.until_green()
    return {region for region, _ in world.ran[before:]}


def test_a_failure_restarts_nobody_for_a_lost_result_that_it_does_not_read(world: World) -> None:
    world.go_all(["a.b", "d"])
    world.delete_results("a.b", 1, "b")
    assert plan_for(world, RegionFailure("c")).running == ("c",)
    fail(world, "c")
    assert plan_for(world).running == ("c",)
    assert runs_again(world) == {"c"}


def test_a_lost_result_is_made_again_for_who_reads_it_and_all_consumers_of_its_region_follow(world: World) -> None:
    world.go_all(["a.b", "c"])
    world.delete_results("a.b", 1, "b")
    assert plan_for(world).running == ("a.b", "c", "d")
    with fails_with("input-cleared", lost={"a.b": "OUTPUT_MISSING"}):
        world.go("d")
    assert runs_again(world) == {"a.b", "c", "d"}


def test_a_first_attempt_begins_although_a_result_that_it_does_not_read_is_gone(world: World) -> None:
    world.go_all(["a.b"])
    world.delete_results("a.b", 1, "b")
    assert world.go("c").attempt == 1
    assert world.airflow.cleared == []


def test_only_results_that_are_read_are_asked_for_and_each_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.go_all(["a.b", "d"])
    fail(world, "c")
    asked: list[str] = []
    listed = world.results.list
    monkeypatch.setattr(world.results, "list", lambda prefix="", **more: asked.append(prefix) or listed(prefix, **more))
    world.airflow.clear("c")
    world.go("c")
    assert [prefix.rstrip("/").rpartition("/")[2] for prefix in asked] == ["a"]


@pytest.mark.parametrize(
    ("gone", "runs"),
    [("a", ("a.b", "c", "d")), ("b", ("c",)), ("a.b.a", ("a.b", "c", "d")), ("a.b", ("a.b", "c", "d"))],
)
def test_a_plan_supposes_one_result_gone_or_all_of_a_region(world: World, gone: str, runs: tuple[str, ...]) -> None:
    world.go_all()
    found = PartitionGone(gone)
    together = type("Both", (), {"apply": lambda self, run: found.apply(RestartRegion("c").apply(run))})()
    assert plan_for(world, together).running == runs
    assert plan_for(world, found).running == ()


def test_a_final_region_is_made_again_for_its_final_result_alone() -> None:
    #   a.s -> c         s is read outside the job, a in it
    world = World(
        {"a.s": (), "c": ("a.s",)}, finals=("a.s",), makes={"a.s": ("a", "s")}, reads={"c": ("a",)}, retries=20
    )
    world.go_all()
    world.delete_results("a.s", 1, "a")
    assert plan_for(world).running == ()
    world.delete_results("a.s", 1, "s")
    assert plan_for(world).running == ("a.s", "c")


@pytest.mark.parametrize("gone", ["s", "t"])
def test_of_two_sinks_the_one_that_the_job_reads_is_made_again_as_well(gone: str) -> None:
    #   s.t -> c         s and t are read outside the job, and s in it, too
    world = World(
        {"s.t": (), "c": ("s.t",)},
        finals=("s.t",),
        final_results={"s.t": ("s", "t")},
        makes={"s.t": ("s", "t")},
        reads={"c": ("s",)},
        publish_keys=(PUBLISH,),
    )
    world.until_green()
    world.delete_results("s.t", 1, gone)
    assert plan_for(world).running == ("s.t", "c")
    world.airflow.clear(PUBLISH)  # the task that publishes asks for it
    world.until_green()
    assert world.ran[2:] == [("s.t", 2), ("c", 2)]
    assert published_result(world.journal(), gone).attempt == 2


def test_where_a_plan_names_the_final_results_no_other_one_is_asked_for() -> None:
    #   a.s -> c, d       a and s are read in the job, and s outside of it, too
    world = World(
        {"a.s": (), "c": ("a.s",), "d": ("a.s",)},
        finals=("a.s",),
        final_results={"a.s": ("s",)},
        makes={"a.s": ("a", "s")},
        reads={"c": ("a",), "d": ("s",)},
    )
    world.go_all()
    world.delete_results("a.s", 1, "a")
    assert plan_for(world).running == ()
    world.delete_results("a.s", 1, "s")
    assert plan_for(world).running == ("a.s", "c", "d")


def test_a_plan_of_an_older_journal_that_names_no_results_asks_for_everything() -> None:
    asked: list[str] = []

    def available(region: str, attempt: Attempt, result: str) -> Reason | None:
        asked.append(result)
        return None

    producer = RegionPlan("p", ("p",), ("a", "b"), (), False, "code 1")
    reader = RegionPlan("r", ("r",), (), ("p",), True, "code 1")
    assert reader.reads_of(producer) == ("a", "b")
    world = World({"p": (), "r": ("p",)}, makes={"p": ("a", "b")})
    world.go("p")
    evaluation = Evaluation(type(world.plan)("job", (producer, reader)), world.state(), available=available)
    assert evaluation.lost_inputs("r") == {}
    assert asked == ["a", "b"]


def test_control_where_a_consumer_asks_for_all_results_others_run_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RegionPlan, "reads_of", lambda self, producer: producer.results)
    world.go_all(["a.b", "d"])
    world.delete_results("a.b", 1, "b")
    fail(world, "c")
    assert runs_again(world) == {"a.b", "c", "d"}
