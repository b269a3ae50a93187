"""The part of the driver's specification that a region has which commits split by split."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from airflow_recovery.driver.region_spec import ModeSpec
from airflow_recovery.splits.mode import AdoptedBatches


@dataclass(frozen=True)
class SplitSpec(ModeSpec):
    """How a region commits split by split. Which splits it was assigned is in the trace, as ``vertex``'s externals.

    ``base``: the committed batches of earlier attempts that it adopts. ``batch_bytes``: what one Spark job reads at
    most, one split at least. ``threads``: so many of them run at a time. ``loss_budget``: how many splits the result
    may do without. ``is_pulled``: the driver pulls its splits from the source's log while it runs; the trace has those
    that it may pull.
    """

    name: ClassVar[str] = "split"
    # Else the last tasks of one batch would keep the next one waiting.
    spark_conf: ClassVar[Mapping[str, str]] = {"spark.scheduler.mode": "FAIR"}
    is_adoptable: ClassVar[bool] = True

    vertex: str = ""
    batch_bytes: int = 0
    base: tuple[AdoptedBatches, ...] = ()
    loss_budget: int = 0
    threads: int = 2
    is_pulled: bool = False


MODE = SplitSpec()
