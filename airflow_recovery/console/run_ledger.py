"""What ``show`` tells of a run's channels: how far each has come, what is lost, and how much of its budget that is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from airflow_recovery.errors import ChannelInconsistent, RecordInvalid, StoreError
from airflow_recovery.planning.plan_text import table
from airflow_recovery.store.object_store import ObjectStore
from airflow_recovery.story.run_view import RunView
from airflow_recovery.streaming.mode import StreamingPlan
from airflow_recovery.streaming.run_channels import ChannelReport, channel_reports


@dataclass(frozen=True)
class RunLedger:
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
        return {"channels": [each.to_json() for each in self.channels], "channels_trouble": self.trouble}


def ledger_of(view: RunView, results: ObjectStore | None, no_channels: str = "") -> RunLedger:
    """Read the channels of a run, live or ended. Nothing is raised for what is wrong with them: the rest is shown.

    ``no_channels`` says why, where there is the journal alone.
    """
    if not any(StreamingPlan.of(each).channels_out for each in view.in_use.plan.regions):
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
        attempts = ", ".join(f"@{each.attempt}" for each in loss.unknown)
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
