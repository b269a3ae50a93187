"""Which settings of Spark belong to a fingerprint: by name, in lists, in texts and in properties files."""

from __future__ import annotations

import pytest

from airflow_recovery.job.row_settings import (
    DO_NOT_CHANGE_ROWS,
    changes_rows,
    row_settings,
    settings_in,
    without_other_settings,
)

CHANGE_ROWS = (
    "spark.sql.session.timeZone",
    "spark.sql.ansi.enabled",
    "spark.sql.caseSensitive",
    "spark.sql.legacy.timeParserPolicy",
    "spark.sql.files.ignoreCorruptFiles",
    "spark.sql.mapKeyDedupPolicy",
    "spark.sql.parquet.mergeSchema",
    "spark.sql.optimizer.metadataOnly",
    "spark.sql.optimizer.decorrelateSubqueryLegacyIncorrectCountHandling.enabled",
    "spark.driver.extraJavaOptions",
    "spark.executor.extraClassPath",
    "spark.hadoop.fs.defaultFS",
    "spark.mine.threshold",
    "spark.sql.adaptiveness",
)
OTHERS = (
    "spark.executor.memory",
    "spark.sql.shuffle.partitions",
    "spark.sql.adaptive.enabled",
    "spark.app.name",
    "spark.hadoop.fs.s3a.secret.key",
    "spark.dynamicAllocation.maxExecutors",
)


@pytest.mark.parametrize("setting", CHANGE_ROWS)
def test_a_setting_that_may_change_rows_counts(setting: str) -> None:
    assert changes_rows(setting)


@pytest.mark.parametrize("setting", OTHERS)
def test_a_setting_with_a_reason_in_the_table_does_not_count(setting: str) -> None:
    assert not changes_rows(setting)


def test_no_setting_stands_in_the_table_twice_and_each_group_has_a_reason() -> None:
    names = [name for _, group in DO_NOT_CHANGE_ROWS for name in group]
    assert len(names) == len(set(names))
    assert all(reason and group for reason, group in DO_NOT_CHANGE_ROWS)
    assert not [name for name in names if name.endswith(".") and name.count(".") < 2], "too short a beginning"


def test_the_settings_that_count_are_texts_in_order() -> None:
    given = {"spark.sql.caseSensitive": True, "spark.executor.memory": "4g", "spark.a": 1}
    assert row_settings(given) == {"spark.a": "1", "spark.sql.caseSensitive": "True"}


@pytest.mark.parametrize(
    ("given", "left"),
    [
        (
            ["spark-submit", "--conf", "spark.executor.memory=4g", "--conf", "spark.sql.ansi.enabled=true", "a.py"],
            ["spark-submit", "--conf", "spark.sql.ansi.enabled=true", "a.py"],
        ),
        (["--conf=spark.ui.port=1", "--conf=spark.sql.ansi.enabled=true"], ["--conf=spark.sql.ansi.enabled=true"]),
        (["-c", "spark.ui.port=1", "a.py"], ["a.py"]),
        (["a.py", "--conf", "mine"], ["a.py", "--conf", "mine"]),
        (
            "--class A --conf spark.executor.memory=4g --conf spark.sql.ansi.enabled=true -v",
            "--class A --conf spark.sql.ansi.enabled=true -v",
        ),
        ("--conf 'spark.app.name=a b' --conf \"spark.mine=a b\"", "--conf \"spark.mine=a b\""),
        (
            {"conf": {"spark.executor.memory": "4g", "spark.sql.ansi.enabled": "true"}, "args": ["spark.app.name"]},
            {"conf": {"spark.sql.ansi.enabled": "true"}, "args": ["spark.app.name"]},
        ),
        (7, 7),
    ],
)  # fmt: skip
def test_settings_that_do_not_count_are_taken_out_of_arguments(given: object, left: object) -> None:
    assert without_other_settings(given) == left


def test_a_properties_file_is_read_as_spark_submit_reads_it() -> None:
    text = "# spark.no 1\nspark.a.b  x y\nspark.c=1\nspark.e : 3\nspark.f = 1\\\n   ,2\nother.g 1\nspark.h\n"
    assert settings_in(text) == {"spark.a.b": "x y", "spark.c": "1", "spark.e": "3", "spark.f": "1,2"}
