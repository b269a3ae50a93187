"""One result, `carrier_delays`."""

from __future__ import annotations

from typing import Any

from airflow_recovery import job

delays = job("delays")


@delays.source
def three(spark: Any) -> Any:
    return spark.range(3)


@delays.sink
def carrier_delays(three: Any) -> Any:
    return three
