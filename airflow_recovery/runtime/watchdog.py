"""A small process that interrupts an attempt's operations on a Connect server when the attempt's process is gone.

It blocks on a pipe. ``done`` means the attempt ended in order; end of file without it means that the writer died. It
has a session (process group) of its own, so that what kills the task's group does not kill it too.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

INTERRUPT_DEADLINE_S = 120
_DONE = "done"


@contextmanager
def guarding(url: str, *, session_id: str, tag: str, user_id: str) -> Iterator[None]:
    """Have the operations tagged ``tag`` interrupted if this process dies inside.

    The order goes through the pipe, not through the arguments: the URL may hold a token. A process that this one forks
    (without exec) meanwhile keeps the pipe open, and delays the interruption until it ends too.
    """
    root = str(Path(__file__).resolve().parents[2])
    path = os.pathsep.join(each for each in (root, os.environ.get("PYTHONPATH")) if each)
    watchdog = subprocess.Popen(
        [sys.executable, "-m", "airflow_recovery.runtime.watchdog"],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
    )
    assert watchdog.stdin is not None
    try:
        order = {"url": url, "session_id": session_id, "tag": tag, "user_id": user_id}
        watchdog.stdin.write(json.dumps(order) + "\n")
        watchdog.stdin.flush()
        yield
    finally:
        with suppress(BrokenPipeError):
            watchdog.stdin.write(_DONE + "\n")
            watchdog.stdin.close()
        try:
            watchdog.wait(timeout=10)
        except subprocess.TimeoutExpired:
            watchdog.kill()
            watchdog.wait()


def main() -> int:
    """Read the order, wait for the end of the writer, and interrupt unless it said that it is done."""
    line = sys.stdin.readline()
    if not line or sys.stdin.readline().strip() == _DONE:
        return 0
    order = json.loads(line)
    signal.alarm(INTERRUPT_DEADLINE_S)  # the client repeats for longer against a server that is gone
    from airflow_recovery.runtime.connect import interrupt_attempt

    interrupt_attempt(order["url"], session_id=order["session_id"], tag=order["tag"], user_id=order["user_id"])
    return 0


if __name__ == "__main__":
    sys.exit(main())
