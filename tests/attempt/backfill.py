"""Many runs that want one shared result: worlds with one journal store, one results store, and one seeded scheduler."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from clocked import Clock, ClockedStore
from fakes import PUBLISH, FakeApplication, Hooks, Killed, Process, World

from airflow_recovery.attempt.publish import PublishTask
from airflow_recovery.attempt.region_task import RegionTask
from airflow_recovery.attempt.release import release_consumed
from airflow_recovery.attempt.shared import SharedApplication
from airflow_recovery.attempt.task_instances import TaskTry
from airflow_recovery.errors import RecoveryError
from airflow_recovery.journal.journal import Journal
from airflow_recovery.journal.layout import shared_identity
from airflow_recovery.model.build_in_progress import BuildInProgress
from airflow_recovery.model.records import PlanRecord, RunIdentity
from airflow_recovery.model.retention import Retention

SHARED_PAIR = {"S": (), "C": ("S",)}
"""S is persistent; C is each date's own."""

POLL_LIMIT = 200


class Actor:
    """A process that makes one request at a time."""

    def __init__(self, name: str, body: Callable[[Process], None]) -> None:
        self.name = name
        self.process = Process(gate=self._wait)
        self.next = "begins"
        self.is_done = False
        self.error: BaseException | None = None
        self._body = body
        self._go = threading.Semaphore(0)
        self._arrived = threading.Semaphore(0)
        self._thread = threading.Thread(target=self._main, daemon=True)
        self._thread.start()

    def step(self) -> None:
        """Make the request at which it stands, and go on to the next."""
        self._go.release()
        self._arrived.acquire()
        if self.error is not None:
            raise self.error

    def kill(self) -> None:
        """Let it die."""
        self.process.is_dead = True
        while not self.is_done:
            self._go.release()
            self._arrived.acquire()
        self._thread.join()

    def _wait(self, request: str) -> None:
        self.next = request
        self._arrived.release()
        self._go.acquire()

    def _main(self) -> None:
        self._go.acquire()
        try:
            self._body(self.process)
        except Killed:
            pass
        except BaseException as error:
            self.error = error
        self.is_done = True
        self._arrived.release()


class SharedWorld(World):
    """One date. ``shared`` names its persistent regions; the stores are those of all dates."""

    def __init__(
        self, backfill: Backfill, date: str, upstream: Mapping[str, tuple[str, ...]], shared: tuple[str, ...]
    ) -> None:
        self.backfill = backfill
        self.identity = RunIdentity("dag", f"date {date}", "flights")
        self.shared = shared
        super().__init__(upstream, retries=1_000, run_id=f"backfill {date}")
        self.journal_store = backfill.journal_store
        self.results = backfill.results
        self.ran = backfill.ran

    @property
    def plan(self) -> PlanRecord:
        plan = super().plan
        return replace(
            plan, regions=tuple(replace(region, persistent=region.name in self.shared) for region in plan.regions)
        )

    def journal(self, process: Process | None = None, writer: str = "test") -> Journal:
        return super().journal(process, writer).sibling(self.identity, listener=self.listener())

    def region_task(
        self, own: TaskTry, process: Process, hooks: Hooks | None = None, *, epoch: str | None = None
    ) -> RegionTask:
        if own.task_id not in self.shared:
            return super().region_task(own, process, hooks, epoch=epoch)
        self._writers += 1
        writer = f"{self.run_id} writer {self._writers}"
        run = self.run(own, process, writer)
        application = self.shared_application(own, process, hooks, writer=writer)
        return RegionTask(run, own.task_id, application, epoch=epoch)

    def shared_application(
        self,
        own: TaskTry,
        process: Process,
        hooks: Hooks | None = None,
        *,
        writer: str = "writer",
        silent: BuildInProgress | None = None,
    ) -> SharedApplication:
        run = self.run(own, process, writer)

        def make_application(identity: RunIdentity) -> FakeApplication:
            application = FakeApplication(self, own.task_id, process, writer, hooks or Hooks())
            application._journal = run.journal.sibling(identity)
            return application

        return SharedApplication(
            run,
            own.task_id,
            make_application,
            timeout_s=60.0,
            silent=silent,
            clock=lambda: self.backfill.clock.now_s,
            sleep=lambda seconds: self._pause(process),
        )

    def _pause(self, process: Process) -> None:
        process.request("waits for the shared result")
        self.backfill.clock.passes(0.1)


@dataclass
class Backfill:
    """``dates`` runs at once; ``seed`` decides who makes the next request, and who is killed."""

    dates: int
    seed: int = 0
    upstream: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: SHARED_PAIR)
    shared: tuple[str, ...] = ("S",)
    kills: int = 0

    def __post_init__(self) -> None:
        self.clock = Clock()
        self.journal_store = ClockedStore("memory://journal", self.clock)
        self.results = ClockedStore("memory://results", self.clock)
        self.ran: list[tuple[str, int]] = []
        self.rng = random.Random(self.seed)
        self.worlds = [SharedWorld(self, f"{n:03d}", self.upstream, self.shared) for n in range(self.dates)]
        self.trace: list[str] = []

    def journal(self) -> Journal:
        """Of the only shared result that there is."""
        (key,) = {key.split("/")[1] for key in self.journal_store.objects if key.startswith("_shared/")}
        return Journal(self.journal_store, shared_identity(key), writer="test")

    def pins(self) -> int:
        """How many runs hold the shared result."""
        return sum(1 for claim in self.journal().open_claims() if claim.inputs)

    def run(self) -> None:
        """Until every date is green."""
        actors: list[tuple[SharedWorld, Actor]] = []
        for _ in range(100_000):
            if not actors and all(world.airflow.is_green for world in self.worlds):
                return
            startable = [(world, task) for world in self.worlds for task in world.airflow.ready()]
            if startable and (not actors or self.rng.random() < 0.3):
                actors.append(self._start(*self.rng.choice(startable)))
                continue
            world, actor = self.rng.choice(actors)
            if self.kills and self.rng.random() < 0.02:
                self.kills -= 1
                self.trace.append(f"{actor.name} is killed at {actor.next}")
                actor.kill()
                world.airflow.lose_heartbeat(actor.name.split()[0])
            else:
                self.trace.append(f"{world.run_id} {actor.name}: {actor.next}")
                actor.step()
            actors = [actor for actor in actors if not actor[1].is_done]
        raise AssertionError("no end:\n" + "\n".join(self.trace[-100:]))

    def _start(self, world: SharedWorld, task: str) -> tuple[SharedWorld, Actor]:
        own = world.airflow.start(task)

        def body(process: Process) -> None:
            try:
                if task == PUBLISH:
                    PublishTask(world.run(own, process, f"{world.run_id} publish {own.try_number}")).execute()
                else:
                    world.region_task(own, process).execute()
            except RecoveryError as error:
                self.trace.append(f"{world.run_id} {task}: {type(error).__name__}: {error}")
                world.airflow.end(own, "failed")
            else:
                world.airflow.end(own, "success")

        return world, Actor(f"{task} of {world.run_id}", body)


def go(world: SharedWorld, region: str, retention: Retention) -> None:
    """One try, and the release after it."""
    world.go(region)
    release_consumed(world.run(world.airflow.now(region), Process(), "r"), region, world.results, retention)
