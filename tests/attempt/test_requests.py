"""Requests to the journal, and round trips, of regions without a failure (docs/protocol.md#requests)."""

from __future__ import annotations

import pytest
from fakes import World
from split_world import SOURCE, SplitWorld, splits

from airflow_recovery.attempt.final_check import final_check
from airflow_recovery.testing import CountingStore, Verb

#    A      A2
#    | \   /
#    B   C          C has two inputs
#    |   |
#    L   M          leaves
TOPOLOGY = {"A": (), "A2": (), "B": ("A",), "C": ("A", "A2"), "L": ("B",), "M": ("C",)}


class Counted(World):
    """Counts the requests to its journal."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.counting = CountingStore(self.journal_store)
        self.journal_store = self.counting


@pytest.fixture
def world() -> Counted:
    world = Counted(TOPOLOGY)
    world.go("A")
    return world


def requests(world: Counted, region: str) -> list[Verb]:
    world.counting.clear()
    world.go(region)
    return [verb for verb, _ in world.counting.requests]


def test_the_first_region_of_a_run_writes_the_plan_besides():
    world = Counted(TOPOLOGY)
    assert requests(world, "A") == [Verb.LIST, Verb.PUT_IF_ABSENT, Verb.PUT_IF_ABSENT, Verb.PUT_IF_ABSENT]
    assert ["plan" in key for _, key in world.counting.requests] == [False, True, False, False]


def test_an_inner_source_region_makes_two_puts_and_one_list(world):
    assert requests(world, "A2") == [Verb.LIST, Verb.PUT_IF_ABSENT, Verb.PUT_IF_ABSENT]


@pytest.mark.parametrize(("region", "inputs"), [("B", 1), ("C", 2)])
def test_an_inner_region_makes_two_puts_one_list_and_a_get_an_input(world, region, inputs):
    world.go("A2")
    made = requests(world, region)
    # The second listing is the release check: it runs beside Spark's start, off the critical path.
    assert sorted(made) == sorted([Verb.LIST, *[Verb.GET] * inputs, Verb.PUT_IF_ABSENT, Verb.PUT_IF_ABSENT, Verb.LIST])
    assert made[: inputs + 2] == [Verb.LIST, *[Verb.GET] * inputs, Verb.PUT_IF_ABSENT]  # round trips 1, 2, 3; then 4


def test_a_batch_of_splits_is_one_put_and_what_is_taken_over_is_read_twice():
    world = SplitWorld({"S": ()}, splits("abcdef"))
    world.dies_at_batch(4)
    journal, data = CountingStore(world.journal_store), CountingStore(world.results)
    world.journal_store, world.results = journal, data
    assert world.go(SOURCE).attempt == 2
    parts = [(verb, key.rpartition("/")[2]) for verb, key in journal.requests if ".part-" in key]
    taken = [(Verb.GET, f"00000001.part-{n:04d}") for n in range(4)]
    own = [(Verb.PUT_IF_ABSENT, f"00000002.part-{n:04d}") for n in range(2)]
    assert sorted(parts) == sorted([*taken, *own, *taken])
    assert [verb for verb, _ in data.requests].count(Verb.LIST) == 1


def test_a_leaf_lists_once_more(world):
    world.go_all(["A2", "C"])
    made = requests(world, "M")
    assert made.count(Verb.LIST) == 3  # pre-check, release check (beside Spark), final check
    assert made[:3] == [Verb.LIST, Verb.GET, Verb.PUT_IF_ABSENT]
    assert made[-1] is Verb.LIST
    assert (made.count(Verb.GET), made.count(Verb.PUT_IF_ABSENT)) == (1, 2)


def test_a_region_without_a_failure_asks_airflow_for_its_live_check_alone(world, monkeypatch):
    asked: list[str] = []
    monkeypatch.setattr("fakes.Process.request", lambda self, what: asked.append(what))
    world.go_all(["A2", "C"])
    asked.clear()
    world.go("M")
    assert [each for each in asked if each.split()[0] not in ("LIST", "GET", "PUT")] == ["live check"]


def test_control_an_inner_region_with_a_final_check_makes_more_requests(world, monkeypatch):
    def always(run, region, attempt):
        run.list()
        final_check(run, region, attempt)

    monkeypatch.setattr("airflow_recovery.attempt.region_task.final_check", always)
    assert requests(world, "A2").count(Verb.LIST) == 2


def test_a_kept_region_of_a_second_run_writes_nothing(world):
    world.go_all(["A2", "B", "C", "L", "M"])
    world.new_airflow()
    for region in TOPOLOGY:
        assert Verb.PUT_IF_ABSENT not in requests(world, region)
