"""Whole runs as format 1 wrote them, kept for ever: the checker reads them, and finds nothing."""

from __future__ import annotations

import json
from pathlib import Path

import fakes
from split_world import SOURCE, SplitWorld, splits
from spoiled_journal import Spoiled

from airflow_recovery.splits.mode import AdoptedBatches, SplitClaim

GOLDEN = Path(__file__).parents[1] / "golden"
RUN = GOLDEN / "v1-run.json"
SPLITS = GOLDEN / "v1-run-splits.json"
"""S@1 died after four of six batches; S@2 took them over; a zombie then wrote one more (`run` there)."""


def golden(run: Path = RUN) -> Spoiled:
    """P@1 failed, P@2 was lost, P@3; C@1 was reset, C@2; D@1; E@1; published (`conftest.published`)."""
    world = fakes.World(fakes.DIAMOND)
    stored = json.loads(run.read_text())
    world.journal_store.objects = {key: body.encode() for key, body in stored["journal"].items()}
    world.results.objects = {key: body.encode() for key, body in stored["results"].items()}
    return Spoiled(world)


def test_the_golden_run_passes() -> None:
    report = golden().verify(ended=True)
    assert report.violated == ()
    assert "7 attempts of 4 regions" in report.text()


def test_control_with_one_object_less_it_does_not() -> None:
    run = golden()
    run.delete("t/P/00000002.claim")
    assert run.verify(ended=True).violated == (2,)


def test_the_golden_run_that_was_committed_split_by_split_passes() -> None:
    report = golden(SPLITS).verify(ended=True)
    assert report.violated == ()
    assert "6 splits in 6 batches; 1 claims that took over some" in report.text()


def test_the_product_takes_over_what_the_golden_run_has_committed() -> None:
    stored = golden(SPLITS)
    world = SplitWorld({"S": (), "C": ("S",)}, splits("abcdef"))
    world.journal_store, world.results = stored.journal, stored.results
    world.go(SOURCE)
    assert world.ran == []
    world.listing = splits("abcdefg")
    world.again()
    assert world.read_by(3) == "g"
    assert SplitClaim.of(world.journal().read_claim(SOURCE, 3)).base == (AdoptedBatches(1, 4), AdoptedBatches(2, 2))
