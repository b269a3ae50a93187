"""Every row of docs/faults.md names tests that are there, and `scripts.faults` says how each ended last."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from last_results import LastResults

from scripts.faults import LAST_RESULTS, faults, table, told

ROOT = Path(__file__).parents[2]
TABLE = ROOT / "docs" / "faults.md"


@cache
def named_in(file: str) -> frozenset[str]:
    path = ROOT / file
    if not path.exists():
        return frozenset()
    return frozenset(node.name for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.FunctionDef))


def unresolved(text: str) -> list[str]:
    """What is wrong with the table: rows without a test, tests that are not there, numbers that stand twice."""
    wrong, seen = [], set()
    for fault in faults(text):
        if fault.number in seen:
            wrong.append(f"{fault.number} stands twice")
        seen.add(fault.number)
        if not fault.tests:
            wrong.append(f"{fault.number} names no test")
        for file, _, name in (test.partition("::") for test in fault.tests):
            if name not in named_in(file):
                wrong.append(f"{fault.number}: no {name} in {file}")
    return wrong


def test_every_row_names_tests_that_are_there() -> None:
    text = TABLE.read_text()
    numbers = [fault.number for fault in faults(text)]
    assert numbers == [int(number) for number in re.findall(r"^\| (\d+)", text, re.MULTILINE)], "a row that is not read"
    assert unresolved(text) == []


@pytest.mark.parametrize(
    "row",
    [
        "| 88 | a | b | by reading |",
        "| 88 | a | b | `tests/project/test_faults.py::test_no_such_test` |",
        "| 88 | a | b | `tests/no_such_file.py::test_it` |",
    ],
)
def test_a_row_without_its_test_would_be_seen(row: str) -> None:
    assert unresolved(row)


KILLED = "tests/testing/test_crash_kit.py::test_fault_1_to_7_a_kill_at_every_point_that_leaves_another_state"


class Cache:
    """As pytest's, in memory."""

    def __init__(self) -> None:
        self.kept: dict[str, Any] = {}

    def get(self, key: str, default: Any) -> Any:
        return self.kept.get(key, default)

    def set(self, key: str, value: Any) -> None:
        self.kept[key] = value


def run(cache: Cache | None, *reports: tuple[str, str, Any], marks: tuple[str, ...] = ()) -> Any:
    """A run of tests that says ``reports``: node, phase and outcome of each."""
    config: Any = SimpleNamespace() if cache is None else SimpleNamespace(cache=cache)
    plugin = LastResults(config)
    for nodeid, when, outcome in reports:
        location, keywords = ("", 0, ""), dict.fromkeys(marks, 1)
        plugin.pytest_runtest_logreport(pytest.TestReport(nodeid, location, keywords, outcome, None, when))  # type: ignore[arg-type]
    plugin.pytest_sessionfinish()
    return cache.kept.get(LAST_RESULTS, {}) if cache is not None else {}


def test_every_row_of_the_page_has_its_tests_and_says_what_goes_wrong() -> None:
    assert all(fault.tests and fault.what for fault in faults(TABLE.read_text()))


def test_what_ran_last_is_told_and_what_never_ran_too() -> None:
    results = run(Cache(), (KILLED, "setup", "passed"), (KILLED, "call", "passed"), marks=("spark", "s3", "timeout"))
    assert told(KILLED, results)[0] == "passed"
    assert told(KILLED, results)[1].endswith(" on spark, s3")
    lines, counts = table([fault for fault in faults(TABLE.read_text()) if fault.number == 1], results)
    assert counts == {"passed": 1, "never ran here": 1}
    assert lines[0] == "   1  the worker dies before it has claimed"


def test_the_worst_of_its_parameters_and_phases_counts_until_that_one_passes() -> None:
    cache = Cache()
    run(cache, (f"{KILLED}[a]", "call", "passed"), (f"{KILLED}[b]", "call", "passed"))
    assert told(KILLED, run(cache, (f"{KILLED}[b]", "teardown", "failed")))[0] == "failed"
    assert told(KILLED, run(cache, (f"{KILLED}[a]", "call", "passed")))[0] == "failed"
    assert told(KILLED, run(cache, (f"{KILLED}[b]", "setup", "skipped")))[0] == "skipped"
    assert (
        told(KILLED, run(cache, (f"{KILLED}[b]", "call", "rerun"), (f"{KILLED}[b]", "call", "passed")))[0] == "passed"
    )


def test_a_set_up_alone_has_passed_nothing_and_other_tests_are_not_kept() -> None:
    assert run(Cache(), (KILLED, "setup", "passed"), ("tests/a.py::test_b", "call", "passed")) == {}
    assert run(None, (KILLED, "call", "passed")) == {}
