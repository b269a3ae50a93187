"""Fault 80: what would be written twice is refused when the DAG is parsed, unless somebody says that it may be."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from expected_errors import fails_with

from airflow_recovery import Job, JobDefinitionError, job
from airflow_recovery.job import appends, vertex_options
from airflow_recovery.job.appends import how_application_appends, how_it_appends


def with_sink(function: Callable[..., Any], **options: Any) -> Job:
    """numbers --> report (a sink)."""
    flights = job("flights")
    flights.source(name="numbers")(lambda spark: spark.range(3))
    flights.sink(name="report", **options)(function)
    flights.validate()
    return flights


def appending(numbers: Any) -> Any:
    numbers.write.mode("append").saveAsTable("ledger")
    return numbers


def mailing(numbers: Any) -> Any:
    send_a_mail(numbers.count())
    return numbers


def send_a_mail(count: int) -> None:
    """Something that no code can be seen to do."""


def test_fault_80_a_sink_that_is_not_idempotent_is_refused_with_advice() -> None:
    with pytest.raises(JobDefinitionError) as refused:
        with_sink(mailing, idempotent=False)
    assert str(refused.value) == (
        "job 'flights', vertex 'report': expected a vertex that can run again, found idempotent=False: an attempt that "
        "dies after it has written is run again, and writes once more. Return the DataFrame instead, which recovery "
        "writes so that one attempt counts; or overwrite a place of the run's own; or say idempotent=True where a "
        "second time changes nothing, or allow_duplicates=True where its readers can live with both"
    )


def test_fault_80_a_sink_that_is_seen_to_append_is_refused_though_nobody_declared_it() -> None:
    with fails_with("vertex-cannot-run-again", where="job 'flights', vertex 'report'"):
        with_sink(appending)


def test_fault_80_control_without_the_check_it_is_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    # What then happens at run time: tests/driver/test_region.py.
    monkeypatch.setattr(vertex_options, "_check_idempotent", lambda *_: None)
    assert with_sink(appending).vertices["report"].allow_duplicates is False


def test_fault_80_who_accepts_duplicates_says_so() -> None:
    for function, options in ((appending, {}), (mailing, {"idempotent": False})):
        assert with_sink(function, allow_duplicates=True, **options).vertices["report"].allow_duplicates


def test_fault_80_a_users_word_stands_above_what_is_seen() -> None:
    assert not with_sink(appending, idempotent=True).vertices["report"].allow_duplicates


def test_fault_80_only_a_sink_may_write_by_itself() -> None:
    flights = job("flights")
    with fails_with("vertex-cannot-run-again", where="job 'flights', vertex 'numbers'"):

        @flights.source
        def numbers(spark: Any) -> Any:
            spark.sql("INSERT INTO seen SELECT 1")
            return spark.range(3)


def v2(frame: Any) -> None:
    frame.writeTo("lake.ledger").append()


def by_name(frame: Any) -> None:
    frame.write.parquet("s3://lake/ledger", mode="append")


def insert(frame: Any) -> None:
    frame.write.insertInto("ledger")


def sql(spark: Any, day: str) -> None:
    spark.sql(f"""
        insert into ledger
        select * from seen where day = '{day}'
    """)


def inside(frame: Any) -> None:
    def each_batch(batch: Any) -> None:
        batch.write.mode("Append").jdbc("jdbc:postgresql://db", "ledger")

    each_batch(frame)


def commented(spark: Any) -> None:
    spark.sql("""-- the ledger of today
        /* insert overwrite was too slow */ INSERT INTO ledger SELECT * FROM seen""")


def with_a_common_table(spark: Any) -> None:
    spark.sql("WITH today AS (SELECT * FROM seen) INSERT INTO ledger SELECT * FROM today")


def from_first(spark: Any) -> None:
    spark.sql("FROM seen INSERT INTO ledger SELECT *")


def loading(spark: Any) -> None:
    spark.sql("LOAD DATA INPATH '/seen' INTO TABLE ledger")


def merging(spark: Any) -> None:
    spark.sql("MERGE INTO totals t USING seen s ON t.k = s.k WHEN MATCHED THEN UPDATE SET n = t.n + s.n")


def merging_by_pieces(spark: Any, table: str) -> None:
    spark.sql(f"MERGE INTO {table} t USING seen s ON t.k = s.k WHEN MATCHED THEN UPDATE SET t.n = t.n + s.n")


def merging_one_side(spark: Any) -> None:
    spark.sql("MERGE INTO totals AS t USING seen s ON t.k = s.k WHEN MATCHED THEN UPDATE SET m = 0, n = t.n + 1")


def collecting(spark: Any) -> None:
    spark.sql("MERGE INTO totals t USING seen s ON t.k = s.k WHEN MATCHED THEN UPDATE SET l = concat(t.l, s.l)")


def updating(spark: Any) -> None:
    spark.sql("update lake.totals set n = coalesce(n, 0) + 1 where day = '2026-01-01'")


def merging_in_python(table: Any, frame: Any) -> None:
    table.alias("t").merge(frame.alias("s"), "t.k = s.k").whenMatchedUpdate(set={"n": "t.n + s.n"}).execute()


def streaming(frame: Any) -> None:
    frame.writeStream.format("parquet").start("s3://lake/ledger")


def by_pandas(frame: Any, engine: Any) -> None:
    frame.toPandas().to_sql("ledger", engine, if_exists="append")


def by_pandas_on_spark(frame: Any) -> None:
    frame.pandas_api().to_delta("s3://lake/ledger", mode="append")


def by_delta_rs(frame: Any) -> None:
    write_deltalake("s3://lake/ledger", frame.toArrow(), mode="append")


def write_deltalake(uri: str, rows: Any, mode: str) -> None:
    """As delta-rs has it."""


def by_polars(frame: Any) -> None:
    frame.write_database("ledger", "postgresql://db", if_table_exists="append")


def copying(cursor: Any, rows: Any) -> None:
    cursor.copy_expert("COPY ledger (k, n) FROM STDIN WITH (FORMAT csv)", rows)


BY_OTHER_WRITERS = (by_pandas, by_pandas_on_spark, by_delta_rs, by_polars, copying)


@pytest.mark.parametrize("function", BY_OTHER_WRITERS)
def test_fault_402_an_append_by_another_writer_than_sparks_is_seen(function: Callable[..., Any]) -> None:
    assert how_it_appends(function.__code__) is not None


@pytest.mark.control
@pytest.mark.parametrize("function", BY_OTHER_WRITERS)
def test_fault_402_control_by_sparks_writer_alone_it_is_not_seen(
    function: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(appends, "_WRITERS", ("write",))
    monkeypatch.setattr(appends, "_TAKE_SQL", frozenset({"sql", "execute", "executemany"}))
    assert how_it_appends(function.__code__) is None


@pytest.mark.parametrize(
    "function",
    [
        *(v2, by_name, insert, sql, inside, commented, with_a_common_table, from_first, loading, merging),
        *(merging_by_pieces, merging_one_side, collecting, updating, merging_in_python, streaming),
    ],
)
def test_what_is_seen(function: Callable[..., Any]) -> None:
    assert how_it_appends(function.__code__) is not None


def overwriting(frame: Any) -> None:
    frame.write.mode("overwrite").insertInto("ledger")
    frame.write.insertInto("ledger", overwrite=True)


def v2_overwriting(frame: Any) -> None:
    frame.writeTo("lake.ledger").overwritePartitions()


def a_list(frame: Any) -> Any:
    columns = list(frame.columns)
    columns.append("write")
    return frame.select(*columns)


def replacing_by_pandas(frame: Any, engine: Any) -> None:
    rows = []
    rows.append(frame.toPandas())
    rows[0].to_sql("ledger", engine, if_exists="replace")


def copying_out(cursor: Any, rows: Any) -> None:
    cursor.copy_expert("COPY ledger TO STDOUT WITH (FORMAT csv)", rows)


def replacing(spark: Any) -> None:
    spark.sql("INSERT INTO ledger REPLACE WHERE day = '2026-01-01' SELECT * FROM today")
    spark.sql("SELECT 'insert into'")


def upserting(spark: Any) -> None:
    spark.sql("""MERGE INTO totals t USING seen s ON t.k = s.k AND t.n = s.n + 1
        WHEN MATCHED THEN UPDATE SET n = s.n, m = s.n + s.m, l = greatest(t.l, s.l)
        WHEN NOT MATCHED THEN INSERT *""")
    spark.sql("UPDATE totals SET n = m + 1, day = '2026-01-01' WHERE n = n + 0")
    spark.sql("SELECT n + 1 AS n FROM totals")
    spark.sql("LOAD DATA INPATH '/seen' OVERWRITE INTO TABLE ledger")
    spark.sql("WITH today AS (SELECT * FROM seen) SELECT * FROM today -- INSERT INTO ledger")


def upserting_in_python(table: Any, frame: Any) -> None:
    table.alias("t").merge(frame.alias("s"), "t.k = s.k").whenMatchedUpdate(set={"n": "s.n"}).execute()


def streaming_at_a_checkpoint(frame: Any) -> None:
    frame.writeStream.option("checkpointLocation", "s3://lake/checkpoint").start("s3://lake/ledger")


@pytest.mark.parametrize(
    "function",
    [
        *(overwriting, v2_overwriting, a_list, replacing, replacing_by_pandas, copying_out, mailing),
        *(upserting, upserting_in_python, streaming_at_a_checkpoint),
    ],
)
def test_what_is_not_taken_for_it(function: Callable[..., Any]) -> None:
    assert how_it_appends(function.__code__) is None


@pytest.mark.parametrize(
    ("name", "text", "found"),
    [
        ("a.py", "frame.write.mode('append').parquet('x')", 'write in mode "append"'),
        ("a.py", "frame.write.mode('overwrite').parquet('x')", None),
        ("a.py", "spark.sql('update t set n = n + 1')", "MERGE or UPDATE that adds to what is there"),
        ("a.py", "frame.writeStream.start('x')", "writeStream without a checkpointLocation"),
        ("a.py", "this appends, and is not Python", None),
        ("a.jar", "frame.write.mode('append').parquet('x')", None),
    ],
)
def test_an_application_is_read_where_it_is_a_python_file(
    tmp_path: Path, name: str, text: str, found: str | None
) -> None:
    (tmp_path / name).write_text(text)
    assert how_application_appends(tmp_path / name) == found
    assert how_application_appends(tmp_path / "{{ params.app }}.py") is None
