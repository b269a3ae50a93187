"""What a region's task does about a dynamic assignment, before Spark starts: fence, claim, return, in this order.

    discover        today's listing is another than the log's: what has come, and what has gone
    return_rest     the attempt is claimed: what its claim does not adopt goes home
    finish_pulled   that; and where nothing is left for the subtask, it finishes without Spark

The fence is that of every predecessor (`airflow_recovery.execution.predecessor`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace

from airflow_recovery.errors import SplitsVanished
from airflow_recovery.execution.adoption import finish_without_spark
from airflow_recovery.execution.run import Run
from airflow_recovery.execution.runner import ClaimedAttempt
from airflow_recovery.journal.records import Outcome, ReadMetrics, RegionPlan
from airflow_recovery.journal.split_log_store import SplitLogStore
from airflow_recovery.shuffle.manifest import PartitionManifest
from airflow_recovery.source.matching import Vanished, names
from airflow_recovery.source.split import Split, in_order, listed
from airflow_recovery.source.split_log import Discovered, Return, SplitBook


def discover(
    splits: SplitLogStore,
    today: Callable[[], Iterable[Split]],
    *,
    vertex: str,
    vanished: Vanished,
    log: logging.Logger,
) -> tuple[Split, ...]:
    """Enter what has come and gone since the last listing; what there is to read now, in the order of the names.

    The log is read before ``today`` lists, and where another listing was entered meanwhile, it is listed again: what a
    slow process saw overtakes nothing. With ``vanished`` as `Vanished.KEEP` the answer holds also what a subtask has of
    what is gone: what it has committed of it stays, the rest comes to nobody again. Raises `SplitsVanished` where one
    has gone and that fails, with nothing entered, and what ``today`` raises.
    """
    while True:
        before = splits.read().listings
        found = listed(today()).splits
        splits.append(lambda book: _news(book, found, before, vertex, vanished, log))  # noqa: B023 - called at once
        book = splits.read()
        if book.listings == before or _says(book, found):
            gone = frozenset() if vanished is Vanished.KEEP else book.vanished()
            return tuple(in_order(each for key, each in book.known.items() if key not in gone))


def _says(book: SplitBook, found: Mapping[str, Split]) -> bool:
    return book.known.keys() - book.vanished() == found.keys()


def _news(
    book: SplitBook, found: Mapping[str, Split], before: int, vertex: str, vanished: Vanished, log: logging.Logger
) -> Discovered | None:
    """What ``found`` has that ``book`` has not, and the other way; `None`: nothing, or it is older than the book."""
    if book.listings != before:
        return None
    standing = book.vanished()
    added = tuple(each for key, each in found.items() if key not in book.known or key in standing)
    gone = tuple(key for key in book.known if key not in found and key not in standing)
    if gone and vanished is Vanished.FAIL:
        raise SplitsVanished(
            f"vertex {vertex!r}: expected the splits that were listed before, found {len(gone)} gone "
            f"({names(book.known[key] for key in gone)}): bring them back, or declare vanished='drop' or 'keep'"
        )
    if not added and not gone:
        return None
    if book.known:
        log.warning("The splits of %s are others than before: %d new, %d gone.", vertex, len(added), len(gone))
    return Discovered(added, gone)


def return_rest(splits: SplitLogStore, subtask: int, attempt: int, base: Collection[str]) -> SplitBook:
    """Attempt ``attempt`` is claimed, and adopts ``base``: all else that its predecessors were given goes home.

    Also closes the log to every one of them. Never before the claim: what a zombie commits meanwhile is in no claim's
    base, and would be counted twice.
    """

    def decide(book: SplitBook) -> Return | None:
        if book.is_over(subtask, attempt - 1):
            return None  # this process has got so far before, or a later attempt has
        return Return(subtask, attempt - 1, tuple(key for key in book.held_by(subtask) if key not in base))

    if attempt > 1:
        splits.append(decide)
    return splits.read()


def finish_pulled(run: Run, attempt: ClaimedAttempt) -> Outcome | None:
    """What comes between the claim and Spark, of a region whose driver pulls its splits; `None`: Spark has to run.

    It finishes here where nothing is left for it: with what its claim adopts, or without rows where it has nothing, and
    another subtask has shown by a part which columns there are. Raises `AttemptLost` where it was fenced.
    """
    work, claim = attempt.splits, attempt.claim
    if work is None or not work.is_pulled:
        return None
    region = run.regions[claim.region]
    assert region.split_source is not None
    splits = SplitLogStore(run.journal.store, run.journal.identity, region.split_source, writer=run.journal.writer)
    subtask = region.subtask.index if region.subtask is not None else 0
    base = {key for each in work.adopted for key in each.splits}
    book = return_rest(splits, subtask, claim.attempt, base)
    if book.next_batch(subtask, 1, {each.key for each in work.assigned}):
        return None
    run.log.info("%s: no split is left for it; it has %d.", claim.region, len(base))
    if any(each.outputs for each in work.adopted):
        own = tuple(each for each in work.assigned if each.key in base)
        return finish_without_spark(run, replace(attempt, splits=replace(work, assigned=own, is_pulled=False)))
    return None if base else _finish_without_rows(run, attempt, region)


def _finish_without_rows(run: Run, attempt: ClaimedAttempt, region: RegionPlan) -> Outcome | None:
    shown = _outputs_of_another(run, region)
    if shown is None:
        return None
    data = run.journal.layout.data_of(region.name, attempt.claim.attempt)
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
    """What the first part of another subtask wrote, by result: its columns are this one's."""
    of = region.subtask.of if region.subtask is not None else None
    others = [each.name for each in run.plan.regions if each.subtask is not None and each.subtask.of == of]
    for name, state in run.journal.list(others).state.regions.items():
        for n, each in state.attempts.items():
            for part in run.journal.read_parts(name, n, min(each.parts, 1)):
                if part.outputs:
                    return {output.result: output for output in part.outputs}
    return None
