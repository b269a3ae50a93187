"""What the driver of a region is told that runs on streams."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from airflow_recovery.driver.region_spec import ModeSpec
from airflow_recovery.model.channel_options import LossBudget, Overflow, Reconnect


@dataclass(frozen=True)
class ChannelSpec:
    """One end of a channel. Options as in `airflow_recovery.streaming.ApproximateResult`.

    ``drained``: the generations before, in which a consumer's commits count as well.
    """

    result: str
    generation: int
    reconnect: Reconnect
    overflow: Overflow
    max_bytes: int
    block_timeout_s: float
    subpartitions: int
    partition_by: tuple[str, ...]
    budget: LossBudget
    restart_budget: LossBudget
    drained: tuple[int, ...] = ()


@dataclass(frozen=True)
class StreamingSpec(ModeSpec):
    """How a region runs on streams. Options as in `airflow_recovery.streaming.Streaming`.

    At least one of ``input`` and ``output`` is there. Without ``output`` it is the last region on streams, and its one
    result is written when the input has ended.
    ``earlier``: its attempts before, whose checkpoints count; ``checkpoints``: the names of their folders.
    """

    name: ClassVar[str] = "streaming"
    oldest_spark: ClassVar[tuple[int, int]] = (4, 2)
    """A source of streams in Python says since then how much of its input one batch takes."""

    input: ChannelSpec | None = None
    output: ChannelSpec | None = None
    trigger_s: float = 1.0
    max_rows: int | None = None
    output_mode: str = "append"
    run_for_s: float | None = None
    stateful: bool = False
    replays: bool = True
    allow_stateful_loss: bool = False
    earlier: tuple[int, ...] = ()
    checkpoints: tuple[str, ...] = ()


MODE = StreamingSpec()
