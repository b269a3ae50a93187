"""Pairs of frames that a digest must tell apart, or must not. Run as a program over Connect: prints what it found.

python digest_cases.py sc://host:port folder
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from airflow_recovery.driver.digest import digest_metrics, digest_of
from airflow_recovery.driver.writer import write_result
from airflow_recovery.store import open_store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True)
class Pair:
    """Two queries with the same columns, and whether their rows are equal."""

    one: str
    other: str
    are_equal: bool


def differ(one: str, other: str) -> Pair:
    return Pair(f"select {one}", f"select {other}", False)


def equal(one: str, other: str) -> Pair:
    return Pair(f"select {one}", f"select {other}", True)


def point(y: str) -> str:
    return f"st_geomfromwkb(X'0101000000000000000000F03F000000000000{y}')"


CASES: dict[str, Pair] = {
    "a null in another column": differ("cast(null as int) a, 1 b", "1 a, cast(null as int) b"),
    "a null and a zero": differ("cast(null as int) a", "0 a"),
    "a null and an empty text": differ("cast(null as string) a", "'' a"),
    "two texts": differ("'a' a", "'b' a"),
    "characters in another column": differ("'ab' a, 'c' b", "'a' a, 'bc' b"),
    "texts that a collation holds to be equal": differ(
        "cast('a' as string collate UTF8_LCASE) a", "cast('A' as string collate UTF8_LCASE) a"
    ),
    "two bytes": differ("X'00ff' a", "X'00fe' a"),
    "booleans": differ("true a", "false a"),
    "small integers": differ("1Y a, 1S b", "2Y a, 1S b"),
    "long integers": differ("9007199254740993L a", "9007199254740992L a"),
    "floats": differ("1.5F a", "1.25F a"),
    "the last bit of a double": differ("0.1D + 0.2D a", "0.3D a"),
    "a zero with and without a sign": equal("0.0D a, array(0.0F) b", "-0.0D a, array(-0.0F) b"),
    "two ways to NaN": equal("double('NaN') a", "double('inf') - double('inf') a"),
    "NaN and null": differ("double('NaN') a", "cast(null as double) a"),
    "decimals of 18 digits": differ("cast(1.5 as decimal(10,2)) a", "cast(1.51 as decimal(10,2)) a"),
    "the last of 38 digits": differ(
        "cast('12345678901234567890123456789012345678' as decimal(38,0)) a",
        "cast('12345678901234567890123456789012345679' as decimal(38,0)) a",
    ),
    "dates": differ("date'2026-01-01' a", "date'2026-01-02' a"),
    "microseconds": differ("timestamp'2026-01-01 00:00:00.000001' a", "timestamp'2026-01-01 00:00:00.000002' a"),
    "timestamps without a zone": differ(
        "timestamp_ntz'2026-01-01 00:00:00' a", "timestamp_ntz'2026-01-01 00:00:01' a"
    ),
    "times of day": differ("time'10:00:00' a", "time'10:00:01' a"),
    "intervals": differ("interval 1 month a, interval 1 day b", "interval 1 month a, interval 2 day b"),
    "points": differ(f"{point('0040')} a", f"{point('0041')} a"),
    "nothing but nulls": equal("null a", "null a"),
    "an array and null": differ("cast(array() as array<int>) a", "cast(null as array<int>) a"),
    "an empty array beside null": differ(
        "cast(array() as array<int>) a, cast(null as array<int>) b",
        "cast(null as array<int>) a, cast(array() as array<int>) b",
    ),
    "an array of a null": differ("array(cast(null as int)) a", "cast(array() as array<int>) a"),
    "a null elsewhere in an array": differ("array(1, null) a", "array(null, 1) a"),
    "the order of an array": differ("array(1, 2) a", "array(2, 1) a"),
    "items in another array": differ("array(array(1), array(2, 3)) a", "array(array(1, 2), array(3)) a"),
    "a null in another field": differ("struct(cast(null as int) x, 1 y) a", "struct(1 x, cast(null as int) y) a"),
    "a struct of nulls": differ("named_struct('x', cast(null as int)) a", "cast(null as struct<x: int>) a"),
    "the order of a map": equal("map('a', 1, 'b', 2) a", "map('b', 2, 'a', 1) a"),
    "a value of a map": differ("map('a', 1, 'b', 2) a", "map('a', 2, 'b', 1) a"),
    "an empty map": differ("cast(map() as map<string, int>) a", "cast(null as map<string, int>) a"),
    "a null as a map's value": differ("map('a', cast(null as int)) a", "cast(map() as map<string, int>) a"),
    "the order of a map of maps": equal(
        "map('a', map('x', 1, 'y', 2), 'b', map()) a", "map('b', map(), 'a', map('y', 2, 'x', 1)) a"
    ),
    "a value of a map of maps": differ("map('a', map('x', 1, 'y', 2)) a", "map('a', map('x', 2, 'y', 1)) a"),
    "a map in a struct in an array": differ(
        "array(struct(map('a', array(1, null)) m)) a", "array(struct(map('a', array(null, 1)) m)) a"
    ),
    "a struct as a map's key": differ("map(struct(1 x, 2 y), 3) a", "map(struct(2 x, 1 y), 3) a"),
    "the order of a variant": equal("""parse_json('{"a": 1, "b": 2}') a""", """parse_json('{"b": 2, "a": 1}') a"""),
    "a value of a variant": differ("""parse_json('{"a": 1}') a""", """parse_json('{"a": 2}') a"""),
    "a date and a text as variants": differ("cast(date'2026-01-01' as variant) a", "cast('2026-01-01' as variant) a"),
    "variants in a map": differ("map('a', parse_json('[1]')) a", "map('a', parse_json('[2]')) a"),
    "columns with odd names": differ("1 `a.b`, 2 `c``d`", "1 `a.b`, 3 `c``d`"),
    "the order of rows": Pair(
        "select id from range(0, 1000, 1, 1)", "select id from range(0, 1000, 1, 7) order by -id", True
    ),
    "another row twice": Pair("select explode(array(1, 1)) a", "select explode(array(2, 2)) a", False),
    "a row once more": Pair("select explode(array(1, 1)) a", "select explode(array(1, 1, 1)) a", False),
    "other rows with the same sum": Pair("select explode(array(1, 4)) a", "select explode(array(2, 3)) a", False),
    "no rows, planned in two ways": Pair(
        "select id from range(10) where id < 0", "select id from range(10) limit 0", True
    ),
    "no rows and one of nulls": Pair(
        "select cast(null as int) a from range(0)", "select cast(null as int) a", False
    ),
}  # fmt: skip

TIME_TYPE = ("spark.sql.timeType.enabled", "true")
"""Off where Spark's own tests do not run."""

