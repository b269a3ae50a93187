"""What a region's task does about a dynamic assignment, before Spark starts: fence, claim, return, in this order.

    discover        today's listing is another than the log's: what has come, and what has gone
    return_rest     the attempt is claimed: what its claim does not adopt is its subtask's again, to be read
    finish_pulled   the same; and where nothing is left for the subtask, it finishes without Spark

The fence is that of every previous attempt (`airflow_recovery.attempt.previous_attempt`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import replace

from airflow_recovery.attempt.application import ClaimedAttempt
from airflow_recovery.attempt.attempt_outcome import fenced
from airflow_recovery.attempt.run import Run
from airflow_recovery.errors import AttemptLost, SplitsVanished
from airflow_recovery.job.enumerators import Enumeration, ResumedEnumerator
from airflow_recovery.model.manifest import PartitionManifest
from airflow_recovery.model.records import CommittedBatch, FenceCause, Outcome, ReadMetrics
from airflow_recovery.model.region_plan import RegionPlan
from airflow_recovery.model.split import Split, in_order, listed
from airflow_recovery.model.split_matching import Vanished, names
from airflow_recovery.splits.adoption import finish_without_spark
from airflow_recovery.splits.committed_batches import SplitWork
from airflow_recovery.splits.log import Discovered, Rescaled, SplitBook
from airflow_recovery.splits.log_store import SplitLogStore, split_log
from airflow_recovery.splits.mode import SplitPlan


def discover(
    splits: SplitLogStore,
    today: Callable[[], Iterable[Split]] | ResumedEnumerator,
    *,
    vertex: str,
    parallelism: int,
    vanished: Vanished,
    log: logging.Logger,
) -> tuple[Split, ...]:
    """Enter how many subtasks there are, and what has come and gone since the last listing; what there is to read now,
    in the order of the names.

    The log is read before ``today`` lists, and where another listing was entered meanwhile, it is listed again: what a
    slow process saw never replaces a newer listing. With `Vanished.KEEP` the answer has vanished splits as well, as far
    as a subtask has them: what it has committed of them stays, the rest is read by nobody again. Raises
    `SplitsVanished` where one has gone and that fails, with nothing entered, and what ``today`` raises. Where nothing
    has changed, these are two LIST and the records.
    """
    splits.append(lambda book: rescaled(book, parallelism, vertex, vanished))
    while True:
        book = splits.book
        before = book.listings
        enumeration = _enumeration(book, today)
        record = news(book, enumeration, vertex, vanished, log)
        if record is None or splits.append(lambda book: record if book.listings == before else None):  # noqa: B023
            return to_read(splits.book, vanished)


def _enumeration(book: SplitBook, today: Callable[[], Iterable[Split]] | ResumedEnumerator) -> Enumeration:
    """Today's listing; an enumerator that opted in goes on from its state in ``book``, and keeps what it has listed."""
    if not isinstance(today, ResumedEnumerator):
        return Enumeration(listed(today()).splits, None)
    gone = book.vanished()
    return today.goes_on(book.enumerator, {key: split for key, split in book.known.items() if key not in gone})


def to_read(book: SplitBook, vanished: Vanished) -> tuple[Split, ...]:
    """All splits in ``book`` by name; those that have vanished only with `Vanished.KEEP`."""
    gone = frozenset() if vanished is Vanished.KEEP else book.vanished()
    return tuple(in_order(split for key, split in book.known.items() if key not in gone))


def rescaled(book: SplitBook, parallelism: int, vertex: str, vanished: Vanished) -> Rescaled | None:
    """The record of a changed number of subtasks; `None` where it is the book's.

    Raises `SplitsVanished` with `Vanished.KEEP`, where a subtask that would not exist any more has vanished splits.
    """
    record = book.rescaled(parallelism)
    kept = book.gone_from(parallelism) if record is not None and vanished is Vanished.KEEP else ()
    if kept:
        raise SplitsVanished(
            f"vertex {vertex!r}: expected what was read of {len(kept)} splits that are not listed any more to be kept "
            f"(vanished='keep'), found fewer subtasks, {parallelism}, than have read them: {names(kept)}. Bring the "
            "splits back, declare as many subtasks as before, or declare vanished='drop'"
        )
    return record


def news(
    book: SplitBook, enumeration: Enumeration, vertex: str, vanished: Vanished, log: logging.Logger
) -> Discovered | None:
    """The record of what has come and gone since the book's last listing; `None`: nothing. Raises as `discover`."""
    discovered = book.news(enumeration.splits, enumeration.state)
    if discovered is None:
        return None
    if discovered.vanished and vanished is Vanished.FAIL:
        raise SplitsVanished(
            f"vertex {vertex!r}: expected the splits that were listed before, found {len(discovered.vanished)} gone "
            f"({names(book.known[key] for key in discovered.vanished)}): bring them back, or declare vanished='drop' "
            "or 'keep'",
            code="listed-splits-gone",
        )
    if book.known:
        new, gone = len(discovered.added), len(discovered.vanished)
        log.warning("The splits of %s are others than before: %d new, %d gone.", vertex, new, gone)
    return discovered


