"""Two operators never write to the same place, and who reads a place by its URI runs after who writes there."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

import pytest
from airflow.sdk import DAG
from expected_errors import fails_with

from airflow_recovery.operators import RecoverableSparkSubmitOperator, drop_in
from airflow_recovery.sinks import DeltaTable


def two(first: Any, second: Any) -> None:
    with DAG("d", schedule=None, start_date=datetime(2024, 1, 1, tzinfo=timezone.utc)):
        for name, outputs in (("one", first), ("two", second)):
            arguments = [f"{{output:{output}}}" for output in outputs]
            RecoverableSparkSubmitOperator(
                task_id=name, application="s3://b/a.py", outputs=outputs, application_args=arguments
            )


OVERLAPS = [
    ({"o": "s3://lake/report"}, {"o": "s3a://lake/report/"}),
    ({"o": "s3://lake/report"}, {"o": "s3://lake/report/day"}),
    ({"o": "file:///lake/report/day"}, {"o": "/lake/report"}),
    ({"o": "s3://lake/{{ ds }}"}, {"o": "s3://lake/{{ ds }}"}),
    (["o"], {"o": "s3://lake/a", "p": "s3://lake/a/b"}),
]


@pytest.mark.parametrize(("first", "second"), OVERLAPS)
def test_fault_54_overlapping_targets_are_refused_when_the_dag_is_parsed(first: Any, second: Any) -> None:
    with fails_with("outputs-overlap", task="two"):
        two(first, second)


def test_fault_54_targets_beside_each_other_and_managed_ones_do_not_overlap() -> None:
    two({"o": "s3://lake/report"}, {"o": "s3://lake/report2", "p": None})
    two(["o"], ["o"])


@pytest.mark.parametrize(("first", "second"), OVERLAPS)
def test_fault_54_control_nothing_else_would_refuse_them(
    first: Any, second: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drop_in, "check_targets", lambda *_: None)
    two(first, second)


def read_and_written(read: str, written: str, *, reader_first: bool, commit: Any = None) -> tuple[Any, Any]:
    """An operator that reads by URI, and one of the same DAG that writes or commits there."""

    def reader() -> Any:
        return RecoverableSparkSubmitOperator(
            task_id="reader",
            application="s3://b/a.py",
            inputs={"i": read},
            outputs=["o"],
            application_args=["{input:i}", "{output:o}", "{version:i}"]
            if read.startswith("delta+")
            else ["{output:o}"],
        )

    def writer() -> Any:
        outputs: Any = ["o"] if commit is not None else {"o": written}
        arguments = ["{output:o}", "{token:o}"] if written.startswith("delta+") else ["{output:o}"]
        return RecoverableSparkSubmitOperator(
            task_id="writer", application="s3://b/a.py", outputs=outputs, application_args=arguments, commit=commit
        )

    with DAG("d", schedule=None, start_date=datetime(2024, 1, 1, tzinfo=timezone.utc)):
        if reader_first:
            return reader(), writer()
        made = writer()
        return reader(), made


MEETING = [
    ("s3://lake/report", "s3a://lake/report/"),
    ("s3://lake/report/*.parquet", "s3://lake/report"),
    ("s3://lake/report/part-?", "s3://lake/report"),
    ("s3://lake/*/day=1", "s3://lake/report"),
    ("s3://lake", "s3://lake/report/{{ ds }}"),
    ("s3://lake/{{ ds }}/{a,b}", "s3://lake/{{ ds }}"),
    ("/lake/report", "file:///lake/report"),
    ("delta+s3://lake/report", "delta+s3a://lake/report"),
]


@pytest.mark.parametrize("reader_first", [True, False])
@pytest.mark.parametrize(("read", "written"), MEETING)
def test_fault_207_who_reads_a_place_by_its_uri_runs_after_who_writes_there(
    read: str, written: str, reader_first: bool
) -> None:
    reader, writer = read_and_written(read, written, reader_first=reader_first)
    assert reader.upstream_task_ids == {"writer"}
    assert writer.downstream_task_ids == {"reader"}


@pytest.mark.parametrize("reader_first", [True, False])
def test_fault_207_the_target_of_a_commit_is_such_a_place(reader_first: bool) -> None:
    commit = DeltaTable(uri="s3://lake/report", mode="replace")
    reader, _ = read_and_written("delta+s3://lake/report", "", reader_first=reader_first, commit=commit)
    assert reader.upstream_task_ids == {"writer"}


@pytest.mark.parametrize(
    ("read", "written"),
    [
        ("s3://lake/report2", "s3://lake/report"),
        ("s3://lake/2024*", "s3://lake/report"),
        ("s3://lake/{{ prev_ds }}", "s3://lake/{{ ds }}"),
        ("delta+s3://lake/report?as_of=3", "delta+s3://lake/report"),
    ],
)
def test_who_reads_another_place_or_an_older_version_is_not_put_behind(read: str, written: str) -> None:
    reader, _ = read_and_written(read, written, reader_first=True)
    assert reader.upstream_task_ids == set()


def test_fault_207_control_without_the_look_at_places_the_reader_may_run_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(drop_in, "written_by", lambda *_: set())
    reader, _ = read_and_written(*MEETING[0], reader_first=True)
    assert reader.upstream_task_ids == set()
