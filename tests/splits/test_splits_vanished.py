"""What becomes of the rows of a file that is gone, where a source commits split by split: dropped, or kept.

parts_dropped, parts_kept      a region each; one file a batch
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from airflow.sdk.exceptions import AirflowFailException
from expected_errors import fails_with
from job_tasks import Drivers, job_dag
from tries import RUN_KEY, run_try, task_context

from airflow_recovery.attempt.application import ClaimedAttempt
from airflow_recovery.driver.region_spec import RegionSpec
from airflow_recovery.hooks.settings import RecoverySettings
from airflow_recovery.hooks.stores import open_stores
from airflow_recovery.journal.journal import Journal
from airflow_recovery.model.records import RunIdentity
from airflow_recovery.model.split import Split
from airflow_recovery.splits.committed_batches import SplitWork, numbers_of
from airflow_recovery.splits.spec import SplitSpec
from airflow_recovery.task.externals import RegionSplits
from airflow_recovery.testing.split_driver import SplitDriver, rows_of

IDENTITY = RunIdentity("d", RUN_KEY, "g")


class BatchDrivers(Drivers):
    """Each reads file by file, and commits each. ``read`` has what was read; ``dies_at``: the batch of its death."""

    def __init__(self) -> None:
        super().__init__()
        self.read: list[str] = []
        self.dies_at: int | None = None

    def run(self, spec: RegionSpec, folder: Path) -> None:
        stores = open_stores(RecoverySettings.load())
        journal = Journal(stores.journal, spec.identity, writer=spec.trace.writer)
        assert isinstance(spec.mode, SplitSpec)
        assigned = tuple(Split.of_external(external) for external in spec.trace.externals)
        adopted = journal.read_committed_batches(spec.region, numbers_of(spec.mode.base))
        attempt = ClaimedAttempt(
            journal.read_claim(spec.region, spec.attempt),
            {},
            spec.trace.externals,
            spec.trace.fingerprint,
            work=SplitWork(assigned, spec.mode.base, adopted),
        )

        def begins(number: int) -> None:
            if number == self.dies_at:
                self.dies_at = None
                raise RuntimeError("the driver dies")

        def row_of(split: Split, result: str) -> str:
            self.read.append(Path(split.name).stem)
            return Path(split.name).stem

        SplitDriver(journal, stores.results, row_of, begins=begins).run(attempt, (spec.region,))


@pytest.fixture
def drivers(monkeypatch: pytest.MonkeyPatch) -> BatchDrivers:
    found = BatchDrivers()
    found.install(monkeypatch)
    return found


@pytest.fixture
def lake(recovery: Path) -> Path:
    lake = recovery / "lake"
    lake.mkdir()
    for name in "abcd":
        (lake / f"{name}.csv").write_text(name)
    return lake


def attempt(lake: Path, region: str, version: str = "1") -> str:
    operator = job_dag("dagjobs.parallel:in_parts").get_task(f"g.{region}")
    found = run_try(operator, task_context(operator.task_id, params={"lake": str(lake), "version": version}))
    return str(found["decision"])


@contextmanager
def a_death(drivers: BatchDrivers, at: int) -> Iterator[None]:
    drivers.dies_at = at
    with pytest.raises(Exception, match="the driver dies"):
        yield


def rows(region: str) -> str:
    stores = open_stores(RecoverySettings.load())
    journal = Journal(stores.journal, IDENTITY, writer="test")
    current = journal.load(journal.list([region])).of(region).current
    assert current is not None
    assert current.outcome is not None
    return "".join(rows_of(stores.results, current.outcome.outputs[0]))


def test_fault_55_what_vanished_is_dropped_and_nothing_else_is_read_again(drivers: BatchDrivers, lake: Path) -> None:
    assert attempt(lake, "parts_dropped") == "ran"
    (lake / "b.csv").unlink()
    (lake / "e.csv").write_text("e")
    drivers.read.clear()
    assert attempt(lake, "parts_dropped") == "ran"
    assert (drivers.read, rows("parts_dropped")) == (["e"], "acde")
    assert attempt(lake, "parts_dropped") == "kept"


def test_what_vanished_is_kept_where_it_was_committed(drivers: BatchDrivers, lake: Path) -> None:
    with a_death(drivers, at=2):
        attempt(lake, "parts_kept")
    assert drivers.read == ["a", "b"]
    (lake / "b.csv").unlink()
    (lake / "d.csv").unlink()
    assert attempt(lake, "parts_kept") == "ran"
    assert (drivers.read, rows("parts_kept")) == (["a", "b", "c"], "abc")
    assert attempt(lake, "parts_kept") == "kept"

    (lake / "a.csv").unlink()
    assert attempt(lake, "parts_kept") == "kept"
    (lake / "e.csv").write_text("e")
    assert attempt(lake, "parts_kept") == "ran"
    assert (drivers.read[3:], rows("parts_kept")) == (["e"], "abce")


def test_what_can_not_be_kept_any_more_is_told_before_anything_runs(drivers: BatchDrivers, lake: Path) -> None:
    assert attempt(lake, "parts_kept") == "ran"
    (lake / "b.csv").unlink()
    drivers.read.clear()
    with fails_with("kept-splits-lost", by=AirflowFailException):
        attempt(lake, "parts_kept", version="2")
    assert drivers.read == []
    (lake / "b.csv").write_text("b")
    assert attempt(lake, "parts_kept", version="2") == "ran"
    assert rows("parts_kept") == "abcd"


def test_control_without_that_look_the_driver_is_sent_for_a_file_that_is_gone(
    drivers: BatchDrivers, lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert attempt(lake, "parts_kept") == "ran"
    (lake / "b.csv").unlink()
    drivers.read.clear()
    monkeypatch.setattr(RegionSplits, "check_readable", lambda self, work: None)
    attempt(lake, "parts_kept", version="2")
    assert "b" in drivers.read
