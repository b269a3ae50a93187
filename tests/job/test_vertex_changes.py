"""Two descriptions of a vertex, compared: which lines, and which words."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_recovery.job.vertex_changes import changed_lines, differences, unknown_names


def lines(*texts: str, first: int = 10) -> list[list[Any]]:
    return [[first + at, text] for at, text in enumerate(texts)]


@pytest.mark.parametrize(
    ("old", "new", "found"),
    [
        (["a", "b", "c"], ["a", "B", "c"], [11]),
        (["a", "c"], ["a", "b", "b2", "c"], [11, 12]),
        (["a", "b", "c"], ["a", "c"], [11]),  # what is gone: where it was
        (["a", "b"], ["a"], [10]),
        (["a", "# b"], ["a", "# c", "", "# d"], []),
        (["a", "# b", "c"], ["a", "# b2", "C"], [12]),
        (["a"], ["a"], []),
    ],
)
def test_changed_lines_have_the_new_numbers_and_no_comments(old: list[str], new: list[str], found: list[int]) -> None:
    # The old version stood elsewhere in its file.
    assert changed_lines(lines(*old, first=1), lines(*new)) == found


def described(code: str = "1", units: tuple[dict[str, Any], ...] = (), **document: Any) -> dict[str, Any]:
    return {"function": "clean", "units": list(units), "document": {"code": [["", "clean()", code]], **document}}


def unit(name: str, digest: str, text: str = "x", used_by: list[str] | None = None) -> dict[str, Any]:
    return {
        "module": "",
        "name": name,
        "digest": digest,
        "path": "a.py",
        "lines": [[3, text]],
        "used_by": used_by,
    }


def test_what_is_declared_is_told_with_before_and_now() -> None:
    old = described(params={"n": 1, "gone": True}, result="BLOCKING", inputs=[["raw", "raw"]], version=None)
    new = described(params={"n": 2, "day": "x"}, result="PIPELINED", inputs=[["raw", "rows"]], version="2")
    assert differences(old, new) == (
        'inputs= was [["raw", "raw"]], now [["raw", "rows"]]',
        'parameter day was none, now "x"',
        "parameter gone was true, now none",
        "parameter n was 1, now 2",
        'result= was "BLOCKING", now "PIPELINED"',
        'version= was none, now "2"',
    )
    assert differences(old, old) == ()


def test_code_without_another_line_has_another_import_or_decorator() -> None:
    old, new = described("1", (unit("clean()", "1"),)), described("2", (unit("clean()", "2"),))
    assert differences(old, new) == ("clean() changed at a.py:3, in what it imports or how it is decorated",)


def test_code_in_a_ring_ends() -> None:
    ring = (unit("a", "1", used_by=["", "b"]), unit("b", "1", used_by=["", "a"]))
    changed = (unit("a", "2", "y", used_by=["", "b"]), ring[1])
    (said,) = differences(described("1", ring), described("2", changed))
    assert said == "b uses a, which changed at a.py:3"


def test_names_whose_values_no_journal_has() -> None:
    params = {
        "a": "{{ ds }} {{ conf.x }}",
        "b": ["{{ data_interval_end }}", {"c": "{{ params.n }}"}],
        "d": "{{ subtask }}",
    }
    assert unknown_names(params) == ["conf", "data_interval_end", "params"]
    assert unknown_names({"a": "{{ ts }} {{ logical_date }}", "n": 3}) == []
