"""A port for a server of a test."""

from __future__ import annotations

import fcntl
import os
import random
import socket
import tempfile
from pathlib import Path

FIRST_PORT = 10_000
LAST_PORT = 32_767
"""Linux gives connections and servers without a port of their own (port 0) higher numbers."""
_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_reserved: list[int] = []


def free_port() -> int:
    """Return a TCP port of 127.0.0.1 on which no process listens.

    No other call returns this port while this process lives, in whichever process it is made. The kernel does not
    give it to a connection either: it is below the range from which the kernel takes ports.
    """
    folder = Path(tempfile.gettempdir()) / f"airflow-recovery-ports-{os.getuid()}"
    folder.mkdir(exist_ok=True)
    last = min(LAST_PORT, int(_RANGE.read_text().split()[0]) - 1) if _RANGE.exists() else LAST_PORT
    while True:
        # Not the generator that a test may have seeded: all tests would try the same ports.
        port = random.SystemRandom().randint(FIRST_PORT, last)
        if _reserve(folder / str(port)) and is_free(port):
            return port


def _reserve(path: Path) -> bool:
    """Whether this process has the file's lock now, which it keeps until it ends."""
    lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        return False
    _reserved.append(lock)
    return True


def is_free(port: int) -> bool:
    """Return whether a server can listen on ``port`` of 127.0.0.1 now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
