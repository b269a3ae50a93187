"""Declaring channels: ``@job.source(result=APPROXIMATE)``, and how the regions at their ends run.

A result declared so is a channel between two Spark applications that run at the same time (FLIP-135). Both ends are
*streaming regions*: their vertices get and return streaming DataFrames, and nothing of the channel shows in them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, Literal

from airflow_recovery.checks import check_arguments
from airflow_recovery.errors import JobDefinitionError
from airflow_recovery.job.mode import ModeOption, ModeResult
from airflow_recovery.model.channel_options import LossBudget, Overflow, Reconnect
from airflow_recovery.model.result_type import PIPELINED_APPROXIMATE

MAX_SUBPARTITIONS = 1024


class OutputMode(str, Enum):
    """What a batch of the last streaming region is to its result."""

    APPEND = "append"
    """More rows of it."""

    COMPLETE = "complete"
    """All of it, anew: a running table, of which the newest batch counts."""


@dataclass(frozen=True)
class ApproximateResult(ModeResult):
    """A result that is a channel. Use `APPROXIMATE`, or call it with options: ``APPROXIMATE(reconnect="latest", ...)``.

    - ``reconnect``: where a consumer that restarts goes on: ``"rewind"`` at its checkpoint, so that nothing is lost; or
      ``"latest"`` at the head, for fresh results.
    - ``overflow``: what the producer does while the consumer is ``max_bytes`` behind: ``"block"``, and fail by name
      after ``block_timeout_s`` seconds; or ``"drop"`` the oldest.
    - ``max_lost_records``, ``max_lost_fraction`` (of all records up to the checkpoint): what may be lost in a run;
      the same with ``_per_restart``: by each attempt of the consumer. Checked before the commit that would exceed it.
    - ``subpartitions``: into how many parts each batch is cut, and so how many tasks read it; ``partition_by``: the
      columns whose equal values come to one of them, in the producer's order; without it rows are dealt out.

    Raises `JobDefinitionError`.
    """

    result_type = PIPELINED_APPROXIMATE

    reconnect: Reconnect = Reconnect.REWIND
    overflow: Overflow = Overflow.BLOCK
    max_bytes: int = 256 * 1024 * 1024
    block_timeout_s: float = 600.0
    max_lost_records: int | None = None
    max_lost_fraction: float | None = None
    max_lost_records_per_restart: int | None = None
    max_lost_fraction_per_restart: float | None = None
    subpartitions: int = 2
    partition_by: tuple[str, ...] = ()

    def __call__(self, **options: Any) -> ApproximateResult:
        """With these options. Raises `JobDefinitionError` for unknown or impossible ones."""
        known = sorted(self.__dataclass_fields__)
        if unknown := sorted(set(options) - set(known)):
            raise JobDefinitionError(f"APPROXIMATE: expected options among {known}, found {unknown}")
        try:
            reconnect = Reconnect(options.get("reconnect", self.reconnect))
            overflow = Overflow(options.get("overflow", self.overflow))
        except ValueError as error:
            raise JobDefinitionError(
                f"APPROXIMATE: {error}; reconnect is one of {', '.join(reconnect.value for reconnect in Reconnect)}, "
                f"overflow one of {', '.join(overflow.value for overflow in Overflow)}"
            ) from None
        partition_by = _names(options.get("partition_by", self.partition_by))
        return replace(self, **{**options, "reconnect": reconnect, "overflow": overflow, "partition_by": partition_by})

    def __post_init__(self) -> None:
        check_arguments(ApproximateResult.__init__, vars(self), "APPROXIMATE")
        if not 0 < self.subpartitions <= MAX_SUBPARTITIONS:
            raise JobDefinitionError(
                f"APPROXIMATE: expected subpartitions between 1 and {MAX_SUBPARTITIONS}, found {self.subpartitions!r}"
            )
        if not self.block_timeout_s > 0:
            raise JobDefinitionError(
                f"APPROXIMATE: expected block_timeout_s above 0 seconds, found {self.block_timeout_s!r}"
            )
        _ = self.budget, self.restart_budget

    @property
    def budget(self) -> LossBudget:
        """What may be lost in a run."""
        return LossBudget(self.max_lost_records, self.max_lost_fraction)

    @property
    def restart_budget(self) -> LossBudget:
        """What each attempt of the consumer may lose."""
        return LossBudget(self.max_lost_records_per_restart, self.max_lost_fraction_per_restart)


APPROXIMATE = ApproximateResult()
"""A channel that loses nothing: it rewinds and blocks."""


@dataclass(frozen=True, kw_only=True)
class Streaming(ModeOption):
    """How the region of a vertex runs: ``@job.vertex(streaming=Streaming(...))``. One vertex of a region may say it.

    - ``trigger_s``: seconds from the start of one micro-batch to the next; ``max_rows``: how many rows of its channel
      one of them reads at most.
    - ``output``: of the last region: ``"append"`` or ``"complete"``, as Spark's output modes.
    - ``run_for_s``: of a source: it takes in what comes for so many seconds, and then ends. Without it, it ends when it
      has read all that was there when it began (Spark's available-now).
    - ``stateful``: the region keeps state from batch to batch (aggregation, deduplication, join of streams); it is then
      restarted with that state.
    - ``replays=False``: of a source: after a restart it can't read again what it had read and not published. How much
      that loses nobody knows: it takes ``allow_unknown_loss=True``.
    - ``allow_stateful_loss``: ``reconnect="latest"`` into state, which then misses for ever what was skipped.
    - ``allow_approximate``: a sink that commits elsewhere, or repeats a batch, although records may be missing.

    Raises `JobDefinitionError`.
    """

    trigger_s: float = 1.0
    max_rows: int | None = None
    output: OutputMode | Literal["append", "complete"] = OutputMode.APPEND
    run_for_s: float | None = None
    stateful: bool = False
    replays: bool = True
    allow_unknown_loss: bool = False
    allow_stateful_loss: bool = False
    allow_approximate: bool = False

    def __post_init__(self) -> None:
        try:
            object.__setattr__(self, "output", OutputMode(self.output))
        except ValueError:
            raise JobDefinitionError(
                f"Streaming: expected output as 'append' or 'complete', found {self.output!r}: with 'update' nobody "
                "could say which row replaces which"
            ) from None
        check_arguments(Streaming.__init__, vars(self), "Streaming")
        if self.trigger_s < 0 or (self.max_rows is not None and self.max_rows < 1):
            raise JobDefinitionError(
                f"Streaming: expected trigger_s of at least 0 and max_rows of at least 1, found {self.trigger_s!r} and "
                f"{self.max_rows!r}"
            )
        if self.run_for_s is not None and not self.run_for_s > 0:
            raise JobDefinitionError(f"Streaming: expected run_for_s above 0 seconds, found {self.run_for_s!r}")


def _names(columns: object) -> tuple[str, ...]:
    names = (columns,) if isinstance(columns, str) else columns
    if not isinstance(names, (tuple, list)) or not all(isinstance(name, str) and name for name in names):
        raise JobDefinitionError(f"APPROXIMATE: expected partition_by as names of columns, found {columns!r}")
    return tuple(names)
