"""Chains of streaming regions. Each file of the lake is one micro-batch of the source, which a gate holds at an id.

scoring   events ~> scores ~> table
brief     events ~> table
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from airflow_recovery import job
from airflow_recovery.streaming import APPROXIMATE, Streaming
from integration_jobs.gates import pass_gate

GATES = {"gates": "{{ conf.get('gates', '') }}"}
QUICK = Streaming(trigger_s=0.2)


def held_at(gates: str) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """Rows pass while their ids are below what ``events.hold`` says; without that file all do."""

    def hold(frames: Iterator[Any]) -> Iterator[Any]:
        for frame in frames:
            while (limit := read_limit(gates)) is not None and len(frame) and int(frame["id"].max()) >= limit:
                time.sleep(0.05)
            yield frame

    return hold


def read_limit(gates: str) -> int | None:
    try:
        return int((Path(gates) / "events.hold").read_text() or 0)
    except FileNotFoundError:
        return None


def read_events(spark: Any, gates: str) -> Any:
    pass_gate(gates, "events-called")
    lake = spark.readStream.schema("id long").option("maxFilesPerTrigger", 1).csv(f"file://{gates}/lake")
    return lake.mapInPandas(held_at(gates), "id long")


def scoring_job(name: str, first: Any, second: Any) -> Any:
    made = job(name)

    @made.source(result=first, params=GATES)
    def events(spark: Any, gates: str) -> Any:
        return read_events(spark, gates)

    @made.vertex(result=second, params=GATES, streaming=QUICK)
    def scores(events: Any, gates: str) -> Any:
        pass_gate(gates, "scores")
        return events.selectExpr("id", "id * 2 AS score")

    @made.sink(params=GATES, streaming=QUICK)
    def table(scores: Any, gates: str) -> Any:
        pass_gate(gates, "table")
        return scores

    return made


def brief_job(name: str, channel: Any) -> Any:
    made = job(name)

    @made.source(result=channel, params=GATES)
    def events(spark: Any, gates: str) -> Any:
        return read_events(spark, gates)

    @made.sink(params=GATES, streaming=QUICK)
    def table(events: Any, gates: str) -> Any:
        pass_gate(gates, "table")
        return events

    return made


LATEST = APPROXIMATE(reconnect="latest", max_lost_records=1000, subpartitions=1)

scoring = scoring_job("scoring", LATEST, LATEST)
brief = brief_job("brief", LATEST)
tight = brief_job("tight", LATEST(max_lost_records=5))
blocked = brief_job("blocked", APPROXIMATE(subpartitions=1, max_bytes=1, block_timeout_s=2.0))
