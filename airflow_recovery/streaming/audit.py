"""The last look at a run's channels, before its results are published: is the account complete, and within budget?

Every commit was checked against the budget already, in its generation. What only the end can see is the sum: what an
earlier generation left behind when its producer's output was altered is in no commit, so in no ledger.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from airflow_recovery.attempt.run import Run
from airflow_recovery.errors import ChannelInconsistent, LossBudgetExceeded
from airflow_recovery.model.channel_options import UNLIMITED, LossBudget
from airflow_recovery.store.object_store import ObjectStore
from airflow_recovery.streaming.ledger import BudgetVerdict, check_ledger
from airflow_recovery.streaming.reading import read_channel
from airflow_recovery.streaming.run_channels import (
    ChannelReport,
    ChannelStanding,
    ledger_counters,
    report_of,
    run_channels,
)

LEFT_BEHIND = "left behind"
"""The cause of what nobody had committed of a generation when the next one began."""


@dataclass(frozen=True)
class ChannelAudit:
    """One channel over all generations that count. Numbers are records of this channel; another one has other units."""

    edge: str
    reports: tuple[ChannelReport, ...]
    budget: LossBudget
    """As the job declares it today: who raises it says that this loss is bearable."""

    @property
    def committed(self) -> int:
        """What is in the result, or has gone into it."""
        return sum(report.committed for report in self.reports)

    @property
    def left_behind(self) -> int:
        """Published in an earlier generation, and committed in none."""
        return sum(report.loss.behind for report in self.reports[:-1])

    @property
    def lost(self) -> int:
        """All losses that are known."""
        return sum(report.loss.lost for report in self.reports) + self.left_behind

    @property
    def records(self) -> int:
        """Everything that is accounted for: committed and lost."""
        return sum(report.loss.records for report in self.reports) + self.left_behind

    @property
    def unknown(self) -> int:
        """How often a producer began that can't say what was lost. Each is a number that nobody knows."""
        return sum(report.unknown for report in self.reports)

    @property
    def is_drained(self) -> bool:
        """Everything of the generation of now is committed or lost."""
        return self.reports[-1].standing is ChannelStanding.DRAINED

    @property
    def causes(self) -> dict[str, int]:
        """The losses by cause."""
        counts: dict[str, int] = {}
        for report in self.reports:
            for cause, count in report.loss.causes:
                counts[cause.value] = counts.get(cause.value, 0) + count
        return {**counts, **({LEFT_BEHIND: self.left_behind} if self.left_behind else {})}

    @property
    def verdict(self) -> BudgetVerdict:
        """Of all generations together: a budget is a run's."""
        if not self.budget.is_limited:
            return BudgetVerdict.UNLIMITED
        if self.budget.excess(self.lost, self.records):
            return BudgetVerdict.EXCEEDED
        return BudgetVerdict.UNKNOWN if self.unknown else BudgetVerdict.WITHIN

    def text(self) -> str:
        """One line, as in a task's log."""
        text = f"Channel {self.edge}: {self.committed} records committed, {self.lost} lost"
        if self.causes:
            text += f" ({', '.join(f'{cause} {count}' for cause, count in self.causes.items())})"
        if self.unknown:
            attempts = ", ".join(str(loss.attempt) for report in self.reports for loss in report.loss.unknown)
            text += f", and an unknown number at the origin when producer attempt {attempts} began"
        if not self.is_drained:
            text += f", {self.reports[-1].loss.behind} not read yet"
        generations = f" in {len(self.reports)} generations" if len(self.reports) > 1 else ""
        return f"{text}{generations}; {self.verdict.value}"

    def to_json(self) -> dict[str, Any]:
        """Plain JSON. ``lost_records`` is null where it is not known: never 0 for want of knowledge."""
        return {
            "committed": self.committed,
            "known_lost_records": self.lost,
            "lost_records": None if self.unknown else self.lost,
            "lost_by_cause": self.causes,
            "unknown": self.unknown,
            "verdict": self.verdict.value,
            "generations": [report.to_json() for report in self.reports],
        }

    def counters(self) -> Mapping[str, float]:
        """What is worth a time series, of the generation of now."""
        return dict(ledger_counters(self.reports[-1]))


def audit_of(reports: Iterable[ChannelReport], budgets: Mapping[str, LossBudget]) -> tuple[ChannelAudit, ...]:
    """One audit a channel. ``reports`` in topological order, generations ascending; what does not count is left out."""
    counting = [report for report in reports if report.channel.counts]
    return tuple(
        ChannelAudit(edge, tuple(generations), budgets.get(edge, UNLIMITED))
        for edge, generations in groupby(counting, key=lambda report: report.channel.edge)
    )


class AuditTask:
    """Reads every channel of the run, and says whether its account may be published.

    ``results`` is the store that holds the channels, ``budgets`` what each may lose in a run.
    """

    def __init__(self, run: Run, results: ObjectStore, budgets: Mapping[str, LossBudget]) -> None:
        self._run = run
        self._results = results
        self._budgets = budgets

    def execute(self) -> tuple[ChannelAudit, ...]:
        """One line of the log a channel.

        Raises `ChannelInconsistent` where an account is not complete, and `LossBudgetExceeded` where a budget does not
        hold: nothing may be published then. A loss that nobody knows is reported, and exceeds nothing.
        """
        reports = []
        for channel in run_channels(self._run.today, self._run.load()):
            log = read_channel(self._results, channel.identity(self._run.journal.identity))
            if channel.counts and log.slots:
                try:
                    check_ledger(log)
                except ChannelInconsistent as error:
                    raise ChannelInconsistent(
                        f"channel {channel.edge!r}, generation {channel.generation}: {error}",
                        code="channel-audit-fails",
                        channel=channel.edge,
                    ) from None
            if log.slots or channel.is_newest:
                reports.append(report_of(channel, log))
        audits = audit_of(reports, self._budgets)
        for audit in audits:
            self._run.log.info("%s.", audit.text())
        exceeded = [audit for audit in audits if audit.verdict is BudgetVerdict.EXCEEDED]
        if exceeded:
            excess = "; ".join(f"{audit.edge}: {audit.budget.excess(audit.lost, audit.records)}" for audit in exceeded)
            raise LossBudgetExceeded(
                f"Expected the losses of this run within its budgets, found {excess}. Nothing is published. Clear the "
                "whole task group to make it again, or raise the budget and clear this task.",
                code="losses-over-budget",
            )
        return audits
