"""TLS in front of a run's own Spark, whose Connect server speaks none.

The server listens only on the loopback, on a port that the kernel gives it. The gate listens on the address by which
other machines know this machine. It proves with the key of its certificate that it belongs to the run: clients know the
certificate from the journal. The key is on the disk only while OpenSSL reads it. The gate forwards data only while its
own child process listens on the server's port.
"""

from __future__ import annotations

import asyncio
import datetime
import ipaddress
import os
import select
import socket
import ssl
import threading
import time
from collections.abc import Iterable
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import psutil  # type: ignore[import-untyped]
    from cryptography import x509

LOOPBACK = "127.0.0.1"
"""Where the server listens: Spark's own Python workers look for it there (`foreachBatch`)."""

PROBE_S = 0.3
"""How long to wait for the first bytes from all ports of a driver together. Most ports never send bytes first."""
_HANDSHAKE_TIMEOUT_S = 10.0
_PIECE = 262_144
_SETTINGS, _FRAME_HEADER = 4, 9
_YEARS = datetime.timedelta(days=3650)
"""How long the certificate is valid before and after now, since clocks differ. Its key ends with the process."""


@dataclass(frozen=True)
class Listener:
    """A process of this machine that listens on ``port`` of the loopback."""

    process: psutil.Process
    port: int

    def is_there(self) -> bool:
        """Whether this process, and not another one with the same id or port, still listens on the port."""
        return self.process.is_running() and self.port in _ports(self.process)


def connect_listener(pid: int) -> Listener | None:
    """Return the listener of Spark Connect in the process ``pid`` or its descendants; `None` if none listens yet.

    Of all ports of a driver, only this one sends HTTP/2's settings before the client sends data. Sends nothing.
    """
    import psutil

    with suppress(psutil.Error):
        started = psutil.Process(pid)
        found = {port: process for process in (started, *started.children(recursive=True)) for port in _ports(process)}
        port = _speaking_http2(found)
        if port is not None:
            return Listener(found[port], port)
    return None


def _ports(process: psutil.Process) -> set[int]:
    """The TCP ports of the loopback on which it listens."""
    import psutil

    with suppress(psutil.Error):
        return {
            int(connection.laddr.port)
            for connection in process.net_connections("tcp")
            # A JVM listens for both versions of IP.
            if connection.status == psutil.CONN_LISTEN and connection.laddr.ip.removeprefix("::ffff:") == LOOPBACK
        }
    return set()


def _speaking_http2(ports: Iterable[int]) -> int | None:
    with ExitStack() as opened:
        clients = {}
        for port in ports:
            with suppress(OSError):
                clients[opened.enter_context(socket.create_connection((LOOPBACK, port), timeout=PROBE_S))] = port
        deadline = time.monotonic() + PROBE_S
        waiting = list(clients)
        while waiting and (left_s := deadline - time.monotonic()) > 0:
            for client in select.select(waiting, [], [], left_s)[0]:
                waiting.remove(client)
                with suppress(OSError):
                    header = client.recv(_FRAME_HEADER)
                    if len(header) == _FRAME_HEADER and header[3] == _SETTINGS and not any(header[5:]):
                        return clients[client]
    return None


class Gate:
    """Listens on ``host`` from now on, on a port that the kernel chooses, until its process ends.

    ``server`` is what it passes connections on to. ``folder`` belongs to this process. Raises `OSError` if ``host`` is
    not an address of this machine.
    """

    def __init__(self, host: str, server: Listener, folder: Path) -> None:
        self._server = server
        self._connections = 0
        listener = listen(host)
        self.port = int(listener.getsockname()[1])
        self.certificate, context = _new_identity(host, folder)
        self._loop = asyncio.new_event_loop()
        self._accepting = self._loop.run_until_complete(self._accept(listener, context))
        threading.Thread(target=self._loop.run_forever, name="gate", daemon=True).start()

    @property
    def is_used(self) -> bool:
        """Whether somebody is connected now."""
        return self._connections > 0

    async def _accept(self, listener: socket.socket, context: ssl.SSLContext) -> asyncio.Server:
        return await asyncio.start_server(
            self._pass, sock=listener, ssl=context, ssl_handshake_timeout=_HANDSHAKE_TIMEOUT_S, limit=_PIECE
        )

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections += 1
        try:
            server_reader, server_writer = await asyncio.open_connection(LOOPBACK, self._server.port, limit=_PIECE)
            try:
                # If the server still listens on its port, the server has accepted this connection.
                if self._server.is_there():
                    ways = [_copy(reader, server_writer), _copy(server_reader, writer)]
                    await _until_first([asyncio.ensure_future(way) for way in ways])
            finally:
                server_writer.close()
        except OSError:  # the server, or the client, has gone
            pass
        finally:
            self._connections -= 1
            writer.close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while piece := await reader.read(_PIECE):
            writer.write(piece)
            await writer.drain()


async def _until_first(tasks: list[asyncio.Future[None]]) -> None:
    """Wait until one direction has ended, then stop the other: HTTP/2 ends both directions at the same time."""
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in tasks:
        task.cancel()


def listen(host: str) -> socket.socket:
    """A socket that is bound to ``host``, on a port that the kernel chooses. Raises `OSError`."""
    family, _, _, _, address = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)[0]
    listener = socket.socket(family)
    try:
        listener.bind(address)
    except BaseException:
        listener.close()
        raise
    return listener


def _new_identity(host: str, folder: Path) -> tuple[bytes, ssl.SSLContext]:
    """A new key, its certificate in DER, and a context that has both. The key is on the disk while OpenSSL reads it."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "airflow-recovery")])
    now = datetime.datetime.now(datetime.timezone.utc)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _YEARS)
        .not_valid_after(now + _YEARS)
        .add_extension(x509.SubjectAlternativeName([_name_of(host)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.set_alpn_protocols(["h2"])
    file = folder / "identity.pem"
    with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as out:
        out.write(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        out.write(certificate.public_bytes(serialization.Encoding.PEM))
    try:
        context.load_cert_chain(file)
    finally:
        file.unlink()
    return certificate.public_bytes(serialization.Encoding.DER), context


def _name_of(host: str) -> x509.GeneralName:
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
