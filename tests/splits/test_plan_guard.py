"""What the guard of ``commit="split"`` refuses, by the plans that Spark really makes."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from airflow_recovery.errors import JobDefinitionError
from airflow_recovery.splits import plan_guard
from airflow_recovery.splits.plan_guard import RowLocalGuard
from airflow_recovery.splits.watched_calls import ACTIONS, WRITES

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
    with guard.calling(WHERE, (splits, side), is_source=False):
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
    "show": lambda spark, splits, side: (splits.show(), splits)[1],
    "names and types": lambda spark, splits, side: (splits.columns, splits.schema, splits.explain(), splits)[-1],
    "an action on a side input": lambda spark, splits, side: splits.where(
        functions().col("id").isin([row.id for row in side.collect()])
    ),
    "a checkpoint of a side input": lambda spark, splits, side: splits.join(side.localCheckpoint(), "id"),
    "a lazy checkpoint of a side input": lambda spark, splits, side: splits.join(
        side.groupBy("id").count().localCheckpoint(eager=False), "id"
    ),
    "constants beside the splits": lambda spark, splits, side: splits.join(
        spark.createDataFrame([(1, "one")], "id long, name string"), "id"
    ),
    "values beside the splits": lambda spark, splits, side: splits.join(spark.sql("values (1L) as v(id)"), "id"),
    "a cached side input": lambda spark, splits, side: splits.join(side.groupBy("id").count().cache(), "id"),
    "cached splits": lambda spark, splits, side: splits.cache().where("id > 0"),
    "mapInPandas in more partitions": lambda spark, splits, side: pandas_map(splits.repartition(8)),
    "rows written elsewhere": lambda spark, splits, side: (splits.write.format("noop").mode("append").save(), splits)[
        1
    ],
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


def counted(splits: DataFrame) -> DataFrame:
    return splits.groupBy("day").count()


def broadcast_map(spark: SparkSession, splits: DataFrame) -> DataFrame:
    known: Any = spark.sparkContext.broadcast({row.day: row[1] for row in counted(splits).collect()})
    return splits.select(functions().udf(lambda day: known.value[day], "long")("day").alias("n"))


def in_a_thread(splits: DataFrame) -> DataFrame:
    with ThreadPoolExecutor(1) as pool:
        return splits.where(functions().lit(pool.submit(splits.count).result()) > 0)


def swallowed(splits: DataFrame) -> DataFrame:
    with suppress(Exception):
        splits.count()
    return splits


def observed(splits: DataFrame) -> DataFrame:
    from pyspark.sql import Observation

    seen = Observation()
    splits.observe(seen, functions().count(functions().lit(1)).alias("n")).write.format("noop").mode("append").save()
    return splits.withColumn("n", functions().lit(seen.get["n"]))


def fitted(splits: DataFrame) -> DataFrame:
    from pyspark.ml.feature import StringIndexer

    return StringIndexer(inputCol="day", outputCol="n").fit(splits).transform(splits)


def stored(spark: SparkSession, splits: DataFrame, folder: str) -> DataFrame:
    """What was written row by row is read back and counted."""
    splits.write.parquet(folder)
    return splits.join(counted(spark.read.parquet(folder)), "day")


def by_sql(spark: SparkSession, splits: DataFrame, command: str) -> DataFrame:
    splits.createOrReplaceTempView("guarded_splits")
    spark.sql(command)
    return splits


def set_by_sql(spark: SparkSession, splits: DataFrame) -> DataFrame:
    spark.sql("declare or replace variable guarded_n bigint")
    by_sql(spark, splits, "set var guarded_n = (select count(*) from guarded_splits)")
    return splits.selectExpr("id", "guarded_n")


HIDDEN: dict[str, tuple[Callable[[SparkSession, DataFrame, str], DataFrame], str]] = {
    "localCheckpoint": (lambda spark, splits, at: splits.join(counted(splits).localCheckpoint(), "day"), "localCheckp"),
    "a lazy localCheckpoint": (
        lambda spark, splits, at: splits.join(counted(splits).localCheckpoint(eager=False), "day"),
        r"localCheckpoint\(\)",
    ),
    "checkpoint": (lambda spark, splits, at: splits.join(counted(splits).checkpoint(), "day"), r" checkpoint\(\)"),
    "a checkpoint that Python does not see": (
        lambda spark, splits, at: splits.join(type(splits)(counted(splits)._jdf.localCheckpoint(), spark), "day"),
        "rows behind a checkpoint",
    ),
    "an RDD that Python does not see": (
        lambda spark, splits, at: splits.join(
            type(splits)(
                spark._jsparkSession.createDataFrame(counted(splits)._jdf.toJavaRDD(), counted(splits)._jdf.schema()),
                spark,
            ),
            "day",
        ),
        "an RDD that was made of a frame",
    ),
    "collect": (
        lambda spark, splits, at: splits.join(
            spark.createDataFrame(counted(splits).collect(), "day string, n long"), "day"
        ),
        r"collect\(\)",
    ),
    "toPandas": (
        lambda spark, splits, at: splits.join(spark.createDataFrame(counted(splits).toPandas()), "day"),
        r"toPandas\(\)",
    ),
    "toArrow": (
        lambda spark, splits, at: splits.join(spark.createDataFrame(counted(splits).toArrow()), "day"),
        r"toArrow\(\)",
    ),
    "count": (lambda spark, splits, at: splits.withColumn("n", functions().lit(splits.count())), r"count\(\)"),
    "first": (lambda spark, splits, at: splits.where(splits.id > splits.first().id), r"first\(\)"),
    "head": (lambda spark, splits, at: splits.where(splits.id > splits.head(1)[0].id), r"head\(\)"),
    "take": (lambda spark, splits, at: splits.where(splits.id > splits.take(1)[0].id), r"take\(\)"),
    "tail": (lambda spark, splits, at: splits.where(splits.id > splits.tail(1)[0].id), r"tail\(\)"),
    "isEmpty": (lambda spark, splits, at: splits.limit(0) if splits.isEmpty() else splits, r"isEmpty\(\)"),
    "toLocalIterator": (
        lambda spark, splits, at: splits.where(splits.id > min(row.id for row in splits.toLocalIterator())),
        r"toLocalIterator\(\)",
    ),
    "foreach": (lambda spark, splits, at: (splits.foreach(print), splits)[1], r"foreach\(\)"),
    "foreachPartition": (
        lambda spark, splits, at: (splits.foreachPartition(lambda rows: None), splits)[1],
        r"foreachPartition",
    ),
    "the RDD": (
        lambda spark, splits, at: spark.createDataFrame(
            splits.rdd.groupBy(lambda row: row.day).keys().map(lambda d: (d,))
        ),
        "the property rdd",
    ),
    "toJSON": (lambda spark, splits, at: spark.read.json(splits.toJSON()), r"toJSON\(\)"),
    "pandas on Spark": (lambda spark, splits, at: splits.pandas_api().to_spark(), r"pandas_api\(\)"),
    "approxQuantile": (
        lambda spark, splits, at: splits.where(splits.id > splits.approxQuantile("id", [0.5], 0.1)[0]),
        r"approxQuantile\(\)",
    ),
    "stat.corr": (lambda spark, splits, at: splits.where(splits.id > splits.stat.corr("id", "id")), r"corr\(\)"),
    "describe": (lambda spark, splits, at: splits.describe(), r"describe\(\)"),
    "transpose": (lambda spark, splits, at: splits.select("id").transpose(), r"transpose\(\)"),
    "a broadcast variable": (lambda spark, splits, at: broadcast_map(spark, splits), r"collect\(\)"),
    "an action in a thread": (lambda spark, splits, at: in_a_thread(splits), r"count\(\)"),
    "a refusal that was caught": (lambda spark, splits, at: swallowed(splits), r"count\(\)"),
    "an observation": (lambda spark, splits, at: observed(splits), r"get\(\)"),
    "a model": (lambda spark, splits, at: fitted(splits), r"fit\(\)"),
    "a table of counts": (
        lambda spark, splits, at: (counted(splits).write.parquet(at), splits.join(spark.read.parquet(at), "day"))[1],
        "an aggregate",
    ),
    "a table of rows, counted": (
        lambda spark, splits, at: stored(spark, splits, at),
        "files or tables that are no inp",
    ),
    "create table as": (
        lambda spark, splits, at: by_sql(
            spark,
            splits,
            f"insert overwrite directory '{at}' using parquet select day, count(*) as n from guarded_splits group by 1",
        ),
        "an aggregate",
    ),
    "a variable of SQL": (lambda spark, splits, at: set_by_sql(spark, splits), "a command of SQL"),
    "a function over all rows": (lambda spark, splits, at: pandas_map(splits.coalesce(1)), r"coalesce\(1\)"),
    "a function over a key": (
        lambda spark, splits, at: pandas_map(splits.repartition("day")),
        "repartition by columns",
    ),
    "a cached aggregate": (lambda spark, splits, at: splits.join(counted(splits).cache(), "day"), "an aggregate"),
    "a persisted aggregate": (lambda spark, splits, at: splits.join(counted(splits).persist(), "day"), "an aggregate"),
    "a view of an aggregate": (
        lambda spark, splits, at: (
            counted(splits).createOrReplaceTempView("counts"),
            splits.join(spark.table("counts"), "day"),
        )[1],
        "an aggregate",
    ),
    "a cached table of an aggregate": (
        lambda spark, splits, at: (
            by_sql(spark, splits, "cache table counted_days as select day, count(*) n from guarded_splits group by 1"),
            splits.join(spark.table("counted_days"), "day"),
        )[1],
        "an aggregate",
    ),
}


COVER = (
    "localCheckpoint",
    "a lazy localCheckpoint",
    "a checkpoint that Python does not see",
    "collect",
    "count",
    "the RDD",
    "a broadcast variable",
    "an action in a thread",
    "a refusal that was caught",
    "an observation",
    "a table of counts",
    "a table of rows, counted",
    "a variable of SQL",
    "a function over all rows",
)
"""One of each mechanism; `make drill` runs all."""


@pytest.mark.parametrize(
    "what", [what if what in COVER else pytest.param(what, marks=pytest.mark.drill) for what in HIDDEN]
)
def test_fault_340_what_hides_a_plan_is_refused_by_name(spark: SparkSession, frames, tmp_path: Path, what: str) -> None:
    import pyspark.ml.base  # noqa: F401  a vertex's module has imported what it uses

    spark.sparkContext.setCheckpointDir(str(tmp_path / "checkpoints"))
    make, said = HIDDEN[what]
    try:
        with pytest.raises(JobDefinitionError, match=said) as caught:
            check(spark, frames, lambda session, splits, side: make(session, splits, str(tmp_path / "made")))
        assert str(caught.value).startswith(WHERE)
        assert "result=BLOCKING" in str(caught.value)
    finally:
        spark.catalog.clearCache()


SOURCES: dict[str, tuple[Callable[[SparkSession, str], DataFrame], str]] = {
    "count": (
        lambda spark, at: (raw := read(spark, at)).withColumn("n", functions().lit(raw.count())),
        r"count\(\) on rows of the splits",
    ),
    "collected rows": (
        lambda spark, at: spark.createDataFrame(counted(read(spark, at)).collect(), "day string, n long"),
        r"collect\(\) in a source whose rows come from the driver",
    ),
    "localCheckpoint": (
        lambda spark, at: counted(read(spark, at)).localCheckpoint(),
        r"localCheckpoint\(\) in a source",
    ),
    "an RDD with a shuffle": (
        lambda spark, at: (
            spark.sparkContext.textFile(at)
            .map(lambda line: (line.split(",")[1], 1))
            .reduceByKey(lambda a, b: a + b)
            .toDF("day string, n long")
        ),
        "an RDD that brings rows together",
    ),
    "an RDD of a frame": (
        lambda spark, at: spark.createDataFrame(counted(read(spark, at)).rdd, "day string, n long"),
        "the property rdd in a source",
    ),
}
GOOD_SOURCES: dict[str, Callable[[SparkSession, str], DataFrame]] = {
    "files": lambda spark, at: read(spark, at),
    "rows of Python": lambda spark, at: spark.createDataFrame([(1,)], "id long"),
    "an RDD row by row": lambda spark, at: spark.sparkContext.textFile(at).map(lambda line: (line,)).toDF("l string"),
    "a look at another table": lambda spark, at: read(spark, at).where(f"id < {spark.range(5).count()}"),
    "inferred types": lambda spark, at: spark.read.csv(at, inferSchema=True),
}


def read(spark: SparkSession, at: str) -> DataFrame:
    return spark.read.schema("id long, day string, words string").csv(at)


def check_source(spark: SparkSession, at: str, make: Callable[[SparkSession, str], DataFrame]) -> None:
    guard = RowLocalGuard()
    with guard.calling(WHERE, (), is_source=True):
        made = make(spark, at)
    guard.mark(made)
    guard.check(made, WHERE, is_result=True)


@pytest.mark.parametrize("what", SOURCES)
def test_fault_340_a_source_that_hides_a_plan_is_refused(spark: SparkSession, frames, what: str) -> None:
    make, said = SOURCES[what]
    with pytest.raises(JobDefinitionError, match=said):
        check_source(spark, frames[0].inputFiles()[0], make)


@pytest.mark.parametrize("what", GOOD_SOURCES)
def test_a_source_that_reads_row_by_row_is_allowed(spark: SparkSession, frames, what: str) -> None:
    check_source(spark, frames[0].inputFiles()[0], GOOD_SOURCES[what])


@pytest.mark.control
def test_fault_340_control_unwatched_the_counts_are_those_of_a_batch(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def counts(*files: str) -> list[tuple[str, int]]:
        splits = read(spark, [f"{tmp_path}/{file}" for file in files])  # type: ignore[arg-type]
        made = check(
            spark, (splits, splits), lambda session, mine, side: mine.join(counted(mine).localCheckpoint(), "day")
        )
        return sorted((row.day, row["count"]) for row in made.collect())

    for file in "ab":
        (tmp_path / f"{file}.csv").write_text("1,monday,x\n")
    with pytest.raises(JobDefinitionError, match="localCheckpoint"):
        counts("a.csv")
    monkeypatch.setattr(RowLocalGuard, "calling", lambda *args, **kwargs: nullcontext())
    monkeypatch.setattr(plan_guard, "_cut", lambda rdd, *, is_of_splits: "")
    assert counts("a.csv", "b.csv") == [("monday", 2), ("monday", 2)]
    assert counts("a.csv") + counts("b.csv") == [("monday", 1), ("monday", 1)]


def test_what_was_watched_is_left_as_it_was(spark: SparkSession, frames) -> None:
    before = {name: type(frames[0]).__dict__.get(name) for name in (*ACTIONS, *WRITES)}
    with pytest.raises(JobDefinitionError):
        check(spark, frames, lambda session, splits, side: splits.limit(splits.count()))
    assert {name: type(frames[0]).__dict__.get(name) for name in before} == before
    assert frames[0].count() == 2


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
