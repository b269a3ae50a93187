"""Keeps one Spark Connect server for as long as its run needs it: ``python -m airflow_recovery.driver.server_keeper``.

A process of its own, since the task that starts a server ends before the tasks that use it. It talks with that task
over its standard input and output, one line of JSON at a time:

    task -> keeper   the `Order`
    keeper -> task   {"up": true, "port": ..., ...} (`Up`), or {"up": false, "code": ..., "output": [...]}
    task -> keeper   {"number": n}: the server is the n-th of its run, which others can find from now on

Until the last line the end of the input ends the server, so that a task which is killed leaves none behind. From then
on it ends when nobody is connected to it and the next slot of the run's log is filled (by the teardown, or by a server
that somebody has started in its place), when nobody has been connected for ``idle_s``, or when it is ``max_life_s``
old. The server is killed with this process, by the kernel. What a killed process has left on the disk, the next keeper
on the machine removes.

No other user of the machine can take the server's place. The kernel gives the server its port, and the keeper finds the
port by looking at its own child. Clients connect to the keeper's `Gate`, whose certificate they know from the journal.
The gate stays until the journal shows how the server has ended.
"""

from __future__ import annotations

import base64
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple, NoReturn

from airflow_recovery.driver.private_folder import own_folder, private_folder
from airflow_recovery.driver.process import die_with_parent
from airflow_recovery.driver.process_identity import own_process
from airflow_recovery.driver.server_gate import Gate, Listener, connect_listener
from airflow_recovery.driver.stores import open_spec_store
from airflow_recovery.errors import DriverLost, StoreError
from airflow_recovery.journal.scrub import scrubbed
from airflow_recovery.store.scheme import StoreSpec
from airflow_recovery.store.write_once import Slots

START_TIMEOUT_S = 300.0
"""Long: Spark may have to fetch ``packages`` first."""
STOP_TIMEOUT_S = 20.0
LOOK_EVERY_S = 1.0
OUTPUT_LINES = 20

_JVM_OPTIONS = "SPARK_SUBMIT_OPTS"


@dataclass(frozen=True)
class Order:
    """What is to be kept: ``command`` starts a server that listens on the loopback; others reach it at ``host``.

    ``prefix``, in the store of the journal, is that of the log of the run's servers. ``python_path`` is the server's
    own PYTHONPATH: the keeper has this package on its.
    """

    command: tuple[str, ...]
    host: str
    idle_s: float
    max_life_s: float
    store: StoreSpec
    prefix: str
    python_path: str | None = None


class Up(NamedTuple):
    """A server that is up: the port of its gate, the gate's certificate (DER), and its keeper (`own_process`)."""

    port: int
    certificate: bytes
    process: str | None


def end_key(prefix: str, number: int) -> str:
    """Where the keeper says how the run's n-th server has ended: ``{"why": ..., "code": ..., "output": [...]}``."""
    return f"{prefix}{number:08d}.end"


def servers_folder() -> Path:
    """Where this user's servers on this machine have their files. Raises as `private_folder`."""
    return private_folder("airflow-recovery-servers")


