"""Coordinators of sources over the real journal and the real pre-check: their snapshots, and FLIP-383's two rules.

read[a] ─┐
read[b] ─┼──> all            other (nothing to do with them)
read[c] ─┘
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest
from expected_errors import fails_with
from fakes import FakeApplication, Hooks, Killed, Process, World

from airflow_recovery.attempt.application import ClaimedAttempt
from airflow_recovery.attempt.region_task import RegionTask
from airflow_recovery.attempt.restarts import Restarts
from airflow_recovery.attempt.task_instances import TaskTry
from airflow_recovery.errors import RegionFailed
from airflow_recovery.job.batch_snapshot import takes_snapshots
from airflow_recovery.job.coordinator import restored_coordinator, snapshots_of
from airflow_recovery.journal.replay import EventFold, differences
from airflow_recovery.model.records import Outcome, PlanRecord
from airflow_recovery.model.region_plan import CoordinatorPlan, RegionPlan, SubtaskPlan
from airflow_recovery.planning.coordinators import VertexRestarts
from airflow_recovery.planning.plan import Action
from airflow_recovery.planning.plan_making import plan
from airflow_recovery.planning.scenario import RegionFailure, RestartRegion
from airflow_recovery.results.prober import ResultProber

A, B, C = READ = ("read[a]", "read[b]", "read[c]")
JOB: Mapping[str, tuple[str, ...]] = {A: (), B: (), C: (), "all": READ, "other": ()}
NUMBERS = 6


class Volatile:
    """Gives each subtask the next two numbers that nobody has been given; forgets everything with its process."""

    def __init__(self) -> None:
        self.taken: set[int] = set()
        self.mine: list[int] = []

    def take(self) -> list[int]:
        self.mine = [number for number in range(NUMBERS) if number not in self.taken][:2]
        return self.mine


class GivesOut(Volatile):
    """Takes over from those of the other subtasks."""

    def snapshot_state(self) -> list[int]:
        return self.mine

    def restore(self, state: Mapping[str, list[int]]) -> None:
        self.taken = {number for mine in state.values() for number in mine}


class CoordinatedApplication(FakeApplication):
    """Runs a subtask as the driver does: restore, take, snapshot with the finish."""

    taken: dict[tuple[str, int], list[int]]
    kind: type[Volatile]

    def run(self, attempt: ClaimedAttempt) -> Outcome | None:
        claim = attempt.claim
        if claim.region not in READ:
            return super().run(attempt)
        coordinator = restored_coordinator(self.kind, "read", attempt.coordinators)
        assert isinstance(coordinator, Volatile)
        self.taken[claim.region, claim.attempt] = coordinator.take()
        return super().run(_Coordinated(attempt, snapshots_of({"read": coordinator})))  # type: ignore[arg-type]


class _Coordinated:
    """A claimed attempt whose finish carries the snapshots."""

    def __init__(self, attempt: ClaimedAttempt, snapshots: tuple[tuple[str, str], ...]) -> None:
        self.claim, self.inputs, self.trace = attempt.claim, attempt.inputs, _Trace(attempt, snapshots)


class _Trace:
    def __init__(self, attempt: ClaimedAttempt, snapshots: tuple[tuple[str, str], ...]) -> None:
        self._attempt, self._snapshots = attempt, snapshots

    def finished(self, *given: object, **more: object) -> Outcome:
        return self._attempt.trace.finished(*given, **more, coordinators=self._snapshots)  # type: ignore[arg-type]


class Coordinated(World):
    """A run whose vertex ``read`` has three subtasks and a coordinator."""

    def __init__(self, kind: type[Volatile], upstream: Mapping[str, tuple[str, ...]] = JOB, **given: object) -> None:
        self.kind = kind
        self.taken: dict[tuple[str, int], list[int]] = {}
        super().__init__(upstream, **given)  # type: ignore[arg-type]

    @property
    def plan(self) -> PlanRecord:
        plain = super().plan

        def coordinated(each: RegionPlan) -> RegionPlan:
            if each.name not in READ:
                return each
            at = READ.index(each.name)
            with_one = CoordinatorPlan("read", takes_snapshots(self.kind))
            return replace(each, subtask=SubtaskPlan("read", at, "abc"[at]), coordinators=(with_one,))

        return replace(plain, regions=tuple(map(coordinated, plain.regions)))

    def region_task(
        self, own: TaskTry, process: Process, hooks: Hooks | None = None, *, epoch: str | None = None
    ) -> RegionTask:
        self._writers += 1
        writer = f"writer-{self._writers}"
        application = CoordinatedApplication(self, own.task_id, process, writer, hooks or Hooks())
        application.taken, application.kind = self.taken, self.kind
        run = self.run(own, process, writer)
        return RegionTask(run, own.task_id, application, epoch=epoch, restarts=Restarts(run, own.task_id, None))

    @property
    def given(self) -> dict[str, list[int]]:
        """What the attempts that count were given."""
        return {each: self.taken[each, self.current(each)] for each in READ}


def boom() -> None:
    raise RegionFailed("boom")


def fails(world: World, region: str) -> None:
    with pytest.raises(RegionFailed):
        world.go(region, on_start=boom)


# a coordinator that takes snapshots


def test_a_snapshot_rides_in_the_outcome_and_in_the_event_and_later_attempts_are_restored_from_it():
    world = Coordinated(GivesOut)
    world.go_all()
    assert world.given == {A: [0, 1], B: [2, 3], C: [4, 5]}
    outcome = world.state().of(B).current.outcome
    told = [event for event in world.events if event.type == "ExecutionVertexFinished" and event.subject.region == B]
    assert [event.subject.coordinators for event in told] == [outcome.coordinators] != [()]


def test_replaying_the_events_comes_to_the_same_snapshots():
    world = Coordinated(GivesOut)
    world.go_all()
    fold = EventFold({})
    for event in world.events:
        fold.add(event)
    assert differences(world.state(), fold.state()) == ()


def test_after_a_loss_only_what_had_not_finished_runs_again_and_nothing_is_given_out_twice():
    world = Coordinated(GivesOut)
    world.go_all([A, B])
    fails(world, C)
    world.until_green()
    assert [each for each in world.ran if each[1] > 1] == [(C, 2)]
    assert sorted(number for each in world.given.values() for number in each) == [*range(NUMBERS)]


def test_what_a_subtask_was_given_goes_back_when_it_alone_is_made_again():
    world = Coordinated(GivesOut)
    world.go_all()
    world.restart(B)
    world.until_green()
    assert world.given == {A: [0, 1], B: [2, 3], C: [4, 5]}
    assert world.current(A) == 1


def test_the_database_is_dropped_and_a_new_run_restores_the_coordinator_all_the_same():
    world = Coordinated(GivesOut)
    world.go_all([A])
    world.new_airflow()
    world.until_green()
    assert world.given == {A: [0, 1], B: [2, 3], C: [4, 5]}
    assert (A, 2) not in world.ran


def test_a_finish_of_other_code_restores_nobody():
    world = Coordinated(GivesOut)
    world.go_all([A])
    world.fingerprints = dict.fromkeys(READ, "code 2")
    world.airflow.clear(A)
    world.go(B)
    assert world.taken[B, 1] == [0, 1]


# a volatile one: some subtask has not finished


def test_volatile_a_subtask_that_failed_takes_all_others_along():
    world = Coordinated(Volatile)
    world.go_all([A, B, "other"])
    fails(world, C)
    world.until_green()
    assert {each: world.current(each) for each in JOB} == {A: 2, B: 2, C: 2, "all": 1, "other": 1}


def test_control_without_the_rule_what_was_handed_out_is_mixed_up(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(VertexRestarts, "why", lambda *given: None)
    world = Coordinated(Volatile)
    world.go_all([A, B])
    fails(world, C)
    world.until_green()
    assert {each: world.current(each) for each in READ} == {A: 1, B: 1, C: 2}


def test_volatile_after_the_process_was_killed_and_airflow_was_lost_the_vertex_restarts_as_a_whole():
    world = Coordinated(Volatile)
    world.go_all([A, B])
    process = Process()
    with pytest.raises(Killed):
        world.go(C, process=process, on_start=process.kill)
    world.new_airflow()
    world.until_green()
    assert {each: world.current(each) for each in READ} == {A: 2, B: 2, C: 2}


def test_volatile_others_that_are_running_are_cancelled():
    world = Coordinated(Volatile)
    world.go(A)
    fails(world, C)

    def c_retries() -> None:
        world.go(C)

    world.go(B, on_read=c_retries)
    assert (world.airflow.state(B), world.state().of(B).reset_watermark) == ("restarting", 1), (
        "its success does not count"
    )
    world.until_green()
    assert {each: world.current(each) for each in READ} == {A: 2, B: 2, C: 2}


def test_volatile_a_first_wave_without_a_failure_restarts_nobody():
    world = Coordinated(Volatile)
    world.until_green()
    assert len(world.ran) == len(JOB)


# a volatile one: all subtasks have finished


def test_volatile_and_all_finished_a_lost_run_keeps_all_of_them():
    world = Coordinated(Volatile)
    world.go_all()
    world.new_airflow()
    world.until_green()
    assert len(world.ran) == len(JOB), "nothing runs again"


def test_volatile_and_all_finished_the_first_that_must_run_again_takes_all_along():
    world = Coordinated(Volatile)
    world.go_all()
    world.new_airflow()
    world.delete_results(B, 1)
    world.fingerprints = {"all": "code 2"}
    world.until_green()
    assert {each: world.current(each) for each in JOB} == {A: 2, B: 2, C: 2, "all": 2, "other": 1}


def test_volatile_a_restart_by_a_person_takes_all_along_once():
    world = Coordinated(Volatile)
    world.go_all()
    world.restart(B)
    world.until_green()
    assert {each: world.current(each) for each in READ} == {A: 2, B: 2, C: 2}
    world.airflow.clear(B)
    world.until_green()
    assert {each: world.current(each) for each in READ} == {A: 2, B: 2, C: 2}, "a later clear keeps what was made"


def test_volatile_a_crash_before_the_own_reset_restarts_all_the_same():
    world = Coordinated(Volatile)
    world.go_all([A, B])
    fails(world, C)
    process = Process()

    def killed(request: str) -> None:
        if request.endswith(f"{world.journal().layout.attempt(C, 1, 'reset')}"):
            raise Killed

    process.gate = killed
    own = world.airflow.start(C)
    with pytest.raises(Killed):
        world.region_task(own, process).execute()
    world.airflow.end(own, "failed")
    world.until_green()
    assert min(world.current(each) for each in READ) == 2


def test_volatile_without_a_clear_client_what_was_reset_is_read_by_nobody_and_a_person_is_told():
    world = Coordinated(Volatile, can_clear=False)
    world.go_all([A, B])
    fails(world, C)
    with fails_with("no-way-to-clear-readers"):
        world.go(C)
    assert {each: world.current(each) for each in READ} == {A: 0, B: 0, C: 2}
    world.airflow.clear(A)
    world.airflow.clear(B)
    world.until_green()
    assert {each: world.current(each) for each in READ} == {A: 2, B: 2, C: 2}


def test_recompute_restarts_each_once():
    world = Coordinated(Volatile)
    world.go_all()
    for each in JOB:
        world.airflow.clear(each)
    for each in JOB:
        world.go(each, epoch="7")
    assert {each: world.current(each) for each in JOB} == dict.fromkeys(JOB, 2)


# the plan


@pytest.mark.parametrize(("kind", "runs"), [(Volatile, {A, B, C, "all"}), (GivesOut, {B, "all"})])
def test_the_plan_says_beforehand_who_restarts(kind: type[Volatile], runs: set[str]):
    world = Coordinated(kind)
    world.go_all()
    for request in (RegionFailure(B), RestartRegion(B)):
        planned = plan(world.plan, world.state(), lambda *asked: None, request)
        assert {region.name for region in planned.regions if region.action is Action.RUN} == runs


@pytest.mark.parametrize(("kind", "along"), [(Volatile, {B, C}), (GivesOut, set())])
def test_a_subtask_that_follows_what_it_has_read_takes_its_siblings_along(kind: type[Volatile], along: set[str]):
    #   P -> x          P's result is lost, and x, which has not run yet, needs it
    #    \-> read[a]    its siblings read nothing
    world = Coordinated(kind, {"P": (), A: ("P",), B: (), C: (), "all": READ, "x": ("P",)}, retries=20)
    world.go_all(["P", *READ, "all"])
    world.delete_results("P", 1)
    planned = plan(world.plan, world.state(), ResultProber(lambda location: world.results))
    assert set(planned.running) == {"P", A, "all", "x"} | along
    before = len(world.ran)
    world.until_green(60)
    assert {region for region, _ in world.ran[before:]} == set(planned.running)


def test_a_restart_that_is_applied_resets_the_whole_vertex():
    world = Coordinated(Volatile)
    world.go_all()
    planned = plan(world.plan, world.state(), lambda *asked: None, RestartRegion(B))
    assert planned.resets is not None
    assert {reset.region for reset in planned.resets} == set(READ)
