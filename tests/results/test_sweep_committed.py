"""What was prepared for a sink, once the sink has it: no more than an intermediate result."""

from __future__ import annotations

import pytest
from clocked import DAY_S, HOUR_S, Clock, ClockedStore, has_data, sweep, told
from fakes import IDENTITY, PAIR, Killed, Process
from sink_world import SINK, SinkWorld

from airflow_recovery.attempt.region_task import Decision
from airflow_recovery.model.committing import CommitKind, CommitMode
from airflow_recovery.model.retention import Retention
from airflow_recovery.results.release import ReleaseRule
from airflow_recovery.verify import verify_run


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def world(clock: Clock) -> SinkWorld:
    """P is done; its reader C commits."""
    found = SinkWorld(PAIR, kind=CommitKind.PROBE_ONLY, commit_mode=CommitMode.REPLACE, retries=100)
    found.journal_store = ClockedStore("memory://journal", clock)
    found.results = ClockedStore("memory://results", clock)
    found.go("P")
    return found


def check_journal(world: SinkWorld) -> None:
    report = verify_run(
        world.journal_store,
        lambda location: world.results,
        dag_id=IDENTITY.dag_id,
        run_key=IDENTITY.run_key,
        group_id=IDENTITY.group_id,
        ended=True,
    )
    assert report.violated == (), report.text()


@pytest.mark.parametrize(
    ("retention", "after_s"),
    [(Retention.keep(), 8 * DAY_S), (Retention.as_consumed(), 0), (Retention.on_run_success(), 0)],
    ids=["keep", "as consumed", "on run success"],
)
def test_it_goes_by_the_policy_and_the_region_stands(
    world: SinkWorld, clock: Clock, retention: Retention, after_s: float
) -> None:
    assert world.try_sink() is None
    world.publish()
    clock.passes(after_s + 2 * HOUR_S)
    assert told(sweep(world, retention=retention))["C@1"].startswith("deleted: ")
    assert not has_data(world, SINK, 1)
    check_journal(world)
    # Nobody misses it: neither the run, nor a try that looks.
    world.airflow.clear(SINK)
    assert world.go(SINK).decision is Decision.KEPT
    assert world.visible == [1]


def test_within_the_retention_it_stays(world: SinkWorld, clock: Clock) -> None:
    assert world.try_sink() is None
    clock.passes(2 * HOUR_S)
    assert told(sweep(world))["C@1"].startswith("kept: the run has been silent for")


def kill_before_the_commit(world: SinkWorld) -> None:
    process = Process()
    process.gate = lambda request: process.kill() if request.startswith("sink: commit") else None
    assert isinstance(world.try_sink(process), Killed)


def test_what_is_not_committed_stays(world: SinkWorld, clock: Clock) -> None:
    kill_before_the_commit(world)
    clock.passes(300 * DAY_S)
    assert told(sweep(world, retention=Retention.as_consumed()))["C@1"] == "kept: it is a final result"
    assert world.until_committed()[-1] == "NoneType"
    assert world.visible == [1]


def test_control_without_a_look_at_the_commit_what_is_prepared_goes_before_it(
    world: SinkWorld, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ReleaseRule, "_outlives", staticmethod(lambda region, attempt: False))
    kill_before_the_commit(world)
    clock.passes(300 * DAY_S)
    sweep(world, retention=Retention.keep())
    assert not has_data(world, SINK, 1)
    assert "what it had prepared is gone" in str(world.try_sink())
