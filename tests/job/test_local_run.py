from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timezone
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from expected_errors import fails_with

from airflow_recovery import BLOCKING, Job, Subtask, files, job, per_file, same_as

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass
class FakeFrame:
    """Has the shape of a DataFrame, and says how it was made."""

    made: str
    write: object = "writer"

    @property
    def schema(self) -> object:
        raise AssertionError("a Connect DataFrame would ask the server")


calls: list[str] = []


def make_flights() -> Job:
    flights = job("flights")

    @flights.source(splits=files("s3://lake/*.csv"))
    def raw(spark: Any, splits: Any) -> Any:
        calls.append("raw")
        return FakeFrame(f"{spark}:{','.join(splits.paths)}")

    @flights.source
    def airports(spark: Any) -> Any:
        calls.append("airports")
        return FakeFrame("airports")

    @flights.vertex(result=BLOCKING, params={"day": "{{ ds }}", "n": 1, "k": "{{ conf.get('k') }}"})
    def cleaned(raw: Any, day: str, n: int, k: str, context: Any) -> Any:
        calls.append("cleaned")
        return FakeFrame(f"cleaned({raw.made} {day} {n} {k} {context.region}@{context.attempt} {context.logical_date})")

    @flights.sink(inputs={"left": "cleaned"})
    def delays(left: Any, airports: Any) -> Any:
        return FakeFrame(f"delays({left.made} {airports.made})")

    @flights.sink
    def days(cleaned: Any) -> Any:
        return FakeFrame("days")

    return flights


FILES: dict[str, Any] = {"raw": ["a.csv", "b.csv"]}
SPARK: Any = "spark"


@pytest.fixture(autouse=True)
def no_calls() -> None:
    calls.clear()


def test_every_vertex_runs_once_with_what_it_asks_for() -> None:
    done = make_flights().run_local(SPARK, splits=FILES, logical_date="2013-01-01", conf={"k": 1})
    assert calls == ["raw", "airports", "cleaned"]
    assert list(done) == ["raw", "airports", "cleaned", "delays", "days"]
    assert done["delays"].made == "delays(cleaned(spark:a.csv,b.csv 2013-01-01 1 1 cleaned@1 2013-01-01) airports)"


def test_a_date_may_be_a_datetime() -> None:
    date = datetime(2013, 1, 2, tzinfo=timezone.utc)
    assert "2013-01-02" in make_flights().run_local(SPARK, splits=FILES, logical_date=date)["cleaned"].made


def test_parameters_can_be_replaced_and_then_need_no_run() -> None:
    done = make_flights().run_local(SPARK, splits=FILES, params={"cleaned": {"day": "today", "n": 7}})
    assert "today 7" in done["cleaned"].made


def test_a_replaced_result_needs_nothing_upstream() -> None:
    done = make_flights().run_local(SPARK, results={"cleaned": FakeFrame("given")})  # type: ignore[dict-item]
    assert calls == ["airports"]
    assert done["delays"].made == "delays(given airports)"
    assert "raw" not in done


def test_only_one_vertex_and_what_it_needs() -> None:
    done = make_flights().run_local(SPARK, splits=FILES, logical_date="2013-01-01", only="days")
    assert list(done) == ["raw", "cleaned", "days"]
    with pytest.raises(KeyError, match="'delays' did not run"):
        done["delays"]


def test_a_source_can_be_a_dataframe() -> None:
    frame: Any = FakeFrame("given")
    done = make_flights().run_local(SPARK, splits={"raw": frame}, logical_date="2013-01-01", only="cleaned")
    assert done["raw"] is frame
    assert calls == ["cleaned"]


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({}, "local-run-without-paths"),
        ({"splits": {"rwa": []}}, "vertex-unknown"),
        ({"splits": {"raw": "a.csv"}}, "local-run-splits-no-list"),
        ({"splits": {"airports": ["a.csv"]}}, "local-run-splits-undeclared"),
        ({"splits": FILES}, "template-without-value"),
        ({"splits": FILES, "params": {"cleaned": {"dya": 1}}}, "parameter-unknown"),
        ({"splits": FILES, "params": {"cleaned": {"day": object()}}}, "value-not-json"),
        ({"only": "nobody"}, "vertex-unknown"),
        ({"results": {"nobody": FakeFrame("x")}}, "vertex-unknown"),
    ],
)
def test_what_does_not_fit_the_job_is_refused(options: dict[str, Any], code: str) -> None:
    with fails_with(code):
        make_flights().run_local(SPARK, **options)


@pytest.mark.parametrize(
    ("value", "found"),
    [
        (None, "NoneType"),
        ([1], "list"),
        (Fraction(1), "fractions.Fraction"),  # as pandas' own DataFrame
    ],
)
def test_a_vertex_that_returns_no_dataframe_is_named(value: object, found: str) -> None:
    flights = job("flights")
    flights.source(name="a")(lambda spark: value)
    flights.sink(name="b")(lambda a: a)
    with fails_with("no-data-frame-returned", where="job 'flights', vertex 'a'", found=found):
        flights.run_local(SPARK)


