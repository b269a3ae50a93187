"""The last task: one coherent cut, named once."""

from __future__ import annotations

import pytest
from expected_errors import fails_with
from fakes import CHAIN, DIAMOND, FORK, IDENTITY, PAIR, PUBLISH, Process, World

from airflow_recovery.attempt.publish import PublishTask
from airflow_recovery.errors import InputLost
from airflow_recovery.journal.published import published_result
from airflow_recovery.model.determinism import Determinism


def test_a_publish_names_attempt_outcome_and_results_of_every_standing_region():
    world = World(CHAIN)
    world.go_all()
    publish = world.publish()
    assert publish.number == 1
    assert [(region.region, region.attempt, region.results) for region in publish.regions] == [
        ("P", 1, ("P",)),
        ("C", 1, ("C",)),
        ("E", 1, ("E",)),
    ]
    assert [region.outcome_etag for region in publish.regions] == [
        world.state().of(each).attempts[1].outcome_etag for each in CHAIN
    ]


def test_the_same_cut_is_published_once():
    world = World(PAIR)
    world.go_all()
    world.publish()
    world.airflow.clear(PUBLISH)
    assert world.publish().number == 1
    assert world.state().newest_publish == 1


def test_a_new_cut_is_the_next_publish_and_readers_follow_it():
    world = World(PAIR)
    world.go_all()
    world.publish()
    assert published_result(world.journal(), "C").attempt == 1
    world.restart("P")
    world.go("P")
    with fails_with("published-outdated", rests_on="P@1", now=2):
        published_result(world.journal(), "C")
    world.until_green()
    world.airflow.clear(PUBLISH)
    assert world.publish().number == 2
    found = published_result(world.journal(), "C")
    assert (found.publish, found.attempt) == (2, 2)


@pytest.mark.parametrize(("mode", "again"), [(Determinism.VERIFY, 2), (Determinism.ASSUME, 1)])
def test_a_result_that_is_kept_on_equal_rows_is_read_until_its_input_is_made_again(mode, again):
    world = World(PAIR, modes={"P": mode}, publish_keys=(PUBLISH,))
    world.until_green()
    world.restart("P")
    world.until_green()
    assert world.ran == [("P", 1), ("C", 1), ("P", 2)]
    found = published_result(world.journal(), "C")
    assert (found.publish, found.attempt) == (2, 1)
    world.unstable = frozenset({"P"})
    world.restart("P")
    world.go("P")
    with fails_with("published-outdated", rests_on="P@2", now=3):
        published_result(world.journal(), "C")
    world.until_green()
    found = published_result(world.journal(), "C")
    assert (found.publish, found.attempt) == (3, again)
    assert world.verify().violated == ()


def test_a_result_is_kept_and_read_where_somebody_else_wants_its_input_again():
    world = World(FORK, modes={"P": Determinism.VERIFY}, publish_keys=(PUBLISH,))
    world.until_green()
    world.delete_results("P", 1)
    world.delete_results("D", 1)
    world.airflow.clear("D")
    world.airflow.clear(PUBLISH)
    world.until_green()
    assert world.ran[3:] == [("P", 2), ("D", 2)]
    assert [published_result(world.journal(), each).attempt for each in "CD"] == [1, 2]


def test_a_final_result_that_is_gone_is_made_again_before_it_is_published():
    world = World(DIAMOND)
    world.go_all()
    world.delete_results("E", 1)
    world.delete_results("C", 1)
    with pytest.raises(InputLost):
        world.publish()
    assert world.airflow.cleared == ["C", "E"]
    world.until_green()
    assert world.ran[4:] == [("C", 2), ("E", 2)]
    assert {region.region: region.attempt for region in world.journal().read_publish(1).regions} == {
        "P": 1,
        "C": 2,
        "D": 1,
        "E": 2,
    }


