"""A server on 127.0.0.1 that writes down all that it is sent, for every host: as a web server, and as a proxy.

As a proxy it answers ``CONNECT`` itself: it shows a certificate for whatever host is asked for, made by an authority of
its own (`RecordingServer.authority`). So a client that trusts it sends what it would send to that host.
"""

from __future__ import annotations

import socketserver
import ssl
import threading
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

_DENIED = b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


@dataclass(frozen=True)
class Sent:
    """One request: the host that it was meant for, its first line and its headers, in lower case."""

    host: str
    line: str
    headers: dict[str, str]

    @property
    def text(self) -> str:
        return "\n".join([self.line, *(f"{name}: {value}" for name, value in self.headers.items())])


@dataclass
class RecordingServer:
    """``answers``: by a part of the first line, the whole answer; all other requests are denied (403)."""

    folder: Path
    answers: dict[str, bytes] = field(default_factory=dict)
    sent: list[Sent] = field(default_factory=list)
    asked_for: list[str] = field(default_factory=list)
    """The hosts of ``CONNECT``: with them a client has done no more than to connect."""

    def __enter__(self) -> RecordingServer:
        self._key, self._certificate = _authority()
        self.authority = self.folder / "authority.pem"
        self.authority.write_bytes(self._certificate.public_bytes(serialization.Encoding.PEM))
        recorder = self

        class Handler(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                recorder._handle(self.request)

        class Server(socketserver.ThreadingTCPServer):
            allow_reuse_address = True
            daemon_threads = True

        self._server = Server(("127.0.0.1", 0), Handler)
        self.port = int(self._server.server_address[1])
        self.url = f"http://127.0.0.1:{self.port}"
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    @property
    def secrets(self) -> str:
        """All that was sent, as one text."""
        return "\n".join(each.text for each in self.sent)

    def _handle(self, connection: Any) -> None:
        try:
            line, headers = _read(connection)
            host = headers.get("host", "")
            if line.startswith("CONNECT "):
                host = line.split()[1].rpartition(":")[0]
                self.asked_for.append(host)
                connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
                connection = self._context(host).wrap_socket(connection, server_side=True)
                line, headers = _read(connection)
            if not line:
                return
            self.sent.append(Sent(host, line, headers))
            connection.sendall(next((said for part, said in self.answers.items() if part in line), _DENIED))
            connection.close()
        except OSError:
            return

    def _context(self, host: str) -> ssl.SSLContext:
        key = ec.generate_private_key(ec.SECP256R1())
        names = x509.SubjectAlternativeName([x509.DNSName(host)])
        certificate = _certificate(host, key, self._certificate.subject, self._key, (names, False))
        path = self.folder / f"{host}.pem"
        path.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
            + certificate.public_bytes(serialization.Encoding.PEM)
        )
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(path)
        return context


def redirect(url: str, status: str = "307 Temporary Redirect", **headers: str) -> bytes:
    """An answer that sends the client elsewhere."""
    lines = [f"HTTP/1.1 {status}", f"Location: {url}", "Content-Length: 0", "Connection: close"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def content(body: bytes, **headers: str) -> bytes:
    """An answer with a body."""
    lines = ["HTTP/1.1 200 OK", f"Content-Length: {len(body)}", "Connection: close"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return ("\r\n".join(lines) + "\r\n\r\n").encode() + body


def _read(connection: Any) -> tuple[str, dict[str, str]]:
    text = b""
    while b"\r\n\r\n" not in text:
        piece = connection.recv(65536)
        if not piece:
            return "", {}
        text += piece
    line, *lines = text.partition(b"\r\n\r\n")[0].decode("latin-1").split("\r\n")
    pairs = (each.partition(":")[::2] for each in lines)
    return line, {name.strip().lower(): value.strip() for name, value in pairs}


def _authority() -> tuple[ec.EllipticCurvePrivateKey, x509.Certificate]:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "tests")])
    return key, _certificate("tests", key, name, key, (x509.BasicConstraints(ca=True, path_length=None), True))


def _certificate(
    name: str,
    key: ec.EllipticCurvePrivateKey,
    issuer: x509.Name,
    issuers_key: ec.EllipticCurvePrivateKey,
    extension: tuple[x509.ExtensionType, bool],
) -> x509.Certificate:
    now = datetime.now(timezone.utc)
    return (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(extension[0], critical=extension[1])
        .sign(issuers_key, hashes.SHA256())
    )
