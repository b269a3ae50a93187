"""The registry of partitions as FLIP-383's interface, and a service that can't take snapshots."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator

import pytest

from airflow_recovery.errors import ConfigurationError, StoreAccessDenied
from airflow_recovery.journal.journal import Journal
from airflow_recovery.journal.snapshot_pace import SnapshotPace
from airflow_recovery.model.manifest import PartitionManifest, ResultObject
from airflow_recovery.model.records import AttemptState, Claim, Outcome, Released, Reset, RunIdentity
from airflow_recovery.shuffle.journal_master import JournalShuffleMaster
from airflow_recovery.shuffle.master import PartitionId, PartitionWithMetrics, ShuffleMaster, recovery_in_effect
from airflow_recovery.storage import ObjectInfo
from airflow_recovery.storage.local import LocalStore
from airflow_recovery.topology.job_recovery import JobRecovery

RUN = RunIdentity("d", "date-2026-01-01T000000Z", "g")
P1, P2, C1 = (PartitionId(region, attempt, region) for region, attempt in (("P", 1), ("P", 2), ("C", 1)))


class Made:
    """P and C, as they come to be made: each partition is one file of three bytes."""

    def __init__(self, store: LocalStore) -> None:
        self.store = store
        self.journal = Journal(store, RUN, writer="w")

    def make(self, region: str, attempt: int) -> None:
        self.journal.claim(Claim(region, attempt, "w", "0a", (), "r", 1, "ti", "tag", "now"))
        info = self.store.put(f"data/{region}/{attempt}/part-0", b"abc")
        manifest = PartitionManifest(
            region, f"{self.store.base_uri}/data/{region}/{attempt}", (ResultObject("part-0", 3, info.etag),), 7
        )
        self.journal.finish(
            Outcome(region, attempt, AttemptState.FINISHED, "w", "now", fingerprint="f", outputs=(manifest,))
        )

    def master(self) -> JournalShuffleMaster:
        return JournalShuffleMaster(self.journal, ("P", "C"), lambda location: self.store)


@pytest.fixture
def made(local_store: LocalStore) -> Made:
    found = Made(local_store)
    found.make("P", 1)
    found.make("C", 1)
    return found


def ids(snapshot: object) -> list[PartitionId]:
    return [each for each, _ in snapshot.partitions]  # type: ignore[attr-defined]


def test_all_partitions_with_bytes_and_rows(made: Made) -> None:
    report = made.master().partitions_with_metrics(RUN, 10, [P1, C1])
    assert report.available == (PartitionWithMetrics(P1, 3, 7), PartitionWithMetrics(C1, 3, 7))
    assert (report.missing, report.unanswered) == ((), ())


def test_what_is_gone_or_never_was_is_missing(made: Made) -> None:
    made.store.delete(["data/P/1/part-0"])
    report = made.master().partitions_with_metrics(RUN, 10, [P1, P2, C1])
    assert report.missing == (P1, P2)
    assert [each.id for each in report.available] == [C1]


def test_a_full_snapshot_has_all_that_counts_and_an_incremental_one_what_is_new(made: Made) -> None:
    master = made.master()
    assert ids(master.snapshot()) == [P1, C1]
    assert ids(master.snapshot(is_incremental=True)) == []
    made.journal.reset(Reset("P", 1, "ann", "wrong"))
    made.make("P", 2)
    assert ids(master.snapshot(is_incremental=True)) == [P2]
    assert ids(master.snapshot()) == [P2, C1]


def test_what_is_released_is_in_no_snapshot(made: Made) -> None:
    made.journal.release(Released("P", 1, "gc"))
    assert ids(made.master().snapshot()) == [C1]


def test_incremental_snapshots_pile_up_and_a_full_one_replaces(made: Made) -> None:
    first, later = made.master(), made.master()
    full = first.snapshot()
    made.journal.reset(Reset("P", 1, "ann", "wrong"))
    made.make("P", 2)
    increment = first.snapshot(is_incremental=True)
    later.restore([full, increment])
    assert {each.id for each in later.partitions_with_metrics(RUN, 10, [P1, P2, C1]).available} == {P1, P2, C1}
    later.restore([increment, full])
    assert set(later._known) == {P1, C1}


def test_full_once_in_a_min_pause_and_incremental_in_between(made: Made) -> None:
    clock = iter([0, 179, 180])
    pace = SnapshotPace(180, now_s=lambda: next(clock))
    master = JournalShuffleMaster(made.journal, ("P", "C"), lambda location: made.store, pace)
    taken = [master.next_snapshot() for _ in range(3)]
    assert [each.is_incremental for each in taken] == [False, True, False]
    assert [ids(each) for each in taken] == [[P1, C1], [], [P1, C1]]


def test_after_a_restore_the_journal_is_not_read(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    master = made.master()
    snapshot = master.snapshot()
    monkeypatch.setattr(made.journal, "list", lambda regions: pytest.fail("the journal is read"))
    other = made.master()
    other.restore([snapshot])
    assert len(other.partitions_with_metrics(RUN, 10, [P1, C1]).available) == 2


def test_another_run_is_refused(made: Made) -> None:
    with pytest.raises(ConfigurationError, match="ask its own journal"):
        made.master().partitions_with_metrics(RunIdentity("d", "other", "g"), 10, [P1])


class Hanging(LocalStore):
    gate = threading.Event()

    def list(self, prefix: str = "", *, start_after: str = "") -> Iterator[ObjectInfo]:
        if "data/P" in prefix:
            self.gate.wait(60)
        return super().list(prefix, start_after=start_after)


def test_fault_27_no_answer_in_time_is_no_loss(made: Made) -> None:
    hanging = Hanging(made.store.base_uri)
    master = JournalShuffleMaster(made.journal, ("P", "C"), lambda location: hanging)
    try:
        report = master.partitions_with_metrics(RUN, 0.3, [P1, C1])
    finally:
        Hanging.gate.set()
    assert (report.unanswered, report.missing) == ((P1,), ())
    assert [each.id for each in report.available] == [C1]


def test_fault_27_denied_is_no_loss_either(made: Made) -> None:
    class Denied(LocalStore):
        def list(self, prefix: str = "", *, start_after: str = "") -> Iterator[ObjectInfo]:
            raise StoreAccessDenied(prefix)

    master = JournalShuffleMaster(made.journal, ("P", "C"), lambda location: Denied(made.store.base_uri))
    with pytest.raises(StoreAccessDenied):
        master.partitions_with_metrics(RUN, 10, [P1])


class RemoteShuffleMaster(JournalShuffleMaster):
    """A stand-in for a remote service without snapshots."""

    supports_batch_snapshot = False


def test_a_service_without_snapshots_turns_recovery_off_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    log = logging.getLogger("test")
    with caplog.at_level(logging.ERROR):
        assert not recovery_in_effect(JobRecovery(), RemoteShuffleMaster, "group g", log).enabled
    assert "group g: recovery is OFF" in caplog.text
    assert "RemoteShuffleMaster can't take snapshots" in caplog.text


@pytest.mark.parametrize(
    ("enabled", "master"),
    [(True, JournalShuffleMaster), (False, JournalShuffleMaster), (False, RemoteShuffleMaster)],
)
def test_control_otherwise_nothing_is_said(
    enabled: bool, master: type[ShuffleMaster], caplog: pytest.LogCaptureFixture
) -> None:
    options = JobRecovery(enabled=enabled)
    assert recovery_in_effect(options, master, "group g", logging.getLogger("test")) == options
    assert caplog.text == ""
