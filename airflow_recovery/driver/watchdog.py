"""A small process that interrupts an attempt's operations on a Connect server when the attempt's process is gone.

It blocks on a pipe (`airflow_recovery.driver.watchdog_script`). ``done`` means the attempt ended in order; end of file
without it means that the writer died, and then this module runs. It has a session (process group) of its own, so that
what kills the task's group does not kill it too.
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
_DONE = b"done\n"


@contextmanager
def guarding(url: str, *, session_id: str, user_id: str) -> Iterator[None]:
    """Have all operations of the session interrupted if this process dies inside.

    The order goes through the pipe, not through the arguments: the URL may hold a token. A process that this one forks
    (without exec) meanwhile keeps the pipe open, and delays the interruption until it ends too.
    """
    root = str(Path(__file__).resolve().parents[2])
    path = os.pathsep.join(name for name in (root, os.environ.get("PYTHONPATH")) if name)
    watchdog = subprocess.Popen(
        [sys.executable, "-I", "-S", str(Path(__file__).with_name("watchdog_script.py"))],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        env={**os.environ, "PYTHONPATH": path},  # not for the bare interpreter: for what it becomes
    )
    assert watchdog.stdin is not None
    try:
        order = {"url": url, "session_id": session_id, "user_id": user_id}
        watchdog.stdin.write(json.dumps(order).encode() + b"\n")
        watchdog.stdin.flush()
        yield
    finally:
        with suppress(BrokenPipeError):
            watchdog.stdin.write(_DONE)
            watchdog.stdin.close()
        try:
            watchdog.wait(timeout=10)
        except subprocess.TimeoutExpired:
            watchdog.kill()
            watchdog.wait()


def main() -> int:
    """Read the order and interrupt: the process that gave it is gone."""
    order = json.loads(sys.stdin.readline())
    signal.alarm(INTERRUPT_DEADLINE_S)  # the client repeats for longer against a server that is gone
    from airflow_recovery.driver.connect_session import interrupt_attempt

    interrupt_attempt(order["url"], session_id=order["session_id"], user_id=order["user_id"])
    return 0


if __name__ == "__main__":
    sys.exit(main())
