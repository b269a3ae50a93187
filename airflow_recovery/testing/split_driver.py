"""Stands in for the Spark driver of a region that commits split by split: the same protocol, and files of text.

What it commits is read back with `rows_of`, so a test can compare what a finish holds with what a fresh run would.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import count

from airflow_recovery.attempt.application import ClaimedAttempt
from airflow_recovery.errors import AttemptLost
from airflow_recovery.journal.journal import Journal
from airflow_recovery.model.manifest import PartitionManifest, ResultObject
from airflow_recovery.model.records import Claim, CommittedBatch, Outcome
from airflow_recovery.model.split import Split
from airflow_recovery.splits.committed_batches import (
    SplitWork,
    check_cover,
    lost_splits_of,
    numbers_of,
    refs_of,
    union_of,
)
from airflow_recovery.splits.mode import SplitClaim, SplitOutcome
from airflow_recovery.store.object_store import ObjectStore


class SplitDriver:
    """Reads ``batch`` splits at a time.

    ``made_of(split, result)`` is one row; ``begins`` is called before each batch, with its number.
    """

    def __init__(
        self,
        journal: Journal,
        results: ObjectStore,
        made_of: Callable[[Split, str], str],
        *,
        batch: int = 1,
        begins: Callable[[int], None] = lambda number: None,
    ) -> None:
        self._journal = journal
        self._results = results
        self._made_of = made_of
        self._batch = batch
        self._begins = begins

    def run(self, attempt: ClaimedAttempt, results: Iterable[str]) -> Outcome:
        """Read what is left, and finish with what the claim adopts. Raises `AttemptLost` where it was fenced."""
        work, claim = SplitWork.of(attempt.work), attempt.claim
        names = tuple(results)
        todo = list(work.todo)
        own: list[CommittedBatch] = []
        for number in count():
            batch, todo = todo[: self._batch], todo[self._batch :]
            if not batch:
                break
            self._begins(number)
            outputs = tuple(self._write(attempt, result, number, batch) for result in names)
            if self._journal.read_outcome(claim.region, claim.attempt) is not None:
                raise AttemptLost(f"{claim.region}@{claim.attempt} was fenced")
            keys = tuple(split.key for split in batch)
            committed = CommittedBatch(claim.region, claim.attempt, number, claim.writer, keys, outputs, "now", 1.0)
            self._journal.commit_batch(committed)
            own.append(committed)
        batches = (*self._adopted(claim), *own)
        check_cover(work.assigned, batches)
        outcome = attempt.trace.finished(
            "now",
            union_of(f"{self._results.base_uri}/{self._journal.layout.data_of_region(claim.region)}", names, batches),
            spark_seconds=1.0,
            mode=SplitOutcome(batches=refs_of(batches), lost_splits=lost_splits_of(batches, work.assigned)),
        )
        self._journal.finish(outcome)
        return outcome

    def _adopted(self, claim: Claim) -> tuple[CommittedBatch, ...]:
        """As a driver does, which is told the base alone."""
        return self._journal.read_committed_batches(claim.region, numbers_of(SplitClaim.of(claim).base))

    def _write(self, attempt: ClaimedAttempt, result: str, number: int, batch: list[Split]) -> PartitionManifest:
        claim = attempt.claim
        folder = f"{self._journal.layout.data_of(claim)}/{result}/{number:04d}"
        rows = [self._made_of(split, result) for split in batch]
        info = self._results.put(f"{folder}/part-0", "\n".join(rows).encode())
        obj = ResultObject("part-0", info.size, info.etag)
        return PartitionManifest(result, f"{self._results.base_uri}/{folder}", (obj,), rows=len(rows))


def rows_of(results: ObjectStore, manifest: PartitionManifest) -> list[str]:
    """The rows that a manifest names, in no order: sorted. Raises `ObjectMissing`."""
    prefix = manifest.location.removeprefix(f"{results.base_uri}/")
    bodies = [results.get(f"{prefix}/{file.path}").body.decode() for file in manifest.objects]
    return sorted(row for body in bodies for row in body.split("\n"))
