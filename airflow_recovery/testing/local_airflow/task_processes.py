"""The processes of one task instance: found, frozen and woken."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

TITLE = "airflow worker -- "
"""What Airflow calls a task's process, followed by the id of the task instance."""


@dataclass(frozen=True)
class TaskProcesses:
    """``task`` runs the operator; ``supervisor``, its parent, speaks to the API server for it. `psutil.Process`es."""

    task: Any
    supervisor: Any

    @property
    def all(self) -> list[Any]:
        """Supervisor, task, and what the task has started (a JVM), parents first."""
        import psutil  # type: ignore[import-untyped]

        children = []
        with contextlib.suppress(psutil.Error):
            children = self.task.children(recursive=True)
        return [self.supervisor, self.task, *children]

    def freeze(self) -> None:
        """SIGSTOP for all of it, as if its machine stood still: Airflow hears no heartbeat any more."""
        for process in self.all:
            process.send_signal(signal.SIGSTOP)

    def wake(self) -> None:
        """SIGCONT: it goes on, and knows nothing of the time that has passed."""
        import psutil

        for process in self.all:
            with contextlib.suppress(psutil.Error):
                process.send_signal(signal.SIGCONT)

    def is_gone(self) -> bool:
        """Whether the task's process has ended. Its supervisor may go on: it runs other tasks."""
        import psutil

        try:
            return not self.task.is_running() or self.task.status() == psutil.STATUS_ZOMBIE
        except psutil.Error:
            return True


def task_processes(is_wanted: Callable[[str], bool]) -> list[TaskProcesses]:
    """Of the task instances of this machine whose id ``is_wanted``, those that run now. Linux only."""
    import psutil

    processes = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            title = " ".join(process.cmdline())
            if title.startswith(TITLE) and is_wanted(title.removeprefix(TITLE).strip()):
                supervisor = process.parent()
                if supervisor is not None:
                    processes.append(TaskProcesses(process, supervisor))
    return processes
