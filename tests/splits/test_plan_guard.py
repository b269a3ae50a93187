"""What the guard of ``commit="split"`` refuses, by the plans that Spark really makes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from airflow_recovery.errors import JobDefinitionError
from airflow_recovery.splits.plan_guard import RowLocalGuard

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.smoke]

Make = Callable[["SparkSession", "DataFrame", "DataFrame"], "DataFrame"]
WHERE = "job 'flights', vertex 'parsed'"


def functions():
    from pyspark.sql import functions as F

    return F


@pytest.fixture(scope="module")
def frames(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> tuple[DataFrame, DataFrame]:
    """Of the splits, and of a side input."""
    folder = tmp_path_factory.mktemp("guard")
    for name, text in (("split", "1,2013-01-01,a b\n2,2013-01-02,c\n"), ("side", "1,one\n3,three\n")):
        (folder / name).mkdir()
        (folder / name / "0.csv").write_text(text)
    splits = spark.read.schema("id long, day string, words string").csv(str(folder / "split"))
    return splits, spark.read.schema("id long, name string").csv(str(folder / "side"))


def check(spark: SparkSession, frames: tuple[DataFrame, DataFrame], make: Make, *, is_result: bool = True) -> DataFrame:
    splits, side = frames
    guard = RowLocalGuard()
    guard.mark(splits)
    made = make(spark, splits, side)
    guard.check(made, WHERE, is_result=is_result)
    return made


def python_udf(frame: DataFrame, *, is_deterministic: bool = True) -> DataFrame:
    plus = functions().udf(lambda number: number + 1, "long")
    return frame.select((plus if is_deterministic else plus.asNondeterministic())("id").alias("id"))


def pandas_map(frame: DataFrame) -> DataFrame:
    return frame.mapInPandas(lambda batches: batches, frame.schema)


def with_view(spark: SparkSession, frame: DataFrame, query: str) -> DataFrame:
    frame.createOrReplaceTempView("guarded_splits")
    return spark.sql(query)


ALLOWED: dict[str, Make] = {
    "select": lambda spark, splits, side: splits.select("id", functions().upper("words").alias("w")),
    "filter": lambda spark, splits, side: splits.where("id > 1").drop("words"),
    "sql": lambda spark, splits, side: with_view(spark, splits, "select id + 1 as id from guarded_splits where id > 1"),
    "sql with a name": lambda spark, splits, side: with_view(
        spark, splits, "with few as (select id from guarded_splits where id > 1) select id + 1 as id from few"
    ),
    "explode": lambda spark, splits, side: splits.select("id", functions().explode(functions().split("words", " "))),
    "a pure UDF": lambda spark, splits, side: python_udf(splits),
    "mapInPandas": lambda spark, splits, side: pandas_map(splits),
    "inner join to a side input": lambda spark, splits, side: splits.join(side, "id"),
    "left join to a side input": lambda spark, splits, side: splits.join(side, "id", "left"),
    "right join from a side input": lambda spark, splits, side: side.join(splits, "id", "right"),
    "anti join to a side input": lambda spark, splits, side: splits.join(side, "id", "left_anti"),
    "cross join to a side input": lambda spark, splits, side: splits.crossJoin(side),
    "not a broadcast": lambda spark, splits, side: splits.hint("merge").join(side, "id"),
    "an aggregate of a side input": lambda spark, splits, side: splits.join(side.groupBy("id").count(), "id"),
    "a side input in a subquery": lambda spark, splits, side: splits.where(
        splits.id < side.agg(functions().max("id")).scalar()
    ),
    "union of the splits": lambda spark, splits, side: splits.union(splits.where("id > 1")),
    "repartition": lambda spark, splits, side: splits.repartition(3).coalesce(1),
    "observe": lambda spark, splits, side: splits.observe("seen", functions().count(functions().lit(1)).alias("n")),
    "unpivot": lambda spark, splits, side: splits.unpivot("id", ["day", "words"], "what", "value"),
    "the file's name": lambda spark, splits, side: splits.select("id", functions().input_file_name().alias("file")),
    "a hidden column": lambda spark, splits, side: splits.select("id", "_metadata.file_path"),
}

REFUSED: dict[str, tuple[Make, str]] = {
    "groupBy": (lambda spark, splits, side: splits.groupBy("day").count(), "an aggregate"),
    "agg": (lambda spark, splits, side: splits.agg({"id": "max"}), "an aggregate"),
    "distinct": (lambda spark, splits, side: splits.distinct(), "dropDuplicates"),
    "dropDuplicates": (lambda spark, splits, side: splits.dropDuplicates(["day"]), "dropDuplicates"),
    "window": (
        lambda spark, splits, side: splits.selectExpr("id", "row_number() over (partition by day order by id) as n"),
        "a window function",
    ),
    "orderBy": (lambda spark, splits, side: splits.orderBy("id"), "a sort"),
    "limit": (lambda spark, splits, side: splits.limit(1), "limit"),
    "limit of a side input": (lambda spark, splits, side: splits.join(side.limit(1), "id"), "limit"),
    "offset": (lambda spark, splits, side: splits.offset(1), "offset"),
    "sample": (lambda spark, splits, side: splits.sample(0.5), "sample"),
    "sample of a side input": (lambda spark, splits, side: splits.join(side.sample(0.5, seed=1), "id"), "sample"),
    "applyInPandas": (
        lambda spark, splits, side: splits.groupBy("day").applyInPandas(lambda found: found, splits.schema),
        "applyInPandas",
    ),
    "pivot": (lambda spark, splits, side: splits.groupBy("day").pivot("words", ["a"]).count(), "an aggregate"),
    "intersect": (lambda spark, splits, side: splits.select("id").intersect(side.select("id")), "intersect"),
    "subtract": (lambda spark, splits, side: splits.select("id").subtract(side.select("id")), "subtract"),
    "rand": (lambda spark, splits, side: splits.select("id", functions().rand()), r"rand\(\)"),
    "rand with a seed": (lambda spark, splits, side: splits.select("id", functions().rand(7)), r"rand\(\)"),
    "uuid": (lambda spark, splits, side: splits.selectExpr("id", "uuid()"), r"uuid\(\)"),
    "row numbers": (
        lambda spark, splits, side: splits.select("id", functions().monotonically_increasing_id()),
        r"monotonically_increasing_id\(\)",
    ),
    "the partition": (lambda spark, splits, side: splits.selectExpr("spark_partition_id()"), "spark_partition_id"),
    "shuffle": (
        lambda spark, splits, side: splits.select(functions().shuffle(functions().split("words", " "))),
        r"shuffle\(\)",
    ),
    "a UDF that is not deterministic": (
        lambda spark, splits, side: python_udf(splits, is_deterministic=False),
        r"<lambda>\(\)",
    ),
    "self join": (lambda spark, splits, side: splits.join(splits.select("id"), "id"), "splits with themselves"),
    "broadcast self join": (
        lambda spark, splits, side: splits.join(functions().broadcast(splits.select("id")), "id"),
        "splits with themselves",
    ),
    "full join": (lambda spark, splits, side: splits.join(side, "id", "full"), "keeps rows of the other side"),
    "right join to a side input": (lambda spark, splits, side: splits.join(side, "id", "right"), "a right outer join"),
    "semi join from a side input": (lambda spark, splits, side: side.join(splits, "id", "semi"), "a left semi join"),
    "union with a side input": (
        lambda spark, splits, side: splits.select("id").union(side.select("id")),
        "a union with rows that are not of the splits",
    ),
    "a subquery": (
        lambda spark, splits, side: with_view(
            spark, splits, "select id from guarded_splits where id in (select length(words) from guarded_splits)"
        ),
        "a subquery over the splits",
    ),
    "an aggregate in a subquery": (
        lambda spark, splits, side: with_view(
            spark, splits, "select id from guarded_splits where id = (select max(id) from guarded_splits)"
        ),
        "an aggregate",
    ),
    "sql with a name for an aggregate": (
        lambda spark, splits, side: with_view(
            spark, splits, "with one as (select max(id) as id from guarded_splits) select id + 1 as id from one"
        ),
        "an aggregate",
    ),
    "sql with a name that is joined to itself": (
        lambda spark, splits, side: with_view(
            spark, splits, "with few as (select id from guarded_splits) select a.id from few a join few b using (id)"
        ),
        "splits with themselves",
    ),
    "self join by hidden columns": (
        lambda spark, splits, side: splits.join(splits.select("id", "_metadata.file_size"), "id"),
        "splits with themselves",
    ),
    "no splits at all": (lambda spark, splits, side: side, "reads none of them"),
    "constants": (lambda spark, splits, side: spark.range(3), "reads none of them"),
}


@pytest.mark.parametrize("what", ALLOWED)
def test_what_treats_every_row_by_itself_is_allowed(spark: SparkSession, frames, what: str) -> None:
    check(spark, frames, ALLOWED[what])


@pytest.mark.parametrize("what", REFUSED)
def test_what_needs_other_rows_is_refused_with_advice(spark: SparkSession, frames, what: str) -> None:
    make, said = REFUSED[what]
    with pytest.raises(JobDefinitionError, match=said) as caught:
        check(spark, frames, make)
    assert str(caught.value).startswith(WHERE)
    assert "commit='split'" in str(caught.value)


def test_a_cached_aggregate_is_seen_though_the_optimised_plan_hides_it(spark: SparkSession, frames) -> None:
    counted = frames[0].groupBy("day").count().cache()
    try:
        plan = counted._jdf.queryExecution().optimizedPlan()
        assert "Aggregate" not in [plan.getClass().getSimpleName(), *(leaf.nodeName() for leaf in leaves(plan))]
        with pytest.raises(JobDefinitionError, match="an aggregate"):
            check(spark, frames, lambda session, splits, side: counted)
    finally:
        counted.unpersist()


def leaves(plan):
    found = plan.collectLeaves()
    return [found.apply(at) for at in range(found.size())]


def test_what_was_written_in_the_batch_and_read_back_hangs_on_the_splits(
    spark: SparkSession, frames, tmp_path: Path
) -> None:
    splits, side = frames
    splits.write.parquet(f"{tmp_path}/written")
    back = spark.read.parquet(f"{tmp_path}/written")
    guard = RowLocalGuard()
    guard.mark(splits)
    with pytest.raises(JobDefinitionError, match="reads none of them"):
        guard.check(back, WHERE, is_result=True)
    guard.mark(back)
    guard.check(back.join(side, "id"), WHERE, is_result=True)
    with pytest.raises(JobDefinitionError, match="splits with themselves"):
        guard.check(back.join(splits, "id"), WHERE, is_result=True)


def test_a_lookup_that_is_no_result_may_read_no_splits(spark: SparkSession, frames) -> None:
    check(spark, frames, lambda session, splits, side: side.groupBy("id").count(), is_result=False)


def test_a_source_that_aggregates_by_itself_is_refused(spark: SparkSession, frames) -> None:
    counted = frames[0].groupBy("day").count()
    guard = RowLocalGuard()
    guard.mark(counted)
    with pytest.raises(JobDefinitionError, match="an aggregate"):
        guard.check(counted, WHERE, is_result=False)
