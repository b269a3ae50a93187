"""Failures on demand, for the demo: without a rehearsal folder nothing here does anything."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path

FAIL_ONCE = ".fail-once"
"""While the file ``<name>.fail-once`` is in the folder, the next call of that name fails. The call removes it."""
REACHED = ".reached"
"""Written by the call that is going to fail, or that is held."""
GO = ".go"
"""The call fails as soon as this file is there, so that its caller can arrange what the retry finds."""
PAUSE = ".pause"
"""While the file ``<name>.pause`` is in the folder, whoever has that name, or reads an input file of it, is held."""

PACE = "pace"
"""While this file is in the folder, every batch of a stream takes so many seconds at least as stand in it."""
LIMIT = "limit"
"""While this file is in the folder, a stream is held before the first day after the one (ISO) that stands in it."""


def rehearse_failure(folder: str, name: str, *, heartbeat_timeout_s: float = 600.0) -> None:
    """Raise `RuntimeError` once, where ``folder`` (a local path; empty for "no rehearsal") asks for it.

    Waits for the file `GO` at most ``heartbeat_timeout_s``, and then fails all the same.
    """
    if not folder or not (Path(folder) / f"{name}{FAIL_ONCE}").exists():
        return
    (Path(folder) / f"{name}{REACHED}").touch()
    deadline = time.monotonic() + heartbeat_timeout_s
    while not (Path(folder) / f"{name}{GO}").exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    (Path(folder) / f"{name}{FAIL_ONCE}").unlink()
    raise RuntimeError(f"rehearsed failure: {name} raises once")


def rehearse_pause(folder: str, paths: Iterable[str], *, heartbeat_timeout_s: float = 600.0) -> None:
    """Stay here while one of ``paths`` (or names) is paused in ``folder``, at most for ``heartbeat_timeout_s``. Raises
    nothing."""
    if not folder:
        return
    for path in paths:
        name = Path(path).stem
        flag = Path(folder) / f"{name}{PAUSE}"
        if flag.exists():
            (Path(folder) / f"{name}{REACHED}").touch()
        deadline = time.monotonic() + heartbeat_timeout_s
        while flag.exists() and time.monotonic() < deadline:
            time.sleep(0.1)


def rehearse_pace(folder: str) -> None:
    """Pause as long as the file `PACE` in ``folder`` says. Raises `ValueError` where it says no number."""
    file = Path(folder) / PACE
    if folder and file.exists():
        time.sleep(float(file.read_text() or 0))


def rehearse_limit(folder: str, day: str, *, heartbeat_timeout_s: float = 600.0) -> None:
    """Stay here while ``day`` (ISO) is after the one in the file `LIMIT` in ``folder``, at most for
    ``heartbeat_timeout_s``. Raises nothing."""
    deadline = time.monotonic() + heartbeat_timeout_s
    while folder and day > _limit(Path(folder) / LIMIT) and time.monotonic() < deadline:
        time.sleep(0.1)


def _limit(file: Path) -> str:
    try:
        return file.read_text()
    except FileNotFoundError:
        return "9999-12-31"
