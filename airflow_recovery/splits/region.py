"""One attempt of a region that commits split by split, in the driver: find what is left, read it, unite all batches."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from airflow_recovery.driver.attempt_result import AttemptResult
from airflow_recovery.driver.exit_report import read_failure_at
from airflow_recovery.driver.failure_class import label_of
from airflow_recovery.errors import Failure, UserCodeError
from airflow_recovery.journal.journal import Journal
from airflow_recovery.journal.layout import JournalLayout
from airflow_recovery.model.records import Claim, CommittedBatch, ExternalObject, FenceCause, Outcome
from airflow_recovery.model.split import Split
from airflow_recovery.splits.batches import PlannedBatches
from airflow_recovery.splits.committed_batches import (
    accumulated,
    check_cover,
    folder_of,
    lost_splits_of,
    numbers_of,
    refs_of,
    to_read,
    union_of,
)
from airflow_recovery.splits.log_store import SplitLogStore
from airflow_recovery.splits.loop import SplitLoop
from airflow_recovery.splits.mode import SplitClaim, SplitOutcome
from airflow_recovery.splits.poison import NOTHING, SPLITS_LABEL, EarlierAttempt, Record, is_death, record_of
from airflow_recovery.splits.progress import SplitProgress
from airflow_recovery.splits.pull import PulledSplits

if TYPE_CHECKING:
    from airflow_recovery.driver.progress import Progress
    from airflow_recovery.driver.region_spec import RegionSpec
    from airflow_recovery.driver.vertex_pass import OpenRegion
    from airflow_recovery.splits.spec import SplitSpec


def run_splits(region: OpenRegion, splits: SplitSpec, journal: Journal, progress: Progress) -> AttemptResult:
    """Read the splits that are in no adopted batch, and unite all batches to the region's results.

    Raises as `SplitLoop.run`, and `SplitsNotCovered` where the batches are not exactly what was assigned: nothing is
    finished then.
    """
    spec = region.spec
    assigned = region.splits_of(splits.vertex)
    adopted = journal.read_committed_batches(spec.region, numbers_of(splits.base))
    kept = {key for batch in adopted for key in batch.splits}
    counts = SplitProgress(assigned, kept)
    region.log.info("%s: %s.", spec.region, counts.counts().text())
    record = _record(journal, region, splits, assigned) if spec.attempt > 1 else NOTHING
    pulled = _pulled(journal, region, splits, record, assigned) if splits.is_pulled else None
    todo = to_read(assigned, adopted)
    loop = SplitLoop(
        region,
        splits,
        journal=journal,
        supplier=pulled or PlannedBatches(todo, batch_bytes=splits.batch_bytes, suspicion=record.suspicion),
        adopted=adopted,
        record=record,
        progress=progress,
        counts=counts,
    )
    batches = (*adopted, *loop.run())
    if pulled is not None:
        assigned = (*(split for split in assigned if split.key in kept), *pulled.taken.values())
    return union_result(region, assigned, batches)


def _pulled(
    journal: Journal, region: OpenRegion, splits: SplitSpec, record: Record, listed: tuple[Split, ...]
) -> PulledSplits:
    spec = region.spec
    return PulledSplits(
        SplitLogStore(journal.store, spec.identity, splits.vertex, writer=spec.trace.writer),
        spec.subtask.index,
        spec.attempt,
        batch_bytes=splits.batch_bytes,
        suspicion=record.suspicion,
        among={info.key for info in listed},
    )


def union_result(region: OpenRegion, assigned: Iterable[Split], batches: tuple[CommittedBatch, ...]) -> AttemptResult:
    """The region's results of ``batches``, which must be exactly what was ``assigned``. Raises `SplitsNotCovered`."""
    splits = tuple(assigned)
    check_cover(splits, batches)
    if all(batch.lost is not None for batch in batches):
        raise UserCodeError(
            f"region {region.spec.region}: expected something to read, found {len(splits)} splits, none of which can "
            "be read: look at the splits, or at splits="
        )
    results = [vertex.name for vertex in region.spec.vertices if vertex.is_result]
    return AttemptResult(
        outputs=union_of(folder_of(batches), results, batches),
        spark_seconds=round(sum(batch.seconds or 0.0 for batch in batches if batch.attempt != region.spec.attempt), 3),
        application_id=None,
        accumulators=accumulated(batches),
        externals=_read_by(region.spec, batches),
        mode=SplitOutcome(refs_of(batches), lost_splits_of(batches, splits)),
    )


def _read_by(spec: RegionSpec, batches: Iterable[CommittedBatch]) -> tuple[ExternalObject, ...]:
    """The externals that this attempt has read itself, without those of adopted batches."""
    own = {key for batch in batches if batch.attempt == spec.attempt for key in batch.splits}
    return tuple(external for external in spec.trace.externals if Split.of_external(external).key in own)


def _record(journal: Journal, region: OpenRegion, splits: SplitSpec, assigned: tuple[Split, ...]) -> Record:
    """Which splits earlier attempts of the same code and side inputs have failed on. One LIST, and their records."""
    spec = region.spec
    state = journal.load(journal.list([spec.region])).of(spec.region)
    ended = [
        n for n, attempt in state.attempts.items() if state.invalid_up_to < n < spec.attempt and attempt.is_claimed
    ]
    *claims, own = journal.read_claims([*((spec.region, n) for n in ended), (spec.region, spec.attempt)])
    same = [claim for claim in claims if SplitClaim.of(claim).reading == SplitClaim.of(own).reading]
    logs = {(claim.attempt, k) for claim in same for k in range(state.attempts[claim.attempt].batches)}
    wanted = sorted({*logs, *(number for claim in same for number in numbers_of(SplitClaim.of(claim).base))})
    batches = journal.read_committed_batches(spec.region, wanted)
    keys = {(batch.attempt, batch.number): batch.splits for batch in batches}
    earlier = [
        EarlierAttempt(
            adopted=frozenset(key for number in numbers_of(SplitClaim.of(claim).base) for key in keys[number]),
            committed=frozenset(key for at in logs if at[0] == claim.attempt for key in keys[at]),
            failure=_failure_of(region, claim, state.attempts[claim.attempt].outcome),
        )
        for claim in same
    ]
    # What a driver has pulled is not a function of what there was to pull: then only what was said counts.
    planned = () if splits.is_pulled else assigned
    return record_of(planned, earlier, batch_bytes=splits.batch_bytes, threads=splits.threads)


def _failure_of(region: OpenRegion, claim: Claim, outcome: Outcome | None) -> Failure | None:
    """How the attempt failed by itself. The pending failure of its driver is asked as well: the outcome may lack it."""
    if outcome is None or outcome.cause is not FenceCause.OWN_FAILURE or outcome.failure is None:
        return None
    failure = outcome.failure
    if not is_death(failure) or label_of(failure, SPLITS_LABEL):
        return failure
    prefix = JournalLayout(region.spec.identity).data_of(claim)
    previous = read_failure_at(region.store, prefix)
    return previous if previous is not None and label_of(previous, SPLITS_LABEL) else failure
