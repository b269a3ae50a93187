"""Counts the points that a process passes, writes them down, and lets it die at the one that was chosen."""

from __future__ import annotations

import os
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from airflow_recovery.testing.crash_kit.points import CrashPoint, Harm, Passed, Step, Victim, When


class Crasher:
    """Of one try of ``task``, in its process and, after a fork, in its driver's.

    ``record`` is the file to which points are appended. ``armed`` says where what happens. ``announce`` is called
    before the process is frozen: nobody would hear of it afterwards.
    """

    def __init__(
        self,
        task: str,
        try_number: int,
        *,
        record: Path,
        armed: Mapping[CrashPoint, Harm],
        announce: Callable[[], None],
    ) -> None:
        self._task = task
        self._try_number = try_number
        self._record = record
        self._armed = armed
        self._announce = announce
        self._task_pid = os.getpid()
        self._counts: Counter[tuple[When, Step]] = Counter()
        self._changes = 0
        self._lock = threading.Lock()

    @contextmanager
    def around(self, step: Step, *, changes: bool = True) -> Iterator[None]:
        """What is done inside is ``step``. ``changes``: it leaves a trace outside of this process."""
        self.passes(When.BEFORE, step)
        yield
        self.passes(When.AFTER, step, changes=changes)

    def passes(self, when: When, step: Step, *, changes: bool = False) -> None:
        """The process is at this point; perhaps it is its last. ``changes``: something was changed just now."""
        is_driver = os.getpid() != self._task_pid
        with self._lock:
            self._changes += changes
            self._counts[when, step] += 1
            victims = (Victim.DRIVER, Victim.TASK) if is_driver else (Victim.TASK,)
            count = self._counts[when, step]
            points = [CrashPoint(self._task, self._try_number, victim, when, step, count) for victim in victims]
            where = f"{self._task} {self._try_number} {'driver' if is_driver else 'task'} {self._changes}"
            lines = "".join(Passed(point, f"{where} {point.victim.value}").to_json() + "\n" for point in points)
            with open(self._record, "a", encoding="utf-8") as file:
                file.write(lines)
            for point in points:
                if point in self._armed:
                    self._strike(point.victim, self._armed[point])

    def fork(self) -> int:
        """`os.fork`, between two points: a thread at one holds the lock, and in the copy nobody would let it go."""
        with self._lock:
            return os.fork()

    def _strike(self, victim: Victim, harm: Harm) -> None:
        pids = [self._task_pid, os.getpid()] if victim is Victim.TASK else [os.getpid()]
        if harm is Harm.FREEZE:
            self._announce()
        for pid in dict.fromkeys(pids):
            os.kill(pid, signal.SIGKILL if harm is Harm.KILL else signal.SIGSTOP)
