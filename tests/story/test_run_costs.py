"""What runs cost and saved: two regions of which the second fails, in journals whose seconds are known."""

from __future__ import annotations

import pytest
from fakes import MemoryStore
from written_night import FAILED_S, START_S, Night, region

from airflow_recovery.model.records import FenceCause
from airflow_recovery.story.past_runs import PastRuns, past_runs
from airflow_recovery.story.run_costs import (
    SHOWN,
    RegionCost,
    RunCost,
    kept_in,
    most_repeated,
    region_costs,
    run_cost,
    slowest,
)

CUT = (region("load"), region("report", reads=("load",), final=True))
GLUED = (region("load", "report", final=True),)


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore("memory://journal")


def read(store: MemoryStore) -> PastRuns:
    return past_runs(store, "d")


def costs(store: MemoryStore) -> list[RunCost]:
    return [run_cost(run) for run in read(store).runs]


def quiet_night(store: MemoryStore, key: str = "date-0") -> None:
    night = Night(store, key, CUT)
    night.finishes("load", 3000)
    night.finishes("report", 600, at_s=4000)


def bad_night(store: MemoryStore, key: str = "date-1") -> None:
    """`report` fails twice and `load`, which had finished, is kept."""
    night = Night(store, key, CUT)
    night.finishes("load", 3000)
    night.fails("report", "report", at_s=4000)
    night.fails("report", "report", at_s=5000)
    night.finishes("report", 600, at_s=6000)


def test_a_run_without_a_failure_saves_nothing(store: MemoryStore) -> None:
    quiet_night(store)
    assert costs(store) == [RunCost("date-0", "2026-01-01T01:17:00+00:00", 3600, 0, 0, 0, 2)]


def test_a_kept_region_is_saved_and_a_failed_attempt_costs_from_its_claim_to_its_end(store: MemoryStore) -> None:
    bad_night(store)
    (cost,) = costs(store)
    assert (cost.seconds_spent, cost.seconds_again) == (3600 + 2 * FAILED_S, 600 + FAILED_S)
    assert (cost.seconds_saved, cost.again, cost.finished) == (3000, 2, 2)


def test_control_in_one_region_with_what_fails_nothing_is_saved(store: MemoryStore) -> None:
    night = Night(store, "date-0", GLUED)
    night.fails("report", "report")
    night.finishes("report", 3600, at_s=4000)
    (cost,) = costs(store)
    assert (cost.seconds_saved, cost.again) == (0, 1)


def test_what_finished_after_the_last_one_ran_again_was_not_saved(store: MemoryStore) -> None:
    night = Night(store, "date-0", (region("load"), region("other", final=True)))
    night.fails("load", "load")
    night.finishes("load", 10, at_s=100)
    night.finishes("other", 500, at_s=1000)
    assert costs(store)[0].seconds_saved == 0


def test_what_events_say_was_kept_is_saved_though_nothing_ran_again(store: MemoryStore) -> None:
    quiet_night(store)
    (run,) = read(store).runs
    assert kept_in(store, Night(store, "date-0", CUT).journal.identity, run) == {}
    assert run_cost(run, ("load", "report")).seconds_saved == 3600


def test_of_an_attempt_that_was_ended_by_others_the_time_is_not_known(store: MemoryStore) -> None:
    night = Night(store, "date-0", GLUED)
    night.fails("report", None, cause=FenceCause.SUPERSEDED)
    night.finishes("report", 3600, at_s=4000)
    assert costs(store)[0].seconds_spent == 3600


def test_without_a_measured_second_it_is_seen_that_something_has_finished(store: MemoryStore) -> None:
    Night(store, "date-0", GLUED).finishes("report", None)
    assert costs(store) == [RunCost("date-0", f"2026-01-01T00:00:{START_S}+00:00", 0, 0, 0, 0, 1)]
    (cost,) = region_costs(read(store).runs)
    assert cost.seconds is None
    assert slowest([cost]) == []


def test_a_run_in_which_nothing_has_ended(store: MemoryStore) -> None:
    Night(store, "date-0", GLUED)
    assert costs(store) == [RunCost("date-0", None, 0, 0, 0, 0, 0)]
    assert region_costs(read(store).runs) == []


def test_the_slowest_and_the_most_often_repeated_regions_over_all_runs(store: MemoryStore) -> None:
    quiet_night(store)
    bad_night(store, "date-1")
    bad_night(store, "date-2")
    load, report = region_costs(read(store).runs)
    assert load == RegionCost("load", 3000, 0, 0, 0)
    assert report == RegionCost("report", 600, 4, 2, 2 * (600 + FAILED_S))
    assert slowest([report, load]) == [load, report]
    assert most_repeated([load, report]) == [report]


def test_lists_are_short_and_in_order() -> None:
    many = [RegionCost(f"r{at}", at + 1.0, at % 3, 1, at) for at in range(20)]
    assert [each.region for each in slowest(many)] == ["r19", "r18", "r17", "r16", "r15"]
    assert [(each.again, each.seconds_again) for each in most_repeated(many)] == [
        (2, 17), (2, 14), (2, 11), (2, 8), (2, 5),
    ]  # fmt: skip
    assert len(most_repeated(many)) == SHOWN
