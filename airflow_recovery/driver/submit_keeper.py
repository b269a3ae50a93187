"""Keeps one spark-submit, so that its driver outlives its task: ``python submit_keeper.py ORDER COMMAND ...``.

In client mode the driver is a child of this process, and this process has a session of its own. So a signal to the
task, or to its process group, does not reach the driver.

    while the task lives      this process copies the output of ``COMMAND`` to the task
    when the task has gone    it gives the heartbeats that the task gave, and looks whether a next try follows
    nobody follows any more   after ``left_alone_s`` seconds without a sign of a next try it ends the driver

The kernel kills the driver when this process is killed. This process ends as ``COMMAND`` does, with its exit code or by
its signal. It imports the standard library only, until the task has gone: there is one such process for each driver.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from airflow_recovery.driver.heartbeat import Heartbeat
    from airflow_recovery.journal.journal import Journal

LOOK_EVERY_S = 5.0
TASK_CHECK_EVERY_S = 0.5
END_TIMEOUT_S = 10.0
_SHOWN_LINES = 20


class Order(NamedTuple):
    """What is kept, as plain JSON values. ``holds``: files and folders that the driver uses, which nobody may remove.

    ``data`` is the prefix of the attempt's data. ``journal`` and ``results`` are the fields of a `StoreSpec`.
    ``gives_signs``: the application gives no heartbeats by
    itself; then ``rests_on`` is what the heartbeats say that it was started with. Times are in seconds.
    """

    task_pid: int
    holds: list[str]
    left_alone_s: float
    identity: list[str]
    region: str
    attempt: int
    data: str
    tag: str
    every_s: float
    journal: dict[str, Any]
    results: dict[str, Any]
    gives_signs: bool = False
    rests_on: str | None = None


def order_name(tag: str) -> str:
    """The name of the file with the order for the attempt of that ``tag``: by it `keeper_of` finds the keeper."""
    return f"keep-{tag}.json"


def keeper_command(order_file: str) -> list[str]:
    """What stands before the command of spark-submit, where a keeper is to run it."""
    return [sys.executable, os.path.abspath(__file__), order_file]


def keeper_of(tag: str) -> int | None:
    """The id of the keeper of the attempt of that ``tag``, if it runs on this machine and in this container.

    A process of another user is none, whatever its arguments are: everybody may read those of a keeper, and begin a
    process with the same ones. `None` also if the system has no ``/proc``.
    """
    ours, order = os.path.basename(__file__).encode(), order_name(tag).encode()
    with suppress(OSError):
        for pid in filter(str.isdecimal, os.listdir("/proc")):
            with suppress(OSError), open(f"/proc/{pid}/cmdline", "rb") as file:
                names = [os.path.basename(argument) for argument in file.read().split(b"\0")[1:3]]
                if names == [ours, order] and _is_of_this_user(pid):
                    return int(pid)
    return None


def _is_of_this_user(pid: str) -> bool:
    return os.stat(f"/proc/{pid}").st_uid == os.geteuid()


def end_keeper_of(tag: str) -> None:
    """Kill the keeper of the attempt of that ``tag`` with its driver, if it runs here; wait until it is gone."""
    pid = keeper_of(tag)
    if pid is None:
        return
    end_group(pid)
    deadline = time.monotonic() + END_TIMEOUT_S
    while keeper_of(tag) is not None and time.monotonic() < deadline:
        time.sleep(0.05)


def end_group(pid: int) -> None:
    """Kill the keeper ``pid`` and all processes of its group, which are its driver's."""
    with suppress(ProcessLookupError, PermissionError):
        if os.getpgid(pid) == pid:
            os.killpg(pid, signal.SIGKILL)


class _Child:
    """The command that is kept. ``tail`` is the end of its output."""

    def __init__(self, command: list[str], die_with_parent: Any) -> None:
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            preexec_fn=die_with_parent,  # spark-submit execs the JVM, which keeps the process id and this request
        )
        self.tail: deque[bytes] = deque(maxlen=_SHOWN_LINES)
        self.was_ended = False
        self._has_closed = threading.Event()
        threading.Thread(target=self._copy, name="copy output", daemon=True).start()

    def has_ended(self, wait_s: float) -> bool:
        """Whether it has ended, within ``wait_s``."""
        self._has_closed.wait(wait_s)
        if self.process.poll() is None:
            if self._has_closed.is_set():
                time.sleep(min(wait_s, 0.05))  # it has closed its output, and goes on
            return self.process.poll() is not None
        self._has_closed.wait(1.0)  # the end of its output, unless a process that it has left keeps that open
        return True

    def end(self) -> None:
        """Kill it. Called again until it has ended."""
        self.was_ended = True
        self.process.kill()

    def _copy(self) -> None:
        has_reader = True
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.tail.append(line)
            if has_reader:
                try:
                    sys.stdout.buffer.write(line)
                    sys.stdout.buffer.flush()
                except (OSError, ValueError):  # the task has gone
                    has_reader = False
        self._has_closed.set()


