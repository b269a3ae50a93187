"""What a run tells people: the events of each way a try can go."""

from __future__ import annotations

import pytest
from fakes import PAIR, World

from airflow_recovery.driver.failure_class import labelled
from airflow_recovery.errors import Failure, InputLost, InputSkipped, RegionFailed
from airflow_recovery.journal.events import FailoverPlanned, RecordWritten, RegionKept, RegionSkipped
from airflow_recovery.model.inputs import InputRef
from airflow_recovery.model.records import Reset


def names(world: World) -> list[str]:
    return [event.type for event in world.events]


def test_a_run_without_a_failure():
    world = World(PAIR)
    world.go_all()
    world.publish()
    assert names(world) == [
        "JobPlanned",
        *["AttemptClaimed", "ExecutionVertexFinished"] * 2,
        "ResultPublished",
    ]
    claimed, finished = world.events[3:5]
    assert claimed.type == "AttemptClaimed"
    assert (claimed.subject.region, claimed.subject.attempt, claimed.subject.inputs) == ("C", 1, (InputRef("P", 1),))
    assert finished.type == "ExecutionVertexFinished"
    assert finished.subject == world.state().of("C").current.outcome


def test_a_kept_region_says_why_what_was_checked_and_the_time_saved():
    world = World(PAIR)
    world.go_all()
    world.new_airflow()
    world.events.clear()
    world.go_all()
    assert [event for event in world.events if isinstance(event, RegionKept)] == [
        RegionKept(
            occurred_at="now",
            region="P",
            attempt=1,
            why="attempt 1 is valid, nobody asks for its data",
            files_checked=0,
            seconds_saved=10.0,
        ),
        RegionKept(
            occurred_at="now",
            region="C",
            attempt=1,
            why="attempt 1 is valid, 1 files are as registered",
            files_checked=1,
            seconds_saved=10.0,
        ),
    ]


def test_a_kept_region_says_its_finish_again_since_who_finished_it_may_have_died():
    world = World(PAIR)
    world.go_all()
    world.new_airflow()
    world.events.clear()
    world.go_all()
    assert names(world) == ["ExecutionVertexFinished", "RegionKept"] * 2


def test_a_lost_input_and_the_failover_as_planned():
    world = World(PAIR)
    world.go("P")
    world.delete_results("P", 1)
    with pytest.raises(InputLost):
        world.go("C")
    lost, found = world.events[-2:]
    assert lost.type == "ResultLost"
    assert (lost.subject.region, lost.subject.attempt, lost.subject.reporter) == ("P", 1, "C")
    assert isinstance(found, FailoverPlanned)
    assert (found.region, found.lost, found.plan[0][0]) == ("C", (InputRef("P", 1),), "P")


def test_the_failover_as_planned_is_of_what_runs_because_of_the_loss_alone():
    """The other branch has not run yet either, and not because of this."""
    world = World({"P": (), "C": ("P",), "D": ("C",), "other": (), "reader": ("other",)})
    world.go("P")
    world.delete_results("P", 1)
    with pytest.raises(InputLost):
        world.go("C")
    found = world.events[-1]
    assert isinstance(found, FailoverPlanned)
    assert [region for region, _ in found.plan] == ["P", "C", "D"]


@pytest.mark.parametrize(
    ("error", "failure"),
    [
        (RegionFailed("boom", Failure("ValueError", "boom", "X")), Failure("ValueError", "boom", "X")),
        (OSError("disk"), Failure("OSError", "disk")),
    ],
)
def test_a_failure_with_what_is_known_of_it(error, failure):
    world = World(PAIR)

    def fail() -> None:
        raise error

    with pytest.raises(type(error)):
        world.go("P", on_read=fail)
    event = world.events[-1]
    assert event.type == "ExecutionVertexFailed"
    assert (event.subject.region, event.subject.attempt, event.subject.failure) == ("P", 1, labelled(failure))


def test_a_reset_of_recompute():
    world = World(PAIR)
    world.go("P", epoch="3")
    assert world.events[0] == RecordWritten(occurred_at="now", record=Reset("P", 0, "run", "recompute, epoch 3", "3"))


def test_fault_64_a_skip_is_an_event():
    world = World(PAIR)
    world.airflow.mark("P", "skipped")
    world.airflow.upstream["C"] = ()
    with pytest.raises(InputSkipped):
        world.go("C")
    assert world.events == [RegionSkipped(occurred_at="now", region="C", why="P was skipped")]


def test_a_journal_is_prepared_before_the_first_plan_of_a_run_alone():
    world = World(PAIR)
    world.go_all()
    assert world.prepared == 1
    world.fingerprints["C"] = "code 2"
    world.airflow.clear("C")
    world.go("C")
    assert world.prepared == 2
