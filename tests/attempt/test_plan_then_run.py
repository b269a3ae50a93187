"""Plan first, then let it run: the real protocol code, in a simulated Airflow, does what the plan said."""

from __future__ import annotations

import random
from types import SimpleNamespace

import pytest
from expected_errors import fails_with
from fakes import CHAIN, DIAMOND, FORK, InlineThread, World

from airflow_recovery.attempt import apply_plan as apply_plan_module
from airflow_recovery.attempt import attempt
from airflow_recovery.attempt.apply_plan import apply_plan
from airflow_recovery.journal import journal
from airflow_recovery.model.records import Reset
from airflow_recovery.planning.plan import Plan
from airflow_recovery.planning.plan_making import plan
from airflow_recovery.planning.restart_set import RestartSet
from airflow_recovery.planning.scenario import (
    REBUILD,
    PartitionGone,
    RecomputeAll,
    RegionFailure,
    Request,
    RestartFrom,
    RestartRegion,
    Together,
)
from airflow_recovery.results.prober import ResultProber
from airflow_recovery.testing.simulation import TOPOLOGIES as TOPOLOGIES_OF_SIMULATION
from airflow_recovery.testing.simulation import Schedule, Settings, Trouble, job_of
from airflow_recovery.testing.simulation.strands import Strand

LADDER = {"A": (), "B": (), "C": ("A",), "D": ("A", "B"), "E": ("C", "D"), "F": ("B",), "G": ("E", "F")}
TOPOLOGIES = {"chain": CHAIN, "fork": FORK, "diamond": DIAMOND, "ladder": LADDER}


@pytest.fixture(autouse=True)
def one_thread_a_process(monkeypatch):
    """The helpers' threads run inline, so that the seed alone decides the order."""
    monkeypatch.setattr(attempt, "threading", SimpleNamespace(Thread=InlineThread))
    monkeypatch.setattr(journal, "get_many", lambda store, keys: {key: store.get(key) for key in keys})


def plan_for(world: World, request: Request = REBUILD) -> Plan:
    return plan(world.plan, world.state(), ResultProber(lambda location: world.results), request)


def run_again(world: World) -> set[str]:
    """Clear everything, as a user who clears the run does. Returns who ran."""
    before = len(world.ran)
    for task in world.airflow.upstream:
        world.airflow.clear(task)
    world.until_green(limit=200)
    return {region for region, _ in world.ran[before:]}


def trouble(world: World, rng: random.Random) -> None:
    """What may have happened to a run that is at rest."""
    region = rng.choice(list(world.upstream))
    latest_attempt = world.attempts(region)
    what = rng.choice(["delete", "delete", "release", "reset", "code", "nothing"])
    if what == "delete" and latest_attempt:
        world.delete_results(region, latest_attempt)
    elif what == "release" and latest_attempt:
        world.release(region, latest_attempt)
    elif what == "reset" and latest_attempt:
        world.journal().reset(Reset(region, latest_attempt, "ann", "asked for"))
    elif what == "code":
        world.fingerprints[region] = f"code {rng.randint(2, 9)}"


def random_request(world: World, rng: random.Random) -> Request:
    region = rng.choice(list(world.upstream))
    requests: list[Request] = [
        REBUILD,
        RestartRegion(region),
        RestartFrom(region),
        RecomputeAll(),
        PartitionGone(region),
        Together((RestartRegion(region), PartitionGone(rng.choice(list(world.upstream))))),
    ]
    return rng.choice(requests)


def come_true(world: World, request: Request) -> None:
    for candidate in request.requests if isinstance(request, Together) else (request,):
        if isinstance(candidate, PartitionGone) and world.current(candidate.result):
            world.delete_results(candidate.result, world.current(candidate.result))
        else:
            found = plan_for(world, candidate)
            if found.resets:
                apply_plan(world.journal(), found, "ann")


