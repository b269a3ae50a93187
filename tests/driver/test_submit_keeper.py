"""A keeper and what it keeps, as real processes; the task is a process that is killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from process_life import is_alive

from airflow_recovery.driver.exit_report import read_failure_at
from airflow_recovery.driver.heartbeat import Beat
from airflow_recovery.driver.private_folder import own_folder, remove_unused
from airflow_recovery.driver.submit_keeper import Order, end_keeper_of, keeper_command, keeper_of, order_name
from airflow_recovery.journal.journal import Journal
from airflow_recovery.model.records import AttemptState, Claim, FenceCause, Outcome, RunIdentity
from airflow_recovery.store import open_store
from airflow_recovery.store.scheme import StoreSpec
from airflow_recovery.testing.patience import HANG_S, wait_until

IDENTITY = RunIdentity("dag", "date-1", "g")
TAG = "airflow-recovery-tag"
DATA = "dag/date-1/g/copied/00000001-0a1b2c3d"
TASK = """
import json, os, subprocess, sys
order, command = json.loads(sys.argv[1]), sys.argv[2:]
path = order.pop("path")
open(path, "w").write(json.dumps({**order, "task_pid": os.getpid()}))
child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, start_new_session=True)
for line in child.stdout:
    sys.stdout.buffer.write(line)
    sys.stdout.buffer.flush()
