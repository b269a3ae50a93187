"""The digest of a result's rows: over every type, whatever order and files, over classic Spark and over Connect."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from digest_cases import CASES, EVERY_TYPE, TIME_TYPE, digest, digests, written_digest

from airflow_recovery.driver.reader import read_manifest
from airflow_recovery.driver.writer import write_result
from airflow_recovery.model.manifest import PartitionManifest
from airflow_recovery.store import open_store
from airflow_recovery.testing.patience import HANG_S
from airflow_recovery.testing.spark_cluster import ConnectServer

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


def written(spark: SparkSession, folder: Path, frame: DataFrame, *, is_digested: bool = True) -> PartitionManifest:
    store = open_store(f"file://{folder}")
    return write_result(spark, frame, result="r", location=f"file://{folder}/r", store=store, is_digested=is_digested)


@pytest.fixture(autouse=True, scope="module")
def every_type(spark: SparkSession) -> None:
    spark.conf.set(*TIME_TYPE)


@pytest.mark.parametrize("name", CASES)
def test_what_differs_differs_and_what_is_equal_is_equal(spark: SparkSession, name: str) -> None:
    one, other = digests(spark, CASES[name])
    assert (one == other) is CASES[name].are_equal


@pytest.mark.parametrize(
    "name",
    ["a null in another column", "a null elsewhere in an array", "a struct of nulls", "an empty array beside null"],
)
def test_control_the_bare_hash_takes_these_for_equal(spark: SparkSession, name: str) -> None:
    from pyspark.sql import functions as F

    def bare(query: str) -> int:
        frame = spark.sql(query)
        return int(frame.select(F.xxhash64(*frame.columns).alias("hash")).collect()[0]["hash"])

    assert bare(CASES[name].one) == bare(CASES[name].other)


def test_control_an_exclusive_or_does_not_see_duplicates(spark: SparkSession) -> None:
    def folded(query: str) -> int:
        return int(spark.sql(f"select bit_xor(xxhash64(a)) x from ({query})").collect()[0]["x"])

    pair = CASES["another row twice"]
    assert folded(pair.one) == folded(pair.other)


def test_fault_52_other_files_and_another_order_have_the_same_digest(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.sql(EVERY_TYPE)
    once = written(spark, tmp_path / "1", frame)
    again = written(spark, tmp_path / "2", frame.orderBy("s").coalesce(1))

    assert (len(once.objects), len(again.objects)) == (4, 1)
    assert once.rows == again.rows == 500
    assert once.digest == again.digest is not None
    # What is read back has it too; its schema says of every column that it may be null.
    assert sums(digest(read_manifest(spark, once))) == sums(once.digest)

    # Control: by their objects the two are different results.
    assert {file.etag for file in once.objects}.isdisjoint(file.etag for file in again.objects)


def test_fault_51_rows_that_were_computed_anew_have_another_digest(spark: SparkSession, tmp_path: Path) -> None:
    from pyspark.sql import functions as F

    noisy = spark.range(0, 100, 1, 2).withColumn("noise", F.rand())
    once, again = (
        written(spark, tmp_path / "1", noisy),
        written(spark, tmp_path / "2", noisy.sortWithinPartitions("id")),
    )
    other = written(spark, tmp_path / "3", spark.range(0, 100, 1, 2).withColumn("noise", F.rand(7)))

    # It is that of the rows which were written, not of rows that were computed once more for it.
    assert sums(digest(read_manifest(spark, once))) == sums(once.digest)
    assert once.digest == again.digest  # one expression has one seed
    assert once.digest != other.digest


def test_one_row_of_many_counts(spark: SparkSession) -> None:
    frame = spark.range(0, 1000, 1, 3).selectExpr("id", "cast(id as string) name")
    changed = frame.selectExpr("id", "if(id = 500, 'x', name) name").to(frame.schema)
    assert sums(digest(frame)) != sums(digest(changed))


def test_the_schema_belongs_to_it(spark: SparkSession) -> None:
    empty = [spark.createDataFrame([], name) for name in ("id long", "id int", "other long")]
    assert len({digest(each) for each in empty}) == 3


def test_fault_50_an_empty_result_has_one(spark: SparkSession, tmp_path: Path) -> None:
    nothing = spark.range(10).where("id < 0")
    assert written(spark, tmp_path, nothing).digest == digest(nothing)


def test_the_zone_of_the_session_does_not_matter(spark: SparkSession) -> None:
    frame = spark.createDataFrame([(1,)], "id int").selectExpr("timestamp_seconds(id) at")
    before = digest(frame)
    zone = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    try:
        assert digest(frame) == before
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone)


def test_where_nobody_compares_there_is_none(spark: SparkSession, tmp_path: Path) -> None:
    assert written(spark, tmp_path, spark.range(3), is_digested=False).digest is None


def test_not_covered_a_sum_of_floats_depends_on_the_order_in_which_it_is_added(spark: SparkSession) -> None:
    """Documented: such a vertex is not deterministic, and ``verify`` runs its consumers again."""
    rows = [(1e16,), (1.0,), (-1e16,)]
    one, other = (spark.createDataFrame(each, "x double").coalesce(1) for each in (rows, [rows[0], rows[2], rows[1]]))

    assert digest(one) == digest(other)
    assert digest(one.groupBy().sum("x")) != digest(other.groupBy().sum("x"))


def test_over_connect_it_is_the_same(spark: SparkSession, connect: ConnectServer, tmp_path: Path) -> None:
    command = [sys.executable, str(Path(__file__).with_name("digest_cases.py")), connect.url, str(tmp_path / "connect")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=HANG_S, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    document = json.loads(done.stdout.splitlines()[-1])

    assert document.pop("written") == written_digest(spark, tmp_path / "classic", spark.sql(EVERY_TYPE))
    for name, pair in CASES.items():
        one, other = document[name]
        assert (one == other) is pair.are_equal, name


def sums(digest: str | None) -> str:
    """Without the part that stands for the schema."""
    assert digest is not None
    return digest.partition("-")[2]
