"""Whether a process lives."""

from __future__ import annotations

import os
from pathlib import Path


def is_alive(pid: int) -> bool:
    """A process that runs; a zombie that waits for its parent is not alive."""
    try:
        os.kill(pid, 0)
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text()
    except (ProcessLookupError, FileNotFoundError):
        return False