class _LeftAlone:
    """What a driver needs when its task has gone."""

    def __init__(self, order: Order, child: _Child) -> None:
        from airflow_recovery.driver.stores import open_spec_store
        from airflow_recovery.journal.journal import Journal
        from airflow_recovery.model.records import RunIdentity
        from airflow_recovery.store.scheme import StoreSpec

        self._order = order
        self._child = child
        store = open_spec_store(StoreSpec(**order.journal))
        self._journal: Journal = Journal(store, RunIdentity(*order.identity), writer="keeper")
        self._sign: str | None = None
        self._looked_s = 0.0
        self._since_s = time.monotonic()

    def keep(self) -> None:
        """Until the driver has ended, by itself or because nobody follows it."""
        if not self._order.gives_signs:
            self._wait()
            return
        from airflow_recovery.errors import AttemptLost

        try:
            with self._heartbeat() as signs:
                self._wait()
                code = self._child.process.returncode
                if code != 0:
                    raise RuntimeError(code)  # so that the last heartbeat says that it has failed
                signs.succeeded = True
        except AttemptLost:
            return
        except RuntimeError:
            if not self._child.was_ended:
                self._report(code)

    def _wait(self) -> None:
        while not self._child.has_ended(TASK_CHECK_EVERY_S):
            now_s = time.monotonic()
            if now_s - self._looked_s < min(LOOK_EVERY_S, self._order.left_alone_s / 3):
                continue
            self._looked_s = now_s
            sign = self._sign_of_follower()
            if sign != self._sign:
                self._sign, self._since_s = sign, now_s
            elif now_s - self._since_s > self._order.left_alone_s:
                self._child.end()

    def _sign_of_follower(self) -> str | None:
        """What the newest sign of a next try looks like; `None` before the first one."""
        from airflow_recovery.errors import ObjectMissing, StoreError

        try:
            key = self._journal.layout.follower(self._order.region, self._order.attempt)
            return self._journal.store.get(key).body.decode()
        except ObjectMissing:
            return None
        except StoreError:
            return self._sign

    def _heartbeat(self) -> Heartbeat:
        import logging

        from airflow_recovery.driver.fencing import FenceWatch, is_fenced
        from airflow_recovery.driver.heartbeat import Heartbeat

        order, journal = self._order, self._journal
        return Heartbeat(
            lambda: journal.store,
            journal.layout.heartbeat(order.region, order.attempt),
            order.tag,
            log=logging.getLogger("airflow_recovery.driver"),
            every_s=order.every_s,
            rests_on=order.rests_on,
            watch=FenceWatch(lambda: is_fenced(journal, order.region, order.attempt), self._child.end),
        )

    def _report(self, code: int) -> None:
        """Leave the end of the output where the next try looks for the driver's failure."""
        from airflow_recovery.driver.exit_report import write_failure_at
        from airflow_recovery.driver.stores import open_spec_store
        from airflow_recovery.errors import Failure, StoreError
        from airflow_recovery.store.scheme import StoreSpec

        shown = b"".join(self._child.tail).decode(errors="replace")
        failure = Failure("ApplicationFailed", f"spark-submit ended. Error code is: {code}. Its last output:\n{shown}")
        with suppress(StoreError):
            results = open_spec_store(StoreSpec(**self._order.results))
            write_failure_at(results, self._order.data, failure)


def main(arguments: list[str]) -> int:
    """Keep the command of ``arguments``, whose first one is the file with the order; return its exit code."""
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path.insert(0, here)
    die_with_parent = import_module("process").die_with_parent
    # Python put this file's folder first on the path as well: nothing else of it shall be found there by its name.
    sys.path[:] = [name for name in sys.path if os.path.abspath(name or os.curdir) != here]
    sys.path.insert(0, os.path.dirname(os.path.dirname(here)))
    with open(arguments[0], encoding="utf-8") as file:
        order = Order(**json.load(file))
    held = [_hold(path) for path in order.holds]
    child = _Child(arguments[1:], die_with_parent)
    while os.getppid() == order.task_pid and not child.has_ended(TASK_CHECK_EVERY_S):
        pass
    if os.getppid() != order.task_pid:
        try:
            _LeftAlone(order, child).keep()
        except Exception:  # a store that can't be opened, say: then nobody is seen to follow
            if not child.has_ended(order.left_alone_s):
                child.end()
    code = child.process.wait()
    if child.was_ended:
        end_group(os.getpid())
    del held
    return code


def _hold(path: str) -> int | None:
    """As `driver.private_folder.hold`: no other process removes what is at ``path`` while this one lives."""
    with suppress(OSError):
        held = os.open(path, os.O_RDONLY)
        fcntl.flock(held, fcntl.LOCK_SH)
        return held
    return None


def _exit(code: int) -> None:
    """End as a process with this ``code`` of `subprocess` has ended."""
    with suppress(OSError, ValueError):
        sys.stdout.flush()
    if code < 0:
        with suppress(OSError):  # SIGKILL has no other handler
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code if code >= 0 else 128 - code)


if __name__ == "__main__":
    _exit(main(sys.argv[1:]))
