"""Fault 67: whatever has become of Airflow, the journal and the results alone decide what runs again."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

import pytest
from fakes import Killed, Process, World
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_recovery.attempt.run import RetryGrant
from airflow_recovery.errors import RecoveryError, RegionFailed
from airflow_recovery.model.determinism import Determinism
from airflow_recovery.planning.plan import Action
from airflow_recovery.planning.plan_making import plan
from airflow_recovery.results.prober import ResultProber


def clear_the_run(world: World, rng: random.Random) -> None:
    for each in world.upstream:
        world.airflow.clear(each)


def clear_one_task(world: World, rng: random.Random) -> None:
    world.airflow.clear(rng.choice([*world.upstream]))


def empty_the_state_store(world: World, rng: random.Random) -> None:
    """What recovery had noted there, which tries a clear of its own has ended, is forgotten; the tasks begin again."""
    airflow = world.airflow
    airflow._grants = {task: RetryGrant(each.max_tries) for task, each in airflow._grants.items()}
    clear_the_run(world, rng)


def drop_the_database(world: World, rng: random.Random) -> None:
    """The DAG run is created again for the same logical date, under another run id."""
    world.run_id = "created-again"
    world.new_airflow()


WAYS: tuple[Callable[[World, random.Random], None], ...] = (
    clear_the_run,
    clear_one_task,
    empty_the_state_store,
    drop_the_database,
)


@dataclass(frozen=True)
class Past:
    """A run with a past that ``seed`` draws: failures, kills, losses, restarts, new code. The same each time."""

    seed: int

    def happen(self) -> World:
        rng = random.Random(self.seed)
        names = [f"R{at}" for at in range(rng.randint(3, 6))]
        upstream = {
            name: tuple(name for name in names[:at] if rng.random() < (0.75 if name == names[at - 1] else 0.5))
            for at, name in enumerate(names)
        }
        modes = {name: rng.choice([*Determinism]) for name in names if rng.random() < 0.5}
        world = World(upstream, retries=60, modes=modes)
        for _ in range(rng.randint(len(names), 20)):
            self._step(world, rng, names)
        return world

    def _step(self, world: World, rng: random.Random, names: list[str]) -> None:
        ready = [each for each in world.airflow.ready() if each in names]
        what = rng.random()
        if ready and what < 0.75:
            region, fate = rng.choice(ready), rng.random()
            process = Process()
            given: dict[str, object] = {"process": process}
            if fate < 0.15:
                given["on_read"] = _boom
            elif fate < 0.25:
                given[rng.choice(["on_start", "on_written", "on_finished"])] = process.kill
            try:
                world.go(region, **given)  # type: ignore[arg-type]
            except (Killed, RecoveryError):
                if world.airflow.state(region) == "running":
                    world.airflow.lose_heartbeat(region)
            return
        region = rng.choice(names)
        current = world.current(region)
        if what < 0.83 and current:
            world.delete_results(region, current)
        elif what < 0.9 and current:
            world.restart(region)
        elif what < 0.95:
            world.fingerprints[region] = f"code {rng.randint(2, 3)}"


def _boom() -> None:
    raise RegionFailed("boom")


def planned(world: World) -> dict[str, object]:
    found = plan(world.plan, world.state(), ResultProber(lambda location: world.results))
    return found.to_json()


def will_run(world: World) -> set[str]:
    found = plan(world.plan, world.state(), ResultProber(lambda location: world.results))
    return {region.name for region in found.regions if region.action in (Action.RUN, Action.WAIT)}


@pytest.mark.slow
@settings(max_examples=40)
@given(st.integers(0, 10**6))
def test_fault_67_the_same_plan_whatever_was_cleared_emptied_or_dropped(seed: int) -> None:
    plans = []
    for way in WAYS:
        world = Past(seed).happen()
        way(world, random.Random(seed))
        plans.append(planned(world))
    assert all(candidate == plans[0] for candidate in plans), seed


@pytest.mark.slow
@settings(max_examples=25)
@given(st.integers(0, 10**6))
def test_fault_67_what_then_runs_is_what_the_plan_says(seed: int) -> None:
    ran = []
    for way in WAYS:
        world = Past(seed).happen()
        expected = will_run(world)
        before = len(world.ran)
        way(world, random.Random(seed))
        try:
            world.until_green(limit=60)
        except AssertionError:
            assert way is clear_one_task, seed  # what had failed for good and was not cleared stays so
        found = {name for name, _ in world.ran[before:]}
        assert found <= expected, (seed, way.__name__)
        if way is not clear_one_task:
            ran.append(found)
    assert all(each == ran[0] for each in ran), seed


def test_fault_67_control_a_judgement_by_airflows_tries_would_differ() -> None:
    """Airflow's own answer to "has it succeeded" is another one after each of the four."""
    answers = []
    for way in WAYS:
        world = Past(7).happen()
        way(world, random.Random(7))
        answers.append(tuple(world.airflow.state(each) for each in world.upstream))
    assert len(set(answers)) > 1


@pytest.mark.parametrize("seed", range(3))
def test_the_past_is_the_same_each_time(seed: int) -> None:
    assert planned(Past(seed).happen()) == planned(Past(seed).happen())
