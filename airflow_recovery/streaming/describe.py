"""The loss ledgers of a run: what each channel has committed, lost, and does not know. For looking only.

A control log has a slot for each record and is never listed, so what was read once is kept: a `LedgerReader` folds
what is new since its last look.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Container
from dataclasses import dataclass, replace

from airflow_recovery.errors import ChannelError, JournalError
from airflow_recovery.journal.layout import JournalLayout
from airflow_recovery.model.records import RunIdentity
from airflow_recovery.store.object_store import ObjectStore
from airflow_recovery.story.folders import folders, readable
from airflow_recovery.streaming.channel_records import ChannelIdentity
from airflow_recovery.streaming.client import ChannelClient
from airflow_recovery.streaming.ledger import LossReport, check_ledger, loss_report

MOST_SLOTS = 2000
"""Of one look at one channel: a page must not wait for a log of a year. The next look goes on."""


@dataclass(frozen=True)
class ChannelView:
    """One channel in one generation. Records of different channels can't be summed.

    ``is_newest``: no later generation was begun. ``counts``: what was committed in it is a part of the result; `None`
    where the run's records don't say. ``committed`` and ``lost`` are of ``records``, all up to the checkpoint;
    ``behind``: published, and not checkpointed yet. ``unknown``: attempts of the producer that could not make again
    what was before them: how much that is nobody knows, so that ``lost`` is a least number then. ``is_whole``: the
    whole log was read. ``problem``: why it could not be; then the numbers are as far as it could.
    """

    edge: str
    generation: int
    is_newest: bool = True
    counts: bool | None = None
    records: int = 0
    committed: int = 0
    lost: int = 0
    behind: int = 0
    causes: tuple[tuple[str, int], ...] = ()
    unknown: tuple[int, ...] = ()
    verdict: str = ""
    is_whole: bool = True
    problem: str | None = None


class LedgerReader:
    """The control log of one channel. Its methods may be called by several threads."""

    def __init__(self, store: ObjectStore, identity: ChannelIdentity) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._client = ChannelClient(store, identity, "reader")
        self._first: bytes | None = None

    def look(self) -> ChannelView:
        """What the log says now. Raises what the store raises; what lies in it and can't be read is a ``problem``."""
        with self._lock:
            identity = self._client.identity
            first = self._client.first_slot()
            if self._first not in (None, first):
                self._client = ChannelClient(self._store, identity, "reader")  # it was purged, and has begun anew
            self._first = first
            begun, problem = self._client.state.slots, None
            try:
                check_ledger(self._client.refresh(MOST_SLOTS))
            except (ChannelError, JournalError) as error:
                problem = " ".join(str(error).split())
            state = self._client.state
            is_whole = state.slots - begun < MOST_SLOTS
            report = loss_report(identity.edge, state)
            return _view(report, identity.generation, is_whole=is_whole, problem=problem)


def channels_of(
    store: ObjectStore,
    run: RunIdentity,
    reader: Callable[[ChannelIdentity], LedgerReader] | None = None,
    counting: Callable[[], Container[tuple[str, int]] | None] = lambda: None,
) -> tuple[ChannelView, ...]:
    """Every channel of a group of a run, by name, generations ascending; most have none, which is one listing.

    ``reader``: finds the one of an earlier look. ``counting``: channels and generations of which what was committed
    counts, as the run's records say; asked only where there are channels. Raises what the store raises.
    """
    reader = reader or (lambda identity: LedgerReader(store, identity))
    base = JournalLayout(run).channels
    found = []
    for edge in folders(store, base):
        generations = sorted(int(each) for each in folders(store, f"{base}{edge}/") if each.isdecimal())
        for number in generations:
            looked = reader(ChannelIdentity(run, readable(edge), number)).look()
            found.append(replace(looked, is_newest=number == generations[-1]))
    counts = counting() if found else None
    if counts is None:
        return tuple(found)
    return tuple(replace(each, counts=(each.edge, each.generation) in counts) for each in found)


def _view(report: LossReport, generation: int, *, is_whole: bool, problem: str | None) -> ChannelView:
    return ChannelView(
        edge=report.edge,
        generation=generation,
        records=report.records,
        committed=report.records - report.lost,
        lost=report.lost,
        behind=report.behind,
        causes=tuple((cause.value, count) for cause, count in report.causes),
        unknown=tuple(each.attempt for each in report.unknown),
        verdict=report.verdict.value,
        is_whole=is_whole,
        problem=problem,
    )
