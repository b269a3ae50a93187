"""A person's pin, and a release by hand, of results that are made of the files of several attempts."""

from __future__ import annotations

import pytest
from clocked import DAY_S, HOUR_S, Clock, has_data, sweep, told
from expected_errors import fails_with
from fakes import Killed, Process
from split_world import SOURCE, SplitWorld, splits

from airflow_recovery.attempt.manual_release import look_at_release, release_by_hand
from airflow_recovery.attempt.pin import pin as pin_data
from airflow_recovery.attempt.pin import unpin
from airflow_recovery.journal.journal import DataInUse
from airflow_recovery.journal.run_state import RegionState
from airflow_recovery.model.records import Pin, Released
from airflow_recovery.results import sweep as sweep_module
from airflow_recovery.results.readers import Readers
from airflow_recovery.results.release import Releaser


@pytest.fixture
def world(world: SplitWorld) -> SplitWorld:
    """S@2 has finished, with four batches of S@1, which was killed, and two of its own."""
    world.dies_at_batch(4)
    world.go(SOURCE)
    return world


def pin(world: SplitWorld, number: int | None = None) -> Pin:
    return pin_data(world.journal(), world.state(), SOURCE, number, "ann", "audit")


def is_whole(world: SplitWorld, number: int) -> bool:
    """Every file that the finish names is there."""
    outcome = world.state().of(SOURCE).attempts[number].outcome
    base = f"{world.results.base_uri}/"
    there = {info.key for info in world.results.list()}
    return all(uri.removeprefix(base) in there for output in outcome.outputs for uri in output.uris())


def other_code(world: SplitWorld) -> None:
    """S@3 counts, and has read everything anew."""
    world.fingerprints[SOURCE] = "code 2"
    world.again()
    assert world.read_by(3) == "abcdef"


# pin


def test_a_pin_keeps_the_batches_that_the_finish_took_over(world, clock):
    pin(world)
    other_code(world)
    clock.passes(100 * DAY_S)
    found = told(sweep(world))
    assert (found["S@1"], found["S@2"]) == ("kept: 4 of its batches are in use", "kept: it is pinned")
    assert is_whole(world, 2)
    unpin(world.journal(), world.state(), SOURCE, 2, "ann", "done")
    clock.passes(HOUR_S)
    sweep(world)
    assert (has_data(world, SOURCE, 1), has_data(world, SOURCE, 2)) == (False, False)


def test_control_a_pin_of_the_attempt_alone_keeps_half_of_it(world, clock, monkeypatch):
    pin(world)
    other_code(world)
    monkeypatch.setattr(RegionState, "pinned", ())
    monkeypatch.setattr(Releaser, "_made_of", lambda self, *looked_at: [])
    clock.passes(100 * DAY_S)
    sweep(world)
    assert (has_data(world, SOURCE, 1), has_data(world, SOURCE, 2)) == (False, True)


def test_of_a_pinned_finish_also_the_batches_stay_that_a_later_one_has_dropped(world, clock):
    pin(world)
    world.listing = splits("abcdef", c="2")
    world.again()
    assert world.read_by(3) == "c"
    clock.passes(100 * DAY_S)
    assert sweep(world).deleted_bytes == 0
    assert is_whole(world, 2)
    assert world.result() == world.fresh()


def test_what_was_committed_split_by_split_can_be_pinned_while_it_counts(world, clock):
    """Of S@2, the sweeper has deleted the batch that S@3 dropped, and no marker says so."""
    world.listing = splits("abcdef", c="2")
    world.again()
    clock.passes(100 * DAY_S)
    sweep(world)
    assert not is_whole(world, 2)
    with fails_with("pin-of-old-batches", region="S"):
        pin(world, 2)
    assert world.state().of(SOURCE).pinned == ()


def test_a_pin_is_refused_where_a_batch_is_being_released(world):
    state = world.state()
    world.journal().release(Released(SOURCE, 1, "gc"))
    with fails_with("pin-released", region="S"):
        pin_data(world.journal(), state, SOURCE, 2, "ann", "audit")


def release_after_a_pin(world: SplitWorld) -> str:
    """The sweeper has read the run, and then it was pinned."""
    other_code(world)
    before = world.state().of(SOURCE).attempts[1]
    world.journal().pin(Pin(SOURCE, 2, 1, "ann", "audit"))
    return Releaser(world.journal(), world.results, who="gc").release(SOURCE, before).readers


def test_who_releases_a_batch_looks_for_pins_of_what_is_made_of_it(world):
    assert release_after_a_pin(world) == "a person, who has pinned it,"
    assert is_whole(world, 2)


def test_control_without_that_look_the_pinned_result_loses_its_batches(world, monkeypatch):
    monkeypatch.setattr(Releaser, "_made_of", lambda self, *looked_at: [])
    release_after_a_pin(world)
    assert not is_whole(world, 2)


def test_a_pin_that_races_with_a_purge_keeps_the_batches_too(world, clock):
    world.go("C")
    clock.passes(100 * DAY_S)
    sweep(world, purge_older_than_s=DAY_S)
    world.journal().pin(Pin(SOURCE, 2, 1, "ann", "audit"))
    clock.passes(2 * DAY_S)
    sweep(world, purge_older_than_s=DAY_S)
    assert is_whole(world, 2)
    assert not has_data(world, "C", 1)


# readers


def dies_at_its_finish(request: str) -> None:
    if request.startswith("PUT") and request.endswith("/C/00000001.outcome"):
        raise Killed(request)


def swept_while_read(world: SplitWorld, clock: Clock) -> None:
    """C@1 is open, and reads S@2; S@3 counts, which has dropped a batch of S@1, and a sweep comes by."""
    with pytest.raises(Killed):
        world.go("C", process=Process(gate=dies_at_its_finish))
    world.listing = splits("abcdef", c="2")
    world.again()
    clock.passes(100 * DAY_S)
    sweep(world)


def test_who_reads_a_finish_keeps_the_batches_that_it_took_over(world, clock):
    swept_while_read(world, clock)
    assert is_whole(world, 2)


def test_control_without_the_look_at_readers_a_batch_goes_below_them(world, clock, monkeypatch):
    monkeypatch.setattr(sweep_module, "look_for_readers", lambda journal: Readers(DataInUse((), frozenset())))
    swept_while_read(world, clock)
    assert not is_whole(world, 2)


def test_who_reads_a_finish_keeps_an_attempt_that_nobody_else_uses(world, clock):
    with pytest.raises(Killed):
        world.go("C", process=Process(gate=dies_at_its_finish))
    other_code(world)
    clock.passes(100 * DAY_S)
    assert told(sweep(world))["S@1"].endswith("but C@1 reads it")
    assert is_whole(world, 2)


# by hand


def test_a_release_by_hand_takes_the_batches_along(world):
    world.go("C")
    release = look_at_release(world.journal(), world.plan, world.state(), SOURCE, None)
    assert (release.name, release.still_needed, release.also) == ("S@2", "", (1,))
    assert release_by_hand(world.journal(), world.results, release, "ann").readers == ""
    assert (has_data(world, SOURCE, 1), has_data(world, SOURCE, 2)) == (False, False)


def test_a_release_by_hand_of_what_a_newer_finish_is_made_of_is_refused(world):
    world.listing = splits("abcdefg")
    world.again()
    with fails_with("release-of-adopted-batches", region="S"):
        look_at_release(world.journal(), world.plan, world.state(), SOURCE, 2)
    world.go("C")
    release = look_at_release(world.journal(), world.plan, world.state(), SOURCE, None)
    assert (release.name, release.also) == ("S@3", (1, 2))
