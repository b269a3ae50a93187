"""What people are told of a region that commits split by split: by `show`, the tab and the REST API."""

from __future__ import annotations

import json
from dataclasses import asdict, replace

import pytest
from fakes import Process
from split_world import SOURCE, SplitWorld, splits

from airflow_recovery.errors import Failure
from airflow_recovery.journal.journal import Journal
from airflow_recovery.journal.run_state import Attempt
from airflow_recovery.splits.describe import SplitsDone, splits_of
from airflow_recovery.story.run_document import run_document
from airflow_recovery.story.run_view import view_run

RUN = ("flights", "2026-01-01")


@pytest.fixture
def world(recorded) -> SplitWorld:
    stores = recorded.world()

    class RecordedSplits(SplitWorld):
        def journal(self, process: Process | None = None, writer: str = "test") -> Journal:
            return super().journal(process, writer).sibling(stores.identity)

    found = RecordedSplits({"S": (), "C": ("S",)}, splits("abcdef"))
    found.journal_store, found.results = stores.journal_store, stores.results
    return found


def shown(recorded) -> list[object]:
    """``splits`` of each attempt of the source, of ``show --json``."""
    document = json.loads(recorded.call("show", *RUN, "--json")[1])
    (source,) = (load for load in document["regions"] if load["name"] == SOURCE)
    return [each["splits"] for each in source["attempts"]]


def test_how_many_splits_each_attempt_has_done(recorded, world):
    world.dies_at_batch(3)
    assert "@1 OPEN: 3 splits done" in recorded.call("show", *RUN)[1]
    world.dies_at_batch(1)
    said = recorded.call("show", *RUN)[1]
    assert "@1 FENCED: 3 splits done; " in said
    assert "@2 OPEN: 1 splits done, 3 taken over" in said
    world.go(SOURCE)
    assert "@3 FINISHED: 6 of 6 splits done, 4 of them by earlier attempts" in recorded.call("show", *RUN)[1]


def test_the_same_as_json(recorded, world):
    world.dies_at_batch(3)
    world.dies_at_batch(1)
    world.go(SOURCE)
    world.go("C")
    first, second, third = shown(recorded)
    assert first == {"done": 3, "kept": 0, "lost": 0, "total": None}
    # What it took over stands in its claim, which the history has kept where there is one.
    assert second == {"done": 1, "kept": 0, "lost": 0, "total": None}
    assert third == {"done": 6, "kept": 4, "lost": 0, "total": 6}
    document = json.loads(recorded.call("show", *RUN, "--json")[1])
    (reader,) = (load for load in document["regions"] if load["name"] == "C")
    assert [each["splits"] for each in reader["attempts"]] == [None]


def test_the_tab_and_the_rest_api_tell_it_too(world):
    world.dies_at_batch(3)
    world.dies_at_batch(1)
    (source, _) = run_document(view_run(world.journal()), run_id="run").regions
    assert asdict(source)["story"]["attempts"][1]["splits"] == {"done": 4, "kept": 3, "lost": 0, "total": None}


def test_splits_that_were_given_up_are_counted(world):
    world.dies_at_batch(2)
    (batch,) = world.journal().read_committed_batches(SOURCE, [(1, 1)])
    lost = replace(batch, number=2, splits=("x", "y"), outputs=(), lost=Failure("ValueError", "no such day"))
    world.journal().commit_batch(lost)
    found = splits_of(world.journal(), SOURCE, world.state().of(SOURCE).attempts[1], None)
    assert found == SplitsDone(done=4, kept=0, lost=2, total=None)
    assert found.text() == "4 splits done, 2 of them given up"


def test_a_batch_is_read_once_by_who_looks_again_and_again(world, monkeypatch):
    world.dies_at_batch(3)
    read: list[tuple[int, int]] = []
    before = Journal.read_committed_batches

    def counted(self, region, batches):
        found = before(self, region, batches)
        read.extend((each.attempt, each.number) for each in found)
        return found

    monkeypatch.setattr(Journal, "read_committed_batches", counted)
    for _ in range(3):
        assert splits_of(world.journal(), SOURCE, world.state().of(SOURCE).attempts[1], None).done == 3
    assert read == [(1, 0), (1, 1), (1, 2)]


def test_a_run_whose_batches_were_purged_while_it_was_read_is_told_without_them(world):
    assert splits_of(world.journal(), SOURCE, Attempt(1, is_claimed=True, batches=2), None) is None
