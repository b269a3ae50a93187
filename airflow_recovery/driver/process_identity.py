"""A name for a process, by which another one on the same machine can tell that it is gone.

A process id alone is used again. So the name has the boot of the machine, the process id namespace (the container) and
the moment at which the process started as well. It is never compared with one of another machine.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

_BOOT = Path("/proc/sys/kernel/random/boot_id")


def own_process() -> str | None:
    """``<boot>/<namespace>/<process id>/<start>`` of this process; `None` where the system does not tell."""
    place = _place()
    started = _started(os.getpid())
    return None if place is None or started is None else f"{place}/{os.getpid()}/{started}"


def is_gone(process: str | None) -> bool:
    """True only where the process is known to have ended: it was one of this machine and namespace, and is not there.

    False for one that lives, that is somewhere else, or that nobody knows: only its silence can tell then. A zombie
    that nobody has waited for has ended. One of another user may be hidden (``/proc`` mounted with ``hidepid``).
    """
    place = _place()
    if process is None or place is None or not process.startswith(f"{place}/"):
        return False
    pid, _, started = process.removeprefix(f"{place}/").partition("/")
    return pid.isdecimal() and _started(int(pid)) != started and not _is_hidden(int(pid))


def _is_hidden(pid: int) -> bool:
    """Whether there is a process with this id of which this user may see nothing."""
    try:
        os.kill(pid, 0)
    except PermissionError:
        return not os.access(f"/proc/{pid}/stat", os.R_OK)
    except OSError:
        pass
    return False


def _place() -> str | None:
    if sys.platform != "linux":
        return None
    try:
        return f"{_BOOT.read_text().strip()}/{os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return None


def _started(pid: int) -> str | None:
    """When the process started, in the kernel's ticks since the boot; `None` where it has ended."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    # The name, in parentheses, may hold anything.
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] in ("Z", "X") else fields[19]