def test_an_error_of_the_user_passes_through() -> None:
    flights = job("flights")
    flights.source(name="a")(lambda spark: 1 / 0)
    flights.sink(name="b")(lambda a: a)
    with pytest.raises(ZeroDivisionError):
        flights.run_local(SPARK)


@pytest.mark.smoke
@pytest.mark.spark
def test_a_job_runs_on_real_spark(spark: SparkSession, tmp_path: Path) -> None:
    from pyspark.sql import functions as F

    (tmp_path / "a.csv").write_text("carrier,delay\nAA,1\nAA,3\n")
    (tmp_path / "b.csv").write_text("carrier,delay\nUA,5\nUA,\n")
    flights = job("flights")

    @flights.source(splits=files("s3://lake/*.csv"))
    def raw(spark: Any, splits: Any) -> Any:
        return spark.read.csv(splits.paths, header=True, schema="carrier string, delay int")

    @flights.vertex(params={"least": "{{ conf.least }}"})
    def cleaned(raw: Any, least: str) -> Any:
        return raw.filter(F.col("delay") >= int(least))

    @flights.sink
    def delays(cleaned: Any) -> Any:
        return cleaned.groupBy("carrier").agg(F.sum("delay").alias("delay"))

    paths = [str(tmp_path / "a.csv"), str(tmp_path / "b.csv")]
    done = flights.run_local(spark, splits={"raw": paths}, conf={"least": 2})
    assert {(row.carrier, row.delay) for row in done["delays"].collect()} == {("AA", 3), ("UA", 5)}


# --- parallel vertices ------------------------------------------------------------------------------------------------


@dataclass
class Rows(FakeFrame):
    """A frame that can be put together with another one."""

    def unionByName(self, other: Rows) -> Rows:
        return Rows(f"{self.made}+{other.made}")


def make_months(parallelism: Any, pattern: str) -> Job:
    #   raw[m] --> kept[m] --> total --> shown[x], which reads every month
    made = job("months")

    @made.source(splits=files(pattern), parallelism=parallelism)
    def raw(spark: Any, splits: Any) -> Any:
        return Rows(f"({','.join(splits.paths)})")

    @made.vertex(parallelism=same_as("raw"), result=BLOCKING, params={"key": "{{ subtask }}"})
    def kept(raw: Any, context: Any, key: str) -> Any:
        told = context.subtask
        assert (told.key, context.region) == (key, f"kept[{key}]")
        return Rows(f"{key}:{told.index}/{told.parallelism}{raw.made}")

    @made.vertex(result=BLOCKING)
    def total(kept: Any, context: Any) -> Any:
        assert context.subtask == Subtask()
        return Rows(f"total {kept.made}")

    @made.sink(parallelism=["x"])
    def shown(total: Any, kept: Any) -> Any:
        return Rows(f"{total.made} | {kept.made}")

    return made


ALL = "jan:0/2(1)+feb:1/2(2)"


@pytest.mark.parametrize(
    ("parallelism", "pattern", "conf", "splits", "kept"),
    [
        (["jan", "feb"], "{{ subtask }}", {}, {"jan": ["1"], "feb": ["2"]}, ALL),
        ("{{ conf.m }}", "{{ subtask }}", {"m": "jan,feb"}, {"jan": ["1"], "feb": ["2"]}, ALL),
        (per_file, "/l/*", {}, {"jan": ["1"], "feb": ["2"]}, ALL),
        (per_file, "/l/*", {}, ["/l/jan", "/l/feb"], "jan:0/2(/l/jan)+feb:1/2(/l/feb)"),
        (2, "/l/*", {}, ["1", "2", "3"], "0:0/2(1,3)+1:1/2(2)"),
    ],
)
def test_every_subtask_is_called_with_its_own_input(
    parallelism: Any, pattern: str, conf: Any, splits: Any, kept: str
) -> None:
    results = make_months(parallelism, pattern).run_local("spark", splits={"raw": splits}, conf=conf)  # type: ignore[arg-type]
    assert results["kept"].made == kept
    assert results["shown"].made == f"total {kept} | {kept}"


def test_a_result_in_place_of_a_parallel_vertex_has_all_its_keys() -> None:
    months = make_months(["jan", "feb"], "{{ subtask }}")
    given: Any = {"raw": {"jan": Rows("(a)"), "feb": Rows("(b)")}}
    assert months.run_local("spark", results=given)["kept"].made == "jan:0/2(a)+feb:1/2(b)"  # type: ignore[arg-type]
    for wrong in ({"raw": {"jan": Rows("(a)")}}, {"raw": Rows("all")}):
        with fails_with("local-run-subtask-missing", input="raw"):
            months.run_local("spark", results=wrong)  # type: ignore[arg-type]


def test_paths_without_keys_are_refused_where_keys_decide() -> None:
    months = make_months(["jan", "feb"], "{{ subtask }}")
    for wrong in (["1"], {"jan": ["1"]}):
        with fails_with("local-run-subtask-without-paths"):
            months.run_local("spark", splits={"raw": wrong})  # type: ignore[arg-type]
