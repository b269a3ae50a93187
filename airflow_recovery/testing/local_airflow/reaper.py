"""Leaving no process behind. Also a program of its own, which does that where the process that started it dies.

Imports nothing of this package: it is started by its path, without our import path.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import IO, Any

MARKER = "AIRFLOW_RECOVERY_LOCAL_ID"
CREATION_TOLERANCE_S = 2.0
"""The kernel tells a process's age to 10 ms, and the clock may be set meanwhile."""


def reap(marker: str, sessions: Mapping[int, float]) -> list[int]:
    """``kill -9`` everything that is ours, until nothing is left; the ids of what was killed.

    Ours is what carries ``marker`` in its environment, or belongs to one of ``sessions`` (id of the session's first
    process -> when that was created). One sign is not enough: Airflow's API server, executor workers and task processes
    write their titles over their environment, and a task leads a process group of its own; a program that a task
    starts may open another session. Descendants of ours are ours: a PostgreSQL server's do both.
    """
    import psutil  # type: ignore[import-untyped]

    killed: list[int] = []
    while True:
        ours = {pid for pid, created in sessions.items() if not _was_reused(pid, created)}
        living = _with_descendants(process for process in psutil.process_iter() if _is_ours(process, marker, ours))
        if not living:
            return killed
        for process in living:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
                killed.append(process.pid)
        psutil.wait_procs(living, timeout=2)  # then it looks again


def _with_descendants(processes: Iterable[Any]) -> list[Any]:
    import psutil

    tree: dict[int, Any] = {}
    for process in processes:
        tree[process.pid] = process
        with contextlib.suppress(psutil.Error):
            tree.update((child.pid, child) for child in process.children(recursive=True))
    return [process for process in tree.values() if process.pid != os.getpid() and _is_alive(process)]


def _is_ours(process: Any, marker: str, sessions: set[int]) -> bool:
    if process.pid == os.getpid():
        return False
    with contextlib.suppress(OSError):
        if os.getsid(process.pid) in sessions:
            return True
    return _environment_of(process).get(MARKER) == marker


def _was_reused(pid: int, created: float) -> bool:
    """A stranger has this id now: its session is none of our business."""
    import psutil

    try:
        return bool(abs(psutil.Process(pid).create_time() - created) > CREATION_TOLERANCE_S)
    except psutil.NoSuchProcess:
        return False


def _environment_of(process: Any) -> Mapping[str, str]:
    import psutil

    try:
        return dict(process.environ())
    except (psutil.Error, OSError):
        return {}


def _is_alive(process: Any) -> bool:
    import psutil

    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False


def _reap_when_parent_dies(marker: str, folders: Sequence[str], pipe: IO[bytes]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sessions = {int(pid): float(created) for pid, created in map(bytes.split, pipe)}
    reap(marker, sessions)
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    _reap_when_parent_dies(sys.argv[1], sys.argv[2:], sys.stdin.buffer)
