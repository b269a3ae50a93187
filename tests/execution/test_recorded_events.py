"""What a run tells people: the events of each way a try can go."""

from __future__ import annotations

import pytest
from fakes import PAIR, World

from airflow_recovery.errors import InputLost, InputSkipped, RegionFailed
from airflow_recovery.journal.events import (
    AttemptClaimed,
    AttemptFailed,
    ExecutionVertexFinished,
    ExecutionVertexReset,
    InputsLost,
    RegionKept,
    RegionSkipped,
    ResultPublished,
)
from airflow_recovery.journal.records import Failure, InputPin
from airflow_recovery.runtime.failure_class import labelled


def test_a_run_without_a_failure():
    world = World(PAIR)
    world.go_all()
    world.publish()
    assert world.events == [
        AttemptClaimed(occurred_at="now", region="P", attempt=1, writer="writer-1", try_number=1, inputs=()),
        ExecutionVertexFinished(occurred_at="now", region="P", attempt=1, rows=(("P", 1),), seconds=10.0),
        AttemptClaimed(
            occurred_at="now", region="C", attempt=1, writer="writer-2", try_number=1, inputs=(InputPin("P", 1),)
        ),
        ExecutionVertexFinished(occurred_at="now", region="C", attempt=1, rows=(("C", 1),), seconds=10.0),
        ResultPublished(occurred_at="now", number=1, regions=(InputPin("P", 1), InputPin("C", 1))),
    ]


def test_a_kept_region_says_why_what_was_checked_and_the_time_saved():
    world = World(PAIR)
    world.go_all()
    world.new_airflow()
    world.events.clear()
    world.go_all()
    assert world.events == [
        RegionKept(
            occurred_at="now",
            region="P",
            attempt=1,
            why="attempt 1 stands, nobody asks for its data",
            files_checked=0,
            seconds_saved=10.0,
        ),
        RegionKept(
            occurred_at="now",
            region="C",
            attempt=1,
            why="attempt 1 stands, 1 files are as registered",
            files_checked=1,
            seconds_saved=10.0,
        ),
    ]


def test_a_lost_input_and_the_failover_as_planned():
    world = World(PAIR)
    world.go("P")
    world.delete_results("P", 1)
    with pytest.raises(InputLost):
        world.go("C")
    found = world.events[-1]
    assert isinstance(found, InputsLost)
    assert (found.region, found.lost, found.plan[0][0]) == ("C", (InputPin("P", 1),), "P")


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
    assert world.events[-1] == AttemptFailed(occurred_at="now", region="P", attempt=1, failure=labelled(failure))


def test_a_reset_of_recompute():
    world = World(PAIR)
    world.go("P", epoch="3")
    assert world.events[0] == ExecutionVertexReset(
        occurred_at="now", region="P", attempt=0, who="run", why="recompute, epoch 3"
    )


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