class Keeper:
    """One server, from its start to its end."""

    def __init__(
        self,
        order: Order,
        folder: Path,
        *,
        clock: Callable[[], float] = time.monotonic,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._order = order
        self._clock = clock
        self._pause = pause
        self._folder = folder
        self._log = folder / "log"
        self._began_s = clock()
        self._process = self._start(folder)

    def keep(self) -> None:
        """Until the server has ended, by itself or since nobody needs it."""
        number: int | None = None
        why = "its keeper was told to end"
        try:
            server = self.wait_up()
            if server is None:
                return
            gate = self._open_gate(server)
            line = _read_line()
            if line is None:
                return
            number = int(json.loads(line)["number"])
            why = self.wait_unneeded(number, gate)
        finally:
            self.stop()
            if number is not None:
                self._tell_end(number, why)

    def _start(self, folder: Path) -> subprocess.Popen[bytes]:
        scratch = folder / "tmp"
        scratch.mkdir()
        # Not as a setting: that would take the place of one in the user's own spark-defaults.conf.
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        if self._order.python_path is not None:
            environment["PYTHONPATH"] = self._order.python_path
        options = f"{os.environ.get(_JVM_OPTIONS, '')} -XX:+ExitOnOutOfMemoryError -Djava.io.tmpdir={scratch}"
        with self._log.open("wb") as out:
            return subprocess.Popen(
                self._order.command,
                cwd=folder,
                env={**environment, _JVM_OPTIONS: options.strip()},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                preexec_fn=die_with_parent,  # Spark's scripts exec the JVM: it keeps the process id and this request
            )

    def wait_up(self) -> Listener | None:
        """Until the server listens; `None` if it has ended, takes too long, or the task has gone."""
        deadline = time.monotonic() + START_TIMEOUT_S
        while (server := connect_listener(self._process.pid)) is None:
            if self._process.poll() is not None or time.monotonic() > deadline:
                self._say({"up": False, "code": self._process.poll(), "output": self._output()})
                return None
            if select.select([0], [], [], 0.1)[0]:  # nothing is said meanwhile: it is the end of the input
                return None
        return server

    def _open_gate(self, server: Listener) -> Gate:
        gate = Gate(self._order.host, server, self._folder)
        certificate = base64.b64encode(gate.certificate).decode()
        self._say({"up": True, "port": gate.port, "certificate": certificate, "process": own_process()})
        return gate

    def wait_unneeded(self, number: int, gate: Gate) -> str:
        """Until nobody needs the server, the ``number``-th of its run, or it has ended; why that is."""
        slots = Slots(open_spec_store(self._order.store), self._order.prefix)
        used_s = self._clock()
        while True:
            self._pause(LOOK_EVERY_S)
            if self._process.poll() is not None:
                return "it ended by itself"
            if self._clock() - self._began_s > self._order.max_life_s:
                return f"it was {self._order.max_life_s:.0f} s old, as [recovery] spark_max_life allows"
            if gate.is_used:
                used_s = self._clock()
            elif self._clock() - used_s > self._order.idle_s:
                return f"nobody was connected to it for {self._order.idle_s:.0f} s"
            elif _is_filled(slots, number + 1):
                return "its run does not need it any more"

    def stop(self) -> None:
        """End the server, if it has not ended."""
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
        self._process.wait()

    def _tell_end(self, number: int, why: str) -> None:
        document = {"why": why, "code": self._process.returncode, "output": self._output()}
        with suppress(StoreError):
            store = open_spec_store(self._order.store)
            store.put(end_key(self._order.prefix, number), json.dumps(document).encode())

    def _output(self) -> list[str]:
        lines = self._log.read_text(errors="replace").splitlines()
        return [scrubbed(line) for line in lines[-OUTPUT_LINES:]]

    def _say(self, document: Mapping[str, object]) -> None:
        with suppress(BrokenPipeError):
            os.write(1, json.dumps(document).encode() + b"\n")


class StartedKeeper:
    """A keeper as the task that starts it sees it. ``environment`` is the server's, with its token."""

    def __init__(self, order: Order, environment: Mapping[str, str]) -> None:
        root = str(Path(__file__).resolve().parents[2])
        path = os.pathsep.join(name for name in (root, environment.get("PYTHONPATH")) if name)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "airflow_recovery.driver.server_keeper"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # what kills the task's group does not kill it
            env={**environment, "PYTHONPATH": path},
        )
        self._tell({**asdict(order), "command": list(order.command)})

    @property
    def pid(self) -> int:
        """The keeper's process id."""
        return self._process.pid

    def wait_up(self) -> Up:
        """Wait until the server accepts connections. Raises `DriverLost`, with its output's end, if it does not."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        document = json.loads(line or '{"up": false, "code": null, "output": ["its keeper was killed"]}')
        if document["up"]:
            return Up(document["port"], base64.b64decode(document["certificate"]), document["process"])
        code = document["code"]
        raise DriverLost(
            "The run's own Spark did not come up: its spark-submit "
            + (f"ended with {code}" if code is not None else "did not answer")
            + ". Its last output:\n"
            + "\n".join(document["output"]),
            code="own-spark-did-not-start",
        )

    def leave(self, number: int) -> None:
        """It is the run's server of that number: it lives on without this process."""
        self._tell({"number": number})
        self._close()

    def end(self) -> None:
        """Nobody else has heard of it: end it, and wait for that."""
        self._close()
        self._process.wait()

    def _tell(self, document: Mapping[str, object]) -> None:
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # it has died: `wait_up` says so
            self._process.stdin.write(json.dumps(document).encode() + b"\n")
            self._process.stdin.flush()

    def _close(self) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            with suppress(BrokenPipeError):
                pipe.close()


def main() -> int:
    """Keep the server of the order that comes by standard input."""
    signal.signal(signal.SIGTERM, _stop)
    line = _read_line()
    if line is None:
        return 1
    document = json.loads(line)
    order = Order(**{**document, "command": tuple(document["command"]), "store": StoreSpec(**document["store"])})
    with own_folder(servers_folder(), "server") as folder:
        Keeper(order, folder).keep()
    return 0


def _read_line() -> str | None:
    """A line of standard input; `None` at its end. Nothing behind the line has been sent yet."""
    line = b""
    while not line.endswith(b"\n"):
        piece = os.read(0, 65536)
        if not piece:
            return None
        line += piece
    return line.decode()


def _is_filled(slots: Slots, number: int) -> bool:
    try:
        return slots.peek(number) is not None
    except StoreError:
        return False  # its credentials have expired, perhaps: nobody is connected for long, then


def _stop(number: int, frame: object) -> NoReturn:
    raise SystemExit(128 + number)


if __name__ == "__main__":
    sys.exit(main())
