"""The gate of a run's own Spark, with sockets of this process in place of a server."""

from __future__ import annotations

import os
import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from gates import connect_to_gate

from airflow_recovery.driver.connect_session import remote_variables, session_url, with_certificate
from airflow_recovery.driver.server_gate import Gate, Listener, connect_listener
from airflow_recovery.testing.patience import wait_until

MANY = os.urandom(3_000_000)


@pytest.fixture
def server() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener


@pytest.fixture
def gate(server: socket.socket, tmp_path: Path) -> Gate:
    return Gate("127.0.0.1", Listener(psutil.Process(), server.getsockname()[1]), tmp_path)


def read(client: socket.socket, size: int) -> bytes:
    got = b""
    while len(got) < size and (piece := client.recv(size - len(got))):
        got += piece
    return got


def test_what_one_side_sends_the_other_one_gets(gate: Gate, server: socket.socket) -> None:
    client = connect_to_gate(gate.port, gate.certificate)
    behind, _ = server.accept()
    sending = threading.Thread(target=client.sendall, args=(MANY,))
    sending.start()
    assert read(behind, len(MANY)) == MANY
    sending.join()
    sending = threading.Thread(target=behind.sendall, args=(MANY[::-1],))
    sending.start()
    assert read(client, len(MANY)) == MANY[::-1]
    sending.join()
    assert client.selected_alpn_protocol() == "h2"
    assert gate.is_used
    client.close()
    assert behind.recv(1) == b""
    behind.close()
    wait_until(lambda: not gate.is_used, "the gate to be left")


def test_the_end_of_the_server_is_the_end_of_the_connection(gate: Gate, server: socket.socket) -> None:
    with connect_to_gate(gate.port, gate.certificate) as client:
        behind, _ = server.accept()
        behind.close()
        assert client.recv(1) == b""


def test_who_expects_another_certificate_does_not_connect(gate: Gate, server: socket.socket, tmp_path: Path) -> None:
    other = Gate("127.0.0.1", Listener(psutil.Process(), server.getsockname()[1]), tmp_path)
    with pytest.raises(ssl.SSLError, match="CERTIFICATE_VERIFY_FAILED"):
        connect_to_gate(gate.port, other.certificate)


def test_its_key_is_not_left_on_the_disk(gate: Gate, tmp_path: Path) -> None:
    assert gate.port
    assert not list(tmp_path.iterdir())


def test_a_port_that_says_nothing_or_speaks_otherwise_is_none_of_connects(server: socket.socket) -> None:
    """This process listens, and is silent. Its child does not listen at all."""
    assert connect_listener(os.getpid()) is None


# what clients are told of a certificate


URL = "sc://worker-1:15002/;use_ssl=true;token=abc"
SESSION = ";session_id=S;user_id=me"


def test_sparks_client_is_given_the_url_without_our_parameter(tmp_path: Path, gate: Gate) -> None:
    url = session_url(with_certificate(URL, gate.certificate), session_id="S", user_id="me")
    with remote_variables(url, {}) as variables:
        assert variables["SPARK_REMOTE"] == URL + SESSION
        believed = Path(variables["GRPC_DEFAULT_SSL_ROOTS_FILE_PATH"]).read_text()
    assert believed.startswith(ssl.DER_cert_to_PEM_cert(gate.certificate))
    assert believed.count("BEGIN CERTIFICATE") > 50  # those of gRPC itself


def test_a_program_goes_on_believing_what_it_is_told_to(tmp_path: Path, gate: Gate) -> None:
    own = tmp_path / "own.pem"
    own.write_text("its own")
    url = with_certificate(URL, gate.certificate)
    with remote_variables(url, {"GRPC_DEFAULT_SSL_ROOTS_FILE_PATH": str(own)}) as variables:
        believed = Path(variables["GRPC_DEFAULT_SSL_ROOTS_FILE_PATH"])
        assert believed.read_text() == ssl.DER_cert_to_PEM_cert(gate.certificate) + "its own"
    assert not believed.exists()
    with remote_variables(URL, {}) as variables:
        assert variables == {"SPARK_REMOTE": URL}
