"""The state of a run, folded from its events: equal to the fold over the write-once objects where no event is missing.

Nothing is decided by it. It checks the journal and the history against each other, and shows whether the history is
whole.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from airflow_recovery.journal.events import JobEvent, JobPlanned, RecordWritten, SplitsCommitted
from airflow_recovery.journal.history import Gap, read_stream
from airflow_recovery.journal.journal import Journal
from airflow_recovery.journal.run_state import Attempt, RegionState, RunState, in_order
from airflow_recovery.model.record_kinds import kind_of
from airflow_recovery.model.records import Publish


@dataclass(frozen=True)
class Replay:
    """``gaps``: where events are missing, or may be. ``events``: how many were read, of ``writers`` processes."""

    state: RunState
    gaps: tuple[Gap, ...]
    events: int
    writers: int


def replay(journal: Journal) -> Replay:
    """The history of one run, folded. Its tombstone is asked of the journal: a purge takes the history along.

    Raises `RecordInvalid` as `read_stream`, and the store's errors.
    """
    layout = journal.layout
    tombstones = [layout.parse_closed(info.key) or 0 for info in journal.store.list(layout.closed)]
    closed_at = journal.closed_at(max(tombstones)) if tombstones else {}
    gaps: list[Gap] = []
    fold = EventFold(closed_at)
    count = 0
    writers = set()
    for recorded in read_stream(journal.store, journal.identity, gaps=gaps):
        fold.add(recorded.event)
        count += 1
        writers.add(recorded.writer)
    return Replay(fold.state(is_closed=bool(tombstones)), tuple(gaps), count, len(writers))


class EventFold:
    """Folds events in whatever order they come, each as often as it comes (faults 40 and 41).

    ``closed_at``: attempts up to there belong to a life of the run that was purged; an event of theirs that comes late
    does not count (fault 43).
    """

    def __init__(self, closed_at: Mapping[str, int]) -> None:
        self._closed_at = closed_at
        self._attempts: dict[str, dict[int, Attempt]] = {}
        self._plans: set[str] = set()
        self._newest_publish = 0

    def add(self, event: JobEvent) -> None:
        """Fold one event in. Events that say nothing of the state change nothing."""
        record = event.subject
        kind = kind_of(type(record)) if isinstance(event, RecordWritten) else None
        if kind is not None and kind.mark is not None:
            before = self._of(record.region, record.attempt)
            highest = None if kind.number is None else max(getattr(before, kind.mark), getattr(record, kind.number))
            changes: dict[str, Any] = {kind.mark: True if highest is None else highest}
            if kind.content is not None:
                changes[kind.content] = record
            self._put(record.region, replace(before, **changes))
        elif isinstance(event, SplitsCommitted):
            before = self._of(event.region, event.attempt)
            self._put(event.region, replace(before, batches=max(before.batches, event.number + 1)))
        elif isinstance(event, JobPlanned):
            self._plans.add(event.plan_hash)
        elif isinstance(record, Publish):
            regions = record.regions
            if not regions or any(region.attempt > self._closed_at.get(region.region, 0) for region in regions):
                self._newest_publish = max(self._newest_publish, record.number)

    def state(self, *, is_closed: bool = False) -> RunState:
        """The state after all events so far. It has no etags: those are the store's, and in no event."""
        names = {*self._attempts, *self._closed_at}
        return RunState(
            regions={
                name: RegionState(in_order(self._attempts.get(name, {})), self._closed_at.get(name, 0))
                for name in names
            },
            plans=frozenset(self._plans),
            newest_publish=self._newest_publish,
            is_closed=is_closed,
        )

    def _of(self, region: str, number: int) -> Attempt:
        return self._attempts.get(region, {}).get(number, Attempt(number))

    def _put(self, region: str, attempt: Attempt) -> None:
        if attempt.number > self._closed_at.get(region, 0) or attempt.number == 0:
            self._attempts.setdefault(region, {})[attempt.number] = attempt


def differences(journal: RunState, history: RunState) -> tuple[str, ...]:
    """How the state of the journal differs from that of the history, in words; empty where they are the same.

    Only of the regions that ``journal`` names. Left out: etags, claims of attempts that have ended (the fold does not
    read them), batches (most are written by drivers, which have no stream), and what a tombstone has made void.
    """
    texts = []
    for name, mine in journal.regions.items():
        ours, theirs = (_essence(state, journal.is_closed) for state in (mine, history.of(name)))
        texts += [
            _difference(name, number, ours.get(number), theirs.get(number))
            for number in sorted({*ours, *theirs})
            if ours.get(number) != theirs.get(number)
        ]
    if journal.plans != history.plans:
        texts.append(f"plans: {sorted(journal.plans)} in the journal, {sorted(history.plans)} in the history")
    if journal.newest_publish != history.newest_publish:
        texts.append(f"publish: {journal.newest_publish} in the journal, {history.newest_publish} in the history")
    return tuple(texts)


def _essence(state: RegionState, is_closed: bool) -> dict[int, Attempt]:
    # A reset of attempt 0 stands for "before any attempt"; after a purge there is none before.
    return {
        number: replace(attempt, outcome_etag=None, batches=0, claim=None if attempt.has_outcome else attempt.claim)
        for number, attempt in state.attempts.items()
        if number > state.closed_at or (number == 0 and not is_closed)
    }


_MARKS = ("is_claimed", "has_outcome", "is_reset", "is_lost", "is_released", "is_committed")


def _difference(region: str, number: int, journal: Attempt | None, history: Attempt | None) -> str:
    ours = [mark for mark in _MARKS if journal is not None and getattr(journal, mark)]
    theirs = [mark for mark in _MARKS if history is not None and getattr(history, mark)]
    if ours == theirs:
        return f"{region}@{number}: the journal and the history say different things of it"
    return f"{region}@{number}: {_words(ours)} in the journal, {_words(theirs)} in the history"


def _words(marks: list[str]) -> str:
    return ", ".join(mark.partition("_")[2] for mark in marks) or "nothing"
