"""What the tests deploy other versions of, as streams: events ~> scores ~> table --> report."""

from __future__ import annotations

from typing import Any

from airflow_recovery import BLOCKING, job
from airflow_recovery.streaming import APPROXIMATE
from integration_jobs.streams import GATES, QUICK, read_events

LATEST = APPROXIMATE(reconnect="latest", max_lost_records=900, subpartitions=1)
SCORES = LATEST

deployed_streams = job("deployed_streams")


@deployed_streams.source(result=LATEST, params=GATES)
def events(spark: Any, gates: str) -> Any:
    return read_events(spark, gates)


@deployed_streams.vertex(result=SCORES, streaming=QUICK)
def scores(events: Any) -> Any:
    return events.selectExpr("id", "id * 7 AS score")


@deployed_streams.vertex(result=BLOCKING, streaming=QUICK)
def table(scores: Any) -> Any:
    return scores


@deployed_streams.sink
def report(table: Any) -> Any:
    return table.selectExpr("count(*) AS rows", "sum(score) AS total")
