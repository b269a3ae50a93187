"""The process that keeps a run's own Spark, with a program of a few lines in the server's place."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
from expected_errors import fails_with
from gates import connect_to_gate

from airflow_recovery.driver.server_gate import Gate, connect_listener
from airflow_recovery.driver.server_keeper import Keeper, Order, StartedKeeper, end_key, servers_folder
from airflow_recovery.store import open_store
from airflow_recovery.store.scheme import StoreSpec
from airflow_recovery.testing.patience import NEVER_S, wait_until

PREFIX = "_servers/d/r/g/"
SERVER = """
import os, socket, sys, threading
print("listening with", os.environ.get("SPARK_SUBMIT_OPTS"), os.environ.get("PYTHONPATH"), flush=True)
silent = socket.create_server(("127.0.0.1", 0))  # a driver has other ports, too
server = socket.create_server(("127.0.0.1", 0))
clients = []
while True:
    client, _ = server.accept()
    clients.append(client)
    def read(client=client):
        try:
            client.sendall(b"\\0\\0\\0\\4\\0\\0\\0\\0\\0")  # HTTP/2's settings
            said = client.recv(9)
        except ConnectionError:
            said = b""
        if said:
            print("password=hunter2-of-the-server", flush=True)
            os._exit(int(said))
        client.close()
    threading.Thread(target=read, daemon=True).start()
"""
STARTER = """
import json, os, sys, time
from airflow_recovery.store.scheme import StoreSpec
from airflow_recovery.driver.server_keeper import Order, StartedKeeper
order = json.loads(sys.argv[1])
order["store"] = StoreSpec(**order["store"])
keeper = StartedKeeper(Order(**order), os.environ)
keeper.wait_up()
print(keeper.pid, flush=True)
time.sleep(86400)
"""


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)


@pytest.fixture
def order(tmp_path: Path) -> Order:
    command = (sys.executable, "-c", SERVER)
    return Order(command, "127.0.0.1", NEVER_S, NEVER_S, StoreSpec(f"file://{tmp_path}/journal"), PREFIX)


def started(order: Order) -> tuple[StartedKeeper, psutil.Process]:
    """A keeper whose server is up, and the server."""
    keeper = StartedKeeper(order, os.environ)
    keeper.wait_up()
    (server,) = psutil.Process(keeper.pid).children()
    return keeper, server


def is_gone(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def end_of(order: Order, number: int) -> dict[str, Any]:
    path = Path(order.store.uri.removeprefix("file://")) / end_key(PREFIX, number)
    wait_until(path.exists, f"{path}")
    document: dict[str, object] = json.loads(path.read_text())
    return document


def fill_slot(order: Order, number: int) -> None:
    open_store(order.store.uri).put_if_absent(f"{PREFIX}{number:08d}", b"{}")


def leftovers() -> list[Path]:
    return list(servers_folder().glob("server-*"))


def test_a_server_that_nobody_has_recorded_ends_with_the_task_that_started_it(order: Order) -> None:
    keeper, server = started(order)
    assert leftovers()
    keeper.end()
    assert is_gone(server.pid)
    assert not leftovers()


@pytest.mark.slow
def test_fault_144_a_task_is_killed_before_it_has_recorded_its_server(order: Order) -> None:
    document = json.dumps({**order.__dict__, "store": order.store.__dict__})
    task = subprocess.Popen([sys.executable, "-c", STARTER, document], stdout=subprocess.PIPE)
    assert task.stdout is not None
    keeper = int(task.stdout.readline())
    (server,) = psutil.Process(keeper).children()
    task.kill()
    task.wait()
    wait_until(lambda: is_gone(keeper) and is_gone(server.pid), "the end of keeper and server")
    assert not leftovers()


@pytest.mark.slow
def test_fault_144_a_keeper_is_killed_and_its_server_dies_with_it(order: Order) -> None:
    keeper, server = started(order)
    keeper.leave(1)
    os.kill(keeper.pid, signal.SIGKILL)
    wait_until(lambda: is_gone(server.pid), "the end of the server")
    assert leftovers()  # nobody was there to remove them

    other, _ = started(order)
    assert len(leftovers()) == 1
    other.end()
    assert not leftovers()


def test_a_server_lives_on_without_the_task_and_ends_when_it_is_idle(order: Order) -> None:
    keeper, server = started(replace(order, idle_s=0.5))
    keeper.leave(1)
    assert end_of(order, 1)["why"] == "nobody was connected to it for 0 s"
    assert is_gone(server.pid)
    wait_until(lambda: not leftovers(), "the folder to be removed")


class Looks:
    """A clock that goes on by the keeper's pauses, and a client that leaves within one of them."""

    def __init__(self, order: Order, folder: Path, *, leaves_at_s: float) -> None:
        self.now_s = 0.0
        self._leaves_at_s = leaves_at_s
        folder.mkdir()
        self.keeper = Keeper(order, folder, clock=lambda: self.now_s, pause=self._pause)
        wait_until(self._is_up, "the server to listen")
        self._gate = Gate(order.host, self._server, folder)
        self._client = connect_to_gate(self._gate.port, self._gate.certificate)
        assert self._client.recv(9)[3] == 4  # until it is accepted, the kernel has it, and not the server

    def _is_up(self) -> bool:
        server = connect_listener(self.keeper._process.pid)
        if server is not None:
            self._server = server
        return server is not None

    def _pause(self, seconds: float) -> None:
        self.now_s += seconds
        if self.now_s == self._leaves_at_s:
            self._client.close()
            wait_until(lambda: not self._gate.is_used, "the gate to see that")

    def wait_unneeded(self, number: int) -> str:
        return self.keeper.wait_unneeded(number, self._gate)


