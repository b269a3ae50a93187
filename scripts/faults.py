"""``python -m scripts.faults [NUMBER ...]``: every fault of docs/faults.md, its tests, and how each ended here last.

What a test said last is in pytest's own cache (tests/conftest.py puts it there), so this tells of this checkout alone:
a test that never ran in it is ``never ran here``. A test of several parameters is shown once, by the worst that any of
them said last. Exit code 1 where a test has failed.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
PAGE = REPOSITORY / "docs" / "faults.md"
LAST_RESULTS = "airflow_recovery/last_results"
"""The key in pytest's cache: by test function, ``{"marks": [...], "said": {parameters: [outcome, day, commit]}}``."""
REAL = ("airflow", "spark", "s3", "postgres", "browser", "drill")
"""The marks of tests that run on real parts. A test without any has none but this process and its children."""

_ROW = re.compile(r"^\| (\d+) \| (.+?) \| .*\| (.+) \|$", re.MULTILINE)
_TEST = re.compile(r"`(tests/\S+\.py::test_\w+)`")
_REASON = re.compile(r"^\| ([^|]+) \| (\d+(?:, \d+)*) \|$", re.MULTILINE)
OUTCOMES = ("passed", "skipped", "failed")
"""The worst comes last. A failure that is run again has another outcome, and counts by what it says then."""


@dataclass(frozen=True)
class Fault:
    """A row of the page: its number, what goes wrong, and its tests as ``file::function``."""

    number: int
    what: str
    tests: tuple[str, ...]


def faults(text: str) -> Iterator[Fault]:
    """The rows of the page's ``text``, in its order."""
    for number, what, held_by in _ROW.findall(text):
        yield Fault(int(number), what, tuple(_TEST.findall(held_by)))


def reasons(text: str) -> dict[int, str]:
    """Why a fault has no test on real parts, by the page's ``text``. Raises `ValueError` where one stands twice."""
    found: dict[int, str] = {}
    for reason, numbers in _REASON.findall(text):
        for number in map(int, numbers.split(", ")):
            if number in found:
                raise ValueError(f"expected one reason for fault {number}, found two")
            found[number] = reason
    return found


def last_results(cache: Path = REPOSITORY / ".pytest_cache") -> dict[str, dict[str, object]]:
    """What pytest's cache knows, empty where nothing ran. A file that is no JSON is taken for none."""
    try:
        document = json.loads((cache / "v" / LAST_RESULTS).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return document if isinstance(document, dict) else {}


def told(test: str, results: Mapping[str, Mapping[str, object]]) -> tuple[str, str]:
    """The worst outcome of a test (``never ran here`` without one), and that with its day, commit and real parts."""
    found = results.get(test)
    said = found["said"] if found else None
    if not isinstance(said, dict) or not said:
        return "never ran here", "never ran here"
    outcomes = [tuple(entry) for entry in said.values()]
    worst = max((entry[0] for entry in outcomes), key=OUTCOMES.index)
    _, day, commit = max((entry for entry in outcomes if entry[0] == worst), key=lambda entry: str(entry[1]))
    marks = found["marks"] if found else []
    real = " on " + ", ".join(mark for mark in REAL if mark in marks) if isinstance(marks, list) and marks else ""
    return worst, f"{worst} {day} at {commit}{real}"


def table(
    rows: Sequence[Fault], results: Mapping[str, Mapping[str, object]], why_not: Mapping[int, str] | None = None
) -> tuple[list[str], Counter[str]]:
    """The lines to print, and how many tests have which outcome. ``why_not``: `reasons`."""
    lines, counts = [], Counter[str]()
    for fault in rows:
        lines.append(f"{fault.number:4}  {fault.what}")
        if why_not is not None and fault.number in why_not:
            lines.append(f"      not on real parts. {why_not[fault.number]}")
        for test in fault.tests:
            outcome, words = told(test, results)
            counts[outcome] += 1
            lines.append(f"      {words:44} {test}")
    return lines, counts


def main(arguments: Sequence[str]) -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m scripts.faults", description=__doc__)
    parser.add_argument("numbers", nargs="*", type=int, metavar="NUMBER", help="these faults alone")
    wanted = parser.parse_args(arguments).numbers
    page = PAGE.read_text(encoding="utf-8")
    rows = [fault for fault in faults(page) if not wanted or fault.number in wanted]
    if missing := sorted(set(wanted) - {fault.number for fault in rows}):
        parser.error(f"expected numbers of docs/faults.md, found {', '.join(map(str, missing))}")
    lines, counts = table(rows, last_results(), reasons(page))
    print("\n".join(lines))
    print(
        f"{len(rows)} faults, {counts.total()} tests: " + ", ".join(f"{n} {what}" for what, n in counts.most_common())
    )
    return 1 if counts["failed"] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
