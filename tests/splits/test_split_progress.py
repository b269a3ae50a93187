"""How far a region that commits split by split has come."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from airflow_recovery.driver.heartbeat import Beat, Heartbeat
from airflow_recovery.driver.progress import Progress
from airflow_recovery.model.split import Split
from airflow_recovery.splits.progress import SplitCounts, SplitProgress
from airflow_recovery.store.local import LocalStore

MIB = 1024 * 1024
SPLITS = [Split.of_file(f"s3://lake/{number}.csv", MIB, "etag") for number in range(10)]


def test_the_end_is_estimated_by_what_this_attempt_has_read() -> None:
    now = [0.0]
    progress = SplitProgress(SPLITS, {split.key for split in SPLITS[:4]}, clock=lambda: now[0])
    assert progress.counts().text() == "4 of 10 splits are committed, 4.0 MiB of 10.0 MiB"
    now[0] = 200.0
    counts = progress.committed(SPLITS[4:6])
    assert counts == SplitCounts(6, 10, 6 * MIB, 10 * MIB, 400.0)
    assert counts.text() == "6 of 10 splits are committed, 6.0 MiB of 10.0 MiB; the end is about 7 min away"
    assert progress.committed(SPLITS[6:]).text() == "10 of 10 splits are committed, 10.0 MiB of 10.0 MiB"


def test_splits_of_unknown_size_are_counted_alone() -> None:
    now = [0.0]
    days = [Split.of(f"day {number}") for number in range(4)]
    progress = SplitProgress(days, (), clock=lambda: now[0])
    now[0] = 60.0
    assert progress.committed(days[:1]).text() == "1 of 4 splits are committed; the end is about 3 min away"
    assert SplitProgress([], ()).counts().text() == "0 of 0 splits are committed"


def test_spans() -> None:
    assert SplitCounts(1, 2, 0, 0, 20.4).text().endswith("about 20 s away")
    assert SplitCounts(1, 2, 0, 0, 9000.0).text().endswith("about 2.5 h away")


def test_the_log_and_the_drivers_sign_of_life_say_it(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    log = logging.getLogger("test_split_progress")
    store = LocalStore(f"file://{tmp_path}/journal")
    progress = Progress(log, 2)
    caplog.set_level(logging.INFO, log.name)
    signs = Heartbeat(lambda: store, "h", "tag", log=log, every_s=3600)

    def work() -> None:
        with signs:
            progress.tell = signs.tell_progress
            progress.say(SplitCounts(7, 10, 0, 0).text())
            raise RuntimeError("the end")

    with pytest.raises(RuntimeError, match="the end"):
        work()
    assert caplog.messages == ["Attempt 2: 7 of 10 splits are committed."]
    beat = Beat.from_bytes(store.get("h").body)
    assert beat is not None
    assert beat.progress == "7 of 10 splits are committed"