def test_a_server_is_not_idle_while_somebody_is_connected(order: Order, tmp_path: Path) -> None:
    looks = Looks(replace(order, idle_s=5.0), tmp_path / "server", leaves_at_s=30)
    assert looks.wait_unneeded(1) == "nobody was connected to it for 5 s"
    looks.keeper.stop()
    assert looks.now_s == 30 - 1 + 6  # the first look at which it is more than five seconds


def test_fault_146_a_server_that_its_run_does_not_need_ends_when_the_last_one_has_left(
    order: Order, tmp_path: Path
) -> None:
    looks = Looks(order, tmp_path / "server", leaves_at_s=7)
    fill_slot(order, 4)
    assert looks.wait_unneeded(3) == "its run does not need it any more"
    looks.keeper.stop()
    assert looks.now_s == 7


def test_a_server_ends_when_it_is_old_whoever_is_connected(order: Order, tmp_path: Path) -> None:
    looks = Looks(replace(order, max_life_s=60), tmp_path / "server", leaves_at_s=NEVER_S)
    assert looks.wait_unneeded(1) == "it was 60 s old, as [recovery] spark_max_life allows"
    looks.keeper.stop()
    assert looks.now_s == 61


def test_a_server_that_has_ended_is_seen_to_have_ended_before_anything_else(order: Order, tmp_path: Path) -> None:
    """Even if it was idle as well, old, and its run needed it no more."""
    looks = Looks(replace(order, max_life_s=0.5, idle_s=0.5), tmp_path / "server", leaves_at_s=1)
    fill_slot(order, 2)
    looks.keeper.stop()
    assert looks.wait_unneeded(1) == "it ended by itself"


@pytest.mark.slow
def test_how_a_server_has_ended_is_told_without_its_secrets(order: Order) -> None:
    keeper = StartedKeeper(replace(order, python_path="/of/the/server"), os.environ)
    up = keeper.wait_up()
    keeper.leave(1)
    with connect_to_gate(up.port, up.certificate) as client:
        client.sendall(b"3")
        end = end_of(order, 1)
    assert (end["why"], end["code"]) == ("it ended by itself", 3)
    listening, secret = end["output"]
    assert "-XX:+ExitOnOutOfMemoryError -Djava.io.tmpdir=" in listening
    assert listening.endswith(" /of/the/server")
    assert "hunter2" not in secret


def test_a_server_that_does_not_come_up_says_why(order: Order) -> None:
    command = (sys.executable, "-c", "print('no such master'); raise SystemExit(7)")
    keeper = StartedKeeper(replace(order, command=command), os.environ)
    with fails_with("own-spark-did-not-start"):
        keeper.wait_up()
    keeper.end()
    assert not leftovers()


def test_the_folder_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (tmp_path / f"airflow-recovery-servers-{os.getuid()}").symlink_to(elsewhere)
    with fails_with("folder-not-private"):
        servers_folder()
