"""The loss ledgers of a run: what each channel has committed, lost, and does not know. For looking only.

A control log has a slot for each record and is never listed, so what was read once is kept: a `LedgerReader` folds
what is new since its last look.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Container
from dataclasses import dataclass, replace
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

from airflow_recovery.errors import ChannelError, ChannelInconsistent, JournalError, RecordInvalid, StoreError
from airflow_recovery.journal.folders import folders, readable
from airflow_recovery.journal.journal import Journal
from airflow_recovery.journal.layout import JournalLayout
from airflow_recovery.journal.run_state import RegionState
from airflow_recovery.model.records import Outcome, RunIdentity
from airflow_recovery.planning.plan_text import table
from airflow_recovery.store.object_store import ObjectInfo, ObjectStore
from airflow_recovery.story.mode import ChannelView, ModeReport, StoryMode
from airflow_recovery.story.run_view import RunView, view_run
from airflow_recovery.streaming.channel_records import ChannelIdentity
from airflow_recovery.streaming.client import ChannelClient
from airflow_recovery.streaming.ledger import LossReport, check_ledger, loss_report
from airflow_recovery.streaming.mode import StreamingPlan
from airflow_recovery.streaming.reading import control_logs
from airflow_recovery.streaming.run_channels import ChannelReport, channel_reports, run_channels

MOST_SLOTS = 2000
"""Of one look at one channel: a page must not wait for a log of a year. The next look goes on."""

MOST_READERS = 256
"""Of one store, in one process."""


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
                self._client = ChannelClient(self._store, identity, "reader")  # it was purged, and has started over
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
    views = []
    for edge in folders(store, base):
        generations = sorted(int(folder) for folder in folders(store, f"{base}{edge}/") if folder.isdecimal())
        for number in generations:
            looked = reader(ChannelIdentity(run, readable(edge), number)).look()
            views.append(replace(looked, is_newest=number == generations[-1]))
    counts = counting() if views else None
    if counts is None:
        return tuple(views)
    return tuple(replace(view, counts=(view.edge, view.generation) in counts) for view in views)


def _view(report: LossReport, generation: int, *, is_whole: bool, problem: str | None) -> ChannelView:
    return ChannelView(
        edge=report.edge,
        generation=generation,
        records=report.records,
        committed=report.records - report.lost,
        lost=report.lost,
        behind=report.behind,
        causes=tuple((cause.value, count) for cause, count in report.causes),
        unknown=tuple(loss.attempt for loss in report.unknown),
        verdict=report.verdict.value,
        is_whole=is_whole,
        problem=problem,
    )


@dataclass(frozen=True)
class RunLedger(ModeReport):
    """``channels``: one report a channel and generation. ``trouble``: why there are none, though there are channels."""

    channels: tuple[ChannelReport, ...] = ()
    trouble: str | None = None

    def text(self) -> str | None:
        """For people; `None` for a run without channels."""
        if self.trouble is not None:
            return f"Channels: they can't be read: {self.trouble}"
        if not self.channels:
            return None
        columns = ("channel", "gen", "state", "producer", "consumer", "published", "committed", "lost", "behind")
        return "Channels (records):\n" + table((*columns, "budget used"), list(map(_row, self.channels)))

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {"channels": [channel.to_json() for channel in self.channels], "channels_trouble": self.trouble}


def ledger_of(view: RunView, results: ObjectStore | None, no_channels: str = "") -> RunLedger:
    """Read the channels of a run, live or ended. Nothing is raised for what is wrong with them: the rest is shown.

    ``no_channels`` says why, where there is the journal alone.
    """
    if not any(StreamingPlan.of(group.template).channels_out for group in view.in_use.plan.groups):
        return RunLedger()
    if results is None:
        return RunLedger(trouble=no_channels)
    try:
        return RunLedger(channel_reports(results, view.journal.identity, view.in_use.plan, view.in_use.state))
    except (ChannelInconsistent, RecordInvalid, StoreError) as error:
        return RunLedger(trouble=f"{type(error).__name__}: {error}")


def _row(report: ChannelReport) -> tuple[str, ...]:
    channel, loss = report.channel, report.loss
    lost = ", ".join(f"{cause.value} {count:,}" for cause, count in loss.causes) or "0"
    if report.unknown:
        attempts = ", ".join(f"@{origin.attempt}" for origin in loss.unknown)
        lost = f"{'' if lost == '0' else f'{lost}, '}unknown ({attempts} could not read again)"
    return (
        channel.edge,
        str(channel.generation),
        report.standing.value if channel.counts else f"{report.standing.value}, does not count",
        _end(channel.producer, report.producer_attempt),
        _end(channel.consumer, report.consumer_attempt),
        f"{report.published:,}",
        f"{report.committed:,}",
        lost,
        f"{loss.behind:,}",
        report.budget_used(),
    )


def _end(region: str | None, attempt: int) -> str:
    return "-" if region is None or not attempt else f"{region}@{attempt}"


class StreamingStory(StoryMode):
    """Tells what each channel has committed and lost."""

    def ledgers(self, results: ObjectStore, journal: Journal) -> tuple[ChannelView, ...]:
        """As `channels_of`. What was read of a log once is kept for the next look."""
        return channels_of(results, journal.identity, partial(_reader, results), partial(_counting, journal))

    def logs(self, results: ObjectStore, run: RunIdentity) -> list[ObjectInfo]:
        """As `control_logs`."""
        return control_logs(results, run)

    def report(self, view: RunView, results: ObjectStore | None, no_results: str) -> RunLedger:
        """As `ledger_of`."""
        return ledger_of(view, results, no_results)

    def is_whole(self, outcome: Outcome) -> bool:
        """Of a first attempt: a later one goes on where an earlier one has come to."""
        return outcome.attempt == 1

    def goes_on_from(self, state: RegionState) -> str:
        """What its live attempts have read: other code begins all channels anew."""
        live = [n for n, attempt in state.attempts.items() if attempt.is_claimed and n > state.restarted_up_to]
        return f"what attempt {live[-1]} has read" if live else ""


_readers: WeakKeyDictionary[ObjectStore, dict[ChannelIdentity, LedgerReader]] = WeakKeyDictionary()


def _reader(results: ObjectStore, identity: ChannelIdentity) -> LedgerReader:
    """The one of an earlier look. With what is forgotten nothing is lost but time."""
    readers = _readers.setdefault(results, {})
    if len(readers) >= MOST_READERS:
        readers.clear()
    return readers.setdefault(identity, LedgerReader(results, identity))


def _counting(journal: Journal) -> set[tuple[str, int]] | None:
    """Generations that count; `None` where the records can't be read: the logs can all the same."""
    try:
        in_use = view_run(journal).in_use
    except JournalError:
        return None
    return {(channel.edge, channel.generation) for channel in run_channels(in_use.plan, in_use.state) if channel.counts}


MODE = StreamingStory()
