"""The pipeline as one of Spark's own declarative pipelines: eight materialized views, one application.

Spark reads this file by itself, in `spark-pipelines run`; what is raised in ``report`` is raised in a Python worker.
"""

import os
from collections.abc import Callable

from application import VERTICES, obey  # type: ignore[import-not-found]
from pyspark import pipelines
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import LongType
from steps import LAKE, STEPS  # type: ignore[import-not-found]

lake, order = os.environ[LAKE], os.environ["BENCHMARK_ORDER"]
spark = SparkSession.active()


@F.udf(returnType=LongType())
def told(flights: int) -> int:
    """The number as it is, unless this step is told to fail."""
    if os.path.exists(order):
        obey("report", {}, "")
    return flights


def view(step: str) -> Callable[[], DataFrame]:
    def frame() -> DataFrame:
        made: DataFrame = VERTICES[step](spark, lake, {name: spark.read.table(name) for name in STEPS[step]})
        return made.withColumn("flights", told("flights")) if step == "report" else made

    return frame


for name in STEPS:
    pipelines.materialized_view(name=name)(view(name))
