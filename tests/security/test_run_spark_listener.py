"""Another user of the machine wants to be the run's Spark: on its port, behind its gate, in its slot, in its folder.

Programs of a few lines are in the server's place; `test_run_spark_server.py` has the attack on a real one.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from second_user import CONNECT_IMPOSTOR, OTHER_USER, OtherUser, needs_second_user, other_user

from airflow_recovery.driver import private_folder as private_folders
from airflow_recovery.driver import server_gate
from airflow_recovery.driver.connect_server import TOKEN_VARIABLE, ServerAddress
from airflow_recovery.driver.process_identity import own_process
from airflow_recovery.driver.server_gate import Gate, Listener, connect_listener
from airflow_recovery.driver.server_keeper import Order, StartedKeeper, Up, servers_folder
from airflow_recovery.errors import ConfigurationError
from airflow_recovery.journal.layout import JournalLayout
from airflow_recovery.model.records import RunIdentity
from airflow_recovery.store import open_store
from airflow_recovery.store.scheme import StoreSpec
from airflow_recovery.task import run_spark
from airflow_recovery.task.run_spark import RunSpark, ServerSlot, _body, _machine_secret
from airflow_recovery.testing.patience import NEVER_S, wait_until

TOKEN = "7" * 64
RUN = RunIdentity("d", "date-2024-01-01T000000Z", "g")
PREFIX = JournalLayout(RUN).servers
LOG = logging.getLogger("tests.run_spark_listener")
SERVER = """
import socket, threading, time
server = socket.create_server(("127.0.0.1", 0))
clients = []
while True:
    client, _ = server.accept()
    clients.append(client)
    client.sendall(b"\\0\\0\\0\\4\\0\\0\\0\\0\\0")
"""
LISTEN = (
    CONNECT_IMPOSTOR
    + """
pem = sys.stdin.read()
server = socket.create_server(("127.0.0.1", int(sys.argv[1])))
print("LISTENS", server.getsockname()[1], flush=True)
serve_all(server, tls(pem) if pem else None)
"""
)

pytestmark = needs_second_user


@pytest.fixture(autouse=True)
def _worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)


# the port behind the gate


@pytest.fixture
def server() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, "-c", SERVER])
    yield process
    process.kill()
    process.wait()


def gate_of(server: subprocess.Popen[bytes], folder: Path, host: str = "127.0.0.1") -> tuple[Gate, Listener]:
    found: list[Listener] = []

    def is_up() -> bool:
        listener = connect_listener(server.pid)
        found.extend([] if listener is None else [listener])
        return bool(found)

    wait_until(is_up, "the server to listen")
    return Gate(host, found[0], folder), found[0]


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
def test_the_server_itself_is_believed_by_name_and_by_address(tmp_path: Path, host: str) -> None:
    server = subprocess.Popen([sys.executable, "-c", LISTEN, "0"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    try:
        gate, _ = gate_of(server, tmp_path, host)
        address = ServerAddress(host, gate.port, TOKEN, gate.certificate)
        channel = address.connect()
        assert channel is not None
        channel.close()
        assert not address.lets_strangers_in()
    finally:
        server.kill()
        server.wait()


def shown_to_who_listens(address: ServerAddress, port: int, pem: str = "") -> str:
    """What another user sees who listens on ``port`` while a client connects to ``address``, and if he is believed."""
    with other_user(LISTEN, port, pass_input=pem) as other:
        other.wait_says("LISTENS")
        channel = address.connect()
        other.wait_says("ACCEPTED")
        if channel is not None:
            other.wait_says("TOKEN")
            channel.close()
        return f"{other.text()} believed={channel is not None}"


def shown_to_the_next_listener(server: subprocess.Popen[bytes], folder: Path) -> str:
    """What another user sees who listens on the server's port once it has died, while the gate is still there."""
    gate, listener = gate_of(server, folder)
    address = ServerAddress("127.0.0.1", gate.port, TOKEN, gate.certificate)
    server.kill()
    server.wait()
    return shown_to_who_listens(address, listener.port)


