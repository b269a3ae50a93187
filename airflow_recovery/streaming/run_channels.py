"""The channels of a whole run, as its journal names them, and the account of each from its control log.

    run_channels     which channels and generations there are: from plan and state, without a request
    channel_reports  what their logs say, one read of each

For who looks at a run from outside (``airflow recovery show``, the audit, readers of fresh results). Nothing is listed.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import Enum
from typing import Any

from airflow_recovery.journal.run_state import RegionState, RunState
from airflow_recovery.model.channel_options import LossBudget
from airflow_recovery.model.records import PlanRecord, RunIdentity
from airflow_recovery.store.object_store import ObjectStore
from airflow_recovery.streaming.channel_records import ChannelIdentity
from airflow_recovery.streaming.channel_state import ChannelState
from airflow_recovery.streaming.ledger import BudgetVerdict, LossReport, loss_report
from airflow_recovery.streaming.mode import StreamingPlan
from airflow_recovery.streaming.ranges import size
from airflow_recovery.streaming.reading import read_channel


class ChannelStanding(str, Enum):
    """How far one generation of a channel has come."""

    NOT_OPENED = "not opened"
    OPEN = "open"
    GAVE_UP = "given up"
    """Its producer has failed for good."""
    FINISHED = "finished"
    """Its producer is through; the consumer is not yet."""
    DRAINED = "drained"
    """Its consumer is through as well."""
    ABANDONED = "abandoned"
    """Both sides started over, or what it carries was altered: nobody works with it any more."""


@dataclass(frozen=True)
class RunChannel:
    """One channel of a run in one generation, between the regions ``producer`` and ``consumer``.

    ``counts``: what was committed in it is a part of the result. ``is_newest``: it is the one that both ends use now.
    """

    edge: str
    generation: int
    producer: str
    consumer: str | None
    counts: bool
    is_newest: bool

    def identity(self, run: RunIdentity) -> ChannelIdentity:
        """By which its log is found."""
        return ChannelIdentity(run, self.edge, self.generation)


@dataclass(frozen=True)
class ChannelReport:
    """The account of one channel in one generation. All numbers are of records, but for ``epochs`` and ``batches``.

    ``producer_attempt`` and ``consumer_attempt`` are those that own its ends (0: none yet).
    """

    channel: RunChannel
    standing: ChannelStanding
    producer_attempt: int
    consumer_attempt: int
    epochs: int
    batches: int
    published: int
    committed: int
    loss: LossReport
    budget: LossBudget

    @property
    def unknown(self) -> int:
        """How often a producer began that could not say what was lost: each is a number that nobody knows."""
        return len(self.loss.unknown)

    def budget_used(self) -> str:
        """What of the run's budget is used, in words."""
        lost, records, used = self.loss.lost, self.loss.records, []
        if self.budget.max_lost_records is not None:
            used.append(f"{lost:,} of {self.budget.max_lost_records:,} records")
        if self.budget.max_lost_fraction is not None:
            used.append(f"{lost / records if records else 0:.2%} of {self.budget.max_lost_fraction:.2%}")
        if self.loss.verdict in (BudgetVerdict.EXCEEDED, BudgetVerdict.UNKNOWN):
            used.append(self.loss.verdict.value)
        return "; ".join(used) or self.loss.verdict.value

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values. ``lost_records`` is null where it is not known: never 0 for want of knowledge."""
        return {
            **asdict(self.channel),
            "standing": self.standing.value,
            "producer_attempt": self.producer_attempt,
            "consumer_attempt": self.consumer_attempt,
            "epochs": self.epochs,
            "batches": self.batches,
            "published": self.published,
            "committed": self.committed,
            "behind": self.loss.behind,
            "ledger_records": self.loss.lost,
            "lost_records": self.loss.total_lost,
            "lost_by_cause": {cause.value: count for cause, count in self.loss.causes},
            "unknown_at_producer_attempts": [loss.attempt for loss in self.loss.unknown],
            "max_lost_records": self.budget.max_lost_records,
            "max_lost_fraction": self.budget.max_lost_fraction,
            "verdict": self.loss.verdict.value,
        }


def run_channels(plan: PlanRecord, state: RunState) -> tuple[RunChannel, ...]:
    """Every channel of ``plan`` in every generation that it may ever have had since the run was last purged.

    In topological order, generations ascending. A generation that was named and never opened is among them.
    """
    consumers = {
        channel.result: region.name for region in plan.regions for channel in StreamingPlan.of(region).channels_in
    }
    return tuple(
        RunChannel(
            edge=channel.result,
            generation=generation,
            producer=region.name,
            consumer=consumers.get(channel.result),
            counts=generation in counting,
            is_newest=generation == counting[-1],
        )
        for region in plan.regions
        for counting in (state.of(region.name).generations,)
        for channel in StreamingPlan.of(region).channels_out
        for generation in _generations(state.of(region.name))
    )


def channel_reports(
    store: ObjectStore, run: RunIdentity, plan: PlanRecord, state: RunState
) -> tuple[ChannelReport, ...]:
    """The account of every channel. ``store`` holds the results. Raises as `read_channel`.

    A generation that was never opened is left out, unless it is the one of now.
    """
    logs = ((channel, read_channel(store, channel.identity(run))) for channel in run_channels(plan, state))
    return tuple(report_of(channel, log) for channel, log in logs if log.slots or channel.is_newest)


def report_of(channel: RunChannel, state: ChannelState) -> ChannelReport:
    """The account of a channel whose log folds to ``state``."""
    return ChannelReport(
        channel=channel,
        standing=_standing_of(channel, state),
        producer_attempt=state.producer,
        consumer_attempt=state.view,
        epochs=state.epoch + 1,
        batches=state.checkpoint + 1,
        published=sum(state.ends),
        committed=sum(size(sub.committed) for sub in state.subs),
        loss=loss_report(channel.edge, state),
        budget=state.budget,
    )


def ledger_counters(report: ChannelReport) -> list[tuple[str, float]]:
    """What is worth a time series of one channel: name and value, to be sent below a prefix that names the channel.

    Where losses are not known, ``lost`` is left out: a metric can't say "unknown", and 0 would be a lie.
    """
    loss = report.loss
    counters: list[tuple[str, float]] = [
        ("published", report.published),
        ("committed", report.committed),
        ("behind", loss.behind),
        *((f"lost.{cause.value}", count) for cause, count in loss.causes),
        ("unknown", report.unknown),
    ]
    if loss.total_lost is not None:
        counters.append(("lost", loss.total_lost))
    if report.budget.max_lost_records:
        counters.append(("budget_used", loss.lost / report.budget.max_lost_records))
    elif report.budget.max_lost_fraction and loss.records:
        counters.append(("budget_used", loss.lost / loss.records / report.budget.max_lost_fraction))
    return counters


def _generations(region: RegionState) -> list[int]:
    """A reset begins a new one, numbered after the attempt that it names; so does a purge."""
    resets = (number + 1 for number, attempt in region.attempts.items() if attempt.is_reset)
    return sorted({region.closed_at + 1, *(reset for reset in resets if reset > region.closed_at)})


def _standing_of(channel: RunChannel, state: ChannelState) -> ChannelStanding:
    if not state.slots:
        return ChannelStanding.NOT_OPENED
    if state.is_drained:
        return ChannelStanding.DRAINED
    if not channel.is_newest:
        return ChannelStanding.ABANDONED
    if state.failed is not None:
        return ChannelStanding.GAVE_UP
    return ChannelStanding.FINISHED if state.is_finished else ChannelStanding.OPEN
