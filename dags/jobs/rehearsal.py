"""A failure on demand, for the demo: without a rehearsal folder nothing here does anything."""

from __future__ import annotations

import time
from pathlib import Path

FAIL_ONCE = "fail-once"
"""While this file is in the folder, the next call fails. The call removes it: the one after that does nothing."""
REACHED = "reached"
"""Written by the call that is going to fail."""
GO = "go"
"""The call fails as soon as this file is there, so that its caller can arrange what the retry finds."""


def rehearse_failure(folder: str, *, patience_s: float = 600.0) -> None:
    """Raise `RuntimeError` once, where ``folder`` (a local path; empty for "no rehearsal") asks for it.

    Waits for the file `GO` at most ``patience_s``, and then fails all the same.
    """
    if not folder or not (Path(folder) / FAIL_ONCE).exists():
        return
    (Path(folder) / REACHED).touch()
    deadline = time.monotonic() + patience_s
    while not (Path(folder) / GO).exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    (Path(folder) / FAIL_ONCE).unlink()
    raise RuntimeError("rehearsed failure: the last region's code raises once")
