"""A run with streaming regions without Spark: the real protocol code, channels that are only named.

``a~b``: b reads a's channel. Streaming regions run at the same time: what happens while one is at work is a hook of its
application.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, cast

from fakes import FakeApplication, Hooks, Killed, Process, World

from airflow_recovery.attempt.application import ClaimedAttempt
from airflow_recovery.attempt.region_task import RegionTask
from airflow_recovery.attempt.restarts import Restarts
from airflow_recovery.attempt.run import Run
from airflow_recovery.attempt.task_instances import TaskTry
from airflow_recovery.errors import AttemptLost, ChannelFailed, Failure, ObjectMissing, Overtaken, RegionFailed
from airflow_recovery.journal.run_state import RunState
from airflow_recovery.model.failover_strategy import FailoverStrategy
from airflow_recovery.model.mode import BATCH
from airflow_recovery.model.records import Claim, Outcome, PlanRecord
from airflow_recovery.store.object_store import ObjectInfo, ObjectStore, StoredObject
from airflow_recovery.streaming.channel_graph import live_attempts
from airflow_recovery.streaming.channel_records import ChannelIdentity
from airflow_recovery.streaming.folder import ChannelFolder
from airflow_recovery.streaming.mode import ChannelPlan, ChannelRef, StreamingClaim, StreamingPlan
from airflow_recovery.streaming.work import StreamingWork

SINGLE = FailoverStrategy.APPROXIMATE_SINGLE
DOWNSTREAM = FailoverStrategy.APPROXIMATE_DOWNSTREAM
SINK = FailoverStrategy.APPROXIMATE_SINK
REGION = FailoverStrategy.REGION


class Logs:
    """A store in which every channel has a log, but for those that are lost."""

    def __init__(self, world: StreamingWorld) -> None:
        run = world.journal().identity
        pins = ((pin.result, pin.generation) for pin in world.lost_channels)
        self._lost = {ChannelFolder(ChannelIdentity(run, *pin)).slots for pin in pins}

    def get(self, key: str) -> StoredObject:
        """The first slot of a log."""
        if any(key.startswith(lost) for lost in self._lost):
            raise ObjectMissing(key)
        return StoredObject(ObjectInfo(key, 0, "etag"), b"")


class StreamingWorld(World):
    """``drawn``: channels as ``"a~b b~c"``; ``upstream`` (given by keyword): the blocking inputs of any region.

    ``options``: of every channel, as `ChannelPlan`.
    """

    def __init__(
        self,
        drawn: str = "a~b b~c",
        strategy: FailoverStrategy = SINGLE,
        *,
        upstream: Mapping[str, tuple[str, ...]] | None = None,
        stateful: str = "",
        not_replayed: str = "",
        options: Mapping[str, Any] | None = None,
        **settings: object,
    ) -> None:
        self.links = [(piece[0], piece[2]) for piece in drawn.split()]
        self.stateful, self.not_replayed, self.options = stateful, not_replayed, dict(options or {})
        self.lost_channels: set[ChannelRef] = set()
        self.worked: list[ClaimedAttempt] = []
        self.is_gated = False
        names = dict.fromkeys(name for link in self.links for name in link)
        given = dict(upstream or {})
        before = {name: inputs for name, inputs in given.items() if not set(inputs) & names.keys()}
        behind = {name: inputs for name, inputs in given.items() if name not in before}
        inputs = dict.fromkeys(names, ()) | {name: each for name, each in before.items() if name in names}
        first = {name: each for name, each in before.items() if name not in names}
        super().__init__({**first, **inputs, **behind}, strategy=strategy, **settings)  # type: ignore[arg-type]

    def new_airflow(self) -> None:
        super().new_airflow()
        feeding = {left for left, _ in self.links}
        self.leaves = tuple(name for name in self.leaves if name not in feeding)

    @property
    def plan(self) -> PlanRecord:
        regions = []
        for region in super().plan.regions:
            reads = tuple(ChannelPlan(left, left, **self.options) for left, right in self.links if right == region.name)
            feeds = tuple(ChannelPlan(left, left, **self.options) for left, _ in self.links if left == region.name)[:1]
            results = () if feeds else region.results
            mode = StreamingPlan(reads, feeds, region.name in self.stateful, region.name not in self.not_replayed)
            regions.append(replace(region, mode=mode if mode.channels else BATCH, results=results))
        return replace(super().plan, regions=tuple(regions))

    def run(self, own: TaskTry, process: Process, writer: str) -> Run:
        found = super().run(own, process, writer)
        return replace(found, results=cast(ObjectStore, Logs(self)))

    def region_task(
        self, own: TaskTry, process: Process, hooks: Hooks | None = None, *, epoch: str | None = None
    ) -> RegionTask:
        self._writers += 1
        writer = f"writer-{self._writers}"
        run = self.run(own, process, writer)
        application = FakeStreamingApplication(self, own.task_id, process, writer, hooks or Hooks())
        restarts = Restarts(run, own.task_id, self.limits, clock_s=self.clock_s, wait=self.wait)
        return RegionTask(run, own.task_id, application, epoch=epoch, restarts=restarts)

    # what happens to streaming regions

    def together(self, *regions: str, meanwhile: Callable[[], object] = lambda: None) -> None:
        """These regions start, one after the other; when all are at work ``meanwhile`` happens; then they end, the last
        one first. Whoever was cleared meanwhile is killed with its application, as Airflow does."""
        if not regions:
            meanwhile()
            return
        region = regions[0]
        process = Process()

        def others() -> None:
            own = self.airflow.now(region)
            self.together(*regions[1:], meanwhile=meanwhile)
            if not self.airflow.is_mine(own):
                process.kill()

        with suppress(Killed, Overtaken):
            self.go(region, process=process, on_start=others)

    def fail(
        self, region: str, type_: str = "RuntimeError", while_at_work: Callable[[], object] = lambda: None
    ) -> None:
        """The next attempt of ``region`` starts and fails; its task is up for retry."""

        def boom() -> None:
            while_at_work()
            raise RegionFailed(f"{type_}: boom", Failure(type_, "boom"))

        try:
            self.go(region, on_start=boom)
        except RegionFailed:
            return
        raise AssertionError(f"{region} did not fail")

    # what a test looks at

    def pins(self, region: str, attempt: int) -> dict[str, int]:
        """The generations that an attempt was claimed with, by channel."""
        return {pin.result: pin.generation for pin in StreamingClaim.of(self.claim_of(region, attempt)).channels}

    def claim_of(self, region: str, attempt: int) -> Claim:
        return self.journal().read_claim(region, attempt)

    def earlier(self, region: str, attempt: int) -> tuple[int, ...]:
        """The attempts that it goes on from."""
        found = next(each for each in self.worked if (each.claim.region, each.claim.attempt) == (region, attempt))
        assert isinstance(found.work, StreamingWork)
        return found.work.earlier

    def resets(self) -> set[tuple[str, int]]:
        """Every reset that is in the journal."""
        state = self.state()
        return {(name, n) for name in self.upstream for n, each in state.of(name).attempts.items() if each.is_reset}


class FakeStreamingApplication(FakeApplication):
    """A streaming region that feeds a channel registers nothing."""

    _world: StreamingWorld

    def before_claim(self, state: RunState) -> None:
        """The start gate, where the world has one: no consumer before its producer."""
        for left, right in self._world.links:
            if self._world.is_gated and right == self._region and not live_attempts(state, left):
                raise ChannelFailed(f"{left} has not opened its channel")

    def run(self, attempt: ClaimedAttempt) -> Outcome | None:
        claim = attempt.claim
        self._world.worked.append(attempt)
        if claim.region not in {left for left, _ in self._world.links}:
            return super().run(attempt)
        self._world.ran.append((claim.region, claim.attempt))
        self._hooks.on_start()
        outcome = attempt.trace.finished("now", (), spark_seconds=10.0)
        try:
            self._journal.finish(outcome)
        except AttemptLost as error:
            raise RegionFailed(f"the driver of {claim.region}@{claim.attempt} was fenced") from error
        self._hooks.on_finished()
        return outcome
