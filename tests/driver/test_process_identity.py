"""Whether a process of this machine is gone; of another one's, nothing is known."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from airflow_recovery.driver.process_identity import is_gone, own_process

TELL = "from airflow_recovery.driver.process_identity import own_process; print(own_process(), flush=True); input()"


def test_one_that_lives_is_not_gone_and_one_that_was_killed_is() -> None:
    child = subprocess.Popen([sys.executable, "-c", TELL], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    told = child.stdout.readline().strip()
    assert not is_gone(told)
    os.kill(child.pid, signal.SIGSTOP)
    assert not is_gone(told)  # frozen is not gone
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert is_gone(told)  # a zombie that nobody has waited for
    child.communicate()
    assert is_gone(told)


def test_a_process_id_that_is_used_again_is_another_process() -> None:
    mine = own_process()
    assert mine is not None
    assert not is_gone(mine)
    place, _, started = mine.rpartition("/")
    assert is_gone(f"{place}/{int(started) - 1}")


@pytest.mark.parametrize("process", [None, "", "other-boot/pid:[1]/12/34"])
def test_of_another_machine_or_container_nothing_is_known(process: str | None) -> None:
    assert not is_gone(process)


def test_other_systems_do_not_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    mine = own_process()
    monkeypatch.setattr(sys, "platform", "darwin")
    assert own_process() is None
    assert not is_gone(mine)
