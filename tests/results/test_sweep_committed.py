"""What was prepared for a sink, once the sink has it: no more than an intermediate result."""

from __future__ import annotations

from dataclasses import replace

import pytest
from clocked import DAY_S, HOUR_S, Clock, ClockedStore, has_data, sweep, told
from fakes import CHAIN, PAIR, Killed, Process
from sink_world import SINK, SinkWorld

from airflow_recovery.attempt.region_task import Decision
from airflow_recovery.model.committing import CommitKind, CommitMode
from airflow_recovery.model.records import PlanRecord
from airflow_recovery.model.retention import Retention
from airflow_recovery.results.release_rule import ReleaseRule


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
    report = world.verify()
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


def read_in_the_run(clock: Clock, mode: CommitMode, *, is_read: bool = True) -> SinkWorld:
    """P -> C -> E, and C commits. All are done, but for E where it has not read yet."""
    found = SinkWorld(CHAIN, finals=("C",), kind=CommitKind.TOKEN, commit_mode=mode, retries=100)
    found.journal_store = ClockedStore("memory://journal", clock)
    found.results = ClockedStore("memory://results", clock)
    found.go("P")
    assert found.try_sink() is None
    if is_read:
        found.go("E")
        found.publish()
    clock.passes(2 * HOUR_S)
    return found


def test_it_goes_as_well_when_all_that_read_it_in_the_run_are_done(clock: Clock) -> None:
    world = read_in_the_run(clock, CommitMode.REPLACE)
    entries = told(sweep(world, retention=Retention.as_consumed()))
    assert entries["C@1"].startswith("deleted: consumed")
    assert entries["E@1"] == "kept: publish 1 names it"
    check_journal(world)
    # A reader that must run again has it made and committed again.
    world.fingerprints["E"] = "code 2"
    world.airflow.clear_all()
    world.go_all()
    assert world.visible == [2]
    assert world.state().of("E").current.number == 2


def test_before_its_reader_is_done_it_stays(clock: Clock) -> None:
    world = read_in_the_run(clock, CommitMode.REPLACE, is_read=False)
    assert told(sweep(world, retention=Retention.as_consumed()))["C@1"] == "kept: E still needs it"


def test_where_the_sink_appends_it_stays_for_its_reader_since_no_second_attempt_could_commit(clock: Clock) -> None:
    world = read_in_the_run(clock, CommitMode.APPEND)
    why = "kept: others read it, and a sink that appends takes over no second attempt"
    assert told(sweep(world, retention=Retention.as_consumed()))["C@1"] == why


class TwoSinks(SinkWorld):
    """C makes a second result, which is a sink without ``commit=``."""

    @property
    def plan(self) -> PlanRecord:
        plan = super().plan
        results = {SINK: (SINK, "files")}
        regions = (replace(region, results=results.get(region.name, region.results)) for region in plan.regions)
        return replace(plan, regions=tuple(regions))


@pytest.mark.parametrize("retention", [Retention.keep(), Retention.as_consumed(), Retention.on_run_success()])
def test_a_sink_of_the_same_region_that_is_its_files_stays(clock: Clock, retention: Retention) -> None:
    world = TwoSinks(PAIR, commit_mode=CommitMode.REPLACE, retries=100)
    world.journal_store = ClockedStore("memory://journal", clock)
    world.results = ClockedStore("memory://results", clock)
    world.go("P")
    assert world.try_sink() is None
    clock.passes(8 * DAY_S)
    assert told(sweep(world, retention=retention))["C@1"] == "kept: it is a final result"
    world.publish()
    clock.passes(8 * DAY_S)
    assert told(sweep(world, retention=retention))["C@1"] == "kept: publish 1 names it"
    assert has_data(world, SINK, 1)


def test_control_by_the_commit_alone_it_goes(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ReleaseRule, "_outlives", staticmethod(lambda region, attempt: not attempt.is_committed))
    world = TwoSinks(PAIR, commit_mode=CommitMode.REPLACE, retries=100)
    world.journal_store = ClockedStore("memory://journal", clock)
    world.results = ClockedStore("memory://results", clock)
    world.go("P")
    assert world.try_sink() is None
    clock.passes(2 * HOUR_S)
    assert told(sweep(world, retention=Retention.as_consumed()))["C@1"].startswith("deleted")


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
