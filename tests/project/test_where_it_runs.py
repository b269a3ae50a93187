"""`docs/where-it-runs.md` is what the cells and their results say, and each cell has a test, a refusal, or neither."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from airflow_recovery.driver.region_spec import ModeSpec
from airflow_recovery.driver.spark_version import OLDEST_CONNECT
from airflow_recovery.streaming.spec import StreamingSpec
from scripts.matrix import recording
from scripts.matrix.cells import Cell, cells
from scripts.matrix.page import PAGE, SPARKS, render
from scripts.matrix.record import Record, read_records
from scripts.sparks import NEWEST

REPOSITORY = Path(__file__).resolve().parents[2]
REFUSAL = re.compile(r"expected Spark (\d+)\.(\d+) or later for regions (.+)")


def test_the_page_is_what_the_results_say() -> None:
    assert PAGE.read_text(encoding="utf-8") == render(read_records())


def test_each_result_is_of_a_cell_and_of_the_test_that_it_names() -> None:
    tests = {cell.name: cell.test for cell in cells()}
    assert {name: record.test for name, record in read_records().items()} == {
        name: tests[name] for name in read_records()
    }


@pytest.mark.parametrize("test", sorted({cell.test for cell in cells() if cell.test}))
def test_each_test_is_there(test: str) -> None:
    path, _, function = test.partition("[")[0].partition("::")
    assert not function or f"def {function}(" in (REPOSITORY / path).read_text(encoding="utf-8")


def numbers(series: str) -> tuple[int, ...]:
    return tuple(map(int, series.split(".")))


def test_what_is_refused_is_refused_with_these_words() -> None:
    """By the driver, which knows its Spark's version, or by `airflow recovery doctor`."""
    oldest = {"over Spark Connect": OLDEST_CONNECT, "of the mode 'streaming'": StreamingSpec.oldest_spark}
    doctor = (REPOSITORY / "airflow_recovery" / "doctor" / "spark.py").read_text(encoding="utf-8")
    for cell in cells():
        match = REFUSAL.fullmatch(cell.refused)
        if match is not None:
            assert (int(match[1]), int(match[2])) == oldest[match[3]] > numbers(cell.series)
        else:
            assert cell.refused in doctor
    assert next(iter(NEWEST)) == ".".join(map(str, ModeSpec.oldest_spark))


def test_the_table_of_versions_says_what_drivers_refuse() -> None:
    assert list(SPARKS) == list(NEWEST)
    for series, (*_, connect, streams) in SPARKS.items():
        assert (connect == "yes") is (numbers(series) >= OLDEST_CONNECT)
        assert (streams == "yes") is (numbers(series) >= StreamingSpec.oldest_spark)


def a_record(cell: Cell, *, passed: bool) -> Record:
    return Record(cell.name, "2026-01-02", cell.test, passed, "3.3.2", "4.0.5", "3.11.7", "17.0.15")


def test_a_cell_that_fails_says_so_and_one_without_a_result_claims_nothing() -> None:
    cell = next(cell for cell in cells() if cell.test)
    for passed, said in ((True, "| 4.0.5: 2026-01-02 |"), (False, "| **fails** (4.0.5: 2026-01-02) |")):
        assert said in render({cell.name: a_record(cell, passed=passed)})
    assert "2026" not in render({})
    assert render({"no.such.cell": replace(a_record(cell, passed=True), cell="no.such.cell")}) == render({})


@pytest.mark.parametrize(
    ("when", "outcome", "kept"),
    [
        ("setup", "passed", None),
        ("setup", "failed", False),
        ("call", "passed", True),
        ("call", "failed", False),
        ("call", "skipped", None),
        ("teardown", "passed", None),
        ("teardown", "failed", False),
    ],
)
def test_what_a_cells_test_says_is_kept(
    when: Any, outcome: Any, kept: bool | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    cell = next(cell for cell in cells() if cell.test)
    records: list[Record] = []
    monkeypatch.setattr(Record, "write", lambda record: records.append(record))
    monkeypatch.setattr(recording, "write_page", lambda: None)
    for node in (cell.test, "tests/project/test_where_it_runs.py::test_of_no_cell"):
        recording.pytest_runtest_logreport(pytest.TestReport(node, (node, 0, node), {}, outcome, None, when))
    assert [(record.cell, record.test, record.passed) for record in records] == (
        [] if kept is None else [(cell.name, cell.test, kept)]
    )
