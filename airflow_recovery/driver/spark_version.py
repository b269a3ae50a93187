"""Whether the Spark of an application is one on which its region can run."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from airflow_recovery.driver.progress import is_remote
from airflow_recovery.driver.start_advice import NOT_SET_UP
from airflow_recovery.errors import Failure, NotSetUp

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from airflow_recovery.driver.region_spec import ModeSpec

OLDEST_CONNECT = (4, 0)
"""The client that Airflow's provider brings begins with it. Before it, a Spark came without a server, and its client
could not be asked for the rows that it had observed."""


def check_one_version(spark: str) -> None:
    """Raises `NotSetUp` where the pyspark that is imported here is made for another Spark than ``spark``, its version.

    The third number may differ, as may what a vendor adds.
    """
    import pyspark

    if pyspark.__version__.split(".")[:2] != spark.split(".")[:2]:
        raise _not_set_up(
            f"expected pyspark and Spark of one version, found pyspark {pyspark.__version__} in {pyspark.__path__[0]} "
            f"and Spark {spark}. Install the pyspark of that version where the driver runs, or have SPARK_HOME name "
            "the Spark of this one."
        )


def check_new_enough(spark: SparkSession, mode: ModeSpec) -> None:
    """Raises `NotSetUp` where this Spark lacks what regions of ``mode`` need, or those over Connect."""
    needs = [(mode.oldest_spark, f"regions of the mode {mode.name!r}")]
    if is_remote(spark):
        needs.append((OLDEST_CONNECT, "regions over Spark Connect"))
    version = str(spark.version)
    numbers = re.match(r"(\d+)\.(\d+)", version)
    for oldest, what in needs:
        if numbers is not None and (int(numbers[1]), int(numbers[2])) < oldest:
            raise _not_set_up(
                f"expected Spark {oldest[0]}.{oldest[1]} or later for {what}, found {version}: submit to a newer one, "
                "or declare the job without them."
            )


def _not_set_up(message: str) -> NotSetUp:
    return NotSetUp(message, Failure(NOT_SET_UP, message))
