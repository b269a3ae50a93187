"""The loss ledger: what is lost, what is known of it, and whether the account is complete."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from airflow_recovery.errors import ChannelInconsistent
from airflow_recovery.streaming.channel_records import LossCause
from airflow_recovery.streaming.channel_state import ChannelState, UnknownLoss
from airflow_recovery.streaming.ranges import between, common, merged, size


class BudgetVerdict(str, Enum):
    """Whether what was lost is within the budget."""

    WITHIN = "within the budget"
    EXCEEDED = "budget exceeded"
    UNKNOWN = "unknown"
    """What is known is within the budget, and something is not known."""
    UNLIMITED = "no budget was set"


@dataclass(frozen=True)
class LossReport:
    """The account of one channel. Another channel has other units: two reports can't be summed.

    ``records`` are all records up to the checkpoint, ``lost`` those of them in the ledger, ``behind`` those published
    and not checkpointed yet.
    """

    edge: str
    records: int
    lost: int
    behind: int
    causes: tuple[tuple[LossCause, int], ...]
    unknown: tuple[UnknownLoss, ...]
    verdict: BudgetVerdict

    @property
    def total_lost(self) -> int | None:
        """Every record that is lost; `None` where that is not known. Never 0 for want of knowledge."""
        return None if self.unknown else self.lost

    def text(self) -> str:
        """One line for people."""
        text = f"{self.edge}: {self.lost} of {self.records} records lost"
        if self.causes:
            text += f" ({', '.join(f'{cause.value} {count}' for cause, count in self.causes)})"
        if self.unknown:
            attempts = ", ".join(str(loss.attempt) for loss in self.unknown)
            text += f", and an unknown number at the origin when producer attempt {attempts} began"
        return f"{text}; {self.verdict.value}"


def loss_report(edge: str, state: ChannelState) -> LossReport:
    """What the log says about the losses of a channel."""
    records, lost = sum(state.done), state.lost
    counts = {cause: sum(entry.records for entry in state.ledger if entry.cause is cause) for cause in LossCause}
    return LossReport(
        edge=edge,
        records=records,
        lost=lost,
        behind=sum(state.ends) - records,
        causes=tuple((cause, count) for cause, count in counts.items() if count),
        unknown=tuple(state.unknown),
        verdict=_verdict(state, lost, records),
    )


def _verdict(state: ChannelState, lost: int, records: int) -> BudgetVerdict:
    if not state.budget.is_limited:
        return BudgetVerdict.UNLIMITED
    if state.budget.excess(lost, records):
        return BudgetVerdict.EXCEEDED
    return BudgetVerdict.UNKNOWN if state.unknown else BudgetVerdict.WITHIN


def excess_of(state: ChannelState, lost: int, upto: Iterable[int]) -> str | None:
    """Why a checkpoint that loses ``lost`` more records and ends at ``upto`` breaks a budget; `None` if it doesn't."""
    end = sum(upto)
    run = state.budget.excess(state.lost + lost, end)
    if run is not None:
        return f"in this run {run}"
    since = sum(entry.records for entry in state.ledger if entry.attempt == state.view)
    restart = state.restart_budget.excess(since + lost, end - sum(state.view_began))
    return None if restart is None else f"since the restart as attempt {state.view} {restart}"


def check_ledger(state: ChannelState) -> None:
    """Hold the invariant: in every subpartition, committed and lost together are [0, checkpoint), each number once.

    Raises `ChannelInconsistent`. It holds after every record: the fold takes no checkpoint that would break it. This
    looks at all of it, as an audit does.
    """
    for number, sub in enumerate(state.subs):
        entries = [(entry.start, entry.stop) for entry in state.ledger if entry.sub == number]
        if common(sub.committed, sub.lost) or size(entries) != size(sub.lost) or merged(entries) != sub.lost:
            raise ChannelInconsistent(
                f"subpartition {number}: expected every record once, found committed {sub.committed}, lost {sub.lost}, "
                f"ledger {entries}: do not publish this run",
                code="records-not-once",
            )
        if merged([*sub.committed, *sub.lost]) != between(0, sub.done):
            raise ChannelInconsistent(
                f"subpartition {number}: expected committed and lost to be [0, {sub.done}), found committed "
                f"{sub.committed} and lost {sub.lost}: do not publish this run",
                code="ledger-has-holes",
            )
