"""A task that a person has marked as failed has no result in this run, and recovery does not clear it (fault 242)."""

from __future__ import annotations

import pytest
from expected_errors import fails_with
from fakes import CHAIN, FORK, PAIR, PUBLISH, Process, World

from airflow_recovery.errors import InputLost


def remakes_p(world: World) -> None:
    world.restart("P")
    world.go("P")


def loses_all(world: World) -> None:
    for region in world.upstream:
        world.delete_results(region, 1)


def test_fault_242_a_consumer_that_was_marked_as_failed_is_not_cleared_when_its_input_is_made_again():
    world = World(FORK)
    world.go_all()
    world.airflow.mark("C", "failed")
    remakes_p(world)
    assert world.airflow.cleared == ["D", PUBLISH]
    assert world.airflow.state("C") == "failed"


@pytest.mark.control
def test_fault_242_control_an_airflow_that_does_not_know_of_the_mark_clears_it():
    world = World(FORK)
    world.go_all()
    world.airflow.fail_for_good("C")
    remakes_p(world)
    assert sorted(world.airflow.cleared) == ["C", "D", PUBLISH]


def test_a_consumer_that_failed_by_itself_while_it_waited_is_cleared_when_its_input_is_made_again():
    world = World(PAIR, retries=0)
    world.go_all()
    world.restart("P")
    world.airflow.clear("C")
    own = world.airflow.now("C")
    assert own.state is None
    world.airflow.fail_for_good("C")
    world.go("P")
    assert world.airflow.cleared == ["C", PUBLISH]


def test_fault_242_a_producer_that_was_marked_as_failed_is_not_made_again_and_is_named():
    world = World(CHAIN, rules={"E": "all_done"}, optional={})
    world.go_all()
    world.delete_results("C", 1)
    world.airflow.clear("E")
    own = world.airflow.start("E")
    observed = world.region_task(own, Process())
    world.airflow.mark("C", "failed")
    with fails_with("reads-what-failed", input="C"):
        observed.execute()


def test_fault_242_so_is_one_that_is_marked_after_the_consumer_has_begun():
    """By ``all_success`` nobody asks Airflow for its state: the clear does."""
    world = World(PAIR)
    world.go_all()
    loses_all(world)
    world.airflow.clear("C")
    own = world.airflow.start("C")
    world.airflow.mark("P", "failed")
    with fails_with("input-marked-failed", marked="P"):
        world._report(own, world.region_task(own, Process()).execute)
    assert world.airflow.cleared == []
    world.airflow.clear("P")
    world.go("P")
    assert world.airflow.state("P") == "success"


def test_a_person_who_clears_it_takes_the_mark_back():
    world = World(PAIR)
    world.go_all()
    world.airflow.mark("P", "failed")
    world.airflow.clear("P")
    world.go("P")
    loses_all(world)
    world.airflow.clear("C")
    with pytest.raises(InputLost):
        world.go("C")
    assert world.airflow.cleared == ["P"]
