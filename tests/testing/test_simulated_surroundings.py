"""Seeded schedules of what is around a run: external inputs that change while it runs, and clocks that are wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

import pytest
from simulated_controls import finds
from test_simulated_drivers import KILLS, SEEDS

from airflow_recovery.attempt.application import ClaimedAttempt
from airflow_recovery.attempt.heartbeat_watch import HeartbeatWatch
from airflow_recovery.model.determinism import Determinism
from airflow_recovery.model.records import AttemptTrace, ExternalObject
from airflow_recovery.planning import evaluation
from airflow_recovery.testing.simulation import TOPOLOGIES, Schedule, Settings, Trouble, job_of, simulate
from airflow_recovery.testing.simulation.jobs import with_externals
from airflow_recovery.testing.simulation.spark import FakeSpark

PAIR = job_of(TOPOLOGIES["pair"])
TROUBLES = {
    "alone": {Trouble.LISTING: 3},
    "kills": {Trouble.LISTING: 2, Trouble.KILL: 2},
    "zombies": {Trouble.LISTING: 2, Trouble.HEARTBEAT: 1, Trouble.PAUSE: 1},
    "people": {Trouble.LISTING: 1, Trouble.RESTART: 1, Trouble.CLEAR: 1, Trouble.MARK: 1},
    "outsiders": {Trouble.LISTING: 1, Trouble.DELETE: 1, Trouble.SWEEP: 1},
    "everything anew": {Trouble.LISTING: 1, Trouble.DATABASE: 1, Trouble.RECOMPUTE: 1},
}


@pytest.mark.slow
@pytest.mark.parametrize("name", TROUBLES)
@pytest.mark.parametrize("topology", ["pair", "diamond"])
def test_what_stands_rests_on_the_external_inputs_that_there_are(topology, name):
    job = with_externals(job_of(TOPOLOGIES[topology]), "PD")
    for seed in range(12):
        simulate(seed, Settings(job, TROUBLES[name], publishes=seed % 2 == 0, page_keys=(None, 3)[seed % 2]))


def test_an_external_input_that_has_not_changed_makes_nothing_run_again():
    job = with_externals(PAIR, "PC")
    for seed in range(12):
        simulate(seed, Settings(job, {Trouble.CLEAR_ALL: 2}, max_attempts={"P": 1, "C": 1}, detached_share=0.0))


@pytest.mark.slow
def test_readers_of_what_is_made_again_of_another_input_keep_theirs_only_where_they_assume_it():
    for mode in Determinism:
        job = with_externals(job_of(TOPOLOGIES["fork"], {"P": mode}), "P")
        for seed in range(12):
            simulate(seed, Settings(job, {Trouble.LISTING: 2, Trouble.KILL: 1}))


def test_control_where_an_external_input_is_not_compared_what_stands_rests_on_an_old_one(monkeypatch):
    monkeypatch.setattr(evaluation, "_changed_external", lambda recorded, today: None)
    finds(Settings(with_externals(PAIR, "P"), {Trouble.LISTING: 1}), "is not what its inputs make")


class LateListing(ClaimedAttempt):
    """An attempt whose finish names the external inputs that there are when it is written."""

    listing: Callable[[], tuple[ExternalObject, ...]]

    @property
    def trace(self) -> AttemptTrace:
        return replace(super().trace, externals=self.listing())


def test_control_where_what_is_read_is_listed_at_the_end_a_change_in_between_is_missed(monkeypatch):
    """Which is why a try lists before it claims: what comes later is seen as a change by the next one."""
    inner = FakeSpark._application

    def lists_at_its_end(self, attempt):
        late = LateListing(**vars(attempt))
        object.__setattr__(late, "listing", lambda: self._today().externals_of(self._region))
        return inner(self, late)

    monkeypatch.setattr(FakeSpark, "_application", lists_at_its_end)
    settings = Settings(with_externals(PAIR, "P"), {Trouble.LISTING: 1}, publishes=False, detached_share=1.0)
    finds(settings, "is not what its inputs make")


WRONG_CLOCKS = [600.0, 30 * 86_400.0]


@pytest.mark.parametrize("troubles", [{Trouble.PURGE: 1, Trouble.PAUSE: 1}, {Trouble.SWEEP: 2, Trouble.HEARTBEAT: 2}])
@pytest.mark.parametrize("wrong_by_s", WRONG_CLOCKS)
def test_fault_33_clocks_that_are_wrong_change_nothing(wrong_by_s, troubles):
    for seed in range(15):
        simulate(seed, Settings(PAIR, troubles, clocks_differ_s=wrong_by_s))


def hasty(schedules: Iterable[Schedule]) -> list[str]:
    found: list[str] = []
    for schedule in schedules:
        schedule.run()
        found += schedule.world.cluster.hasty
    return found


def drivers_with_wrong_clocks(wrong_by_s: float) -> Iterator[Schedule]:
    settings = replace(KILLS, clocks_differ_s=wrong_by_s)
    return (Schedule(seed, settings) for seed in range(SEEDS))


@pytest.mark.slow
@pytest.mark.parametrize("wrong_by_s", WRONG_CLOCKS)
def test_fault_33_drivers_that_live_are_followed_whatever_the_clocks_say(wrong_by_s):
    assert hasty(drivers_with_wrong_clocks(wrong_by_s)) == []


@pytest.mark.slow
def test_fault_33_control_where_the_stores_clock_is_compared_with_ones_own(monkeypatch):
    def by_two_clocks(self, attempt, beat):
        if self._seen != (attempt, beat):
            self._seen, self._since_s = (attempt, beat), running[-1].world.clock.now_s
        return self._clock() - self._since_s >= self._timeout_s

    def noted() -> Iterator[Schedule]:
        for schedule in drivers_with_wrong_clocks(600.0):
            running.append(schedule)
            yield schedule

    running: list[Schedule] = []
    monkeypatch.setattr(HeartbeatWatch, "has_timed_out", by_two_clocks)
    assert hasty(noted())
