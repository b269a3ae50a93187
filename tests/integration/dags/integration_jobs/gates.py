"""Gates of files: a test sees a vertex being called, holds it there, and makes it fail."""

from __future__ import annotations

import os
import signal
import time
import uuid
from pathlib import Path


def pass_gate(folder: str, name: str) -> None:
    """One call of vertex ``name``. ``folder`` is the run's own; empty: nothing happens.

    Leaves ``<name>.called-<id>``. While ``<name>.hold`` exists, it waits; the process ends with the test at the latest.
    ``<name>.kill`` ends this process by kill -9 and ``<name>.raise`` fails this call; both are taken away.
    ``<name>.broken`` stays and fails every call with an error of the user's code.
    """
    if not folder:
        return
    root = Path(folder)
    root.mkdir(parents=True, exist_ok=True)
    (root / f"{name}.called-{uuid.uuid4().hex}").touch()
    while (root / f"{name}.hold").exists():
        time.sleep(0.05)
    if (root / f"{name}.kill").exists():
        (root / f"{name}.kill").unlink()
        os.kill(os.getpid(), signal.SIGKILL)
    if (root / f"{name}.raise").exists():
        (root / f"{name}.raise").unlink()
        raise RuntimeError(f"{name} was told to fail")
    if (root / f"{name}.broken").exists():
        raise TypeError(f"{name} is broken; PGPASSWORD=hunter2-of-the-vertex")