@pytest.mark.slow
@pytest.mark.parametrize("topology", TOPOLOGIES.values(), ids=TOPOLOGIES)
def test_the_regions_that_run_are_those_of_the_plan(topology):
    for seed in range(60):
        rng = random.Random(seed)
        world = World(topology, retries=50)
        if rng.random() < 0.9:
            world.until_green(limit=200)
        for _ in range(rng.randint(0, 4)):
            trouble(world, rng)
        request = random_request(world, rng)
        planned = plan_for(world, request)
        come_true(world, request)
        assert run_again(world) == set(planned.running), (seed, request.text())
        assert plan_for(world).running == (), seed


class Foreseen(Schedule):
    """At some step the machines stop, and somebody asks for a plan; then everything is cleared."""

    planned: frozenset[str] | None = None

    def __init__(self, seed: int, settings: Settings) -> None:
        super().__init__(seed, settings)
        self._stops_at = self.rng.randint(5, 200)

    def _choose(self, last: Strand | None) -> Strand | None:
        if self._steps == self._stops_at and not self._is_last_round:
            self._begins_last_round()
        return super()._choose(last)

    def _begins_last_round(self) -> None:
        super()._begins_last_round()
        self.ran_before = len(self.world.cluster.ran)
        results = self.world.results
        found = plan(self.world.job.plan, self.world.state(), ResultProber(lambda location: results), REBUILD)
        self.planned = frozenset(found.running)

    def run_since(self) -> set[str]:
        return {region for _, region, _ in self.world.cluster.ran[self.ran_before :]}


@pytest.mark.slow
@pytest.mark.parametrize("topology", ["chain", "diamond", "ladder"])
def test_whatever_state_troubles_have_left_the_plan_is_what_then_runs(topology):
    """Crashes, zombies, clears, restarts and losses in any order, cut off at any step."""
    troubles = dict.fromkeys([Trouble.KILL, Trouble.HEARTBEAT, Trouble.DELETE, Trouble.CLEAR, Trouble.RESTART], 1)
    planned = 0
    for seed in range(60):
        schedule = Foreseen(seed, Settings(job_of(TOPOLOGIES_OF_SIMULATION[topology]), troubles))
        schedule.run()
        if schedule.planned is not None:
            assert schedule.run_since() == schedule.planned, seed
            planned += len(schedule.planned)
    assert planned > 20


def test_control_a_plan_that_does_not_look_ahead_misses_regions(monkeypatch):
    monkeypatch.setattr(RestartSet, "_follow", lambda self: None)
    with pytest.raises(AssertionError):
        test_the_regions_that_run_are_those_of_the_plan(LADDER)


# applying


def test_a_restart_that_is_applied_and_cleared_runs_what_was_planned():
    world = World(LADDER)
    world.until_green(limit=50)
    planned = plan_for(world, RestartRegion("D", "ann"))
    applied = apply_plan(world.journal(), planned, "ann")
    assert applied.clear == planned.running == ("D", "E", "G")
    before = len(world.ran)
    for region in applied.clear:
        world.airflow.clear(region)
    world.until_green(limit=50)
    assert {region for region, _ in world.ran[before:]} == {"D", "E", "G"}


def test_clearing_what_was_reset_alone_is_enough():
    """A crash after the reset, or a person who clears one task only: the final check clears the rest."""
    world = World(LADDER)
    world.until_green(limit=50)
    planned = plan_for(world, RestartRegion("D", "ann"))
    apply_plan(world.journal(), planned, "ann")
    before = len(world.ran)
    world.airflow.clear("D")
    world.until_green(limit=50)
    assert {region for region, _ in world.ran[before:]} == set(planned.running)


def test_fault_16_a_plan_of_a_stale_page_is_refused_and_changes_nothing():
    world = World(CHAIN)
    world.go_all()
    stale = plan_for(world, RestartRegion("C", "ann"))
    world.restart("P")
    world.go_all("P")
    objects = dict(world.journal_store.objects)
    with fails_with("plan-attempt-started", region="P"):
        apply_plan(world.journal(), stale, "ann")
    assert world.journal_store.objects == objects


def test_fault_16_retry_that_is_clicked_twice_is_done_once():
    world = World(CHAIN)
    world.go_all()
    planned = plan_for(world, RestartRegion("C", "ann"))
    apply_plan(world.journal(), planned, "ann")
    with fails_with("plan-region-reset", region="C", who="ann"):
        apply_plan(world.journal(), planned, "ann")


