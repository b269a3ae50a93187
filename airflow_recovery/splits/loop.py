"""A region that commits split by split: one Spark job a batch, and one write-once record for each.

    what is left, in batches  ->  driver threads: call the vertices, write, and commit the batch under a lock
    a batch that raises       ->  its halves, when everything else is safe; and so on, down to the split
    a split that raises       ->  the attempt fails when all others are committed, and names it; after `MAX_FAILURES`
                                  for good, or it is committed as lost, within the source's loss budget
    the end                   ->  the batches that were adopted and the own ones must be exactly what was assigned

Safety rests on three writes alone: the claim, which says what is adopted; the committed batches, each put if absent, by
one writer; and the outcome. The loop looks for a fence before each batch, but only to save work: no result is made of
batches that a later claim does not adopt.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections import deque
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timezone

from airflow_recovery.driver.exit_report import forget_failure, report_failure
from airflow_recovery.driver.failure import describe, is_user_error
from airflow_recovery.driver.failure_class import FailureClass, classify, labelled
from airflow_recovery.driver.fencing import is_fenced
from airflow_recovery.driver.progress import Progress
from airflow_recovery.driver.vertex_pass import OpenRegion, VertexPass
from airflow_recovery.errors import AttemptLost, Failure, JobDefinitionError, RecoveryError, RegionFailed, UserCodeError
from airflow_recovery.job.accumulators import Accumulators
from airflow_recovery.journal.journal import Journal
from airflow_recovery.model.location import listing_prefix
from airflow_recovery.model.manifest import PartitionManifest
from airflow_recovery.model.records import CommittedBatch
from airflow_recovery.model.split import Split
from airflow_recovery.model.split_matching import names
from airflow_recovery.splits.batches import Batch, BatchSupplier
from airflow_recovery.splits.plan_guard import RowLocalGuard
from airflow_recovery.splits.poison import MAX_FAILURES, SPLITS_LABEL, Record
from airflow_recovery.splits.progress import SplitProgress
from airflow_recovery.splits.spec import SplitSpec

MAX_FAILED = 2
"""When so many batches or splits more than the loss budget have failed, splits are hardly the cause: fail at once."""

_OF_THE_SPLITS = frozenset(
    {
        FailureClass.USER_CODE,
        FailureClass.OUT_OF_MEMORY,
        FailureClass.EXECUTOR_LOST,
        FailureClass.INPUT_ALTERED,
        FailureClass.INPUT_UNREADABLE,
        FailureClass.UNKNOWN,
    }
)
"""Failures that one split may have caused. A store in trouble, a lost session or a fence are not among them."""


@dataclass(frozen=True)
class _Failed:
    split: Split
    failure: Failure
    error: BaseException | None


class SplitLoop:
    """Reads and commits the batches of one attempt.

    ``adopted``: batches of earlier attempts, which are not read again. ``record``: which splits earlier attempts have
    failed on. ``supplier``: what gives the batches to read.
    """

    def __init__(
        self,
        region: OpenRegion,
        splits: SplitSpec,
        *,
        journal: Journal,
        supplier: BatchSupplier,
        adopted: Sequence[CommittedBatch],
        record: Record,
        progress: Progress,
        counts: SplitProgress,
    ) -> None:
        self._region = region
        self._spec = region.spec
        self._splits = splits
        self._journal = journal
        self._supplier = supplier
        self._adopted = tuple(adopted)
        self._record = record
        self._progress = progress
        self._counts = counts
        self._folders = itertools.count()
        self._asking = threading.Lock()
        self._committing = threading.Lock()
        self._stopped = threading.Event()
        self._raised: BaseException | None = None
        self._later: deque[Batch] = deque()
        self._failed: list[_Failed] = []
        self._failed_batches = 0
        self._own: list[CommittedBatch] = []
        self._schemas = {output.result: output.schema for committed in adopted for output in committed.outputs}
        self._committed_at = time.monotonic()
        self._seen_cuts: set[int] = set()

    def run(self) -> tuple[CommittedBatch, ...]:
        """Read all that its supplier gives, and return the batches that this attempt has committed.

        Raises `AttemptLost` where the attempt was fenced, `RegionFailed` or `UserCodeError` naming the splits that
        could not be read, and whatever no split is to blame for.
        """
        self._progress.vertex = self._splits.vertex
        with self._progress.watching(self._region.spark):
            with ThreadPoolExecutor(self._splits.threads, "batches") as pool:
                for number in range(self._splits.threads):
                    pool.submit(self._drain, number)
            if self._raised is not None:
                raise self._raised
            if not self._later and not self._own and not self._adopted and not self._failed:
                self._read(Batch(()))  # no splits at all: results without rows
            while self._later:
                self._read(self._later.popleft())
        self._end_failed()
        self._progress.vertex = None
        return tuple(self._own)

    # reading

    def _drain(self, thread: int) -> None:
        # A pool of its own: with Spark's FAIR mode the second batch does not wait for the first one's last tasks.
        self._region.spark.sparkContext.setLocalProperty("spark.scheduler.pool", f"batches-{thread}")
        try:
            while not self._stopped.is_set():
                with self._asking:
                    batch = self._supplier.next_batch()
                if batch is None:
                    return
                if batch.may_be_poison:
                    self._later.append(batch)
                else:
                    self._read(batch)
        except BaseException as error:
            with self._asking:
                if self._raised is None:
                    self._raised = error
            self._stopped.set()
            with suppress(Exception):  # Spark may be gone; of the other thread's job nobody would use what comes out
                self._region.spark.sparkContext.cancelAllJobs()

    def _read(self, batch: Batch) -> None:
        alone = batch.splits[0] if batch.may_be_poison and len(batch.splits) == 1 else None
        if alone is None:
            self._read_and_commit(batch)
        elif self._record.is_poison(alone.key):
            self._failed.append(_Failed(alone, _DIED_OF_IT, None))
        else:
            # Nothing else is being read: if the driver dies now, it dies of this one.
            failure = Failure(
                _DIED, f"the driver died while it read {alone.name}, and nothing else", labels=_label([alone])
            )
            report_failure(self._spec, failure, self._region.log)
            self._read_and_commit(batch)
            forget_failure(self._spec, self._region.log)  # it did not die

    def _read_and_commit(self, batch: Batch) -> None:
        progress, accumulators = Progress(self._region.log, self._spec.attempt), Accumulators()
        try:
            outputs = VertexPass(
                self._region,
                progress=progress,
                accumulators=accumulators,
                splits={self._splits.vertex: batch.splits},
                folder=f"{next(self._folders):04d}",
                guard=RowLocalGuard(self._seen_cuts),
                is_quiet=True,
            ).run()
            self._check_columns(outputs, batch)
        except Exception as error:
            self._progress.vertex = progress.vertex
            if isinstance(error, RecoveryError) or self._stopped.is_set():
                raise
            self._blame(batch, labelled(describe(error, vertex=progress.vertex)), error)
            return
        try:
            self._commit(batch.splits, outputs, accumulators.totals())
        except AttemptLost:
            # Of the others' batches nothing is touched: a later attempt may have adopted them.
            self._discard(outputs)
            raise

    def _blame(self, batch: Batch, failure: Failure, error: Exception) -> None:
        if self._is_spark_gone():
            # The first thing that breaks then may be anything, such as a connection that is refused.
            reason = f"Spark is gone: {failure.type}: {failure.message}"
            is_alone = batch.may_be_poison and len(batch.splits) == 1
            named = _label(batch.splits) if is_alone else ()
            raise RegionFailed(reason, Failure(_DIED, reason, vertex=failure.vertex, labels=named)) from error
        if classify(failure) not in _OF_THE_SPLITS:
            raise error
        self._set_aside(batch, failure, error)

    def _is_spark_gone(self) -> bool:
        try:
            return bool(self._region.spark.sparkContext._jsc.sc().isStopped())
        except Exception:  # nobody answers
            return True

    # committing

    def _commit(
        self,
        splits: Sequence[Split],
        outputs: tuple[PartitionManifest, ...],
        accumulators: tuple[tuple[str, float], ...] = (),
        lost: Failure | None = None,
    ) -> None:
        spec = self._spec
        with self._committing:
            if is_fenced(self._journal, spec.region, spec.attempt):
                raise AttemptLost(
                    f"{spec.region}@{spec.attempt} was fenced after it had committed {len(self._own)} batches: a later "
                    "attempt counts, and has taken over what it wants of them"
                )
            now = time.monotonic()
            committed = CommittedBatch(
                region=spec.region,
                attempt=spec.attempt,
                number=len(self._own),
                writer=spec.trace.writer,
                splits=tuple(split.key for split in splits),
                outputs=outputs,
                written_at=datetime.now(timezone.utc).isoformat(),
                # Since the batch before it, so that all of them sum up to the time of the attempt.
                seconds=round(now - self._committed_at, 3),
                lost=lost,
                accumulators=accumulators,
            )
            self._journal.commit_batch(committed)
            self._own.append(committed)
            self._committed_at = now
            counts = self._counts.committed(splits)
        self._progress.say(counts.text())

    def _discard(self, outputs: Iterable[PartitionManifest]) -> None:
        try:
            store = self._region.store
            for output in outputs:
                prefix = listing_prefix(store.base_uri, output.location)
                store.delete([info.key for info in store.list(prefix)])
        except Exception as error:
            self._region.log.warning("What was not committed is left behind: %s", error)

    def _check_columns(self, outputs: Iterable[PartitionManifest], batch: Batch) -> None:
        """Raise `JobDefinitionError` for other columns than those of the batches before, as early as possible."""
        for output in outputs:
            expected = self._schemas.setdefault(output.result, output.schema)
            if output.schema != expected:
                raise JobDefinitionError(
                    f"result {output.result!r}: expected every batch to have the columns of the first one, {expected}, "
                    f"found {output.schema} in the batch of {names(batch.splits)}: look at these files. If they are as "
                    "they should be, have the source say its columns and types, instead of taking them from the files "
                    "of each batch"
                )

    # failing

    def _set_aside(self, batch: Batch, failure: Failure, error: Exception) -> None:
        reason = _in_a_line(failure)
        log = self._region.log
        with self._asking:
            self._failed_batches += not batch.may_be_poison
            if len(batch.splits) == 1:
                log.warning("Split %s can't be read: %s", batch.splits[0].name, reason)
                self._failed.append(_Failed(batch.splits[0], failure, error))
            else:
                count = len(batch.splits)
                log.warning("A batch of %d splits failed, its halves are read after the others: %s", count, reason)
                # In front: the split that it was is found before the next batch is looked into.
                halves = batch.splits[: count // 2], batch.splits[count // 2 :]
                self._later.extendleft(Batch(halve, may_be_poison=True) for halve in reversed(halves))
            too_many = max(len(self._failed), self._failed_batches) > MAX_FAILED + self._splits.loss_budget
        if too_many:
            message = (
                f"{failure.type}: {failure.message}. So it is for {batch.splits[0].name} and in more batches or splits "
                f"than the loss budget and {MAX_FAILED}: nothing more is tried, since it is hardly these splits' fault"
            )
            raise RegionFailed(message, replace(failure, message=message)) from error

    def _end_failed(self) -> None:
        """After all other splits are committed: commit the failed ones as lost, or fail, for a retry or for good."""
        if not self._failed:
            return
        lost = sum(len(committed.splits) for committed in (*self._adopted, *self._own) if committed.lost is not None)
        poison = [failed for failed in self._failed if self._is_hopeless(failed)]
        within = len(self._failed) + lost <= self._splits.loss_budget
        if len(poison) == len(self._failed) and within:
            for given_up in poison:
                self._region.log.warning("Split %s is given up, within the loss budget.", given_up.split.name)
                self._commit((given_up.split,), (), lost=given_up.failure)
            return
        worst = poison or self._failed
        named = names(failed.split for failed in worst)
        first = worst[0].failure
        label = _label(failed.split for failed in self._failed)
        reason = f"{first.type}: {first.message}"
        safe = f"{self._counts.counts().text()}, and are not read again."
        if poison:
            needed, allowed = lost + len(self._failed), self._splits.loss_budget
            message = (
                f"{named} can't be read, each by itself and for good: {reason}. {safe} Repair what they hold, or leave "
                f"them out of splits=; or let the result do without them: loss_budget={needed} (it is {allowed})"
            )
            failure = Failure("UserCodeError", message, vertex=first.vertex, labels=label)
            raise UserCodeError(message, failure) from worst[0].error
        message = f"{named} could not be read: {reason}. {safe} After {MAX_FAILURES} such failures it is given up"
        failure = replace(first, message=message, labels=(*first.labels, *label))
        raise RegionFailed(message, failure) from worst[0].error

    def _is_hopeless(self, failed: _Failed) -> bool:
        before = self._record.counts.get(failed.split.key, 0)
        return before + 1 >= MAX_FAILURES or is_user_error(failed.failure)


def _in_a_line(failure: Failure) -> str:
    """Of a traceback, the end: its first line says nothing."""
    lines = failure.message.strip().splitlines() or [""]
    return f"{failure.type}: {lines[0]}" + (f" ... {lines[-1].strip()}" if len(lines) > 1 else "")


def _label(splits: Iterable[Split]) -> tuple[tuple[str, str], ...]:
    return ((SPLITS_LABEL, ",".join(split.key for split in splits)),)


_DIED = "DriverLost"
_DIED_OF_IT = Failure(
    _DIED,
    f"{MAX_FAILURES} drivers were killed, or ran out of memory, while they read it; the last one read nothing else. It "
    "is not read again before the region is restarted",
)
