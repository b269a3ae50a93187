"""What Spark itself says of a folder with one file that is no data (fault 335)."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest
from pyspark.sql import SparkSession

from airflow_recovery.driver.failure import describe
from airflow_recovery.driver.failure_class import FailureClass, classify, is_malformed

pytestmark = pytest.mark.spark

WHOLE = pa.table({"n": [1, 2]})


def of_another_schema(file: Path) -> None:
    pyarrow.parquet.write_table(pa.table({"n": ["x"]}), file)


def cut_short(file: Path) -> None:
    pyarrow.parquet.write_table(WHOLE, file)
    file.write_bytes(file.read_bytes()[:-20])


def with_a_broken_page(file: Path) -> None:
    pyarrow.parquet.write_table(WHOLE, file)
    body = bytearray(file.read_bytes())
    body[4:60] = b"\xff" * 56
    file.write_bytes(body)


def a_web_page(file: Path) -> None:
    file.write_text("<html>no</html>" * 10)


def empty(file: Path) -> None:
    file.write_bytes(b"")


@pytest.mark.parametrize("made", [of_another_schema, cut_short, a_web_page, with_a_broken_page])
def test_fault_335_what_spark_says_of_files_that_are_no_data(spark: SparkSession, tmp_path: Path, made: object) -> None:
    pyarrow.parquet.write_table(WHOLE, tmp_path / "part-0.parquet")
    made(tmp_path / "part-1.parquet")  # type: ignore[operator]
    with pytest.raises(Exception, match="part-1") as error:
        spark.read.schema("n long").parquet(str(tmp_path)).collect()
    failure = describe(error.value)
    assert (classify(failure), is_malformed(failure)) == (FailureClass.INPUT_UNREADABLE, True), failure
