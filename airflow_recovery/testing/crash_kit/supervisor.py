"""One DAG run over real processes: a fake Airflow starts tries one after another until all of them are green.

Runs in a process of its own (`forked`), which adopts and reaps whatever its tries leave behind.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing import Pipe
from multiprocessing.connection import Connection

from airflow_recovery.attempt.task_instances import TaskTry
from airflow_recovery.errors import RecoveryError, SinkInDoubt
from airflow_recovery.testing.crash_kit.job_setup import JobSetup
from airflow_recovery.testing.crash_kit.points import CrashPoint, Harm
from airflow_recovery.testing.crash_kit.task_process import BROKE, ENDED, FROZEN, be_the_task
from airflow_recovery.testing.fake_airflow import FakeAirflow
from airflow_recovery.testing.patience import HANG_S
from airflow_recovery.testing.simulation.settings import Violation

MAX_TRIES = 12
"""Of one task: two crashes cost it two, and what they set off a few more."""
RETRIES = 1_000


@dataclass
class _Frozen:
    own: TaskTry
    pid: int
    pipe: Connection


@dataclass
class Supervisor:
    """Airflow's part of one run. ``said`` is what happened, for people.

    ``in_doubt``: regions with a commit that a person has to decide; they are marked as failed until then.
    """

    setup: JobSetup
    armed: Mapping[CrashPoint, Harm]
    events: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.airflow = FakeAirflow(self.setup.tasks, retries=RETRIES)
        self.in_doubt: set[str] = set()
        self._frozen: list[_Frozen] = []

    def until_green(self) -> None:
        """Start what can be started, then let those go on that were frozen, until nothing is left to do.

        Returns as well where a commit is in doubt, and nothing can be done before a person has decided that. Raises
        `Violation` where the run is stuck, or where a try does what no try may do.
        """
        while True:
            ready = self.airflow.ready()
            if ready:
                self._start(ready[0])
            elif not self.airflow.is_green and self.in_doubt:
                return
            elif not self.airflow.is_green:
                states = {task: self.airflow.state(task) for task in self.airflow.upstream}
                raise Violation(f"stuck: {states}")
            elif self._frozen:
                self._clear_producers(self._frozen.pop(0))
            else:
                return

    def kill_frozen(self, task: str | None = None) -> None:
        """Those of one task, or all of them, do not wake any more."""
        for process in [frozen for frozen in self._frozen if task in (None, frozen.own.task_id)]:
            _reap(process.pid)
            self._frozen.remove(process)

    def _start(self, task: str) -> None:
        own = self.airflow.start(task)
        if own.try_number > MAX_TRIES:
            raise Violation(f"storm: {task} has more than {MAX_TRIES} tries")
        ours, theirs = Pipe()
        pid = os.fork()
        if pid == 0:
            os.setpgid(0, 0)
            ours.close()
            be_the_task(self.setup, own, self.airflow.grant(task), self.armed, theirs)
        theirs.close()
        with suppress(OSError):  # the child does it too; whoever comes second changes nothing
            os.setpgid(pid, pid)
        self._serve(own, pid, ours)

    def _clear_producers(self, frozen: _Frozen) -> None:
        self.events.append(f"{frozen.own.task_id} try {frozen.own.try_number} wakes")
        os.killpg(frozen.pid, signal.SIGCONT)
        self._serve(frozen.own, frozen.pid, frozen.pipe)

    def _serve(self, own: TaskTry, pid: int, pipe: Connection) -> None:
        """Answer the process until it ends or is frozen."""
        ended = None
        while True:
            if not pipe.poll(HANG_S):
                _reap(pid)
                raise Violation(f"{own.task_id} try {own.try_number} hangs")
            try:
                request, *arguments = pipe.recv()
            except (EOFError, ConnectionResetError):
                break
            if request == FROZEN:
                os.waitpid(pid, os.WUNTRACED)
                self._frozen.append(_Frozen(own, pid, pipe))
                self._notice(own, "is frozen")
                return
            if request == BROKE:
                _reap(pid)
                raise Violation(f"{own.task_id} try {own.try_number} raises\n{arguments[0]}")
            if request == ENDED:
                ended, why = arguments
                is_taken = self.airflow.end(own, ended)
                if is_taken and why.startswith(SinkInDoubt.__name__):
                    # No retry would decide it.
                    self.airflow.mark(own.task_id, "failed")
                    self.in_doubt.add(own.task_id)
                self.events.append(
                    f"{own.task_id} try {own.try_number}: {ended} {why}{'' if is_taken else ' (refused)'}"
                )
            # Whoever is killed while it is answered does not mind.
            with suppress(BrokenPipeError):
                pipe.send(self._answer(own, request, arguments))
        _reap(pid)
        pipe.close()
        if ended is None:
            self._notice(own, "is dead")

    def _answer(self, own: TaskTry, request: str, arguments: list[object]) -> tuple[object, RecoveryError | None]:
        if request == ENDED:
            return None, None
        try:
            return getattr(self.airflow.clear_client(own), request)(*arguments), None
        except RecoveryError as error:
            return None, error

    def _notice(self, own: TaskTry, what: str) -> None:
        self.events.append(f"{own.task_id} try {own.try_number} {what}")
        if self.airflow.is_mine(own):
            self.airflow.lose_heartbeat(own.task_id)


def _reap(pid: int) -> None:
    """The task, and a driver that it may have left behind: nobody of its group goes on."""
    with suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
    with suppress(ChildProcessError):
        while True:
            os.waitpid(-pid, 0)
