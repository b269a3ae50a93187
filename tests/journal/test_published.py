"""What readers outside a run may read."""

from __future__ import annotations

import pytest
from expected_errors import fails_with

from airflow_recovery.errors import NotPublished
from airflow_recovery.journal.journal import Journal
from airflow_recovery.journal.published import published_result
from airflow_recovery.model.inputs import InputRef
from airflow_recovery.model.manifest import PartitionManifest
from airflow_recovery.model.records import (
    AttemptState,
    Claim,
    Closed,
    Outcome,
    Publish,
    PublishedRegion,
    Reset,
    RunIdentity,
)
from airflow_recovery.store.local import LocalStore


def finish(journal: Journal, region: str, attempt: int, *inputs: InputRef) -> None:
    journal.claim(claim(region, attempt))
    manifest = PartitionManifest(region.lower(), f"file:///data/{region}/{attempt}", ())
    journal.finish(Outcome(region, attempt, AttemptState.FINISHED, "w", "now", inputs=inputs, outputs=(manifest,)))


def claim(region: str, attempt: int) -> Claim:
    return Claim(region, attempt, "w", "hash", (), "run", 1, "ti", "tag", "now")


def cut(number: int, **attempts: int) -> Publish:
    return Publish(number, tuple(PublishedRegion(each, n, "e", (each.lower(),)) for each, n in attempts.items()))


@pytest.fixture
def journal(local_store: LocalStore) -> Journal:
    """P -> C -> E, finished and published."""
    journal = Journal(local_store, RunIdentity("dag", "date-2026-01-01", "group"), writer="w")
    finish(journal, "P", 1)
    finish(journal, "C", 1, InputRef("P", 1))
    finish(journal, "E", 1, InputRef("C", 1))
    journal.publish(cut(1, P=1, C=1, E=1))
    return journal


def test_a_result_that_the_newest_publish_names_and_that_stands(journal):
    found = published_result(journal, "e")
    assert (found.publish, found.region, found.attempt) == (1, "E", 1)
    assert [manifest.location for manifest in found.manifests] == ["file:///data/E/1"]


def test_nothing_is_published(local_store):
    with fails_with("nothing-published", where="dag / run-1 / group"):
        published_result(Journal(local_store, RunIdentity("dag", "run-1", "group"), writer="w"), "e")


def test_a_result_that_is_not_named(journal):
    with fails_with("publish-does-not-name", found="x"):
        published_result(journal, "x")


def test_a_result_that_rests_on_something_superseded(journal):
    finish(journal, "P", 2)
    for result in "ec":
        with fails_with("published-outdated", rests_on="P@1", now=2):
            published_result(journal, result)
    with fails_with("published-outdated", rests_on="P@1", now=2):
        published_result(journal, "p")


def test_a_result_that_was_kept_rests_on_what_the_publish_names_and_on_nothing_newer(journal):
    """C@1 read P@1, and counts with P@2: the task that published has compared their rows."""
    finish(journal, "Q", 1)
    finish(journal, "P", 2, InputRef("Q", 1))
    journal.publish(cut(2, Q=1, P=2, C=1, E=1))
    assert published_result(journal, "e").attempt == 1
    finish(journal, "Q", 2)
    with fails_with("published-outdated", rests_on="Q@1", now=2):
        published_result(journal, "e")
    journal.publish(cut(3, Q=2, P=2, C=1, E=1))
    assert published_result(journal, "e").publish == 3
    finish(journal, "P", 3, InputRef("Q", 2))
    with fails_with("published-outdated", rests_on="P@2", now=3):
        published_result(journal, "e")
    journal.reset(Reset("P", 3, "ann", "wrong"))
    with fails_with("published-outdated", rests_on="P@2"):
        published_result(journal, "e")


def test_what_the_publish_does_not_name_is_compared_with_what_was_read(journal):
    journal.publish(cut(2, C=1))
    with fails_with("published-outdated", rests_on="P@1"):
        published_result(journal, "c")


def test_a_result_that_was_reset(journal):
    journal.reset(Reset("E", 1, "ann", "wrong"))
    with fails_with("published-outdated", rests_on="E@1"):
        published_result(journal, "e")
    assert published_result(journal, "c").attempt == 1


def test_a_result_of_a_run_that_is_being_purged(journal):
    """Between the two sweeps of a `gc` all objects are there, and the tombstone says that they do not count."""
    journal.close(Closed((InputRef("P", 1), InputRef("C", 1), InputRef("E", 1))), 1)
    for result in "ec":
        with fails_with("published-outdated"):
            published_result(journal, result)
    # The run has come back, and has come as far as P.
    finish(journal, "P", 2)
    with fails_with("published-outdated", rests_on="P@1", now=2):
        published_result(journal, "p")
    with fails_with("published-outdated", rests_on="C@1"):
        published_result(journal, "c")


def test_a_run_of_which_a_purge_has_left_the_tombstone_alone(local_store):
    journal = Journal(local_store, RunIdentity("dag", "run-1", "group"), writer="w")
    journal.close(Closed((InputRef("P", 1),)), 1)
    with fails_with("published-purged"):
        published_result(journal, "p")


def test_a_later_finish_is_not_read_before_it_is_published(journal):
    """Readers follow the publish, not the newest."""
    finish(journal, "E", 2, InputRef("C", 1))
    with pytest.raises(NotPublished):
        published_result(journal, "e")
    journal.publish(cut(2, P=1, C=1, E=2))
    assert published_result(journal, "e").attempt == 2


def test_a_publish_that_names_a_result_its_outcome_lacks(journal):
    journal.publish(Publish(2, (PublishedRegion("P", 1, "e", ("other",)),)))
    with fails_with("outcome-without-result", found="other"):
        published_result(journal, "other")


def test_of_a_parallel_vertex_every_subtask_s_part_that_stands(journal):
    for key, attempt in (("jan", 1), ("feb", 1), ("feb", 2)):
        region, location = f"m[{key}]", f"file:///data/m~5B{key}~5D/{attempt}/m"
        outputs = (PartitionManifest("m", location, ()),)
        journal.claim(claim(region, attempt))
        journal.finish(Outcome(region, attempt, AttemptState.FINISHED, "w", "now", outputs=outputs))
    journal.publish(
        Publish(2, tuple(PublishedRegion(f"m[{key}]", n, "e", ("m",)) for key, n in (("jan", 1), ("feb", 2))))
    )
    found = published_result(journal, "m")
    assert (found.publish, found.region, found.attempt) == (2, "m", 2)
    assert [manifest.location for manifest in found.manifests] == [
        "file:///data/m~5Bjan~5D/1/m",
        "file:///data/m~5Bfeb~5D/2/m",
    ]
    # One subtask that was reset, and the whole does not stand.
    journal.reset(Reset("m[jan]", 1, "ann", "wrong"))
    with fails_with("published-outdated", rests_on="m[jan]@1"):
        published_result(journal, "m")
