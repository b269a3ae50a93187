"""Failover strategy and recovery mode, as a job declares them."""

from __future__ import annotations

from typing import Any

import pytest
from expected_errors import fails_with

from airflow_recovery.job import Job, job
from airflow_recovery.model.failover_strategy import FailoverStrategy
from airflow_recovery.model.result_type import BLOCKING


def pair(**options: Any) -> Job:
    made = job("pair", **options)

    @made.source(result=BLOCKING)
    def numbers(spark: Any) -> Any: ...

    @made.sink
    def total(numbers: Any) -> Any: ...

    return made


@pytest.mark.parametrize(
    ("options", "strategy"),
    [
        ({}, FailoverStrategy.REGION),
        ({"failover_strategy": "full"}, FailoverStrategy.FULL),
        ({"recovery_mode": "JOB_LEVEL"}, FailoverStrategy.FULL),
        ({"recovery_mode": "JOB_LEVEL", "failover_strategy": "region"}, FailoverStrategy.FULL),
        ({"recovery_mode": "TASK_LEVEL"}, FailoverStrategy.REGION),
        ({"recovery_mode": "TASK_LEVEL", "failover_strategy": "full"}, FailoverStrategy.FULL),
    ],
)
def test_the_mode_and_the_strategy_make_one_strategy(options: dict[str, Any], strategy: FailoverStrategy):
    made = pair(**options)
    made.validate()
    assert made.failover_strategy is strategy


def test_individual_needs_readers_that_may_keep_what_they_read():
    with fails_with("individual-not-assumed", region="total"):
        pair(failover_strategy="individual").validate()
    pair(failover_strategy="individual", deterministic="assume").validate()


@pytest.mark.parametrize("options", [{"failover_strategy": "regional"}, {"recovery_mode": "job_level"}])
def test_an_unknown_one_is_refused_with_those_that_there_are(options: dict[str, Any]):
    with fails_with("failover-strategy-unknown"):
        pair(**options)
