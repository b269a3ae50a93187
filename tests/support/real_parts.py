"""On which real parts a test runs, by reading its file: its marks, and the fixtures that it asks for.

Nothing is imported or collected. What pytest itself says of the tests that ran is `scripts.faults`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import NamedTuple

from scripts.faults import REAL

ROOT = Path(__file__).parents[2]
FIXTURES = {
    **dict.fromkeys(("s3_server", "one_s3_server", "start_s3_server", "cloud_server", "azurite", "store"), "s3"),
    "postgres": "postgres",
}
"""Fixtures of tests/conftest.py that are a server, or a store on one among others, and its mark."""

Names = frozenset[str]


class Found(NamedTuple):
    """What is in one file. What is imported by name from a file of tests, or of their support, is in it as well."""

    tests: dict[str, tuple[Names, Names]]
    """Of each test, what it asks for, and its marks."""
    fixtures: dict[str, Names]
    """Of each fixture, what it asks for."""
    always: Names
    """Fixtures that every test has."""


def parts_of(test: str, root: Path = ROOT) -> Names:
    """The marks in `REAL` of a test ``file::function``. Raises `KeyError` for one that is not there."""
    file, _, name = test.partition("::")
    path = root / file
    found = read(path, root)
    asked, marks = found.tests[name]
    fixtures = {**_shared(root), **_of(path.parent / "conftest.py", root), **found.fixtures}
    known: set[str] = set()
    left = [*asked, *found.always]
    while left:
        fixture = left.pop()
        if fixture not in known:
            known.add(fixture)
            left += fixtures.get(fixture, ())
    return frozenset(REAL) & (marks | {FIXTURES[name] for name in known & FIXTURES.keys()})


@cache
def read(path: Path, root: Path = ROOT) -> Found:
    """What a file of tests, of fixtures or of both has. Raises `OSError`."""
    found = Found({}, {}, frozenset())
    body = ast.parse(path.read_text(encoding="utf-8")).body
    assigned = [node for node in body if isinstance(node, ast.Assign)]
    marks = _joined(_marks(node.value) for node in assigned if "pytestmark" in map(ast.unparse, node.targets))
    always = set()
    for node in body:
        if isinstance(node, ast.ImportFrom):
            others = (path.parent / f"{node.module}.py", root / "tests" / "support" / f"{node.module}.py")
            other = next((read(file, root) for file in others if file.is_file()), Found({}, {}, frozenset()))
            names = {alias.name for alias in node.names}
            found.tests.update({name: each for name, each in other.tests.items() if name in names})
            found.fixtures.update(other.fixtures)
            always |= names & other.always
        elif isinstance(node, ast.FunctionDef):
            decorators = [ast.unparse(decorator) for decorator in node.decorator_list]
            asked = frozenset(each.arg for each in (*node.args.args, *node.args.kwonlyargs)) | _named(node)
            if any("fixture" in decorator and "usefixtures" not in decorator for decorator in decorators):
                found.fixtures[node.name] = asked
                always |= {node.name for decorator in decorators if "autouse=True" in decorator}
            elif node.name.startswith("test_"):
                found.tests[node.name] = asked, marks | _joined(map(_marks, node.decorator_list))
    return found._replace(always=frozenset(always))


@cache
def _shared(root: Path) -> dict[str, Names]:
    files = (*sorted((root / "tests" / "support").glob("*.py")), root / "tests" / "conftest.py")
    return {name: asked for file in files for name, asked in _of(file, root).items()}


def _of(file: Path, root: Path) -> dict[str, Names]:
    return read(file, root).fixtures if file.is_file() else {}


def _joined(sets: Iterable[Names]) -> Names:
    return frozenset(name for each in sets for name in each)


def _marks(node: ast.expr) -> Names:
    names = (ast.unparse(part) for part in ast.walk(node) if isinstance(part, ast.Attribute))
    return frozenset(name.rpartition(".")[2] for name in names if name.startswith("pytest.mark."))


def _named(node: ast.FunctionDef) -> Names:
    """What ``usefixtures`` and ``getfixturevalue`` name."""
    calls = [part for part in ast.walk(node) if isinstance(part, ast.Call)]
    named = [call.args for call in calls if ast.unparse(call.func).endswith(("mark.usefixtures", ".getfixturevalue"))]
    return frozenset(str(name.value) for names in named for name in names if isinstance(name, ast.Constant))
