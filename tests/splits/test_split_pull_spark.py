"""A region that pulls its splits, in real Spark: the claim, the return and the driver's loop together."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from spark_split_run import REGION, SparkSplitRun

from airflow_recovery.attempt.application import ClaimedAttempt
from airflow_recovery.driver.region_spec import RegionSpec
from airflow_recovery.model.records import ExternalObject, PlanRecord
from airflow_recovery.model.split import Split
from airflow_recovery.model.split_matching import Vanished
from airflow_recovery.splits.dynamic_assignment import discover
from airflow_recovery.splits.log_store import SplitLogStore
from airflow_recovery.splits.mode import SplitOutcome, SplitPlan
from airflow_recovery.splits.spec import SplitSpec

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


class PullingSplitRun(SparkSplitRun):
    """`SparkSplitRun` with ``assignment="dynamic"``."""

    @property
    def plan(self) -> PlanRecord:
        plain = super().plan
        pulling = {REGION: SplitPlan("lines", pulls_splits=True)}
        regions = (replace(region, mode=pulling.get(region.name, region.mode)) for region in plain.regions)
        return replace(plain, regions=tuple(regions))

    def log(self) -> SplitLogStore:
        journal = self.journal()
        return SplitLogStore(journal.store, self.identity, "lines", writer="test")

    def externals(self) -> tuple[ExternalObject, ...]:
        today = [Split.of_external(external) for external in super().externals()]
        log = logging.getLogger(__name__)
        found = discover(self.log(), lambda: today, vertex="lines", parallelism=1, vanished=Vanished.DROP, log=log)
        return tuple(each.external("lines") for each in found)

    def spec(self, attempt: ClaimedAttempt) -> RegionSpec:
        made = super().spec(attempt)
        assert isinstance(made.mode, SplitSpec)
        self.specs[-1] = replace(made, mode=replace(made.mode, is_pulled=True))
        return self.specs[-1]


def test_fault_56_what_was_pulled_and_not_committed_goes_home_and_a_grown_listing_is_read_without_what_was_read(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    spark_run = PullingSplitRun(tmp_path, spark)
    spark_run.write_files(8)
    spark_run.fail_after(2, monkeypatch)
    assert spark_run.batches(1) == 2
    outcome = spark_run.go().outcome
    assert spark_run.numbers(outcome) == [*range(8)]
    assert outcome.outputs[0].digest == spark_run.at_once()[0].digest
    assert {batch.attempt for batch in SplitOutcome.of(outcome).batches} == {1, 2}
    assert spark_run.log().read().has_end(0, 2)

    spark_run.write_files(2, first=8)
    (tmp_path / "in" / "00000.csv").unlink()
    grown = spark_run.again().outcome
    # The batch that held the vanished one leaves as a whole; of it, the other one is read again.
    assert spark_run.numbers(grown) == [*range(1, 10)]
    assert len({key for batch in SplitOutcome.of(grown).batches if batch.attempt == 3 for key in batch.splits}) == 3

    (tmp_path / "in" / "00001.csv").unlink()
    fewer = len(spark_run.specs)
    without = spark_run.again().outcome
    assert spark_run.numbers(without) == [*range(2, 10)]
    assert len(spark_run.specs) - fewer <= 1
