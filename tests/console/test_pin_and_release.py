"""``pin`` and ``release``: a person's word on data, against the release policy, the sweeper and each other."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest
from expected_errors import fails_with
from fakes import Hooks, Killed, Process

from airflow_recovery.attempt.pin import pin as pin_data
from airflow_recovery.console.exit_codes import ExitCode
from airflow_recovery.errors import StoreAccessDenied
from airflow_recovery.journal.run_state import Attempt
from airflow_recovery.model.records import Pin
from airflow_recovery.results.release import Releaser
from airflow_recovery.store.local import LocalStore

RUN = ("flights", "2026-01-01")


class Commands:
    """The commands, told where the results of the recorded world lie."""

    def __init__(self, recorded, folder: Path) -> None:
        self._recorded = recorded
        self._folder = folder

    def call(self, *arguments: str) -> tuple[int, str]:
        return self._recorded.call(*arguments, "--results", f"file://{self._folder}/journal/_results")

    @property
    def errors(self) -> str:
        return self._recorded.errors

    def make_old(self) -> None:
        """Everything was written two hours ago."""
        for path in self._folder.rglob("*"):
            os.utime(path, (time.time() - 7200,) * 2)


@pytest.fixture
def commands(recorded, tmp_path: Path) -> Commands:
    return Commands(recorded, tmp_path)


@pytest.fixture
def world(recorded):
    """by_route and busiest ran twice, and that is published."""
    found = recorded.world()
    found.until_green()
    found.restart("by_route")
    found.new_airflow()
    found.until_green()
    assert found.state().newest_publish == 2
    return found


def objects(world, region: str, attempt: int) -> int:
    return len(list(world.results.list(world.journal().layout.data_of_number(region, attempt))))


# pin


def test_what_is_pinned_survives_gc_until_it_is_unpinned(commands, world):
    code, said = commands.call("pin", *RUN, "by_route", "--attempt", "1", "--why", "for the audit")
    assert code == ExitCode.DONE
    assert said.startswith("Pinned: by_route@1, by ")
    commands.make_old()
    assert "it is pinned" in commands.call("gc")[1]
    assert objects(world, "by_route", 1) == 1
    assert "pinned by" in commands.call("show", *RUN)[1]
    (held,) = json.loads(commands.call("pin", *RUN, "--json")[1])
    assert (held["region"], held["attempt"], held["why"]) == ("by_route", 1, "for the audit")
    assert commands.call("pin", *RUN, "by_route", "--attempt", "1", "--off")[1].startswith("Unpinned: by_route@1")
    assert "Nothing is pinned." in commands.call("pin", *RUN)[1]
    commands.make_old()
    commands.call("gc")
    assert objects(world, "by_route", 1) == 0
    assert commands.call("verify", *RUN)[0] == ExitCode.DONE


def test_control_without_the_look_at_pins_gc_deletes_it(commands, world, monkeypatch):
    commands.call("pin", *RUN, "by_route", "--attempt", "1")
    commands.make_old()
    monkeypatch.setattr(Attempt, "is_pinned", False)
    monkeypatch.setattr("airflow_recovery.journal.journal.is_pinned_after", lambda turn: False)
    commands.call("gc")
    assert objects(world, "by_route", 1) == 0


def test_a_run_with_a_pin_is_not_purged(commands, world):
    commands.call("pin", *RUN, "busiest")
    commands.make_old()
    _, said = commands.call("gc", "--purge", "--older-than", "1h", "--force")
    assert "but busiest@2 is pinned" in said
    assert "closed  " not in said
    commands.call("pin", *RUN, "busiest", "--off")
    commands.make_old()
    assert "closed  " in commands.call("gc", "--purge", "--older-than", "1h", "--force")[1]


def test_a_pin_that_races_with_a_purge_keeps_the_data_until_it_is_unpinned(commands, world):
    """The sweeper has looked, and has not closed the run yet, when the pin is written."""
    before = world.state()
    commands.make_old()
    assert "closed  " in commands.call("gc", "--purge", "--older-than", "1h", "--force")[1]
    world.journal().pin(Pin("busiest", 2, 1, "ann", "audit"))
    assert before.of("busiest").current.number == 2
    commands.make_old()
    assert "busiest@2 (1 objects" in commands.call("gc", "--purge", "--older-than", "1h", "--force")[1]
    assert (objects(world, "busiest", 2), objects(world, "by_route", 1)) == (1, 0)
    assert commands.call("pin", *RUN, "busiest", "--attempt", "2", "--off")[0] == ExitCode.DONE
    commands.make_old()
    commands.call("gc", "--purge", "--older-than", "1h", "--force")
    assert objects(world, "busiest", 2) == 0


def test_pinning_twice_is_once_and_again_is_possible(commands, world):
    turns = [
        json.loads(commands.call("pin", *RUN, "raw", *more, "--json")[1])
        for more in ((), ("--why", "again"), ("--off",), ("--why", "after all"))
    ]
    assert [(turn["turn"], turn["pinned"], turn["why"]) for turn in turns] == [
        (1, True, "pinned by hand"),
        (1, True, "pinned by hand"),
        (2, False, "pinned by hand"),
        (3, True, "after all"),
    ]
    assert "unpinned by" in commands.call("events", *RUN, "--type", "HoldChanged")[1]


def test_what_can_not_be_pinned(commands, world):
    assert commands.call("pin", *RUN, "raw", "--attempt", "7")[0] == ExitCode.NOT_FOUND
    assert "found finished attempts 1 of raw" in commands.errors
    assert commands.call("pin", *RUN, "raw", "--off")[0] == ExitCode.NOT_FOUND
    world.release("raw", 1)
    assert commands.call("pin", *RUN, "raw")[0] == ExitCode.REFUSED
    assert "has been released already" in commands.errors


def test_of_a_pin_and_a_release_at_once_one_sees_the_other(world):
    """The release has decided, and has written nothing yet, when the pin is written: no object is deleted."""
    journal = world.journal()
    attempt = world.state().of("by_route").attempts[1]
    assert pin_data(journal, world.state(), "by_route", 1, "ann", "audit").is_pinned
    deleted = Releaser(journal, world.results, who="gc").release("by_route", attempt)
    assert "pinned" in deleted.readers
    assert objects(world, "by_route", 1) == 1


def test_the_other_way_round_the_person_hears_that_it_is_too_late(world):
    before = world.state()
    world.release("by_route", 1)
    with fails_with("pin-released"):
        pin_data(world.journal(), before, "by_route", 1, "ann", "audit")


# release


def test_what_nobody_needs_is_released(commands, world):
    code, said = commands.call("release", *RUN, "by_route", "--attempt", "1")
    assert code == ExitCode.DONE
    assert "Released by_route@1: 1 objects" in said
    assert (objects(world, "by_route", 1), objects(world, "by_route", 2)) == (0, 1)
    assert commands.call("verify", *RUN)[0] == ExitCode.DONE


def test_a_final_result_needs_force_and_the_warning_says_what_runs_again(commands, world):
    code, said = commands.call("release", *RUN, "busiest", "--dry-run")
    assert code == ExitCode.DONE
    assert "busiest@2 is still needed: publish 2 names it." in said
    assert "busiest is a final result: whoever reads it outside this job loses it." in said
    assert "these run again when its rows are wanted: busiest." in said
    assert "Would delete 1 objects" in said
    code, said = commands.call("release", *RUN, "busiest")
    assert (code, said) == (ExitCode.REFUSED, "")
    assert "With --force" in commands.errors
    assert objects(world, "busiest", 2) == 1
    code, said = commands.call("release", *RUN, "busiest", "--force", "--json")
    assert (code, json.loads(said)["files"], objects(world, "busiest", 2)) == (ExitCode.DONE, 1, 0)
    world.new_airflow()
    world.until_green()
    assert world.current("busiest") == 3


def test_what_is_given_up_is_said_before_anything_is_deleted(commands, world, monkeypatch):
    """An intermediate result needs no force, though the publish names it: it would never go else."""

    def denied(self, keys):
        raise StoreAccessDenied("it may not be deleted")

    with monkeypatch.context() as patch:
        patch.setattr(LocalStore, "delete", denied)
        code, said = commands.call("release", *RUN, "raw")
    assert (code, commands.errors) == (ExitCode.NO_ANSWER, "error: it may not be deleted\n")
    given_up = "The newest publish names raw: its readers find nothing.\nWithout raw@1, these run again when "
    assert said.startswith(f"DAG flights, run date-2026-01-01T000000Z, group flights\n{given_up}")
    assert "Released" not in said
    assert objects(world, "raw", 1) == 1
    code, said = commands.call("release", *RUN, "raw")
    assert (code, objects(world, "raw", 1)) == (ExitCode.DONE, 0)
    assert said.partition("\n")[2].startswith(
        "raw@1 was released before: this deletes what is left of it.\nReleased raw@1: 1 objects"
    )


def test_what_is_pinned_or_read_is_not_released_even_with_force(commands, world):
    commands.call("pin", *RUN, "raw", "--why", "mine")
    assert commands.call("release", *RUN, "raw", "--force")[0] == ExitCode.REFUSED
    assert "(mine)" in commands.errors
    commands.call("pin", *RUN, "raw", "--off")
    world.restart("by_carrier")
    process = Process()
    with pytest.raises(Killed):
        world.region_task(world.airflow.start("by_carrier"), process, Hooks(on_start=process.kill)).execute()
    before = [each.key for each in world.journal_store.list()]
    assert commands.call("release", *RUN, "raw", "--force")[0] == ExitCode.REFUSED
    assert "by_carrier@2 reads raw@1 now" in commands.errors
    assert [each.key for each in world.journal_store.list()] == before
