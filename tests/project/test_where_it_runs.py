"""`docs/where-it-runs.md` is what the cells and their results say, and each cell has a test, a refusal, or neither."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from airflow_recovery.doctor.spark import NO_PYTHON_IN_CLUSTER_MODE
from airflow_recovery.driver.region_spec import ModeSpec
from airflow_recovery.driver.spark_version import OLDEST_CONNECT
from airflow_recovery.streaming.spec import StreamingSpec
from airflow_recovery.testing.patience import HANG_S
from scripts.matrix import recording
from scripts.matrix.__main__ import to_try
from scripts.matrix.cells import NO_DEFERRING, NO_FOLDERS, OPERATORS, STORES, Cell, cells
from scripts.matrix.page import PAGE, SPARKS, render
from scripts.matrix.record import Record, read_records, record_of
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


@pytest.mark.slow
def test_pytest_knows_each_test_by_its_parameters() -> None:
    """One that it did not know would end a call of `make matrix` before the first cell."""
    tests = {cell.test for cell in cells() if cell.test}
    files = sorted({test.partition("::")[0] for test in tests})
    command = [sys.executable, "-m", "pytest", *files, "--drill", "1", "--collect-only", "-q", "-p", "no:cacheprovider"]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=HANG_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert tests <= set(done.stdout.splitlines())


def numbers(series: str) -> tuple[int, ...]:
    return tuple(map(int, series.split(".")))


def test_what_is_refused_is_refused_with_these_words() -> None:
    """By the driver, which knows its Spark's version, or before an attempt is claimed."""
    oldest = {"over Spark Connect": OLDEST_CONNECT, "of the mode 'streaming'": StreamingSpec.oldest_spark}
    for cell in cells():
        match = REFUSAL.fullmatch(cell.refused)
        if match is not None:
            assert (int(match[1]), int(match[2])) == oldest[match[3]] > numbers(cell.series)
        else:
            assert cell.refused in ("", NO_PYTHON_IN_CLUSTER_MODE, NO_DEFERRING, NO_FOLDERS)
    assert next(iter(NEWEST)) == ".".join(map(str, ModeSpec.oldest_spark))


def test_the_table_of_versions_says_what_drivers_refuse() -> None:
    assert list(SPARKS) == list(NEWEST)
    for series, (*_, connect, streams) in SPARKS.items():
        assert (connect == "yes") is (numbers(series) >= OLDEST_CONNECT)
        assert (streams == "yes") is (numbers(series) >= StreamingSpec.oldest_spark)


def a_record(cell: Cell, *, passed: bool | None, words: str = "") -> Record:
    return Record(cell.name, "2026-01-02", cell.test, passed, "3.3.2", "4.0.5", "3.11.7", "17.0.15", words)


A_CELL = next(cell for cell in cells() if cell.test and not cell.refused)
A_REFUSED_CELL = next(cell for cell in cells() if cell.test and cell.refused)


AN_OPERATOR = next(cell for cell in OPERATORS if cell.test and not cell.refused)


@pytest.mark.parametrize(
    ("cell", "passed", "said"),
    [
        (AN_OPERATOR, True, f"{AN_OPERATOR.way.title} | 2026-01-02 | `{AN_OPERATOR.test}` |"),
        (AN_OPERATOR, False, f"{AN_OPERATOR.way.title} | **fails** (2026-01-02) |"),
        (A_CELL, True, "| 4.0.5: 2026-01-02 |"),
        (A_CELL, False, "| **fails** (4.0.5: 2026-01-02) |"),
        (A_CELL, None, "| **did not end** (4.0.5: 2026-01-02) |"),
        (A_REFUSED_CELL, True, "| refused (4.0.5: 2026-01-02) |"),
        (A_REFUSED_CELL, False, "| **fails** (4.0.5: 2026-01-02) |"),
    ],
)
def test_a_cell_says_what_its_test_has_said(cell: Cell, passed: bool | None, said: str) -> None:
    page = render({cell.name: a_record(cell, passed=passed, words="call: a | b" if passed is False else "")})
    assert said in page
    assert ("## What fails" in page) is (passed is not True)
    assert ("`call: a &#124; b`" in page) is (passed is False)


def test_what_no_test_tries_is_said_to_work_or_refused_and_has_no_day() -> None:
    page = render({})
    for cell in (*OPERATORS, *STORES):
        said = f"refused: `{cell.refused}`" if cell.refused else "not tried here" if cell.test else "should work"
        assert f"| {cell.way.title} | {said} |" in page


def test_a_cell_without_a_result_claims_nothing() -> None:
    assert "2026" not in render({})
    unknown = replace(a_record(A_CELL, passed=True), cell="no.such.cell")
    assert render({unknown.cell: unknown}) == render({})


@pytest.mark.parametrize(
    ("change", "is_tried"),
    [
        ({}, False),
        ({"day": "2026-01-03"}, False),
        ({"day": "2026-01-01"}, True),
        ({"passed": False}, True),
        ({"passed": None}, True),
        ({"test": "another"}, True),
        ({"spark": "4.0.4"}, True),
        ({"airflow": "3.3.1"}, True),
    ],
)
def test_only_what_has_not_passed_since_is_tried_again(change: dict[str, Any], is_tried: bool) -> None:
    record = replace(record_of(A_CELL, passed=True), day="2026-01-02")
    records = {A_CELL.name: replace(record, **change)}
    assert to_try([A_CELL, A_REFUSED_CELL], records, "2026-01-02") == [*([A_CELL] if is_tried else []), A_REFUSED_CELL]


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> list[Record]:
    """What the plugin has written."""
    records: list[Record] = []
    monkeypatch.setattr(Record, "write", lambda record: records.append(record))
    monkeypatch.setattr(recording, "write_page", lambda: None)
    return records


@pytest.mark.parametrize(
    ("when", "outcome", "passed"),
    [
        ("setup", "passed", None),
        ("setup", "failed", False),
        ("setup", "skipped", False),
        ("call", "passed", True),
        ("call", "failed", False),
        ("call", "skipped", False),
        ("teardown", "passed", None),
        ("teardown", "failed", False),
    ],
)
def test_what_a_cells_test_says_is_kept(when: Any, outcome: Any, passed: bool | None, kept: list[Record]) -> None:
    for node in (A_CELL.test, "tests/project/test_where_it_runs.py::test_of_no_cell"):
        recording.pytest_runtest_logreport(pytest.TestReport(node, (node, 0, node), {}, outcome, "it\nsaid", when))
    words = "" if passed else f"{when}: it said"
    assert [(record.cell, record.test, record.passed, record.words) for record in kept] == (
        [] if passed is None else [(A_CELL.name, A_CELL.test, passed, words)]
    )


def test_a_test_that_takes_the_process_along_leaves_a_cell_that_did_not_end(kept: list[Record]) -> None:
    recording.pytest_runtest_logstart(A_CELL.test)
    assert [(record.cell, record.passed) for record in kept] == [(A_CELL.name, None)]