def return_rest(splits: SplitLogStore, subtask: int, attempt: int, base: Iterable[CommittedBatch]) -> SplitBook:
    """Attempt ``attempt`` is claimed, and adopts ``base``: return all else that earlier attempts were given.

    From then on no earlier attempt can pull. Never before the claim: a batch that a zombie commits between the two
    would be in no base, and its splits would be read again and counted twice. Raises `AttemptLost` where ``base`` is
    not the subtask's any more (another attempt has returned it since it was read), and where there is no such subtask
    any more.
    """
    batches = tuple(base)
    kept = {key for batch in batches for key in batch.splits}
    if attempt > 1:
        splits.append(lambda book: book.rest_of(subtask, attempt, kept))
    else:
        splits.read()
    check_own(splits.book, subtask, attempt, batches)
    return splits.book


def check_own(book: SplitBook, subtask: int, attempt: int, base: Iterable[CommittedBatch]) -> None:
    """After the return. Raises `AttemptLost` where the attempt is over, or ``base`` is not the subtask's any more."""
    if book.is_over(subtask, attempt):
        raise AttemptLost(f"attempt {attempt} of subtask {subtask} is over: a later one counts, or it is one too many")
    lost = [batch for batch in base if not book.has(subtask, batch.attempt, batch.splits)]
    if lost:
        raise AttemptLost(
            f"attempt {attempt} of subtask {subtask}: {len(lost)} batches that it adopts were given back while it was "
            "claimed; the next try reads anew what is in them",
            code="adopted-batches-given-back",
        )


def finish_pulled(run: Run, attempt: ClaimedAttempt) -> Outcome | None:
    """Return what is not adopted, and finish without Spark where no split is left to pull; `None`: Spark has to run.

    The finish is made of what the claim adopts. Without any, it has no rows, and the columns of another subtask's
    batch; where there is none yet, Spark runs to find them out. Raises `AttemptLost` where the attempt was fenced.
    """
    work, claim = SplitWork.of(attempt.work), attempt.claim
    if not work.is_pulled:
        return None
    region = run.regions[claim.region]
    subtask = region.subtask.index if region.subtask is not None else 0
    base = {key for batch in work.adopted for key in batch.splits}
    try:
        log = split_log(run.journal, SplitPlan.of(region).split_source)
        book = return_rest(log, subtask, claim.attempt, work.adopted)
    except AttemptLost as error:
        run.journal.fence(fenced(run, claim.region, claim.attempt, FenceCause.LOST_INPUT, str(error)))
        raise
    if book.next_batch(subtask, 1, {split.key for split in work.assigned}):
        return None
    run.log.info("%s: no split is left for it; it has %d.", claim.region, len(base))
    if any(batch.outputs for batch in work.adopted):
        own = tuple(split for split in work.assigned if split.key in base)
        return finish_without_spark(run, replace(attempt, work=replace(work, assigned=own, is_pulled=False)))
    return None if base else _finish_without_rows(run, attempt, region)


def _finish_without_rows(run: Run, attempt: ClaimedAttempt, region: RegionPlan) -> Outcome | None:
    shown = _outputs_of_another(run, region)
    if shown is None:
        return None
    data = run.journal.layout.data_of(attempt.claim)
    of_another = next(iter(shown.values())).location
    root = of_another[: of_another.index(run.journal.layout.data)]
    outputs = tuple(
        replace(shown[name], location=f"{root}{data}/{name}", objects=(), rows=0, digest=None)
        for name in region.results
    )
    outcome = attempt.trace.finished(run.now(), outputs, spark_seconds=0.0, read=ReadMetrics.of((), ()))
    run.journal.finish(outcome)
    run.log.info("%s@%d is finished without Spark, and without rows.", region.name, outcome.attempt)
    return outcome


def _outputs_of_another(run: Run, region: RegionPlan) -> dict[str, PartitionManifest] | None:
    """What the first batch of another subtask wrote, by result: its columns are this one's."""
    of = region.subtask.of if region.subtask is not None else None
    others = [region.name for region in run.plan.regions if region.subtask is not None and region.subtask.of == of]
    for name, state in run.journal.list(others).state.regions.items():
        for n, attempt in state.attempts.items():
            for batch in run.journal.read_batch_log(name, n, min(attempt.batches, 1)):
                if batch.outputs:
                    return {output.result: output for output in batch.outputs}
    return None
