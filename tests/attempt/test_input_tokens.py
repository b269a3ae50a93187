"""What an attempt has read is known by the claim's token, never by its number alone (fault 183)."""

from __future__ import annotations

import pytest
from fakes import World

from airflow_recovery.attempt.region_task import Decision
from airflow_recovery.model.determinism import Determinism
from airflow_recovery.planning import evaluation

PAIR = {"a": (), "b": ("a",)}


def loses_journal_of(world: World, region: str) -> None:
    """A journal that comes back from a backup lacks a part: the next attempt gets a number that was given already."""
    folder = f"{world.journal().layout.prefix}t/{region}/"
    world.journal_store.delete([info.key for info in world.journal_store.list(folder)])


def begins_again(world: World, region: str) -> None:
    world.delete_results(region, 1)
    loses_journal_of(world, region)
    world.airflow.clear(region)
    world.go(region)
    assert world.current(region) == 1


@pytest.mark.parametrize(
    ("mode", "decision"), [(Determinism.ALWAYS, Decision.RAN), (Determinism.VERIFY, Decision.KEPT)]
)
def test_fault_183_a_number_that_is_given_a_second_time_is_another_attempt(mode, decision):
    """With equal rows a consumer that verifies them keeps its result."""
    world = World(PAIR, modes={"a": mode})
    world.go_all()
    begins_again(world, "a")
    world.airflow.clear("b")
    result = world.go("b")
    assert result.decision is decision
    if decision is Decision.RAN:
        assert result.cause == "b: input was made again (read another a@1 than there is now)"


def test_fault_183_with_other_rows_a_consumer_that_verifies_runs_again():
    world = World(PAIR, modes={"a": Determinism.VERIFY})
    world.go_all()
    world.constant = frozenset({"a"})
    begins_again(world, "a")
    world.airflow.clear("b")
    assert world.go("b").decision is Decision.RAN
    assert world.content("b") == "b of ['a']"


def test_fault_183_control_by_its_number_the_old_rows_are_kept(monkeypatch):
    monkeypatch.setattr(evaluation, "_is_read_at", lambda pin, attempt: attempt.number == pin.attempt)
    world = World(PAIR)
    world.go_all()
    world.constant = frozenset({"a"})
    begins_again(world, "a")
    world.airflow.clear("b")
    assert world.go("b").decision is Decision.KEPT
    assert world.content("b") == "b of ['a of []']"
