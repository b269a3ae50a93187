"""Which committed batches of earlier attempts an attempt adopts: reads what the rules need, and applies them.

The rules are pure, in `airflow_recovery.splits.committed_batches`. All is read once, before the claim, which names the
adopted batches for good: a batch that a zombie commits after that is in no result.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from airflow_recovery.attempt.application import ClaimedAttempt
from airflow_recovery.attempt.attempt_outcome import fenced
from airflow_recovery.attempt.run import Run
from airflow_recovery.errors import AttemptLost, ObjectMissing, RecordInvalid
from airflow_recovery.journal.plans import reading_of
from airflow_recovery.journal.run_state import Attempt, RunState
from airflow_recovery.model.inputs import InputRef
from airflow_recovery.model.manifest import PartitionManifest
from airflow_recovery.model.records import (
    AttemptState,
    Claim,
    CommittedBatch,
    ExternalObject,
    FenceCause,
    Outcome,
    ReadMetrics,
)
from airflow_recovery.model.region_plan import RegionPlan
from airflow_recovery.model.split import Split
from airflow_recovery.splits.committed_batches import (
    SplitWork,
    accumulated,
    adoptable,
    check_cover,
    folder_of,
    lost_splits_of,
    numbers_of,
    refs_of,
    taken,
    union_of,
    usable,
)
from airflow_recovery.splits.committed_splits import check_kept, committed_splits
from airflow_recovery.splits.log import SplitBook
from airflow_recovery.splits.log_store import split_log
from airflow_recovery.splits.mode import SplitClaim, SplitOutcome, SplitPlan


def split_work(
    run: Run, region: RegionPlan, state: RunState, refs: Sequence[InputRef], externals: Sequence[ExternalObject]
) -> SplitWork:
    """What the next attempt of ``region`` has to read of ``externals``, and what it can take over.

    One read for each earlier attempt and each batch that it committed, and one listing of the data. Where splits are
    pulled, only batches are taken over whose splits were never given back since, as the log says. Raises the store's
    errors, `RecordInvalid` where a batch that was adopted before is not there, and `UserCodeError` where rows that are
    to be kept of splits which have vanished can't be taken over.
    """
    planned = SplitPlan.of(region)
    assigned = tuple(Split.of_external(external) for external in externals if external.vertex == planned.split_source)
    reading = reading_of(region.fingerprint, refs)
    region_state = state.of(region.name)
    before = [
        (region.name, n)
        for n, attempt in region_state.attempts.items()
        if attempt.is_claimed and n > region_state.invalid_up_to
    ]
    claims = {claim.attempt: claim for claim in run.journal.read_claims(before)}
    base = adoptable(region_state, claims, reading)
    batches = _read(run, region.name, numbers_of(base))
    book = split_log(run.journal, planned.split_source).book if before and planned.pulls_splits else None
    index = region.subtask.index if region.subtask is not None else 0

    def is_own(batch: CommittedBatch) -> bool:
        # Of a claim that the journal has lost, a driver may live: its code is not known, and the number is another's.
        is_of_claim = batch.writer == claims[batch.attempt].writer
        return is_of_claim and (book is None or book.has(index, batch.attempt, batch.splits))

    base = usable(base, batches, {split.key for split in assigned}, _gone(run, region.name, batches), is_own=is_own)
    if book is not None:
        _check_kept(run, region, book, index, assigned, {key for batch in taken(base, batches) for key in batch.splits})
    work = SplitWork(assigned, base, taken(base, batches), reading, planned.pulls_splits)
    if before:
        lost = len(batches) - len(work.adopted)
        unusable = f" ({lost} batches of earlier attempts can't be used any more)" if lost else ""
        run.log.info("%s: %s%s.", region.name, work.text(), unusable)
    return work


def check_base(run: Run, claim: Claim) -> None:
    """Fence the attempt, and raise `AttemptLost`, where a batch that its claim adopts was released or reset since.

    Asked before Spark starts: adopted batches are not read again, so a missing one would not be noticed by anybody
    else. Raises the store's errors as well.
    """
    if not SplitClaim.of(claim).base:
        return
    region_state = run.list().state.of(claim.region)
    adopted = [batch.attempt for batch in SplitClaim.of(claim).base]
    gone = [
        attempt for attempt in adopted if attempt <= region_state.reset_watermark or region_state.may_be_gone(attempt)
    ]
    if gone:
        detail = ", ".join(f"{claim.region}@{number}" for number in gone) + " was released or reset"
        run.journal.fence(fenced(run, claim.region, claim.attempt, FenceCause.LOST_INPUT, detail))
        raise AttemptLost(f"{claim.region}@{claim.attempt}: {detail} after it was claimed; the next try reads it anew.")


def finish_without_spark(run: Run, attempt: ClaimedAttempt) -> Outcome:
    """Finish an attempt all of whose splits are in adopted batches.

    Raises `SplitsNotCovered` where they are not, and `AttemptLost` where the attempt was fenced.
    """
    work = SplitWork.of(attempt.work)
    check_cover(work.assigned, work.adopted)
    region = run.regions[attempt.claim.region]
    outcome = attempt.trace.finished(
        run.now(),
        union_of(folder_of(work.adopted), region.results, work.adopted),
        # What its rows have cost, as of a finish that has read some of them itself.
        spark_seconds=round(sum(batch.seconds or 0.0 for batch in work.adopted), 3),
        read=ReadMetrics.of((), ()),
        accumulators=accumulated(work.adopted),
        mode=SplitOutcome(batches=refs_of(work.adopted), lost_splits=lost_splits_of(work.adopted, work.assigned)),
    )
    run.journal.finish(outcome)
    run.log.info("%s@%d is finished without Spark: %s.", region.name, outcome.attempt, work.text())
    return outcome


def _check_kept(
    run: Run, region: RegionPlan, book: SplitBook, index: int, assigned: Sequence[Split], adopted: Collection[str]
) -> None:
    """With ``vanished="keep"``: raise `UserCodeError` where rows of a vanished split could not be adopted.

    Asked before the claim, after which the split would be returned, and nobody could read it again.
    """
    gone = book.vanished() & {*book.held_by(index)}
    left = [split for split in assigned if split.key in gone and split.key not in adopted]
    if left:
        committed = committed_splits(run.journal, region.name, SplitPlan.of(region).split_source)
        check_kept(region.name, [split for split in left if split.key in committed])


def _read(run: Run, region: str, numbers: Sequence[tuple[int, int]]) -> tuple[CommittedBatch, ...]:
    try:
        return run.journal.read_committed_batches(region, numbers)
    except ObjectMissing as error:
        raise RecordInvalid(
            f"{region}: expected {len(numbers)} batches of its earlier attempts in the journal, found one missing "
            f"({error}): somebody deleted it. Restart the region, which reads everything anew."
        ) from error


def _gone(run: Run, region: str, batches: Sequence[CommittedBatch]) -> frozenset[tuple[int, int]]:
    """The batches whose objects are not there as they were written. One listing, where nothing is amiss."""
    made = [batch for batch in batches if batch.outputs]
    if not made:
        return frozenset()
    results = [output.result for output in made[0].outputs]
    if _is_there(run, region, union_of(folder_of(made), results, made)):
        return frozenset()
    return frozenset((batch.attempt, batch.number) for batch in made if not _is_there(run, region, batch.outputs))


def _is_there(run: Run, region: str, outputs: tuple[PartitionManifest, ...]) -> bool:
    # As if they were an attempt's: what looks for a finished result looks for these.
    made = Outcome(region, 0, AttemptState.FINISHED, run.journal.writer, "", outputs=outputs)
    return run.available.why_gone(region, Attempt(0, is_claimed=True, has_outcome=True, outcome=made)) is None
