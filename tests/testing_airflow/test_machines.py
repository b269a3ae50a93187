"""What the workers of a `LocalAirflow` are made of: machines, links, a broker. No Airflow is started here."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import redis

from airflow_recovery.driver.process_identity import is_gone
from airflow_recovery.testing.local_airflow import LocalAirflow, LocalAirflowError
from airflow_recovery.testing.local_airflow.link import Link
from airflow_recovery.testing.local_airflow.machine import Machine
from airflow_recovery.testing.local_airflow.processes import Processes
from airflow_recovery.testing.local_airflow.redis import BROKER, RedisBroker
from airflow_recovery.testing.patience import HANG_S, wait_until

pytestmark = pytest.mark.slow


def machine(home: Path, name: str, scratch_bytes: int | None = None) -> Machine:
    dags = home.parent / "dags"
    dags.mkdir(exist_ok=True)
    (home / "logs").mkdir(parents=True, exist_ok=True)
    made = Machine(name, home / "machines", home=home, dags_folder=dags, scratch_bytes=scratch_bytes)
    made.prepare()
    return made


def run_on(place: Machine, script: str) -> str:
    command = place.command(["bash", "-euc", script])
    env = place.environment(dict(os.environ))
    return subprocess.run(command, env=env, stdout=subprocess.PIPE, text=True, check=True, timeout=HANG_S).stdout


def test_machines_have_a_name_and_a_disk_of_their_own_and_the_dags_as_they_were_deployed(tmp_path: Path) -> None:
    home, dags = tmp_path / "home", tmp_path / "dags"
    dags.mkdir()
    (dags / "dag.py").write_text("deployed")
    first, second = machine(home, "first"), machine(home, "second")
    (dags / "dag.py").write_text("newer")

    written = run_on(first, f"echo mine >{home}/file; echo x >$TMPDIR/x; echo a >{home}/logs/a; hostname; cat {dags}/*")
    seen = run_on(second, f"hostname; ls {home} $TMPDIR; cat {dags}/*")

    assert written.split() == ["first", "deployed"]
    assert seen.split() == ["second", f"{home}:", "logs", "tmp", f"{home}/tmp:", "deployed"]
    assert run_on(first, f"cat {home}/file").split() == ["mine"]
    assert not (home / "file").exists()
    assert (home / "logs" / "a").exists()  # the one exception


OWN = "from airflow_recovery.driver.process_identity import own_process; print(own_process(), flush=True)"
IS_GONE = "import sys; from airflow_recovery.driver.process_identity import is_gone; print(is_gone(sys.argv[1]))"


def test_a_process_of_a_machine_that_lives_is_unknown_on_another_and_here(tmp_path: Path) -> None:
    """Although the process has ended: there, nobody but its own machine can tell."""
    first, second = machine(tmp_path / "home", "first"), machine(tmp_path / "home", "second")
    command = first.command(["bash", "-c", f"python -c '{OWN}'; read"])
    env = first.environment(dict(os.environ))
    with subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as lives:
        assert lives.stdout is not None
        told = lives.stdout.readline().strip()
        assert told.count("/") == 3
        assert run_on(second, f"python -c '{IS_GONE}' {told}").strip() == "False"
        assert not is_gone(told)
        lives.kill()


def test_control_on_its_own_machine_it_is_known_to_be_gone(tmp_path: Path) -> None:
    both = f"told=$(python -c '{OWN}'); python -c '{IS_GONE}' $told"
    assert run_on(machine(tmp_path / "home", "first"), both).strip() == "True"


def test_a_machine_that_is_killed_ends_with_all_its_processes(tmp_path: Path) -> None:
    processes = Processes(tmp_path)
    place = machine(tmp_path / "home", "first")
    # One of them has left its session and its parent.
    script = f"setsid sleep 86400 & disown; sleep 86400 & touch {tmp_path}/home/logs/up; wait"
    processes.start("first", place.command(["bash", "-c", script]), place.environment(dict(os.environ)), tmp_path)
    try:
        wait_until((tmp_path / "home" / "logs" / "up").exists, "the machine to be up")
        unshare = psutil.Process(processes.running["first"].pid)
        inside = unshare.children(recursive=True)
        assert len(inside) >= 3
        processes.kill("first", signal.SIGKILL)
        wait_until(lambda: not any(process.is_running() for process in inside), f"the end of {inside}")
    finally:
        processes.stop()


def test_a_machine_that_is_frozen_does_nothing_and_goes_on_afterwards(tmp_path: Path) -> None:
    processes = Processes(tmp_path)
    place = machine(tmp_path / "home", "first")
    beats = tmp_path / "home" / "logs" / "beats"
    script = f"(while :; do echo >>{beats}; sleep 0.01; done) & setsid bash -c 'while :; do sleep 0.01; done' & wait"
    processes.start("first", place.command(["bash", "-c", script]), place.environment(dict(os.environ)), tmp_path)
    try:
        wait_until(beats.exists, "a beat")
        with processes.frozen("first"):
            inside = psutil.Process(processes.running["first"].pid).children(recursive=True)
            assert len(inside) >= 3
            assert {process.status() for process in inside} <= {psutil.STATUS_STOPPED, psutil.STATUS_ZOMBIE}
            written = beats.stat().st_size
            time.sleep(0.3)
            assert beats.stat().st_size == written
        assert processes.is_running("first")
        wait_until(lambda: beats.stat().st_size > written, "a beat of the machine that goes on")
    finally:
        processes.stop()


def test_a_temporary_folder_that_is_full(tmp_path: Path) -> None:
    small = machine(tmp_path / "home", "small", scratch_bytes=1 << 20)
    said = run_on(small, "head -c 2000000 /dev/zero >$TMPDIR/ballast 2>&1 || stat -c %s $TMPDIR/ballast; echo >~/file")
    assert said.split()[-1] == str(1 << 20)


@pytest.fixture
def echo() -> Iterator[int]:
    """The port of a server that sends back what it gets."""
    listening = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                near, _ = listening.accept()
            except OSError:
                return
            threading.Thread(target=answer, args=(near,), daemon=True).start()

    def answer(near: socket.socket) -> None:
        with near:
            while data := near.recv(100):
                near.sendall(data)

    threading.Thread(target=serve, daemon=True).start()
    yield int(listening.getsockname()[1])
    listening.shutdown(socket.SHUT_RDWR)
    listening.close()


def test_a_link_that_is_cut_carries_nothing_and_says_nothing_and_goes_on_when_it_is_mended(echo: int) -> None:
    link = Link(echo)
    try:
        with socket.create_connection(("127.0.0.1", link.port), timeout=HANG_S) as before:
            before.sendall(b"one")
            assert before.recv(100) == b"one"
            link.cut()
            before.settimeout(0.5)
            before.sendall(b"two")
            with pytest.raises(TimeoutError):
                before.recv(100)
            with socket.create_connection(("127.0.0.1", link.port), timeout=HANG_S) as meanwhile:
                meanwhile.settimeout(0.5)
                meanwhile.sendall(b"three")
                with pytest.raises(TimeoutError):
                    meanwhile.recv(100)
                link.mend()
                before.settimeout(HANG_S)
                meanwhile.settimeout(HANG_S)
                assert (before.recv(100), meanwhile.recv(100)) == (b"two", b"three")
    finally:
        link.close()
    with pytest.raises(OSError):  # noqa: PT011 - whichever the kernel says
        socket.create_connection(("127.0.0.1", link.port), timeout=HANG_S)


def test_a_link_whose_other_end_is_gone_says_so() -> None:
    with socket.create_server(("127.0.0.1", 0)) as nobody:
        port = int(nobody.getsockname()[1])
    link = Link(port)
    try:
        with socket.create_connection(("127.0.0.1", link.port), timeout=HANG_S) as near:
            assert near.recv(100) == b""
    finally:
        link.close()


def test_the_broker_asks_for_its_password_and_keeps_nothing(tmp_path: Path) -> None:
    processes = Processes(tmp_path)
    broker = RedisBroker(tmp_path)
    try:
        broker.start(processes)
        _, _, place = broker.url.rpartition("@")
        port = int(place.partition(":")[2].partition("/")[0])
        with socket.create_connection(("127.0.0.1", port), timeout=HANG_S) as stranger:
            stranger.sendall(b"PING\r\n")
            assert b"NOAUTH" in stranger.recv(100)
        password = broker.url.removeprefix("redis://:").partition("@")[0]
        assert password not in " ".join(psutil.Process(processes.running[BROKER].pid).cmdline())
    finally:
        processes.stop()
    assert [path.name for path in tmp_path.iterdir() if path.suffix in (".rdb", ".aof")] == []


def test_a_broker_that_was_lost_is_back_at_its_place_and_empty(tmp_path: Path) -> None:
    processes = Processes(tmp_path)
    broker = RedisBroker(tmp_path)
    try:
        broker.start(processes)
        client = redis.Redis.from_url(broker.url)
        client.lpush("default", "a task")
        with broker.down(processes), pytest.raises(redis.ConnectionError):
            client.llen("default")
        assert client.llen("default") == 0
    finally:
        processes.stop()


def test_what_workers_need_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="2 workers need database='postgresql'"):
        LocalAirflow(tmp_path, tmp_path, workers=2)
    with pytest.raises(LocalAirflowError, match=r"expected an Airflow with workers.*workers=2"):
        LocalAirflow(tmp_path, tmp_path).add_worker()
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(LocalAirflowError, match="expected redis-server"):
        RedisBroker(tmp_path).start(Processes(tmp_path))
