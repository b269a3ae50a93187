"""Seeded schedules of streaming regions: at any request of a task others work, die, go silent or are cleared.

What must hold in the end, whatever happened: all is green, every finish that counts works with generations that count,
and nobody goes on from what somebody else has let go. To see one again: run that seed.
"""

from __future__ import annotations

import random
from contextlib import suppress
from types import SimpleNamespace

import pytest
from fakes import InlineThread, Killed, Process
from streaming_world import DOWNSTREAM, REGION, SINGLE, SINK, StreamingWorld
from test_streaming_failover import check_coherent

from airflow_recovery.attempt import attempt
from airflow_recovery.errors import Failure, RecoveryError, RegionFailed
from airflow_recovery.model.records import Reset
from airflow_recovery.streaming import failover as streaming_failover
from airflow_recovery.streaming import restart as streaming_restart
from airflow_recovery.streaming.mode import StreamingClaim, StreamingPlan

SEEDS = 100
TYPES = ("RuntimeError", "RuntimeError", "DriverLost", "ChannelInconsistent", "ChannelAltered")


@pytest.fixture(autouse=True)
def _one_thread(monkeypatch):
    """The order of all requests comes from the seed."""
    monkeypatch.setattr(attempt, "threading", SimpleNamespace(Thread=InlineThread))


class Schedule:
    """Troubles come at one request in twenty, up to ``troubles`` of them; then everybody is left in peace."""

    def __init__(self, seed: int, troubles: int = 8) -> None:
        self._rng = random.Random(seed)
        strategy = self._rng.choice([SINGLE, DOWNSTREAM, SINK, REGION])
        upstreams: list[dict[str, tuple[str, ...]]] = [{}, {"T": (), "b": ("T",)}, {"D": ("c",)}]
        upstream = self._rng.choice(upstreams)
        stateful = self._rng.choice(["", "c"])
        self.world = StreamingWorld(strategy=strategy, upstream=upstream, stateful=stateful, retries=1000)
        self.world.is_gated = True
        self._left = troubles
        self._at_work: list[str] = []

    def run(self) -> StreamingWorld:
        """To the end. Raises `AssertionError`."""
        for _ in range(300):
            ready = [each for each in self.world.airflow.ready() if each != "publish"]
            if not ready:
                break
            self._go(self._rng.choice(ready))
        else:
            raise AssertionError("no end")
        self.world.until_green()
        return self.world

    def _go(self, region: str) -> None:
        process = Process()
        process.gate = lambda request: self._trouble(region, process)
        self._at_work.append(region)
        try:
            self.world.go(region, process=process, on_start=lambda: self._start(region, process))
        except Killed:
            if self.world.airflow.state(region) == "running":
                self.world.airflow.lose_heartbeat(region)
        except (RecoveryError, RegionFailed):
            pass
        finally:
            self._at_work.remove(region)

    def _start(self, region: str, process: Process) -> None:
        """The application. What runs beside it is started from here."""
        own = self.world.airflow.now(region)
        if len(self._at_work) < 5:
            for _ in range(self._rng.randrange(3)):
                self._other()
        if self._left > 0 and self._rng.random() < 0.3:
            self._left -= 1
            type_ = self._rng.choice(TYPES)
            raise RegionFailed(type_, Failure(type_, "boom"))
        if not self.world.airflow.is_mine(own) and self._rng.random() < 0.7:
            process.kill()

    def _trouble(self, region: str, process: Process) -> None:
        if self._left <= 0 or self._rng.random() > 0.05 or len(self._at_work) > 4:
            return
        self._left -= 1
        self._rng.choice([self._other, self._other, self._clear, self._lose, self._reset, process.kill])()

    def _other(self) -> None:
        ready = [each for each in self.world.airflow.ready() if each != "publish"]
        if ready:
            self._go(self._rng.choice(ready))

    def _clear(self) -> None:
        self.world.airflow.clear(self._rng.choice("abc"))

    def _reset(self) -> None:
        """A person's restart of one region, whose author dies before the clear in one case of two."""
        region = self._rng.choice("abc")
        self.world.journal().reset(Reset(region, self.world.attempts(region), "user", "asked for"))
        if self._rng.random() < 0.5:
            self.world.airflow.clear(region)

    def _lose(self) -> None:
        running = [each for each in "abc" if self.world.airflow.state(each) == "running"]
        if running:
            self.world.airflow.lose_heartbeat(self._rng.choice(running))


def settled(seed: int) -> StreamingWorld:
    """A schedule to its end, and two clears of the whole run, as by a lost database: the second one runs nobody."""
    world = Schedule(seed).run()
    world.airflow.clear_all()
    world.until_green(limit=100)
    world.airflow.clear_all()
    before = list(world.ran)
    world.until_green(limit=100)
    assert world.ran == before, "all stands, and still somebody ran again"
    return world


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(SEEDS))
def test_in_the_end_all_is_coherent(seed):
    world = settled(seed)
    check_coherent(world)
    report = world.verify()
    assert [finding for answer in report.answers for finding in answer.findings] == [], (
        "what the independent checker says"
    )


def is_broken(seed: int) -> bool:
    try:
        check_coherent(settled(seed))
    except AssertionError:
        return True
    return False


def test_control_without_what_claims_tell_some_schedule_ends_with_half_a_channel(monkeypatch):
    monkeypatch.setattr(streaming_restart, "_incoherent", lambda graph, state, region, pins: {})
    assert any(map(is_broken, range(SEEDS)))


@pytest.mark.slow
def test_control_without_the_look_after_the_claim_some_attempt_runs_in_a_generation_that_nobody_feeds(monkeypatch):
    started: list[tuple[str, int]] = []

    def look(run, claim):
        planned = run.regions[claim.region]
        if StreamingClaim.of(claim).channels and isinstance(planned.mode, StreamingPlan):
            state = run.journal.load(run.list())
            if streaming_failover.other_channels(planned, state, claim.mode.channels) is not None:
                started.append((claim.region, claim.attempt))

    monkeypatch.setattr(streaming_failover, "check_channels", look)
    for seed in range(SEEDS):
        with suppress(AssertionError):
            settled(seed)
        if started:
            return
    raise AssertionError("nothing was found")
