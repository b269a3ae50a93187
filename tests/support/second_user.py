"""Another user of this machine: programs of a few lines, run by the system's Python with another user id."""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from airflow_recovery.testing.patience import wait_until

OTHER_USER = 65534
_PYTHON = shutil.which("python3", path="/usr/bin:/bin")  # the tests' own may lie where no other user may enter

needs_second_user = pytest.mark.skipif(
    os.getuid() != 0 or _PYTHON is None, reason="only root can start a process of another user, by the system's Python"
)


class OtherUser:
    """A running program. ``said`` are the lines that it has printed."""

    def __init__(self, program: str, *arguments: object, pass_input: str = "") -> None:
        assert _PYTHON is not None
        self.said: list[str] = []
        self._process = subprocess.Popen(
            [_PYTHON, "-u", "-c", program, *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd="/",
            env={},
            user=OTHER_USER,
            group=OTHER_USER,
            extra_groups=[],
        )
        assert self._process.stdin is not None
        self._process.stdin.write(pass_input)
        self._process.stdin.close()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    def _read(self) -> None:
        assert self._process.stdout is not None
        self.said.extend(iter(self._process.stdout.readline, ""))

    def text(self) -> str:
        return "".join(self.said)

    def wait_says(self, word: str) -> None:
        wait_until(lambda: word in self.text(), f"the other user to say {word}", describe=self.text)

    def wait(self) -> str:
        """All that it has printed, once it has ended."""
        self._process.wait()
        self._reader.join()
        return self.text()

    def end(self) -> None:
        self._process.kill()
        self._process.wait()
        self._reader.join()
        assert self._process.stdout is not None
        self._process.stdout.close()


@contextmanager
def other_user(program: str, *arguments: object, pass_input: str = "") -> Iterator[OtherUser]:
    """``program`` runs meanwhile."""
    running = OtherUser(program, *arguments, pass_input=pass_input)
    try:
        yield running
    finally:
        running.end()


CONNECT_IMPOSTOR = r"""
import re, socket, ssl, sys, tempfile, threading

def frame(kind, flags, stream, body=b""):
    return len(body).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + body

def header(name, value):
    return b"\0" + bytes([len(name)]) + name + bytes([len(value)]) + value

# What a Connect server answers to an empty request: INTERNAL with a token, and UNAUTHENTICATED without one.
ANSWER = header(b":status", b"200") + header(b"content-type", b"application/grpc")
STATUS = {True: header(b"grpc-status", b"13"), False: header(b"grpc-status", b"16")}

def serve(client):
    client.sendall(frame(4, 0, 0))
    got = b""
    while b"\r\n\r\nSM\r\n\r\n" not in got:
        piece = client.recv(65536)
        if not piece:
            return
        got += piece
        print("GOT", got[:24], flush=True)
    got, found = got[24:], None
    while True:
        while len(got) >= 9 and len(got) >= 9 + int.from_bytes(got[:3], "big"):
            size, kind, flags, stream = int.from_bytes(got[:3], "big"), got[3], got[4], int.from_bytes(got[5:9], "big")
            body, got = got[9 : 9 + size], got[9 + size :]
            if kind in (4, 6) and not flags & 1:
                client.sendall(frame(kind, 1, 0, body if kind == 6 else b""))
            if kind == 1:
                found = re.search(rb"Bearer ([0-9a-f]{64})", body)
                print("TOKEN", found[1].decode() if found else body, flush=True)
            if kind in (0, 1) and flags & 1:
                client.sendall(frame(1, 5, stream, ANSWER + STATUS[bool(found)]))
        piece = client.recv(65536)
        if not piece:
            return
        got += piece

def serve_all(server, context=None):
    while True:
        client, _ = server.accept()
        print("ACCEPTED", flush=True)
        def run(client=client):
            try:
                serve(context.wrap_socket(client, server_side=True) if context else client)
            except OSError as error:
                print("FAILED", error, flush=True)
        threading.Thread(target=run, daemon=True).start()

def tls(pem):
    with tempfile.NamedTemporaryFile("w") as file:
        file.write(pem)
        file.flush()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.set_alpn_protocols(["h2"])
        context.load_cert_chain(file.name)
    return context
"""
"""Functions of a program that answers as a Connect server does, and prints the token that it is shown."""
