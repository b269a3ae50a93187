"""A run whose last region commits to a sink: the real protocol, and a target that helps nobody."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field, replace

from fakes import PAIR, Hooks, Killed, Process, World

from airflow_recovery.attempt.confirm import confirm_dead
from airflow_recovery.attempt.run import Run
from airflow_recovery.attempt.task_instances import TaskTry
from airflow_recovery.errors import RecoveryError, SinkInDoubt
from airflow_recovery.model.committing import CommitKind, CommitMode
from airflow_recovery.model.records import PlanRecord
from airflow_recovery.testing.fake_sink import FakeTarget, fake_commit

SINK = "C"


@dataclass
class SinkWorld(World):
    """`World` with a sink at the region ``sink``."""

    sink: str = SINK
    kind: CommitKind = CommitKind.TOKEN
    commit_mode: CommitMode = CommitMode.APPEND
    target: FakeTarget = field(default_factory=FakeTarget)

    @property
    def plan(self) -> PlanRecord:
        commit = fake_commit(self.sink, self.kind, self.commit_mode)
        regions = (
            replace(region, commit=commit) if region.name == self.sink else region for region in super().plan.regions
        )
        return replace(super().plan, regions=tuple(regions))

    def run(self, own: TaskTry, process: Process, writer: str) -> Run:
        opened = super().run(own, process, writer)
        return replace(opened, open_committer=lambda spec: self.target.committer(spec, process.request))

    def try_sink(self, process: Process | None = None) -> RecoveryError | Killed | None:
        """One try; what it ended with. A killed process says nothing: Airflow finds out."""
        own = self.airflow.start(self.sink)
        task = self.region_task(own, process or Process(), Hooks())
        try:
            task.execute()
        except Killed as killed:
            if self.airflow.is_mine(own):
                self.airflow.lose_heartbeat(self.sink)
            return killed
        except RecoveryError as error:
            self.airflow.end(own, "failed")
            return error
        self.airflow.end(own, "success")
        return None

    def confirm(self) -> None:
        confirm_dead(self.journal(), self.state(), self.sink, "ann", "the pod is gone")

    def until_committed(self, limit: int = 10) -> list[str]:
        """Tries until one succeeds; where one is in doubt, a person confirms. Returns what each ended with."""
        ended = []
        for _ in range(limit):
            error = self.try_sink()
            ended.append(type(error).__name__)
            if error is None:
                return ended
            if isinstance(error, SinkInDoubt):
                self.confirm()
        raise AssertionError(ended)

    @property
    def visible(self) -> list[int]:
        return self.target.visible(self.sink, self.commit_mode)


def sink_world(kind: CommitKind = CommitKind.TOKEN, mode: CommitMode = CommitMode.APPEND) -> SinkWorld:
    """With the producer done."""
    world = SinkWorld(PAIR, kind=kind, commit_mode=mode, retries=100)
    world.go("P")
    return world


class Steps:
    """Counts the requests of a process's own thread, and does ``act`` before the one with number ``at``."""

    def __init__(self, at: int, act) -> None:
        self.at, self.count = at, 0
        self.seen: list[str] = []
        self._act = act
        self._thread = threading.current_thread()

    def __call__(self, request: str) -> None:
        if threading.current_thread() is not self._thread:
            return
        self.count += 1
        self.seen.append(request)
        if self.count == self.at:
            self._act()