sys.exit(child.wait() % 256)
"""


class Kept:
    """A command that waits until `end` says how it is to end, a task, and a keeper between the two."""

    def __init__(self, folder: Path, **changes: Any) -> None:
        self.folder = folder
        (folder / "journal").mkdir()
        (folder / "results").mkdir()
        journal, results = (StoreSpec(f"file://{folder}/{name}") for name in ("journal", "results"))
        self.journal = Journal(open_store(journal.uri), IDENTITY, writer="task")
        self.results = open_store(results.uri)
        told = {
            "task_pid": 0,
            "holds": [],
            "left_alone_s": HANG_S,
            "identity": ["dag", "date-1", "g"],
            "region": "copied",
            "attempt": 1,
            "data": DATA,
            "tag": TAG,
            "every_s": 0.1,
            "journal": asdict(journal),
            "results": asdict(results),
            **changes,
        }
        path = str(folder / order_name(TAG))
        order = Order(**told)._asdict()
        program = (
            "import os, pathlib, time\n"
            f"print('begun', os.getpid(), flush=True)\nend = pathlib.Path({str(folder / 'end')!r})\n"
            "while not end.exists():\n    time.sleep(0.02)\n"
            "print('the end', flush=True)\nos._exit(int(end.read_text()))\n"
        )
        command = [*keeper_command(path), sys.executable, "-c", program]
        self.task = subprocess.Popen(
            [sys.executable, "-c", TASK, json.dumps({**order, "path": path}), *command],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.task.stdout is not None
        self.pid = int(self.task.stdout.readline().split()[1])
        keeper = keeper_of(TAG)
        assert keeper is not None
        self.keeper: int = keeper

    def kill_task(self) -> None:
        self.task.kill()
        self.task.wait()

    def end(self, code: int) -> None:
        (self.folder / "end.new").write_text(str(code))
        (self.folder / "end.new").rename(self.folder / "end")

    def beat(self) -> Beat | None:
        keys = [info.key for info in self.journal.store.list(self.journal.layout.heartbeat("copied", 1))]
        key = self.journal.layout.heartbeat("copied", 1)
        return Beat.from_bytes(self.journal.store.get(key).body) if key in keys else None

    def follow(self, sign: str) -> None:
        self.journal.store.put(self.journal.layout.follower("copied", 1), sign.encode())

    def wait_gone(self) -> None:
        wait_until(lambda: not is_alive(self.pid) and not is_alive(self.keeper), "the end of the keeper")


@pytest.fixture
def keep(tmp_path: Path) -> Iterator[Callable[..., Kept]]:
    made: list[Kept] = []

    def make(**changes: Any) -> Kept:
        made.append(Kept(tmp_path, **changes))
        return made[-1]

    yield make
    for kept in made:
        kept.kill_task()
        for pid in (kept.keeper, kept.pid):
            if is_alive(pid):
                os.kill(pid, signal.SIGKILL)
        assert kept.task.stdout is not None
        kept.task.stdout.close()


@pytest.mark.parametrize("code", [0, 3])
def test_a_task_that_lives_sees_the_output_and_the_end_of_what_is_kept(keep: Callable[..., Kept], code: int) -> None:
    kept = keep()
    kept.end(code)
    assert kept.task.stdout is not None
    assert kept.task.stdout.read() == "the end\n"
    assert kept.task.wait() == code


def test_a_kept_process_that_is_killed_ends_its_keeper_in_the_same_way(keep: Callable[..., Kept]) -> None:
    kept = keep()
    os.kill(kept.pid, signal.SIGKILL)
    assert kept.task.wait() == -signal.SIGKILL % 256


def test_fault_235_what_is_kept_lives_on_when_the_task_and_its_group_are_killed(keep: Callable[..., Kept]) -> None:
    """The control is `test_process.py::test_child_with_the_request_dies_at_once`: without a keeper it dies."""
    kept = keep(gives_signs=True, rests_on="code 1")
    assert kept.beat() is None  # the task gives the heartbeats while it lives
    kept.kill_task()
    wait_until(lambda: kept.beat() is not None, "a heartbeat")
    assert is_alive(kept.pid)
    assert keeper_of(TAG) == kept.keeper
    kept.end(0)
    kept.wait_gone()
    beat = kept.beat()
    assert beat is not None
    assert (beat.tag, beat.ended, beat.succeeded, beat.rests_on) == (TAG, False, True, "code 1")


@pytest.mark.slow
def test_fault_235_a_failure_after_the_task_has_gone_is_told_with_the_end_of_the_output(
    keep: Callable[..., Kept],
) -> None:
    kept = keep(gives_signs=True)
    kept.kill_task()
    wait_until(lambda: kept.beat() is not None, "a heartbeat")
    kept.end(7)
    kept.wait_gone()
    beat = kept.beat()
    assert beat is not None
    assert (beat.ended, beat.succeeded) == (True, False)
    failure = read_failure_at(kept.results, DATA)
    assert failure is not None
    assert "Error code is: 7" in failure.message
    assert failure.message.endswith("the end\n")


@pytest.mark.slow
@pytest.mark.parametrize("gives_signs", [True, False])
def test_fault_236_a_driver_that_nobody_follows_is_ended(keep: Callable[..., Kept], gives_signs: bool) -> None:
    kept = keep(left_alone_s=1.0, gives_signs=gives_signs)
    kept.kill_task()
    kept.wait_gone()


@pytest.mark.slow
def test_fault_236_control_a_driver_that_somebody_follows_is_not_ended(keep: Callable[..., Kept]) -> None:
    kept = keep(left_alone_s=2.0)
    kept.kill_task()
    signs = iter(range(10**6))

    def follow() -> bool:
        sign = next(signs)
        kept.follow(str(sign))
        assert is_alive(kept.pid)
        return sign > 100

    wait_until(follow, "some seconds")
    kept.wait_gone()  # and then nobody does


@pytest.mark.slow
def test_fault_237_a_kept_application_whose_attempt_was_fenced_is_ended(keep: Callable[..., Kept]) -> None:
    kept = keep(gives_signs=True)
    kept.journal.claim(
        Claim(
            region="copied",
            attempt=1,
            writer="task",
            plan_hash="0" * 32,
            inputs=(),
            airflow_run_id="run",
            try_number=1,
            ti_id="1",
            tag=TAG,
            claimed_at="2026-01-01T00:00:00+00:00",
        )
    )
    kept.kill_task()
    wait_until(lambda: kept.beat() is not None, "a heartbeat")
    outcome = Outcome("copied", 1, AttemptState.FENCED, "other", "now", cause=FenceCause.SUPERSEDED, detail="cleared")
    Journal(kept.journal.store, IDENTITY, writer="other").fence(outcome)
    kept.wait_gone()
    beat = kept.beat()
    assert beat is not None
    assert beat.ended


def test_fault_236_the_next_try_on_this_machine_finds_the_keeper_and_ends_it(keep: Callable[..., Kept]) -> None:
    kept = keep()
    kept.kill_task()
    end_keeper_of("another tag")
    assert is_alive(kept.pid)
    end_keeper_of(TAG)
    assert keeper_of(TAG) is None
    kept.wait_gone()


def test_fault_235_nobody_removes_what_a_kept_driver_uses(keep: Callable[..., Kept], tmp_path: Path) -> None:
    with own_folder(tmp_path, "driver") as folder:
        kept = keep(holds=[str(folder)])
    assert folder.is_dir()  # its owner has gone
    remove_unused(folder)
    assert folder.is_dir()
    end_keeper_of(TAG)
    kept.wait_gone()
    remove_unused(folder)
    assert not folder.exists()
