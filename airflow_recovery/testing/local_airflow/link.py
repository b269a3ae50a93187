"""A network link that can be cut."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress

from airflow_recovery.testing.patience import HANG_S


class Link:
    """Carries TCP connections from a port of its own to another port of this machine.

    While it is cut nothing passes and nobody is told: what a lost network looks like from both ends. Connections that
    were open before, or were begun meanwhile, go on when it is mended, if their ends still wait.
    """

    def __init__(self, to_port: int) -> None:
        self._to_port = to_port
        self._whole = threading.Event()
        self._whole.set()
        self._ends: set[socket.socket] = set()
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listening.getsockname()[1])
        threading.Thread(target=self._accept, name=f"link to {to_port}", daemon=True).start()

    def cut(self) -> None:
        """Let nothing pass any more."""
        self._whole.clear()

    def mend(self) -> None:
        """Let all pass again, what has waited first."""
        self._whole.set()

    def close(self) -> None:
        """End all connections, and take no new ones."""
        for end in (self._listening, *tuple(self._ends)):
            _shut(end)
        self._whole.set()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listening.accept()
            except OSError:
                return
            threading.Thread(target=self._connect, args=(near,), daemon=True).start()

    def _connect(self, near: socket.socket) -> None:
        self._whole.wait()
        try:
            far = socket.create_connection(("127.0.0.1", self._to_port), timeout=HANG_S)
        except OSError:  # nobody listens there: the same is said here
            _shut(near)
            return
        far.settimeout(None)
        self._ends |= {near, far}
        threading.Thread(target=self._carry, args=(near, far), daemon=True).start()
        self._carry(far, near)

    def _carry(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                self._whole.wait()
                target.sendall(data)
        self._whole.wait()
        for end in (source, target):
            _shut(end)
            self._ends.discard(end)


def _shut(end: socket.socket) -> None:
    with suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
    with suppress(OSError):
        end.close()
