"""Every row of docs/faults.md names tests that are there, and `scripts.faults` says how each ended last."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from last_results import LastResults
from real_parts import parts_of, read

from scripts.faults import LAST_RESULTS, Fault, faults, reasons, table, told

ROOT = Path(__file__).parents[2]
TABLE = ROOT / "docs" / "faults.md"


def named_in(file: str) -> frozenset[str]:
    path = ROOT / file
    return frozenset(read(path, ROOT).tests) if path.exists() else frozenset()


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


def without_real_part(text: str) -> list[int]:
    """The faults that have no test on a real part, and no reason."""
    why_not = reasons(text)
    return [fault.number for fault in faults(text) if fault.number not in why_not and not real_parts(fault)]


def real_parts(fault: Fault) -> frozenset[str]:
    """The real parts that some test of it runs on. That a test is for the drill alone is none."""
    return frozenset(part for test in fault.tests for part in parts_of(test)) - {"drill"}


def test_every_fault_has_a_test_on_a_real_part_or_says_why_it_has_none() -> None:
    assert without_real_part(TABLE.read_text()) == []


def test_no_fault_says_why_it_has_none_and_has_one() -> None:
    text = TABLE.read_text()
    why_not = reasons(text)
    assert why_not.keys() <= {fault.number for fault in faults(text)}
    assert [fault.number for fault in faults(text) if fault.number in why_not and real_parts(fault)] == []


ON_S3 = "tests/attempt/test_attempts_on_s3.py::test_fault_19_a_failed_job_never_counts_as_the_new_one"
IN_MEMORY = "tests/attempt/test_reconnect.py::test_fault_19_a_failed_job_never_counts_as_the_new_one"


@pytest.mark.parametrize(
    ("test", "reason", "found"), [(ON_S3, "", []), (IN_MEMORY, "", [19]), (IN_MEMORY, "| it can't | 18, 19 |", [])]
)
def test_control_a_fault_without_either_would_be_seen(test: str, reason: str, found: list[int]) -> None:
    assert without_real_part(f"| 19 | a | b | `{test}` |\n{reason}\n") == found


@pytest.mark.parametrize(
    ("test", "parts"),
    [
        (
            "tests/integration/test_limits.py::test_a_clear_by_recovery_forgives_nothing",
            {"airflow", "drill", "s3", "spark"},
        ),
        ("tests/attempt/test_assignment_log.py::test_fault_56_of_two_first_processes_one_decides_for_both", {"s3"}),
        ("tests/results/test_gc_in_trouble.py::test_fault_103_an_empty_dag_is_no_dag", {"s3"}),
        ("tests/journal/test_history_on_s3.py::test_fault_37_an_empty_segment_is_refused", {"s3"}),
        ("tests/journal/test_history.py::test_fault_37_an_empty_segment_is_refused", set()),
        ("tests/sinks/test_postgres_sink.py::test_control_the_driver_says_the_row", {"postgres"}),
    ],
    ids=["marks", "a store", "an imported fixture", "an imported test", "none", "a database"],
)
def test_real_parts_are_read_from_marks_and_fixtures(test: str, parts: set[str]) -> None:
    assert parts_of(test) == parts


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
    assert told(KILLED, run(cache, (f"{KILLED}[b]", "call", "passed")))[0] == "passed"


def test_a_set_up_alone_has_passed_nothing_and_other_tests_are_not_kept() -> None:
    assert run(Cache(), (KILLED, "setup", "passed"), ("tests/a.py::test_b", "call", "passed")) == {}
    assert run(None, (KILLED, "call", "passed")) == {}
