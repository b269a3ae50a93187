"""Batches under the real protocol, in a run without Airflow or Spark: what a task is changes nothing of what runs.

p0 --> c0 --+          tasks: P0 = p0 p1   P1 = p2 p3
p1 --> c1 --+--> t            C0 = c0 c1   C1 = c2 c3
p2 --> c2 --+                 t
p3 --> c3 --+
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import fakes
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_recovery.attempt.region_task import RegionResult, RegionTask
from airflow_recovery.attempt.run import Run
from airflow_recovery.attempt.task_instances import TaskTry
from airflow_recovery.errors import InputLost, RegionFailed
from airflow_recovery.journal.run_state import RunState
from airflow_recovery.model.records import ExternalObject
from airflow_recovery.task import subtask_batch
from airflow_recovery.task.subtask_batch import BeforeClaim, GuardedApplication, SubtaskBatch
from airflow_recovery.testing.fake_airflow import FakeAirflow

UPSTREAM = {
    **{f"p{at}": () for at in range(4)},
    **{f"c{at}": (f"p{at}",) for at in range(4)},
    "t": tuple(f"c{at}" for at in range(4)),
}
ALONE = {name: name for name in UPSTREAM}
BATCHED = {name: name if name == "t" else f"{name[0].upper()}{int(name[1]) // 2}" for name in UPSTREAM}


@dataclass
class BatchWorld(fakes.World):
    """A `World` whose tasks run one region or several. ``tasks`` gives each region's task."""

    tasks: dict[str, str] = field(default_factory=lambda: dict(BATCHED))
    fails_first: frozenset[str] = frozenset()
    """Regions whose first attempt fails."""
    loses: tuple[tuple[str, str], ...] = ()
    """(region, victim): when the first attempt of the one starts, what the other has made is gone."""

    files: tuple[ExternalObject, ...] = ()
    """What `c0` and `c1` read besides."""

    def new_airflow(self) -> None:
        self.leaves = ("t",)
        upstream: dict[str, tuple[str, ...]] = {}
        for name, inputs in self.upstream.items():
            task = self.tasks[name]
            upstream[task] = tuple(
                dict.fromkeys((*upstream.get(task, ()), *(self.tasks[producer] for producer in inputs)))
            )
        self.airflow = FakeAirflow({**upstream, fakes.PUBLISH: ("t",)}, retries=20)

    def run(self, own: TaskTry, process: fakes.Process, writer: str) -> Run:
        return replace(super().run(own, process, writer), task_keys=self.tasks)

    def go(self, region: str, **given: Any) -> Any:
        """One try of the task ``region``."""
        own = self.airflow.start(region)
        self._writers += 1
        process, writer = fakes.Process(), f"writer-{self._writers}"
        run = self.run(own, process, writer)
        names = [name for name, task in self.tasks.items() if task == region]

        def run_subtask(name: str, before_claim: BeforeClaim) -> RegionResult:
            files = self.files if name in ("c0", "c1") else ()
            hooks = fakes.Hooks(on_start=lambda: self.trouble(name), externals=files)
            runner = fakes.FakeApplication(self, name, process, writer, hooks)
            return RegionTask(
                run, name, GuardedApplication(runner, before_claim), prepare_journal=self._prepare
            ).execute()

        return self._report(own, SubtaskBatch(run, names, run_subtask).execute)

    def trouble(self, name: str) -> None:
        if self.ran.count((name, 1)) != 1 or self.ran[-1] != (name, 1):
            return
        for region, victim in self.loses:
            if region == name and self.state().of(victim).current is not None:
                self.delete_results(victim, self.current(victim))
        if name in self.fails_first:
            raise RegionFailed(f"{name} was told to fail")

    def executions(self) -> Counter[str]:
        return Counter(name for name, _ in self.ran)


def finished(tasks: dict[str, str], fails_first: Iterable[str], loses: Iterable[tuple[str, str]]) -> BatchWorld:
    world = BatchWorld(UPSTREAM, tasks=tasks, fails_first=frozenset(fails_first), loses=tuple(loses))
    world.until_green(100)
    return world


NAMES = sorted(UPSTREAM)
LOSSES = [
    (region, victim)
    for region in NAMES
    for victim in NAMES
    # Not what another one has read before: there batches change what is finished at that moment.
    if "pct".index(victim[0]) < "pct".index(region[0]) and (region == "t" or victim[1] >= region[1])
]


@pytest.mark.slow
@settings(max_examples=25)
@given(
    st.sets(st.sampled_from(NAMES), max_size=4),
    # Each is lost once: there is nothing to lose again where it has not been made again by then.
    st.lists(st.sampled_from(LOSSES), max_size=4, unique_by=lambda loss: loss[1]),
)
def test_what_runs_again_is_what_would_run_again_without_batches(
    fails_first: set[str], loses: list[tuple[str, str]]
) -> None:
    alone, batched = (finished(tasks, fails_first, loses) for tasks in (ALONE, BATCHED))
    for world in (alone, batched):
        state = world.state()
        assert all(state.of(name).current is not None for name in UPSTREAM)
        # Each rests on what its inputs are now.
        for name, inputs in UPSTREAM.items():
            pins = state.of(name).current.outcome.inputs
            assert {pin.region: pin.attempt for pin in pins} == {
                producer: world.current(producer) for producer in inputs
            }
    assert batched.executions() == alone.executions()


def c0_and_c1_have_new_files_and_what_they_read_is_gone() -> BatchWorld:
    """That they must run is known to their own task alone: so `P0` can't know what is wanted of it."""
    world = finished(BATCHED, [], [])
    world.files = (ExternalObject("c", "s3://lake/new.csv", 1, "etag"),)
    for name in ("p0", "p1"):
        world.delete_results(name, 1)
    world.airflow.clear("C0")
    world.until_green(100)
    assert world.executions() == Counter(dict.fromkeys(("p0", "p1", "c0", "c1", "t"), 2) | dict.fromkeys(OTHERS, 1))
    return world


OTHERS = ("p2", "p3", "c2", "c3")


def test_one_try_reports_every_loss_of_a_batch_and_wakes_its_producer_once() -> None:
    assert c0_and_c1_have_new_files_and_what_they_read_is_gone().airflow.cleared.count("P0") == 1


def test_control_without_the_others_being_looked_at_each_loss_costs_a_wake_up(monkeypatch: pytest.MonkeyPatch) -> None:
    def stop_at_once(self: SubtaskBatch, names: Iterable[str]) -> dict[str, RegionResult]:
        return {name: self._run_subtask(name, lambda state: None) for name in names}

    monkeypatch.setattr(SubtaskBatch, "_go_through", stop_at_once)
    assert c0_and_c1_have_new_files_and_what_they_read_is_gone().airflow.cleared.count("P0") == 2


def test_nothing_is_started_that_the_producer_would_stop() -> None:
    """`c0` waits for `p0`; `c1`, of the same task, is left to the next try."""
    world = BatchWorld(UPSTREAM, loses=(("c0", "p0"),))
    world.go("P0")
    with pytest.raises(InputLost):
        world.go("C0")
    assert [name for name, _ in world.ran] == ["p0", "p1", "c0"]


def test_control_where_it_is_started_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    def allow(state: RunState) -> None: ...

    allowed: Callable[[RunState], None] = allow
    monkeypatch.setattr(subtask_batch, "_hold_back", allowed)
    world = BatchWorld(UPSTREAM, loses=(("c0", "p0"),))
    world.go("P0")
    with pytest.raises(InputLost):
        world.go("C0")
    assert [name for name, _ in world.ran][-1] == "c1"
