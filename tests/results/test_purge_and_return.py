"""A run that comes back at the very moment at which the real ``gc`` purges it, in every kind of store (fault 104)."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest
from clocked import DAY_S, HOUR_S, Clock, clocked_world, sweep
from fakes import PAIR, Process, World
from kept_runs import Kept, kept, keys

from airflow_recovery.attempt.assignment_log import AssignmentLog
from airflow_recovery.console.exit_codes import ExitCode
from airflow_recovery.errors import NothingRecorded
from airflow_recovery.journal.in_use import read_run
from airflow_recovery.journal.journal import Journal
from airflow_recovery.model.split import Split
from airflow_recovery.model.split_assignment import Assignment
from airflow_recovery.model.split_matching import Vanished
from airflow_recovery.results import sweep_purge
from airflow_recovery.results.release import Releaser

__all__ = ["kept"]

PURGE = ("--purge", "--older-than", "0s", "--force", "--grace", "0s")
FILES = [Split.of_file(f"s3://lake/{name}.csv", 10, "e1") for name in "abcdef"]
log = logging.getLogger("tests.execution")


def assigned(world: World, *files: Split) -> Assignment:
    """What a task finds before its claim: which of two subtasks reads which of the files that it lists."""
    journal = world.journal()
    splits = AssignmentLog(journal.store, journal.identity, "S", writer="w")
    return splits.advanced(lambda: files or FILES, 2, vanished=Vanished.DROP, log=log)


def closed(kept: Kept) -> World:
    """A run that was green, over files that came one after the other; closed by a first `gc`."""
    world = kept.world()
    world.go_all()
    for count in (1, 3, len(FILES)):
        assigned(world, *FILES[-count:])
    assert kept.gc(*PURGE) == ExitCode.DONE
    assert world.state().is_closed
    return world


def while_it_deletes(monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> None:
    """``act`` happens once, after `gc` has looked for the second time whether the run has come back."""
    delete = Releaser.delete_data
    acted: list[Any] = []

    def late(releaser: Releaser, region: str, number: int):
        if not acted:
            acted.append(True)
            act()
        return delete(releaser, region, number)

    monkeypatch.setattr(Releaser, "delete_data", late)


def comes_back(world: World) -> None:
    """The first subtask's task claims; it has read its splits before."""
    world.airflow.clear("P")
    world.go("P")


def test_fault_104_both_subtasks_of_a_run_that_comes_back_go_by_one_assignment(kept: Kept, monkeypatch) -> None:
    world = closed(kept)
    first = assigned(world)
    while_it_deletes(monkeypatch, lambda: comes_back(world))
    assert kept.gc(*PURGE) == ExitCode.DONE
    assert world.current("P") == 2
    second = assigned(world)
    assert sorted(each.uri for each in (*first.of(0), *second.of(1))) == [candidate.uri for candidate in FILES]


def test_fault_104_control_where_the_splits_are_purged_a_file_is_read_twice_or_by_nobody(
    kept: Kept, monkeypatch
) -> None:
    world = closed(kept)
    first = assigned(world)
    while_it_deletes(monkeypatch, lambda: comes_back(world))
    monkeypatch.setattr(
        sweep_purge.Purge, "_old_streams", lambda purge: keys(purge._journal.store, purge._layout.splits)
    )
    assert kept.gc(*PURGE) == ExitCode.DONE
    second = assigned(world)
    assert sorted(each.uri for each in (*first.of(0), *second.of(1))) != [candidate.uri for candidate in FILES]


def test_fault_104_the_plan_that_a_claim_of_just_now_names_is_put_back(kept: Kept, monkeypatch) -> None:
    world = closed(kept)
    while_it_deletes(monkeypatch, lambda: comes_back(world))
    assert kept.gc(*PURGE) == ExitCode.DONE
    assert read_run(world.journal()).plan == world.plan


def test_fault_104_control_not_put_back_nobody_can_read_the_run(kept: Kept, monkeypatch) -> None:
    world = closed(kept)
    while_it_deletes(monkeypatch, lambda: comes_back(world))
    monkeypatch.setattr(sweep_purge.Purge, "_put_back", lambda purge, plans: None)
    assert kept.gc(*PURGE) == ExitCode.DONE
    with pytest.raises(NothingRecorded):
        read_run(world.journal())


def purged_before_its_claim(kept: Kept) -> World:
    """The task lists while the plan is there, and claims when all is gone."""
    world = closed(kept)
    done: list[Any] = []

    def gate(request: str) -> None:
        if request.startswith("PUT") and request.endswith("00000002.claim") and not done:
            done.append(kept.gc(*PURGE))

    world.airflow.clear("P")
    world.go("P", process=Process(gate))
    assert done == [ExitCode.DONE]
    return world


def test_fault_104_a_task_puts_the_plan_again_where_its_run_was_closed(kept: Kept) -> None:
    world = purged_before_its_claim(kept)
    assert read_run(world.journal()).plan == world.plan


def test_fault_104_control_a_task_that_does_not_leaves_a_run_that_nobody_can_read(kept: Kept, monkeypatch) -> None:
    put = Journal.put_plan
    monkeypatch.setattr(
        Journal,
        "put_plan",
        lambda journal, plan: None if keys(journal.store, journal.layout.closed) else put(journal, plan),
    )
    world = purged_before_its_claim(kept)
    with pytest.raises(NothingRecorded):
        read_run(world.journal())


def test_fault_104_the_history_of_a_run_that_comes_back_stays() -> None:
    clock = Clock()
    world = clocked_world(PAIR, clock)
    world.go_all()
    streams = world.journal().layout.streams
    world.journal_store.put(f"{streams}old/00000001", b"events")
    clock.passes(40 * DAY_S)
    sweep(world, purge_older_than_s=30 * DAY_S)
    clock.passes(2 * HOUR_S)
    world.journal_store.put(f"{streams}new/00000001", b"events")
    sweep(world, purge_older_than_s=30 * DAY_S)
    assert keys(world.journal_store, streams) == [f"{streams}new/00000001"]


def test_a_run_that_comes_back_after_its_purge_goes_on_with_its_splits(kept: Kept) -> None:
    """They are what is left beside the tombstone; the numbers of a dynamic log go on as well."""
    world = closed(kept)
    before = assigned(world)
    assert kept.gc(*PURGE) == ExitCode.DONE
    assert keys(world.journal_store, world.journal().layout.prefix) == [world.journal().layout.closed]
    assert assigned(world) == before
    world.airflow.clear("P")
    world.go("P")
    assert world.current("P") == 2
