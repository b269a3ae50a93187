"""Key ranges of a real table over JDBC (Derby, which comes with Spark): every row is in one range."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import pytest

from airflow_recovery.job import Job, job, key_ranges

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from airflow_recovery.job import KeyRangeSplits

pytestmark = [pytest.mark.spark, pytest.mark.smoke]

DRIVER = {"driver": "org.apache.derby.iapi.jdbc.AutoloadedDriver"}


@pytest.fixture(scope="module")
def table(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The URL of a database with the table ORDERS: the keys 0 to 24."""
    log = tmp_path_factory.mktemp("derby") / "derby.log"
    spark.sparkContext._jvm.java.lang.System.setProperty("derby.stream.error.file", str(log))
    url = f"jdbc:derby:memory:{uuid.uuid4().hex};create=true"
    spark.range(25).withColumnRenamed("id", "ID").write.jdbc(url, "ORDERS", properties=DRIVER)
    return url


def orders(url: str, **ranges: int) -> Job:
    made = job("orders")

    @made.source(splits=key_ranges("ORDERS", "ID", **ranges))  # type: ignore[arg-type]
    def rows(spark: SparkSession, splits: KeyRangeSplits) -> DataFrame:
        return spark.read.jdbc(url, "ORDERS", predicates=splits.predicates, properties=DRIVER)

    @made.sink
    def copied(rows: DataFrame) -> DataFrame:
        return rows

    return made


def keys(frame: DataFrame) -> list[int]:
    return sorted(row["ID"] for row in frame.collect())


@pytest.mark.slow
def test_every_row_between_the_bounds_is_read_once_each_range_by_a_query_of_its_own(
    spark: SparkSession, table: str
) -> None:
    found = orders(table, lower=0, upper=25, width=10).run_local(spark)["copied"]
    assert keys(found) == list(range(25))
    assert found.rdd.getNumPartitions() == 3


def test_a_bound_belongs_to_the_range_that_begins_with_it(spark: SparkSession, table: str) -> None:
    found = [keys(orders(table, lower=at, upper=at + 10, width=10).run_local(spark)["copied"]) for at in (0, 10)]
    assert found == [list(range(10)), list(range(10, 20))]


def test_control_with_both_ends_in_it_a_row_is_read_twice(spark: SparkSession, table: str) -> None:
    predicates = ["ID >= 0 AND ID <= 10", "ID >= 10 AND ID <= 20"]
    found = keys(spark.read.jdbc(table, "ORDERS", predicates=predicates, properties=DRIVER))
    assert found.count(10) == 2
