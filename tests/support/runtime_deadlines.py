"""Waiting for something real with a deadline."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path


def until(is_so: Callable[[], bool], what: str, *, deadline_s: float = 60.0) -> None:
    """Poll until ``is_so``; fails with ``what`` was waited for."""
    deadline = time.monotonic() + deadline_s
    while not is_so():
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {deadline_s} s in vain: {what}")
        time.sleep(0.05)


def is_alive(pid: int) -> bool:
    """A process that runs; a zombie that waits for its parent is not alive."""
    try:
        os.kill(pid, 0)
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text()
    except (ProcessLookupError, FileNotFoundError):
        return False
