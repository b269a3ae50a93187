"""Who lets cached results go: the publish at the end of a run, and `gc` after a crash. Only this deployment's own."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

import pytest
from clocked import DAY_S, HOUR_S, Clock, clocked_world, has_data, told
from fakes import IDENTITY, PAIR, Killed, Process, World

from airflow_recovery.attempt.release import drop_cached
from airflow_recovery.errors import CacheUnreachable
from airflow_recovery.model.retention import Retention
from airflow_recovery.results import sweep as sweeping
from airflow_recovery.results.cached import cached_view_name
from airflow_recovery.results.sweep import Sweeper
from airflow_recovery.results.sweep_report import SweepReport
from airflow_recovery.results.swept_run import SweepOptions


@dataclass
class Server:
    """What a Spark Connect server keeps, by name."""

    views: set[str] = field(default_factory=set)
    is_gone: bool = False

    def names(self) -> frozenset[str]:
        if self.is_gone:
            raise CacheUnreachable("no answer")
        return frozenset(self.views)

    def drop(self, views: Collection[str]) -> None:
        self.views -= set(views)


def view(region: str, attempt: int, journal: str = "memory://journal") -> str:
    return cached_view_name(journal, IDENTITY, region, attempt, region)


FOREIGN = {view("P", 1, "memory://another-deployment"), "airflow_recovery_of_a_stranger", view("P", 7)}
"""Another deployment's, a stranger's, and one of an attempt that nobody has claimed."""


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def crashed(clock: Clock) -> World:
    """P@1 has died, P@2 is current; C has run and nothing is published."""
    world = clocked_world(PAIR, clock)
    process = Process()
    with pytest.raises(Killed):
        world.go("P", process=process, on_written=process.kill)
    world.airflow.lose_heartbeat("P")
    world.go_all()
    clock.passes(2 * HOUR_S)
    return world


def gc(world: World, server: Server | None, **options: object) -> SweepReport:
    given = SweepOptions(**{"retention": Retention.keep(), **options})  # type: ignore[arg-type]
    return Sweeper(world.journal_store, world.results, given, server).sweep()


def test_gc_drops_what_a_dead_attempt_left_on_the_server(crashed):
    server = Server({view("P", 1), view("P", 2), *FOREIGN})
    dry = gc(crashed, server, dry_run=True)
    assert server.views == {view("P", 1), view("P", 2), *FOREIGN}
    found = told(gc(crashed, server))
    assert told(dry) == found
    assert found["P@1 (1 cached)"].startswith("deleted: fenced")
    assert found["P@2 (1 cached)"].startswith("kept: the run has been silent for 119m")
    assert server.views == {view("P", 2), *FOREIGN}


def test_an_attempt_without_any_file_is_found_by_its_view_alone(crashed):
    crashed.results.objects.clear()
    server = Server({view("P", 1), *FOREIGN})
    assert set(told(gc(crashed, server))) == {"P@1 (1 cached)"}
    assert server.views == FOREIGN


def test_what_has_expired_goes_and_the_attempt_is_marked_first(crashed, clock):
    clock.passes(8 * DAY_S)
    server = Server({view("P", 2), *FOREIGN})
    gc(crashed, server)
    assert server.views == FOREIGN
    assert crashed.state().of("P").attempts[2].is_released


def test_a_purge_drops_all_of_a_run(crashed, clock):
    clock.passes(40 * DAY_S)
    server = Server({view("P", 1), view("P", 2), *FOREIGN})
    for _ in range(2):
        gc(crashed, server, purge_older_than_s=30 * DAY_S)
        clock.passes(2 * HOUR_S)
    assert server.views == FOREIGN - {view("P", 7)} | {view("P", 7)}
    assert not has_data(crashed, "P", 2)


def test_what_is_known_by_its_view_alone_is_as_old_as_the_purge_of_its_run(crashed, clock):
    away = Server({view("P", 1), *FOREIGN}, is_gone=True)
    clock.passes(40 * DAY_S)
    for _ in range(2):
        gc(crashed, away, purge_older_than_s=30 * DAY_S)
        clock.passes(2 * HOUR_S)
    crashed.new_airflow()
    crashed.go_all()  # the run has come back
    server = Server(away.views)
    assert told(gc(crashed, server, grace_s=DAY_S))["P@1 (1 cached)"] == (
        "kept: its run was purged 3h ago, grace time 1d"
    )
    clock.passes(DAY_S)
    assert told(gc(crashed, server, grace_s=DAY_S))["P@1 (1 cached)"] == "deleted: its run was purged 27h ago"
    assert server.views == FOREIGN


def test_an_unreachable_server_is_told_and_the_files_are_swept(crashed):
    server = Server({view("P", 1)}, is_gone=True)
    report = gc(crashed, server)
    assert report.unread == ["cached results were left as they are: no answer"]
    assert told(report)["P@1"].startswith("deleted: fenced")
    assert server.views == {view("P", 1)}


def test_control_by_the_prefix_alone_everybody_elses_would_go(crashed, monkeypatch):
    server = Server({view("P", 1), *FOREIGN})
    monkeypatch.setattr(sweeping, "views_of_run", lambda *_: dict.fromkeys(server.views, ("P", 1)))
    gc(crashed, server)
    assert server.views == set()


def test_the_publish_drops_those_of_all_attempts_of_its_run(crashed, caplog):
    caplog.set_level("INFO")
    server = Server({view("P", 1), view("P", 2), *FOREIGN})
    run = crashed.run(crashed.airflow.now("P"), Process(), "w")
    drop_cached(run, server)
    assert server.views == FOREIGN
    assert "2 cached results of this run were dropped." in caplog.text
    server.is_gone = True
    drop_cached(run, server)
    assert "were not dropped, gc --connect will: no answer" in caplog.text