def test_control_without_probing_the_gone_result_is_published(monkeypatch):
    monkeypatch.setattr(PublishTask, "_lost", lambda self, evaluation, skipped: {})
    world = World(PAIR)
    world.go_all()
    world.delete_results("C", 1)
    assert "C" in [region.region for region in world.publish().regions]


def go_on_where_something_was_skipped(world: World) -> None:
    """The trigger rule of the publish task."""
    world.airflow.upstream[PUBLISH] = ("C",)


@pytest.mark.parametrize("can_clear", [True, False])
def test_fault_64_a_skipped_branch_is_left_out_and_named(can_clear):
    world = World(FORK, can_clear=can_clear)
    world.go_all("PC")
    world.airflow.mark("D", "skipped")
    go_on_where_something_was_skipped(world)
    publish = world.publish()
    assert publish.skipped == ("D",)
    assert [region.region for region in publish.regions] == ["P", "C"]
    with fails_with("publish-does-not-name", found="D"):
        published_result(world.journal(), "D")


@pytest.mark.parametrize("can_clear", [True, False])
def test_fault_64_a_branch_that_has_run_once_and_is_skipped_later_is_left_out_as_well(can_clear):
    world = World(FORK, can_clear=can_clear)
    world.until_green()
    world.restart("P")
    for cleared in ("C", "D", PUBLISH):
        world.airflow.clear(cleared)
    world.go("P")
    world.airflow.mark("D", "skipped")
    go_on_where_something_was_skipped(world)
    world.go("C")
    publish = world.publish()
    assert publish.skipped == ("D",)
    assert [(region.region, region.attempt) for region in publish.regions] == [("P", 2), ("C", 2)]
    assert published_result(world.journal(), "C").attempt == 2
    with fails_with("publish-does-not-name", found="D"):
        published_result(world.journal(), "D")


def test_fault_64_a_skipped_branch_is_left_out_though_an_earlier_result_of_it_is_valid():
    world = World(FORK)
    world.until_green()
    world.airflow.mark("D", "skipped")
    world.airflow.clear(PUBLISH)
    go_on_where_something_was_skipped(world)
    assert world.publish().skipped == ("D",)
    assert published_result(world.journal(), "C").attempt == 1
    with fails_with("publish-does-not-name", found="D"):
        published_result(world.journal(), "D")


def test_fault_64_a_skipped_result_that_is_gone_is_not_named_and_what_rests_on_it_is():
    world = World(PAIR, finals=("P",))
    world.until_green()
    world.delete_results("P", 1)
    world.airflow.mark("P", "skipped")
    world.airflow.clear(PUBLISH)
    go_on_where_something_was_skipped(world)
    publish = world.publish()
    assert publish.skipped == ("P",)
    assert [(region.region, region.results) for region in publish.regions] == [("P", ()), ("C", ("C",))]
    assert published_result(world.journal(), "C").attempt == 1
    with fails_with("publish-does-not-name", found="P"):
        published_result(world.journal(), "P")


def test_without_a_clear_client_the_states_of_all_regions_are_asked_for_once():
    world = World(PAIR, can_clear=False)
    world.go_all()
    asked: list[str] = []
    PublishTask(world.run(world.airflow.start(PUBLISH), Process(asked.append), "writer")).execute()
    assert asked.count("states") == 1


def test_two_publish_tasks_at_once_name_one_cut():
    world = World(PAIR)
    world.go_all()
    first = world.publish()
    world.airflow.mark(PUBLISH, None)
    second = world.publish()
    assert first == second


def test_without_a_clear_client_a_gone_result_fails_and_names_both_settings():
    world = World(PAIR, can_clear=False)
    world.go_all()
    world.delete_results("C", 1)
    with fails_with("no-way-to-clear"):
        world.publish()


def test_nothing_is_published_yet():
    world = World(PAIR)
    with fails_with("nothing-published"):
        published_result(world.journal(), "C")
    assert world.journal().identity == IDENTITY
