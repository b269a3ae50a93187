"""Regions that commit split by split in seeded schedules: each split counts once, and nothing that is adopted goes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest
from simulated_controls import finds

from airflow_recovery.journal.run_state import Attempt, RegionState
from airflow_recovery.model.records import Claim, CommittedBatch
from airflow_recovery.results.release import Releaser
from airflow_recovery.results.release_rule import ReleaseRule
from airflow_recovery.splits import adoption
from airflow_recovery.splits.committed_batches import SplitWork, numbers_of
from airflow_recovery.splits.mode import AdoptedBatches, SplitClaim
from airflow_recovery.testing import split_driver
from airflow_recovery.testing.simulation import TOPOLOGIES, Settings, Trouble, job_of, simulate
from airflow_recovery.testing.simulation.jobs import with_splits
from airflow_recovery.testing.split_driver import SplitDriver

TROUBLES = {
    "kills": {Trouble.KILL: 2, Trouble.SIGTERM: 1},
    "zombies": {Trouble.HEARTBEAT: 2, Trouble.PAUSE: 2},
    "people": {Trouble.RESTART: 1, Trouble.CLEAR: 1, Trouble.HEARTBEAT: 1},
    "outsiders": {Trouble.DELETE: 2, Trouble.ALTER: 1, Trouble.KILL: 1},
    "everything anew": {Trouble.DATABASE: 1, Trouble.RECOMPUTE: 1, Trouble.HEARTBEAT: 1},
    "other code": {Trouble.DEPLOY: 2, Trouble.KILL: 1},
    "sweeper": {Trouble.SWEEP: 3, Trouble.KILL: 1, Trouble.HEARTBEAT: 1},
    "listings": {Trouble.LISTING: 2, Trouble.KILL: 1, Trouble.HEARTBEAT: 1},
    "listings and a sweeper": {Trouble.LISTING: 2, Trouble.SWEEP: 2},
    "purge": {Trouble.PURGE: 1, Trouble.HEARTBEAT: 1},
}


@pytest.mark.slow
@pytest.mark.parametrize("name", TROUBLES)
@pytest.mark.parametrize("topology", ["pair", "diamond"])
def test_fault_56_each_split_counts_once_whatever_happens(topology, name):
    job = with_splits(job_of(TOPOLOGIES[topology]), "PC")
    for seed in range(15):
        page_keys = (None, None, 3)[seed % 3]
        settings = Settings(
            job, TROUBLES[name], publishes=seed % 2 == 0, store_faults=seed % 4 * 2, page_keys=page_keys
        )
        simulate(seed, settings)


# Controls: with a protection off, a schedule shows what it is for.

ZOMBIES = Settings(
    with_splits(job_of({"P": ()}), "P"),
    {Trouble.HEARTBEAT: 2, Trouble.PAUSE: 2},
    publishes=False,
    detached_share=0.0,
    heartbeat_timeout_s=0.0,
)


def second_look(driver: SplitDriver, claim: Claim) -> tuple[CommittedBatch, ...]:
    """The logs as they are now, and not as the claim has pinned them."""
    attempts = driver._journal.list([claim.region]).state.of(claim.region).attempts
    base = [AdoptedBatches(each.attempt, attempts[each.attempt].batches) for each in SplitClaim.of(claim).base]
    return driver._journal.read_committed_batches(claim.region, numbers_of(base))


def no_cover(assigned: object, batches: object) -> None:
    pass


@pytest.mark.slow
def test_control_where_the_base_is_looked_up_twice_a_split_counts_twice(monkeypatch):
    monkeypatch.setattr(SplitDriver, "_adopted", second_look)
    monkeypatch.setattr(split_driver, "check_cover", no_cover)
    finds(ZOMBIES, "I14: P@")


@pytest.mark.slow
def test_where_the_base_is_looked_up_twice_the_cover_keeps_it_from_counting(monkeypatch):
    monkeypatch.setattr(SplitDriver, "_adopted", second_look)
    for seed in range(120):
        simulate(seed, ZOMBIES)


def test_control_without_the_cover_a_split_that_was_forgotten_is_missing(monkeypatch):
    todo = cast(Any, SplitWork.todo).fget
    # An attempt that takes something over forgets one of the others.
    monkeypatch.setattr(SplitWork, "todo", property(lambda self: todo(self)[len(self.adopted) > 0 :]))
    monkeypatch.setattr(split_driver, "check_cover", no_cover)
    monkeypatch.setattr(adoption, "check_cover", no_cover)
    finds(ZOMBIES, "I14: P@")


def test_control_where_a_reset_does_not_drop_the_base_the_restart_was_none(monkeypatch):
    split_work = adoption.split_work

    def forgets_resets(run, region, state, pins, externals):
        mine = state.of(region.name)
        attempts = {n: replace(each, is_reset=False, reset=None) for n, each in mine.attempts.items()}
        regions = {**state.regions, region.name: RegionState(attempts, mine.closed_at)}
        return split_work(run, region, replace(state, regions=regions), pins, externals)

    monkeypatch.setattr(adoption, "split_work", forgets_resets)
    monkeypatch.setattr(adoption, "check_base", lambda run, claim: None)
    monkeypatch.setattr(Attempt, "oldest", property(lambda self: self.number))
    settings = Settings(ZOMBIES.job, {Trouble.RESTART: 1, Trouble.HEARTBEAT: 1}, publishes=False)
    finds(settings, "the restart of P@1 was not done")


def test_control_where_other_codes_batches_are_adopted_rows_of_both_are_mixed(monkeypatch):
    monkeypatch.setattr(adoption, "reading_of", lambda fingerprint, inputs: "")
    settings = Settings(ZOMBIES.job, {Trouble.DEPLOY: 1, Trouble.KILL: 1}, publishes=False, detached_share=0.0)
    finds(settings, "I13: P of P@")


def test_control_where_batches_of_vanished_splits_are_adopted_rows_of_them_stay(monkeypatch):
    monkeypatch.setattr(adoption, "usable", lambda base, *given, **more: base)
    monkeypatch.setattr(split_driver, "check_cover", no_cover)
    monkeypatch.setattr(adoption, "check_cover", no_cover)
    settings = Settings(ZOMBIES.job, {Trouble.LISTING: 1}, publishes=False, detached_share=0.0)
    finds(settings, "I14: P@")


def test_control_where_the_sweeper_goes_by_attempts_it_deletes_adopted_batches(monkeypatch):
    monkeypatch.setattr(ReleaseRule, "used_batches", lambda self, region, but_finish=None: {})
    monkeypatch.setattr(Releaser, "_made_of", lambda self, *looked_at: [])
    settings = Settings(ZOMBIES.job, {Trouble.SWEEP: 2, Trouble.KILL: 1}, publishes=False, detached_share=0.0)
    finds(settings, "I8: ")


def test_killed_after_every_single_step():
    settings = Settings(with_splits(job_of(TOPOLOGIES["pair"]), "P"), detached_share=0.0)
    for step in range(2, simulate(5, settings).steps):
        report = simulate(5, Settings(settings.job, kills=frozenset({step}), detached_share=0.0))
        assert len(report.ran) <= 3
