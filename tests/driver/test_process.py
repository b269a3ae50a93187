"""Processes that end with their parent, with real ``kill -9``."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import chain, repeat
from pathlib import Path

import pytest
from process_life import is_alive

from airflow_recovery.driver.process import PARENT_DIED, WATCH, die_with_parent, watch_parent
from airflow_recovery.testing.patience import HANG_S, wait_until

CHILD = "import sys, time\nprint('up', flush=True)\ntime.sleep(86400)"


@contextmanager
def family(tmp_path: Path, how: str) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """A parent that starts a child in the way ``how`` (a line of Python) and waits; yields it and the child's pid."""
    pid_file = tmp_path / "child"
    program = (
        "import subprocess, sys, threading\n"
        "from airflow_recovery.driver.process import die_with_parent\n"
        f"child = {how}\n"
        f"open({str(pid_file)!r} + '.new', 'w').write(str(child.pid))\n"
        "child.stdout.readline()\n"
        f"import os; os.rename({str(pid_file)!r} + '.new', {str(pid_file)!r})\n"
        "child.wait()\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", program])
    try:
        wait_until(pid_file.exists, "the child is up")
        child = int(pid_file.read_text())
        yield parent, child
    finally:
        parent.kill()
        parent.wait()
        for name in ("child", "child.new"):
            if (tmp_path / name).exists() and is_alive(int((tmp_path / name).read_text())):
                os.kill(int((tmp_path / name).read_text()), signal.SIGKILL)


def popen(extra: str = "", program: str = CHILD) -> str:
    return f"subprocess.Popen([sys.executable, '-c', {program!r}], stdout=subprocess.PIPE{extra})"


def test_child_with_the_request_dies_at_once(tmp_path: Path) -> None:
    with family(tmp_path, popen(", preexec_fn=die_with_parent")) as (parent, child):
        parent.send_signal(signal.SIGKILL)
        wait_until(lambda: not is_alive(child), "the child is dead")


def test_watching_child_ends_itself(tmp_path: Path) -> None:
    watching = "from airflow_recovery.driver.process import watch_parent\nwatch_parent(period_s=0.05)\n" + CHILD
    with family(tmp_path, popen(program=watching)) as (parent, child):
        parent.send_signal(signal.SIGKILL)
        wait_until(lambda: not is_alive(child), "the child is dead")


def test_without_protection_the_child_lives_on(tmp_path: Path) -> None:
    with family(tmp_path, popen()) as (parent, child):
        parent.send_signal(signal.SIGKILL)
        parent.wait()
        assert is_alive(child)


def test_watch_ends_the_process_when_the_parent_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    parents = chain([100, 100], repeat(1))
    codes: list[int] = []
    monkeypatch.setattr(os, "getppid", lambda: next(parents))
    monkeypatch.setattr(os, "_exit", codes.append)
    stop = watch_parent(period_s=0.001)
    wait_until(lambda: bool(codes), "the watch has noticed")
    stop.set()
    for each in threading.enumerate():
        if each.name == WATCH:
            each.join(HANG_S)  # else it may end the process of the next test
    assert set(codes) == {PARENT_DIED}


def test_stopped_watch_does_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    codes: list[int] = []
    monkeypatch.setattr(os, "_exit", codes.append)
    watch_parent(period_s=0.001).set()
    assert codes == []


def test_other_systems_have_no_such_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")

    def load(name: str | None) -> Callable[[], None]:
        raise AssertionError(name)

    monkeypatch.setattr("ctypes.CDLL", load)
    die_with_parent()
