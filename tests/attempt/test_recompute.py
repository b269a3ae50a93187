"""`recovery: {mode: recompute, epoch: N}`: everything runs again once an epoch, and not on every later retry."""

from __future__ import annotations

import pytest
from fakes import CHAIN, PAIR, Killed, Process, World

from airflow_recovery.attempt.region_task import Decision
from airflow_recovery.errors import RegionFailed


def recompute(world: World, regions: str, epoch: str) -> list[Decision]:
    return [world.go(region, epoch=epoch).decision for region in regions]


def test_fault_198_everything_runs_again_once_in_an_epoch_and_the_second_time_says_so():
    world = World(CHAIN)
    world.go_all()
    world.new_airflow()
    assert recompute(world, "PCE", "1") == [Decision.RAN] * 3
    world.new_airflow()
    again = [world.go(region, epoch="1") for region in "PCE"]
    assert [result.decision for result in again] == [Decision.KEPT] * 3
    # Fault 198: a person who asks for the same epoch again is told that nothing has run.
    told = "; epoch 1 has recomputed it already: a value of recovery.epoch that is new runs it again"
    assert [result.why.endswith(told) for result in again] == [True] * 3
    assert [world.current(region) for region in "PCE"] == [2, 2, 2]


def test_the_next_epoch_runs_everything_again():
    world = World(PAIR)
    world.go_all()
    for epoch in ("1", "2"):
        world.new_airflow()
        assert recompute(world, "PC", epoch) == [Decision.RAN] * 2
    assert world.current("C") == 3


def test_the_reset_names_the_epoch_and_the_run():
    world = World(PAIR, run_id="manual__1")
    world.go("P")
    world.new_airflow()
    world.go("P", epoch="7")
    reset = world.state().of("P").attempts[1].reset
    assert (reset.epoch, reset.who, reset.why) == ("7", "manual__1", "recompute, epoch 7")


def test_a_region_without_attempts_runs_once_and_is_kept_on_a_later_retry():
    world = World(PAIR)
    assert recompute(world, "PC", "1") == [Decision.RAN] * 2
    world.airflow.clear("P")
    world.airflow.clear("C")
    assert recompute(world, "PC", "1") == [Decision.KEPT] * 2
    assert world.ran == [("P", 1), ("C", 1)]


def test_a_retry_after_a_failure_in_the_epoch_runs_and_the_one_after_it_keeps():
    world = World(PAIR)
    world.go_all()
    world.new_airflow()

    def fail() -> None:
        raise RegionFailed("boom")

    with pytest.raises(RegionFailed):
        world.go("P", epoch="1", on_read=fail)
    assert world.go("P", epoch="1").attempt == 3
    world.airflow.clear("P")
    assert world.go("P", epoch="1").decision is Decision.KEPT


def test_a_try_killed_after_its_reset_leaves_the_epoch_to_the_next():
    world = World(PAIR)
    world.go("P")
    world.new_airflow()
    process = Process()
    process.gate = lambda request: process.kill() if "PUT" in request and "claim" in request else None
    with pytest.raises(Killed):
        world.go("P", process=process, epoch="1")
    world.airflow.lose_heartbeat("P")
    assert world.go("P", epoch="1").attempt == 2
    world.airflow.clear("P")
    assert world.go("P", epoch="1").decision is Decision.KEPT


def test_control_where_the_epoch_is_not_remembered_every_retry_runs_again(monkeypatch):
    import dataclasses

    from airflow_recovery.journal.journal import Journal

    reset, claim = Journal.reset, Journal.claim
    monkeypatch.setattr(Journal, "reset", lambda self, it: reset(self, dataclasses.replace(it, epoch=None)))
    monkeypatch.setattr(Journal, "claim", lambda self, it: claim(self, dataclasses.replace(it, epoch=None)))
    world = World(PAIR)
    recompute(world, "P", "1")
    world.airflow.clear("P")
    assert recompute(world, "P", "1") == [Decision.RAN]
