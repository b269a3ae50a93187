"""``python -m scripts.matrix [--only NAME ...]``: try the cells, write what they said to files, and the page of them.

Without names: every cell that has a test. A name stands for all whose names hold it (``4.0``, ``standalone``). All of
them run in one call of pytest, so that tests share an Airflow. 1 where one has failed or did not run; the page then
says so of those that failed.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree

from scripts.matrix.cells import Cell, cells
from scripts.matrix.page import write_page
from scripts.matrix.record import record_of
from scripts.sparks import spark_of

REPOSITORY = Path(__file__).resolve().parents[2]


def main(arguments: Sequence[str]) -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m scripts.matrix", description=__doc__)
    parser.add_argument(
        "--only", nargs="+", action="extend", metavar="NAME", help="cells whose names hold one of these"
    )
    parser.add_argument("--list", action="store_true", help="say which cells there are, with their tests")
    given = parser.parse_args(arguments)
    chosen = [cell for cell in cells() if cell.test and any(name in cell.name for name in given.only or [""])]
    if given.list:
        for cell in chosen:
            print(f"{cell.name:44} {cell.test}")
        return 0
    missing = sorted(
        {cell.series for cell in chosen if cell.series in cell.test and not spark_of(cell.series).is_installed()}
    )
    if missing:
        parser.error(f"expected these Sparks to be installed: python -m scripts.sparks {' '.join(missing)}")
    said = _run(chosen)
    for cell in chosen:
        if cell.name in said:
            record_of(cell, passed=said[cell.name]).write()
        print(f"{cell.name:44} {_WORDS[said.get(cell.name)]}")
    write_page()
    return 0 if all(said.get(cell.name) for cell in chosen) else 1


_WORDS = {True: "recovered", False: "FAILED", None: "did not run"}


def _run(chosen: Sequence[Cell]) -> dict[str, bool]:
    """Whether the tests of the cells passed; a cell of which none ran is left out."""
    with tempfile.TemporaryDirectory(prefix="airflow-recovery-matrix-") as folder:
        report = Path(folder) / "report.xml"
        tests = list(dict.fromkeys(cell.test for cell in chosen))
        command = [sys.executable, "-m", "pytest", *tests, "--drill", "1", f"--junitxml={report}", "-o", _ONE_FAMILY]
        subprocess.run(command, cwd=REPOSITORY, check=False)
        if not report.exists():
            return {}
        ran = _tests_of(ElementTree.parse(report).getroot())
    said: dict[str, bool] = {}
    for cell in chosen:
        results = [passed for name, passed in ran.items() if name == cell.test or name.startswith(f"{cell.test}::")]
        if results:
            said[cell.name] = all(results)
    return said


_ONE_FAMILY = "junit_family=xunit1"
"""It names the file of a test."""


def _tests_of(report: ElementTree.Element) -> dict[str, bool]:
    """By node id. What was skipped did not run."""
    ran = {}
    for test in report.iter("testcase"):
        if test.find("skipped") is None:
            passed = test.find("failure") is None and test.find("error") is None
            ran[f"{test.get('file')}::{test.get('name')}"] = passed
    return ran


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