def test_fault_375_who_takes_the_port_of_a_server_that_died_is_shown_nothing(
    server: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    seen = shown_to_the_next_listener(server, tmp_path)
    assert "believed=False" in seen
    assert "GOT" not in seen


def test_fault_375_control_without_the_look_whose_port_it_is_he_has_the_token(
    server: subprocess.Popen[bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Listener, "is_there", lambda self: True)
    seen = shown_to_the_next_listener(server, tmp_path)
    assert "believed=True" in seen
    assert f"TOKEN {TOKEN}" in seen


def test_fault_375_a_port_of_another_process_is_never_taken_for_the_servers(server: subprocess.Popen[bytes]) -> None:
    """Even if it speaks as a Connect server does."""
    with other_user(LISTEN, 0) as other:
        other.wait_says("LISTENS")
        asleep = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(86400)"])
        try:
            assert connect_listener(asleep.pid) is None
        finally:
            asleep.kill()
            asleep.wait()


# the port of the gate


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[tuple[StartedKeeper, Up]]:
    command = (sys.executable, "-c", SERVER)
    order = Order(command, "127.0.0.1", NEVER_S, NEVER_S, StoreSpec(f"file://{tmp_path}/journal"), PREFIX)
    keeper = StartedKeeper(order, {**os.environ, TOKEN_VARIABLE: TOKEN})
    yield keeper, keeper.wait_up()
    keeper.end()


def identity_of_another(folder: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[bytes, str]:
    """A certificate for the same address (DER), and its file with the key: the attacker has made his own."""
    files: list[str] = []
    with monkeypatch.context() as patched:
        patched.setattr(Path, "unlink", lambda self: files.append(self.read_text()))
        certificate, _ = server_gate._new_identity("127.0.0.1", folder)
    return certificate, files[0]


def shown_to_the_next_gate(kept: tuple[StartedKeeper, Up], pem: str, believed: bytes | None = None) -> str:
    """What another user sees who listens on the gate's port once its keeper was killed."""
    keeper, up = kept
    address = ServerAddress("127.0.0.1", up.port, TOKEN, up.certificate if believed is None else believed)
    os.kill(keeper.pid, signal.SIGKILL)
    keeper._process.wait()
    return shown_to_who_listens(address, up.port, pem)


@pytest.mark.parametrize("speaks_tls", [True, False])
def test_fault_375_who_takes_the_port_of_a_gate_is_shown_nothing(
    kept: tuple[StartedKeeper, Up], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, speaks_tls: bool
) -> None:
    _, pem = identity_of_another(tmp_path, monkeypatch)
    seen = shown_to_the_next_gate(kept, pem if speaks_tls else "")
    assert "believed=False" in seen
    assert "TOKEN" not in seen


def test_fault_375_control_who_believes_any_certificate_shows_him_the_token(
    kept: tuple[StartedKeeper, Up], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificate, pem = identity_of_another(tmp_path, monkeypatch)
    seen = shown_to_the_next_gate(kept, pem, believed=certificate)
    assert "believed=True" in seen
    assert f"TOKEN {TOKEN}" in seen


# what everybody may read


READ_ALL = r"""
import glob, os, sys
for path in glob.glob("/proc/[0-9]*/cmdline") + glob.glob("/proc/[0-9]*/environ"):
    try:
        print(path, open(path, "rb").read())
    except OSError:
        pass
for folder, _, names in os.walk(sys.argv[1]):
    for name in names:
        try:
            print(name, open(os.path.join(folder, name), "rb").read())
        except OSError:
            pass
print("THE END")
"""


@pytest.fixture
def open_temporary_folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """As ``/tmp`` is: everybody may enter it, and write."""
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        folder = Path(name)
        folder.chmod(0o1777)
        monkeypatch.setenv("TMPDIR", name)
        monkeypatch.setattr(tempfile, "tempdir", None)
        yield folder


def read_by_another(folder: Path) -> str:
    return OtherUser(READ_ALL, folder).wait()


def test_fault_375_another_user_reads_neither_token_nor_secret_nor_port(
    open_temporary_folder: Path, kept: tuple[StartedKeeper, Up]
) -> None:
    secret = _machine_secret()
    assert secret == _machine_secret()
    read = read_by_another(open_temporary_folder)
    assert "airflow_recovery.driver.server_keeper" in read  # he has seen the arguments
    assert read.endswith("THE END\n")
    assert TOKEN not in read
    assert secret not in read
    assert "PRIVATE KEY" not in read


def test_fault_375_control_an_argument_and_an_open_folder_are_read(
    open_temporary_folder: Path,
) -> None:
    secret = _machine_secret()
    folder = servers_folder()
    folder.chmod(0o755)
    (folder / "secret").chmod(0o644)
    asleep = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(86400)", TOKEN])
    try:
        read = read_by_another(open_temporary_folder)
    finally:
        asleep.kill()
        asleep.wait()
    assert TOKEN in read
    assert secret in read


# the folder


PLANT = r"""
import os, sys
folder, target = sys.argv[1:]
os.symlink(target, folder) if target else os.mkdir(folder, 0o777)
os.umask(0)
print("PLANTED", flush=True)
"""


@pytest.mark.parametrize("is_link", [True, False])
def test_fault_379_a_folder_that_another_user_has_made_is_refused(open_temporary_folder: Path, is_link: bool) -> None:
    elsewhere = open_temporary_folder / "elsewhere"
    elsewhere.mkdir(mode=0o700)
    planted = open_temporary_folder / f"airflow-recovery-servers-{os.getuid()}"
    OtherUser(PLANT, planted, elsewhere if is_link else "").wait()
    with pytest.raises(ConfigurationError, match="another owner: remove it, or set TMPDIR"):
        _machine_secret()


def test_fault_379_control_in_a_folder_that_is_not_looked_at_he_writes_the_secret(
    open_temporary_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    planted = open_temporary_folder / f"airflow-recovery-servers-{os.getuid()}"
    write = "import os, sys; os.mkdir(sys.argv[1]); open(sys.argv[1] + '/secret', 'w').write('known')"
    OtherUser(write, planted).wait()
    monkeypatch.setattr(run_spark, "servers_folder", lambda: planted)
    assert _machine_secret() == "known"


# the slot


@pytest.fixture
def journal(tmp_path: Path) -> Any:
    spec = StoreSpec(f"file://{tmp_path}/journal")
    return SimpleNamespace(journal=open_store(spec.uri), journal_spec=spec, results_spec=spec, results=None)


def found_after_forgery(journal: Any, certificate: bytes, pem: str, *, secret: str, forged_with: str) -> str:
    """What another user sees who has written a slot with an address of his own, signed with ``forged_with``."""
    import base64

    with other_user(LISTEN, 0, pass_input=pem) as other:
        other.wait_says("LISTENS")
        port = int(other.text().split()[1])
        slot = ServerSlot("5a17", "127.0.0.1", port, "w", 1, base64.b64encode(certificate).decode(), format=2)
        forger = RunSpark(journal, RUN, secret=forged_with, log=LOG)
        journal.journal.put_if_absent(f"{PREFIX}00000001", _body(replace(slot, signature=forger._signature(slot))))
        address = RunSpark(journal, RUN, secret=secret, log=LOG).find()
        if address is not None:
            other.wait_says("TOKEN")
        return f"{other.text()} believed={address is not None}"


def test_fault_379_a_slot_that_is_not_signed_with_the_secret_is_not_followed(
    journal: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    certificate, pem = identity_of_another(tmp_path, monkeypatch)
    seen = found_after_forgery(journal, certificate, pem, secret=_machine_secret(), forged_with="")
    assert "believed=False" in seen
    assert "ACCEPTED" not in seen
    assert "expected to be signed with the secret of this run's Spark" in caplog.text


def test_fault_379_control_without_a_secret_who_writes_the_journal_is_the_runs_spark(
    journal: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificate, pem = identity_of_another(tmp_path, monkeypatch)
    seen = found_after_forgery(journal, certificate, pem, secret="", forged_with="")
    assert "believed=True" in seen
    assert "TOKEN" in seen


def test_a_slot_of_the_version_before_is_not_followed(journal: Any) -> None:
    """Its server could not prove anything: it is left alone, and another one is started."""
    with other_user(LISTEN, 0) as other:
        other.wait_says("LISTENS")
        slot = ServerSlot("5a17", "127.0.0.1", int(other.text().split()[1]), "w", 1)
        journal.journal.put_if_absent(f"{PREFIX}00000001", _body(slot))
        assert RunSpark(journal, RUN, secret="", log=LOG).find() is None
        assert "ACCEPTED" not in other.text()


@pytest.mark.parametrize("how", ["its end is recorded", "its keeper is gone"])
def test_fault_375_a_server_whose_end_is_known_is_not_asked(
    journal: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """Not even if what listens there now could prove that it is the one."""
    import base64

    certificate, pem = identity_of_another(tmp_path, monkeypatch)
    mine = own_process()
    assert mine is not None
    place, _, started = mine.rpartition("/")
    gone = f"{place}/{int(started) - 1}"
    spark = RunSpark(journal, RUN, secret="", log=LOG)
    with other_user(LISTEN, 0, pass_input=pem) as other:
        other.wait_says("LISTENS")
        port = int(other.text().split()[1])
        slot = ServerSlot(
            "5a17", "127.0.0.1", port, "w", 1, base64.b64encode(certificate).decode(),
            gone if how == "its keeper is gone" else mine, format=2,
        )  # fmt: skip
        journal.journal.put_if_absent(f"{PREFIX}00000001", _body(replace(slot, signature=spark._signature(slot))))
        if how == "its end is recorded":
            journal.journal.put_if_absent(f"{PREFIX}00000001.end", json.dumps({"why": "it was killed"}).encode())
        assert spark.find() is None
        assert "ACCEPTED" not in other.text()


def test_the_other_user_is_another_one() -> None:
    said = OtherUser("import os; print(os.getuid(), os.geteuid(), os.getgroups())").wait()
    assert said == f"{OTHER_USER} {OTHER_USER} []\n"
    assert psutil.Process().uids().real != OTHER_USER
    assert private_folders.private_folder().stat().st_mode & 0o077 == 0
