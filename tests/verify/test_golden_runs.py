"""Whole runs as format 1 wrote them, kept for ever: the checker reads them, and finds nothing."""

from __future__ import annotations

import json
from pathlib import Path

import fakes
from spoiled_journal import Spoiled

RUN = Path(__file__).parents[1] / "golden" / "v1-run.json"


def golden() -> Spoiled:
    """P@1 failed, P@2 was lost, P@3; C@1 was reset, C@2; D@1; E@1; published (`conftest.published`)."""
    world = fakes.World(fakes.DIAMOND)
    stored = json.loads(RUN.read_text())
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