EVERY_TYPE = """
    select id, cast(id as string) s, cast(cast(id as string) as binary) b, cast(id / 7 as double) d,
        cast(id / 3 as float) f, cast(id as decimal(38, 4)) dec, id % 2 = 0 flag, cast(id % 100 as tinyint) t,
        date_add(date'2026-01-01', cast(id as int)) day, timestamp_micros(id * 1000003) at,
        cast(timestamp_micros(id) as timestamp_ntz) ntz, make_ym_interval(1, cast(id as int)) ym,
        make_dt_interval(cast(id as int)) dt, if(id % 3 = 0, null, id) n,
        array(id, null, id + 1) a, array(map('k', array(struct(id x, cast(null as int) y)))) deep,
        map(id, map('x', id), id + 1, null) m, named_struct('x', id, 'y', if(id % 5 = 0, null, 'y')) st,
        parse_json(concat('{"id": ', id, '}')) v
    from range(0, 500, 1, 4)
"""


def digests(spark: SparkSession, pair: Pair) -> tuple[str, str]:
    """Of both sides, under one schema: else a nullable column alone would make them differ."""
    from pyspark.sql import functions as F

    one, other = spark.sql(pair.one), spark.sql(pair.other)
    both = one.withColumn("side", F.lit(0)).unionAll(other.withColumn("side", F.lit(1)))
    return digest(both.where("side = 0").drop("side")), digest(both.where("side = 1").drop("side"))


def digest(frame: DataFrame) -> str:
    """As `write_result` takes it, without writing."""
    from pyspark.sql import functions as F

    row = frame.agg(F.count(F.lit(1)).alias("rows"), *digest_metrics(frame.schema)).collect()[0]
    return digest_of(frame.schema, row["rows"], row.asDict())


def written_digest(spark: SparkSession, folder: Path, frame: DataFrame) -> str | None:
    store = open_store(f"file://{folder}")
    return write_result(spark, frame, result="r", location=f"file://{folder}/r", store=store, is_digested=True).digest


def main(url: str, folder: str) -> None:
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.remote(url).getOrCreate()
    spark.conf.set(*TIME_TYPE)
    found: dict[str, object] = {name: digests(spark, pair) for name, pair in CASES.items()}
    found["written"] = written_digest(spark, Path(folder), spark.sql(EVERY_TYPE))
    spark.stop()
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
