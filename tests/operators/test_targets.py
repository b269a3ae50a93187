"""Fault 54: two operators never write to the same place."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

import pytest
from airflow.sdk import DAG

from airflow_recovery.errors import JobDefinitionError
from airflow_recovery.operators import RecoverableSparkSubmitOperator, drop_in


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
    with pytest.raises(JobDefinitionError, match=r"two: output '.' at .* overlaps with output .* folders beside"):
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
