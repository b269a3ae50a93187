"""Every row of docs/faults.md names tests that are there."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TABLE = ROOT / "docs" / "faults.md"
ROW = re.compile(r"^\| (\d+) \|.*\| (.+) \|$", re.MULTILINE)
TEST = re.compile(r"`(tests/\S+\.py)::(test_\w+)`")


@cache
def named_in(file: str) -> frozenset[str]:
    path = ROOT / file
    if not path.exists():
        return frozenset()
    return frozenset(node.name for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.FunctionDef))


def unresolved(text: str) -> list[str]:
    """What is wrong with the table: rows without a test, tests that are not there, numbers that stand twice."""
    wrong, seen = [], set()
    for number, held_by in ROW.findall(text):
        if number in seen:
            wrong.append(f"{number} stands twice")
        seen.add(number)
        named = TEST.findall(held_by)
        if not named:
            wrong.append(f"{number} names no test")
        wrong += [f"{number}: no {name} in {file}" for file, name in named if name not in named_in(file)]
    return wrong


def test_every_row_names_tests_that_are_there() -> None:
    text = TABLE.read_text()
    assert len(ROW.findall(text)) == len(re.findall(r"^\| \d", text, re.MULTILINE)), "a row that is not read"
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
