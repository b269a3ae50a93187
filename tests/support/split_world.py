"""A `fakes.World` in which region ``S`` commits split by split; the rest of its job is as ever."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from fakes import FakeApplication, Hooks, Killed, Process, World

from airflow_recovery.attempt.application import ClaimedAttempt
from airflow_recovery.attempt.region_task import RegionResult, RegionTask
from airflow_recovery.attempt.restarts import Restarts
from airflow_recovery.attempt.task_instances import TaskTry
from airflow_recovery.errors import AttemptLost, RecoveryError, RegionFailed
from airflow_recovery.model.records import ExternalObject, Outcome, PlanRecord
from airflow_recovery.model.split import Split
from airflow_recovery.splits.mode import SplitPlan
from airflow_recovery.testing.split_driver import SplitDriver, rows_of

SOURCE = "S"


def split(name: str, content: str = "1") -> Split:
    return Split.of_file(f"s3://lake/{name}.csv", 10, f"etag of {name} {content}")


def splits(names: str, **contents: str) -> tuple[Split, ...]:
    """One split a letter."""
    return tuple(split(name, contents.get(name, "1")) for name in names)


class SplitApplication(FakeApplication):
    """Reads batch by batch, and commits each."""

    def externals(self) -> tuple[ExternalObject, ...]:
        world = self._world
        assert isinstance(world, SplitWorld)
        return tuple(each.external(SOURCE) for each in world.listing)

    def run(self, attempt: ClaimedAttempt) -> Outcome | None:
        world, claim = self._world, attempt.claim
        assert isinstance(world, SplitWorld)
        world.ran.append((claim.region, claim.attempt))
        self._hooks.on_start()
        side = [self._read(output) for outcome in attempt.inputs.values() for output in outcome.outputs]

        def made_of(split: Split, result: str) -> str:
            world.read.append((claim.attempt, split.name.removeprefix("s3://lake/").removesuffix(".csv")))
            return f"{split.etag} by {world.fingerprints.get(SOURCE, 'code 1')} with {side}"

        driver = SplitDriver(self._journal, self._results, made_of, batch=world.batch, begins=world.begins)
        try:
            outcome = driver.run(attempt, (SOURCE,))
        except AttemptLost as error:
            raise RegionFailed(f"the driver of {claim.region}@{claim.attempt} was fenced") from error
        self._hooks.on_finished()
        return None if self._hooks.says_nothing else outcome


class SplitWorld(World):
    """``listing`` is what the source names today. ``read`` has (attempt, letter) of every split that was read."""

    def __init__(self, upstream: dict[str, tuple[str, ...]], listing: Iterable[Split], **given: object) -> None:
        super().__init__(upstream, **given)  # type: ignore[arg-type]
        self.listing = tuple(listing)
        self.read: list[tuple[int, str]] = []
        self.batch = 1
        self.begins: Callable[[int], None] = lambda number: None

    @property
    def plan(self) -> PlanRecord:
        found = super().plan
        regions = (
            replace(region, mode=SplitPlan(split_source=SOURCE)) if region.name == SOURCE else region
            for region in found.regions
        )
        return replace(found, regions=tuple(regions))

    def region_task(
        self, own: TaskTry, process: Process, hooks: Hooks | None = None, *, epoch: str | None = None
    ) -> RegionTask:
        if own.task_id != SOURCE:
            return super().region_task(own, process, hooks, epoch=epoch)
        self._writers += 1
        writer = f"writer-{self._writers}"
        run = self.run(own, process, writer)
        application = SplitApplication(self, SOURCE, process, writer, hooks or Hooks())
        restarts = Restarts(run, SOURCE, self.limits, clock_s=self.clock_s, wait=self.wait)
        return RegionTask(run, SOURCE, application, epoch=epoch, prepare_journal=self._prepare, restarts=restarts)

    # what happens

    def dies_at_batch(self, number: int, **given: object) -> None:
        """A try that is killed where batch ``number`` begins; Airflow notices."""
        process = Process()
        before, self.begins = self.begins, lambda begun: process.kill() if begun == number else None
        try:
            self.go_killed(process, **given)
        finally:
            self.begins = before

    def go_killed(self, process: Process, **given: object) -> None:
        """A try that dies somewhere, as ``process`` says; Airflow notices."""
        try:
            self.go(SOURCE, process=process, **given)  # type: ignore[arg-type]
        except Killed:
            self.airflow.lose_heartbeat(SOURCE)
        else:
            raise AssertionError("it was to die")

    def zombie_at(self, request: str, meanwhile: Callable[[], object]) -> None:
        """A try that is frozen where it makes ``request``; ``meanwhile`` happens, then it wakes up and goes on."""
        own = self.airflow.start(SOURCE)
        done: list[bool] = []

        def gate(asked: str) -> None:
            if request in asked and not done:
                done.append(True)
                self.airflow.lose_heartbeat(SOURCE)
                meanwhile()

        try:
            self.region_task(own, Process(gate=gate)).execute()
        except RecoveryError:
            assert done
        else:
            raise AssertionError("it was to lose")

    def again(self) -> RegionResult:
        """A user clears the source, and it runs."""
        self.airflow.clear(SOURCE)
        return self.go(SOURCE)

    # what came of it

    def read_by(self, attempt: int) -> str:
        """The letters that an attempt has read, in order."""
        return "".join(sorted(name for number, name in self.read if number == attempt))

    def result(self) -> list[str]:
        """The rows of the current finish, whichever attempts wrote them."""
        current = self.state().of(SOURCE).current
        assert current is not None
        assert current.outcome is not None
        return rows_of(self.results, current.outcome.outputs[0])

    def fresh(self) -> list[str]:
        """What a run without any history makes of today's listing, code and side inputs."""
        other = SplitWorld(dict(self.upstream), self.listing, fingerprints=dict(self.fingerprints), modes=self.modes)
        other.go_all([each for each in self.upstream if each in self.upstream[SOURCE]])
        other.go(SOURCE)
        return other.result()
