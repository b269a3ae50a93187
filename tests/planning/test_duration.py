"""Durations in Flink's options."""

from __future__ import annotations

import pytest
from expected_errors import fails_with

from airflow_recovery.model.duration import flink_duration_s


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("10 s", 10),
        ("1min", 60),
        ("2 Minutes", 120),
        ("500ms", 0.5),
        ("250 millis", 0.25),
        ("1 h", 3600),
        ("2 days", 172800),
        ("7", 7),
        (2, 2),
        (0.5, 0.5),
    ],
)
def test_a_duration_is_read_in_seconds(written: object, expected: float):
    assert flink_duration_s("key", written) == expected


@pytest.mark.parametrize("written", ["soon", "", "-1 s", "1 mb", "1 ss", "s", True, None, "1 s 2 s"])
def test_anything_else_is_refused_by_its_key(written: object):
    with fails_with("duration-unfit", key="some.key"):
        flink_duration_s("some.key", written)
