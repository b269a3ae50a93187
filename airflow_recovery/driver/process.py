"""A process that ends with the one that started it.

Without this, ``kill -9`` of a task process leaves spark-submit's JVM and its Python driver running, and they go on to
write (measured).
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading

PARENT_DIED = 113
"""Exit code of a process that ended itself because its parent was gone."""

WATCH = "airflow-recovery-parent-watch"
"""The name of the thread that looks after the parent."""

_PR_SET_PDEATHSIG = 1


def die_with_parent() -> None:
    """Ask the kernel to SIGKILL this process when its parent ends. Linux only; elsewhere it does nothing.

    For ``preexec_fn`` of the child, or for a process about itself. The signal is bound to the *thread* that started the
    child: start it from a thread that lives as long as the child may. It survives ``exec``, but not a further fork.
    """
    if sys.platform != "linux":
        return
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def watch_parent(*, period_s: float = 0.5) -> threading.Event:
    """End this process (``os._exit``) within about ``period_s`` of its parent's end; set the event to stop watching.

    Works on every POSIX system. Does not see the parent's end while C code holds the interpreter lock, nor that of a
    parent that was gone before the call.
    """
    parent = os.getppid()
    stop = threading.Event()

    def watch() -> None:
        while not stop.wait(period_s):
            if os.getppid() != parent:
                os._exit(PARENT_DIED)

    threading.Thread(target=watch, name=WATCH, daemon=True).start()
    return stop


def guard() -> None:
    """Both protections, for a driver about itself."""
    die_with_parent()
    watch_parent()
