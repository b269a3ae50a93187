"""I10 of sinks, in journals that the real protocol has written and a test has spoiled."""

from __future__ import annotations

import fakes
import pytest
from sink_world import SINK, SinkWorld, sink_world
from spoiled_journal import Spoiled

from airflow_recovery.errors import SinkSuperseded
from airflow_recovery.model.committing import CommitKind, CommitMode
from airflow_recovery.model.records import CommitterEpoch
from airflow_recovery.testing.fake_sink import FakeTarget


def killed_before(world: SinkWorld, what: str) -> None:
    process = fakes.Process()
    process.gate = lambda request: process.kill() if request.startswith(what) else None
    world.try_sink(process)


def violated(world: SinkWorld, *, ended: bool = False) -> tuple[int, ...]:
    return Spoiled(world).verify(ended=ended).violated


@pytest.mark.parametrize("mode", list(CommitMode))
@pytest.mark.parametrize("kind", list(CommitKind))
def test_a_run_with_a_sink_passes(kind, mode):
    world = sink_world(kind, mode)
    killed_before(world, "sink: commit")
    assert violated(world) == ()
    world.until_committed()
    assert violated(world) == ()
    world.publish()
    report = Spoiled(world).verify(ended=True)
    assert report.violated == ()
    assert "1 commits to sinks" in report.text()


def test_what_the_sink_has_needs_no_files():
    world = sink_world()
    world.try_sink()
    world.publish()
    world.delete_results(SINK, 1)
    assert violated(world, ended=True) == ()


def test_fault_223_a_commit_that_a_later_date_has_superseded_is_done(monkeypatch):
    def is_later(self, token, spec):
        raise SinkSuperseded("superseded by 2026-01-02")

    monkeypatch.setattr(FakeTarget, "apply", is_later)
    world = sink_world(CommitKind.TOKEN, CommitMode.REPLACE)
    assert world.until_committed() == ["NoneType"]
    world.publish()
    world.airflow.clear(SINK)
    assert world.try_sink() is None
    assert (world.target.applied, world.ran.count((SINK, 1))) == ([], 1)
    assert violated(world, ended=True) == ()


def test_an_attempt_after_one_that_was_abandoned_has_a_cause():
    world = sink_world(CommitKind.TOKEN, CommitMode.REPLACE)
    killed_before(world, "sink: commit")
    world.delete_results(SINK, 1)
    world.try_sink()
    world.publish()
    assert violated(world, ended=True) == ()


def test_case_14_an_attempt_that_begins_before_the_commit_of_the_last_one():
    world = sink_world(CommitKind.TOKEN, CommitMode.REPLACE)
    world.try_sink()
    world.restart(SINK)
    world.try_sink()
    assert violated(world) == ()
    Spoiled(world).delete(f"t/{SINK}/00000001.committed")
    assert violated(world) == (10,)


def test_success_without_its_commit():
    world = sink_world()
    killed_before(world, "sink: commit")
    world.airflow.mark(SINK, "success")
    assert violated(world) == ()
    assert 10 in violated(world, ended=True)


def test_case_15_a_turn_that_nobody_has_confirmed():
    world = sink_world(CommitKind.PROBE_ONLY)
    killed_before(world, "sink: commit")
    world.journal(writer="other").take_commit(CommitterEpoch(SINK, 1, 2, "other"))
    assert violated(world) == (10,)
    world.confirm()
    assert violated(world) == (10,)  # of epoch 2, which is another one
