"""Our own shuffle service: results are files, and the journal's outcomes are the registry of them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait

from airflow_recovery.errors import ConfigurationError
from airflow_recovery.journal.journal import Journal
from airflow_recovery.journal.snapshot_pace import SnapshotPace
from airflow_recovery.model.manifest import PartitionManifest
from airflow_recovery.model.records import RunIdentity
from airflow_recovery.shuffle.availability import Availability, probe_manifest
from airflow_recovery.shuffle.master import PartitionId, PartitionReport, PartitionWithMetrics, ShuffleSnapshot
from airflow_recovery.storage.object_store import ObjectStore

CONNECTIONS = 16


class JournalShuffleMaster:
    """The `ShuffleMaster` of the run that ``journal`` is of.

    What it knows is read from the journal, which is never behind, so a snapshot is a copy that saves reading, and no
    condition of recovery. ``regions`` are the names of the job's regions. ``open_location`` opens the store that holds
    a location. ``pace`` says how often a snapshot may be a full one.
    """

    supports_batch_snapshot = True

    def __init__(
        self,
        journal: Journal,
        regions: Collection[str],
        open_location: Callable[[str], ObjectStore],
        pace: SnapshotPace | None = None,
    ) -> None:
        self._pace = pace or SnapshotPace()
        self._journal = journal
        self._regions = tuple(regions)
        self._open = open_location
        self._known: dict[PartitionId, PartitionManifest] = {}

    def snapshot(self, *, is_incremental: bool = False) -> ShuffleSnapshot:
        """The partitions of the attempts that count now and are not released. One listing, and their outcomes."""
        now = self._registered()
        before = self._known if is_incremental else {}
        found = tuple((each, manifest) for each, manifest in now.items() if each not in before)
        self._known = {**before, **now}
        return ShuffleSnapshot(is_incremental, found)

    def next_snapshot(self) -> ShuffleSnapshot:
        """A full snapshot where one is due (``snapshot.min-pause``), else what is new since the last one."""
        return self.snapshot(is_incremental=not self._pace.begins())

    def restore(self, snapshots: Sequence[ShuffleSnapshot]) -> None:
        """Know what these say, and nothing else."""
        self._known = {}
        for each in snapshots:
            self._known = {**(self._known if each.is_incremental else {}), **dict(each.partitions)}

    def partitions_with_metrics(
        self, job: RunIdentity, timeout_s: float, expected: Collection[PartitionId]
    ) -> PartitionReport:
        """Probe ``expected`` in parallel. The journal is read only for what no snapshot has told of.

        Raises `ConfigurationError` for a ``job`` that this journal is not of, and the store's errors.
        """
        if job != self._journal.identity:
            raise ConfigurationError(f"Expected the run {self._journal.identity}, found {job}: ask its own journal.")
        if not self._known.keys() >= set(expected):
            self._known = {**self._known, **self._registered()}
        asked = [each for each in dict.fromkeys(expected) if each in self._known]
        pool = ThreadPoolExecutor(max(1, min(CONNECTIONS, len(asked))), thread_name_prefix="recovery-probe")
        try:
            answers = {each: pool.submit(self._probe, self._known[each]) for each in asked}
            wait(answers.values(), timeout_s, FIRST_EXCEPTION)
            return self._report(expected, answers)
        finally:
            # One that hangs is not waited for.
            pool.shutdown(wait=False, cancel_futures=True)

    def _report(
        self, expected: Collection[PartitionId], answers: dict[PartitionId, Future[Availability]]
    ) -> PartitionReport:
        available, missing, unanswered = [], [], []
        for each in dict.fromkeys(expected):
            answer = answers.get(each)
            if answer is None:
                missing.append(each)
            elif not answer.done():
                unanswered.append(each)
            elif answer.result().is_available:
                manifest = self._known[each]
                available.append(PartitionWithMetrics(each, manifest.size, manifest.rows))
            else:
                missing.append(each)
        return PartitionReport(tuple(available), tuple(missing), tuple(unanswered))

    def _probe(self, manifest: PartitionManifest) -> Availability:
        return probe_manifest(self._open(manifest.location), manifest)

    def _registered(self) -> dict[PartitionId, PartitionManifest]:
        state = self._journal.load(self._journal.list(self._regions))
        found = {}
        for name in self._regions:
            current = state.of(name).current
            if current is not None and current.outcome is not None and not current.is_released:
                for each in current.outcome.outputs:
                    found[PartitionId(name, current.number, each.result)] = each
        return found