def test_fault_16_control_without_the_comparison_a_stale_restart_is_acknowledged_and_does_nothing(monkeypatch):
    world = World(CHAIN)
    world.go_all()
    stale = plan_for(world, RestartRegion("C", "ann"))
    world.restart("C")
    world.until_green()
    monkeypatch.setattr(apply_plan_module, "_check_unchanged", lambda *seen: None)
    assert apply_plan(world.journal(), stale, "ann").clear == ("C", "E")
    assert run_again(world) == set()


def test_a_loss_or_a_failure_can_not_be_applied():
    world = World(CHAIN)
    world.go_all()
    for request in (PartitionGone("C"), RegionFailure("C")):
        with fails_with("plan-not-of-restarts"):
            apply_plan(world.journal(), plan_for(world, request), "ann")


# by hand


def test_fault_66_a_task_that_was_marked_by_hand_changes_no_plan():
    """Marked failed, although its result stands: kept. Marked success, although it never finished: it runs."""
    world = World(CHAIN)
    world.go_all("PC")
    before = plan_for(world)
    world.airflow.mark("P", "failed")
    world.airflow.mark("E", "success")
    assert plan_for(world) == before
    assert before.running == ("E",)
    assert run_again(world) == {"E"}


def test_fault_66_a_mark_does_not_hide_a_result_that_is_gone():
    world = World(CHAIN)
    world.go_all()
    world.delete_results("E", 1)
    world.airflow.mark("E", "success")
    assert plan_for(world).running == ("E",)


def test_fault_66_control_where_airflows_states_decide_a_lost_result_is_kept():
    """What a planner that believes Airflow would say: green is done."""
    world = World(CHAIN)
    world.go_all()
    world.delete_results("E", 1)
    world.airflow.mark("E", "success")
    believed = {region for region in CHAIN if world.airflow.state(region) != "success"}
    assert believed != set(plan_for(world).running)


def test_fault_67_one_task_cleared_or_all_of_them_or_airflow_gone_the_plan_is_the_same():
    def broken() -> World:
        world = World(LADDER)
        world.until_green(limit=50)
        world.delete_results("D", 1)
        world.delete_results("E", 1)
        world.restart("G")
        return world

    one, every, gone = broken(), broken(), broken()
    for region in LADDER:
        every.airflow.clear(region)
    gone.new_airflow()
    plans = [plan_for(each) for each in (one, every, gone)]
    assert plans[0] == plans[1] == plans[2]
    assert plans[0].running == ("D", "E", "G")
    assert [run_again(each) for each in (one, every, gone)] == [{"D", "E", "G"}] * 3


def test_fault_67_control_a_plan_of_airflows_states_differs_with_every_clear():
    world = World(CHAIN)
    world.go_all()
    world.airflow.clear("P")
    assert [region for region in CHAIN if world.airflow.state(region) != "success"] == ["P"]
    assert plan_for(world).running == ()


# what a wake-up records


def test_the_failover_that_is_recorded_is_a_plan_and_names_consumers_that_stand_until_then():
    #   P -> C
    #    \-> D     P's result is lost; D was done with it
    world = World(FORK)
    world.go_all("PD")
    world.delete_results("P", 1)
    with fails_with("input-cleared", lost={"P": "OUTPUT_MISSING"}):
        world.go("C")
    report = world.journal().read_lost("P", 1)
    assert [region for region, _ in report.plan] == ["P", "C", "D"]
    assert dict(report.plan)["D"] == "input was made again (read P@1, which is to be made again)"


def test_a_wake_up_asks_the_stores_for_nothing_more(monkeypatch):
    world = World({"P": (), "C": ("P",), "X": (), "Y": ("X",)})
    world.go_all("PXY")
    world.delete_results("P", 1)
    asked: list[str] = []
    listed = world.results.list
    monkeypatch.setattr(world.results, "list", lambda prefix="", **more: asked.append(prefix) or listed(prefix, **more))
    with fails_with("input-cleared", lost={"P": "OUTPUT_MISSING"}):
        world.go("C")
    assert {each.split("/")[-4] for each in asked} == {"P"}
