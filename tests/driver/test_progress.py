from __future__ import annotations

import logging
from types import SimpleNamespace

import pytest

from airflow_recovery.driver.progress import Progress, TaskCounts, classic_counts, remote_counts


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_one_line_on_change_at_most_every_ten_seconds(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    progress = Progress(logging.getLogger("progress"), 2, clock=clock)
    progress.vertex = "by_route"
    with caplog.at_level(logging.INFO, "progress"):
        for clock.now, done in ((0, 1), (3, 5), (10, 21), (12, 22), (19.9, 25), (20, 25), (31, 25), (32, 30), (42, 40)):
            progress.report(TaskCounts(done, 40, 2, 0))
    assert caplog.messages == [
        "by_route attempt 2: 21/40 tasks, 2 running, 0 failed",
        "by_route attempt 2: 25/40 tasks, 2 running, 0 failed",
        "by_route attempt 2: 30/40 tasks, 2 running, 0 failed",
        "by_route attempt 2: 40/40 tasks, 2 running, 0 failed",
    ]


def test_connect_does_not_know_failed_tasks(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    progress = Progress(logging.getLogger("progress"), 1, interval_s=0, clock=clock)
    progress.vertex = "v"
    with caplog.at_level(logging.INFO, "progress"):
        progress.report(TaskCounts(0, 0, 0))  # nothing is active: nothing to say
        progress.report(TaskCounts(1, 4, 2))
    assert caplog.messages == ["v attempt 1: 1/4 tasks, 2 running"]


def test_counts_are_sums_over_stages() -> None:
    classic = SimpleNamespace(numTasks=8, numCompletedTasks=3, numActiveTasks=2, numFailedTasks=1)
    assert classic_counts([classic, classic]) == TaskCounts(6, 16, 4, 2)
    remote = SimpleNamespace(num_tasks=8, num_completed_tasks=3)
    assert remote_counts([remote, remote], 4) == TaskCounts(6, 16, 4)
