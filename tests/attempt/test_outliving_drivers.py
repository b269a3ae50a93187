"""Real processes: the task is killed with ``kill -9``, and its driver is not."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import outliving
import psutil
import pytest

from airflow_recovery.attempt import region_task
from airflow_recovery.attempt.heartbeat_watch import HeartbeatTimeouts
from airflow_recovery.attempt.region_task import Decision, RegionResult
from airflow_recovery.driver.heartbeat import Beat
from airflow_recovery.journal.journal import Journal
from airflow_recovery.journal.layout import JournalLayout
from airflow_recovery.model.records import AttemptState
from airflow_recovery.store.local import LocalStore
from airflow_recovery.testing.fake_airflow import FakeAirflow
from airflow_recovery.testing.patience import HANG_S, wait_until


class KilledTask:
    """P@1: claimed and submitted by a task process that was then killed; its driver is at work."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.looks = 0
        task = subprocess.Popen([sys.executable, outliving.__file__, "task", str(folder)])
        self.heartbeat = folder / "journal" / JournalLayout(outliving.IDENTITY).heartbeat("P", 1)
        wait_until(lambda: self.data(1) and self.heartbeat.exists(), "data and a heartbeat of P@1")
        task.kill()
        task.wait()
        self.driver = psutil.Process(int((folder / "1.pid").read_text()))
        assert self.driver.is_running()
        self.runner = outliving.Submitted(folder, "writer-2")

    @property
    def is_driver_over(self) -> bool:
        return not self.driver.is_running() or self.driver.status() == psutil.STATUS_ZOMBIE

    def data(self, attempt: int) -> list[Path]:
        below = self.folder / "results" / JournalLayout(outliving.IDENTITY).data_of_region("P")
        # Not `rglob`, which fails where a folder is deleted meanwhile.
        files = [Path(folder, name) for folder, _, names in os.walk(below) for name in names]
        return [file for file in files if file.relative_to(below).parts[0].startswith(f"{attempt:08d}-")]

    def go(self, attempt: int) -> None:
        (self.folder / f"go-{attempt}").touch()

    def next_try(self, timeout_s: float, at_look: Callable[[int], object] = lambda look: None) -> RegionResult:
        """``at_look`` is called with 1, 2, ... whenever the next try has looked and waits."""

        def sleep(seconds: float) -> None:
            self.looks += 1
            at_look(self.looks)
            time.sleep(seconds)

        airflow = FakeAirflow({"P": ()})
        heartbeat_timeouts = HeartbeatTimeouts(timeout_s, poll_s=0.1, sleep=sleep)
        return outliving.task_of(airflow.start("P"), airflow, self.runner, heartbeat_timeouts).execute()

    def fence_frozen(self) -> None:
        """P@1 is frozen, taken for dead and fenced; P@2 finishes."""
        self.driver.suspend()
        self.go(2)
        assert self.next_try(1.0).attempt == 2
        assert len(self.data(1)) == 1

    def signs(self) -> int:
        """How many heartbeats P@1 has given."""
        beat = Beat.from_bytes(self.heartbeat.read_bytes())
        assert beat is not None
        return beat.count

    def state(self, attempt: int) -> AttemptState | None:
        store = LocalStore(f"file://{self.folder}/journal")
        outcome = Journal(store, outliving.IDENTITY, writer="test").read_outcome("P", attempt)
        return outcome.state if outcome is not None else None


@pytest.fixture
def killed(tmp_path: Path) -> Iterator[KilledTask]:
    found = KilledTask(tmp_path)
    yield found
    for pid in (found.driver.pid, *found.runner.pids):
        if psutil.pid_exists(pid):
            os.kill(pid, signal.SIGKILL)


def test_fault_3_the_driver_of_a_killed_task_is_followed_and_one_application_ran(killed: KilledTask) -> None:
    result = killed.next_try(HANG_S, lambda look: killed.go(1) if look == 5 else None)
    assert (result.decision, result.attempt, result.seconds_saved) == (Decision.KEPT, 1, 3600.0)
    assert result.outcome.writer == "writer-1"
    assert killed.runner.pids == []
    assert killed.looks >= 5


@pytest.mark.slow
def test_control_without_following_a_second_application_runs(
    killed: KilledTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(region_task, "reconnect", lambda *given: False)
    killed.go(2)
    assert killed.next_try(HANG_S).attempt == 2
    assert len(killed.runner.pids) == 1


@pytest.mark.slow
def test_fault_11_a_frozen_driver_that_was_fenced_stops_when_it_wakes_and_not_only_when_it_finishes(
    killed: KilledTask,
) -> None:
    killed.fence_frozen()
    killed.driver.resume()  # its job would go on for hours: nobody lets it finish
    wait_until(lambda: killed.is_driver_over, "the end of the driver")
    assert killed.data(1) == []
    assert (killed.state(1), killed.state(2)) == (AttemptState.FENCED, AttemptState.FINISHED)


def test_fault_11_control_a_driver_that_does_not_look_works_on_until_its_finish_is_refused(killed: KilledTask) -> None:
    (killed.folder / outliving.BLIND).touch()
    killed.fence_frozen()
    killed.driver.resume()
    signs = killed.signs()
    wait_until(lambda: killed.signs() > signs + 3, "three more heartbeats")
    assert not killed.is_driver_over
    killed.go(1)
    wait_until(lambda: killed.is_driver_over, "the end of the driver")
    assert killed.data(1) == []


def test_fault_11_a_frozen_driver_is_fenced_and_cleans_up_when_it_wakes(killed: KilledTask) -> None:
    killed.fence_frozen()
    killed.go(1)
    killed.driver.resume()
    wait_until(lambda: not killed.data(1), "the removal of the data of P@1")
    wait_until(lambda: killed.is_driver_over, "the end of the driver")
    assert (killed.state(1), killed.state(2)) == (AttemptState.FENCED, AttemptState.FINISHED)
    assert len(killed.data(2)) == 1


@pytest.mark.slow
def test_a_driver_that_is_gone_is_not_waited_for(killed: KilledTask) -> None:
    killed.driver.kill()
    wait_until(lambda: killed.is_driver_over, "the end of the driver")
    killed.go(2)
    assert killed.next_try(HANG_S).attempt == 2
    assert killed.looks == 0


@pytest.mark.slow
def test_a_driver_that_dies_while_it_is_followed_is_noticed_at_the_next_look(killed: KilledTask) -> None:
    killed.go(2)
    assert killed.next_try(HANG_S, lambda look: killed.driver.kill() if look == 3 else None).attempt == 2
    assert killed.looks == 3
