"""A place of an attempt is used once: after a journal came back from a backup, and if a file comes late."""

from __future__ import annotations

from dataclasses import replace

import pytest
from clocked import Clock, clocked_world, sweep, told
from fakes import PAIR, World

from airflow_recovery.attempt import attempt
from airflow_recovery.attempt.region_task import Decision
from airflow_recovery.journal.layout import JournalLayout, parse_folder
from airflow_recovery.model.records import Claim
from airflow_recovery.results import availability
from airflow_recovery.store.object_store import ObjectStore

data_of = JournalLayout.data_of


def backed_up(store: ObjectStore) -> dict[str, bytes]:
    return {info.key: store.get(info.key).body for info in store.list()}


def brought_back(store: ObjectStore, objects: dict[str, bytes]) -> None:
    store.delete([info.key for info in store.list() if info.key not in objects])


def by_number(self, claim):
    """As it was: the folder of an attempt has its number alone."""
    return data_of(self, replace(claim, folder=None))


def made_twice_at_one_number(world: World | None = None) -> tuple[World, str, str]:
    """P@1 is made by code 1, its claim and its finish are lost with the journal, and P@1 is made by code 2.

    Returns the prefixes of the data of both.
    """
    world = world or World(PAIR)
    before = backed_up(world.journal_store)
    world.go("P")
    first = world.data_of("P", 1)
    brought_back(world.journal_store, before)
    world.fingerprints["P"] = "code 2"
    world.new_airflow()
    assert world.go("P").decision is Decision.RAN
    return world, first, world.data_of("P", 1)


def test_fault_290_a_number_that_a_backup_gives_again_has_another_folder():
    world, first, second = made_twice_at_one_number()
    assert first != second
    assert [parse_folder(prefix.rpartition("/")[2]) for prefix in (first, second)] == [1, 1]
    location = world.state().of("P").current.outcome.outputs[0].location
    assert location == f"{world.results.base_uri}/{second}/out"
    # A job of the lost attempt that is still at work writes into its own folder.
    world.results.put(f"{first}/out/part-1", b"late")
    world.go("C")
    assert (world.attempts("P"), world.content("C")) == (1, "C of ['P of []']")


@pytest.mark.control
def test_fault_290_control_by_its_number_alone_the_late_file_lies_in_the_result(monkeypatch):
    monkeypatch.setattr(JournalLayout, "data_of", by_number)
    world, first, second = made_twice_at_one_number()
    assert first == second
    world.results.put(f"{first}/out/part-1", b"late")
    listed = {info.key for info in world.results.list(f"{second}/out/")}
    assert listed == {f"{second}/out/part-0", f"{second}/out/part-1"}


def test_fault_290_gc_deletes_the_folder_of_the_lost_claim_and_a_release_that_of_the_other():
    clock = Clock()
    world, first, second = made_twice_at_one_number(clocked_world(PAIR, clock))
    world.go("C")
    sweep(world, grace_s=3600.0)
    assert list(world.results.list(first))  # its job may be at work
    clock.passes(7200.0)
    assert told(sweep(world, grace_s=3600.0))["P@1"] == "deleted: written by a claim that the journal does not have"
    assert not list(world.results.list(first))
    assert world.content("C") == "C of ['P of []']"
    world.restart("P")
    world.until_green()
    clock.passes(7200.0)
    assert sweep(world, grace_s=3600.0).unread == []
    assert not list(world.results.list(second))


def test_fault_290_a_claim_of_an_earlier_version_has_the_folder_of_its_number(monkeypatch):
    """And its data is read, and kept, by this version."""
    with monkeypatch.context() as earlier:
        earlier.setattr(attempt, "Claim", lambda **fields: Claim(**{**fields, "folder": None}))
        world = World(PAIR)
        world.go("P")
    assert world.data_of("P", 1).endswith("/P/00000001")
    world.go("C")
    assert (world.content("C"), world.attempts("P")) == ("C of ['P of []']", 1)


LATE = ("part-9", "day=1/part-0", "_day=1/part-0", "_delta_log/00000000000000000001.json")
LEFT = (
    "_SUCCESS",
    "_temporary/0/part-0",
    ".part-0.crc",
    "__magic_job-1/x",
    "_committed_17",
    "_delta_log/_last_checkpoint",
)


@pytest.mark.parametrize("name", LATE)
def test_fault_294_a_file_beyond_its_manifest_has_a_result_made_again_elsewhere(name):
    world = World(PAIR)
    world.until_green()
    late = f"{world.data_of('P', 1)}/out/{name}"
    world.results.put(late, b"late")
    world.restart("C")
    world.until_green()
    assert (world.current("P"), world.current("C")) == (2, 2)
    assert not [info for info in world.results.list(world.data_of("P", 2)) if info.key.endswith(name)]


@pytest.mark.parametrize("name", LEFT)
def test_fault_294_what_a_committer_leaves_is_no_file_of_a_result(name):
    world = World(PAIR)
    world.until_green()
    world.results.put(f"{world.data_of('P', 1)}/out/{name}", b"left")
    world.restart("C")
    world.until_green()
    assert (world.current("P"), world.current("C")) == (1, 2)


@pytest.mark.control
def test_fault_294_control_unless_it_is_looked_for_the_late_file_is_in_the_folder_that_is_handed_out(monkeypatch):
    monkeypatch.setattr(availability, "is_read_by_spark", lambda name: False)
    world = World(PAIR)
    world.until_green()
    world.results.put(f"{world.data_of('P', 1)}/out/part-9", b"late")
    world.restart("C")
    world.until_green()
    assert (world.current("P"), world.current("C")) == (1, 2)
