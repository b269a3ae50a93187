"""A client of a `Gate`: it believes one certificate, as Spark's client does that is given one."""

from __future__ import annotations

import socket
import ssl


def connect_to_gate(port: int, certificate: bytes, host: str = "127.0.0.1") -> ssl.SSLSocket:
    """A connection. Raises `ssl.SSLError` if another certificate is shown."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cadata=ssl.DER_cert_to_PEM_cert(certificate))
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.set_alpn_protocols(["h2"])
    return context.wrap_socket(socket.create_connection((host, port)), server_hostname=host)
