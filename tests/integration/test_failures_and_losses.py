"""User exceptions and lost intermediate results, in real Airflow with real Spark.

numbers ~ base --+--> left ---+--> merged
                 +--> right --+
                 +--> side            lone
"""

from __future__ import annotations

import pytest
from journal_objects import JournalObjects
from pipeline import DagRun, Pipeline

from airflow_recovery.journal.journal import Journal
from airflow_recovery.journal.replay import differences, replay
from airflow_recovery.model.records import RunIdentity
from airflow_recovery.store.s3 import S3Store

pytestmark = [pytest.mark.airflow, pytest.mark.spark, pytest.mark.s3]

REGIONS = ("base", "left", "lone", "lone_numbers", "merged", "right", "side")


def assert_repaired(journal: JournalObjects, undisturbed: DagRun) -> None:
    """The run is coherent, and every result has the rows of a run in which nothing happened."""
    journal.check()
    before = undisturbed.journal()
    for region in REGIONS:
        assert journal.rows(region) == before.rows(region), region


def test_an_undisturbed_run_makes_the_rows_that_plain_python_makes(undisturbed: DagRun) -> None:
    journal = undisturbed.journal()

    weights = {key: sum(number * 10 for number in range(100) if number % 5 == key) for key in range(5)}
    assert journal.rows("merged") == sorted((number, number % 5, weights[number % 5]) for number in range(0, 100, 2))
    assert journal.rows("side") == [(20, key) for key in range(5)]
    assert journal.rows("lone") == [(number,) for number in range(1, 8)]
    assert {undisturbed.calls(region) for region in REGIONS} == {1}
    assert undisturbed.said("publish") == {"publish": 1, "regions": dict.fromkeys(REGIONS, 1)}


def test_a_user_exception_costs_one_more_attempt_of_its_region(pipeline: Pipeline, undisturbed: DagRun) -> None:
    # In the middle of the job, and in its last region.
    failing = ("left", "merged")
    run = pipeline.run("diamond")
    for name in failing:
        run.make_fail_once(name)

    journal = run.start().ends()

    assert journal.executions() == {**dict.fromkeys(REGIONS, 1), **dict.fromkeys(failing, 2)}
    for text in failing:
        assert journal.fenced(text) == ["own failure"]
        failure = journal.attempts[text][1].outcome["failure"]
        assert (failure["type"], failure["vertex"]) == ("RuntimeError", text)
    assert {region: run.tries(region) for region in REGIONS} == journal.executions()
    assert_repaired(journal, undisturbed)


def test_an_intermediate_that_one_consumer_misses_is_made_again(finished: DagRun, undisturbed: DagRun) -> None:
    before = finished.journal()
    finished.delete("left", "merged")

    finished.clear("merged")
    journal = finished.ends()

    assert journal.ran_since(before) == {"left": 1, "merged": 1}
    gone = before.current("left")
    assert "lost" in journal.attempts["left"][gone].objects
    assert journal.attempts["left"][gone].objects["lost"]["reporter"] == "merged"
    assert finished.said("left")["decision"] == "ran"
    assert_repaired(journal, undisturbed)


def test_the_consumers_of_what_is_made_again_run_again_too(finished: DagRun, undisturbed: DagRun) -> None:
    # Only `side` misses `base`; `left`, `right` and, through them, `merged` rest on an attempt that is superseded.
    before = finished.journal()
    finished.delete("base", "side")

    finished.clear("side")
    journal = finished.ends()

    assert journal.ran_since(before) == {"base": 1, "left": 1, "merged": 1, "right": 1, "side": 1}
    assert_repaired(journal, undisturbed)


def test_fault_46_three_consumers_lose_their_input_while_they_read_it(pipeline: Pipeline, undisturbed: DagRun) -> None:
    # All three have checked their input, hold its file list, and have not read it yet.
    run = pipeline.run("diamond")
    run.hold("left", "right", "side")
    run.start()
    for name in ("left", "right", "side"):
        run.wait_called(name)
    run.delete("base")

    run.release("left", "right", "side")
    journal = run.ends()

    assert journal.executions() == {
        **dict.fromkeys(REGIONS, 1),
        **{"base": 2, "left": 2, "right": 2, "side": 2},
    }
    assert run.calls("base") == 2
    assert journal.current("base") == 2
    assert "lost" in journal.attempts["base"][1].objects
    assert {len(journal.fenced(name)) for name in ("left", "right", "side")} == {1}
    assert_repaired(journal, undisturbed)


def test_three_consumers_that_find_their_input_missing_wake_its_producer_once(
    finished: DagRun, undisturbed: DagRun
) -> None:
    before = finished.journal()
    finished.delete("base", "left", "right", "side", "merged")

    finished.clear("left", "right", "side")
    journal = finished.ends()

    # `merged` was not cleared: that its input was made again is what brings it back.
    assert journal.ran_since(before) == {"base": 1, "left": 1, "merged": 1, "right": 1, "side": 1}
    assert_repaired(journal, undisturbed)


def test_the_histories_of_runs_come_to_the_states_of_their_journals(
    pipeline: Pipeline, undisturbed: DagRun, finished: DagRun
) -> None:
    """Whoever replays the event streams knows what whoever reads the records knows; of all that was done above."""
    s3 = pipeline.s3
    store = S3Store(f"s3://{pipeline.bucket}/journal", endpoint_url=s3.endpoint_url, session=s3.session())
    for run in (undisturbed, finished):
        journal = Journal(store, RunIdentity(run.dag_id, f"date-{run.day}T000000Z", run.group_id), writer="reader")
        told = replay(journal)
        assert told.gaps == ()
        assert differences(journal.load(journal.list(REGIONS)), told.state) == ()
        assert told.events > len(REGIONS)
