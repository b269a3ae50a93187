"""``python -m scripts.matrix [--only NAME ...]``: try the cells, write what they said to files, and the page of them.

Without names: every cell that has a test. A name stands for all whose names hold it (``4.0``, ``standalone``). All of
them run in one call of pytest, whose exit code this has, so that tests share an Airflow. What a test said is kept as
soon as it has ended, and the page says so: also that it has failed.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from scripts.matrix.cells import cells
from scripts.matrix.page import write_page
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
    sparks = {cell.series for cell in chosen if cell.series in cell.test}
    missing = sorted(series for series in sparks if not spark_of(series).is_installed())
    if missing or not chosen:
        wanted = (
            f"these Sparks: python -m scripts.sparks {' '.join(missing)}" if missing else "the name of a cell (--list)"
        )
        parser.error(f"expected {wanted}")
    write_page()
    tests = list(dict.fromkeys(cell.test for cell in chosen))
    command = [sys.executable, "-m", "pytest", *tests, "--drill", "1", "-p", "scripts.matrix.recording"]
    return subprocess.run(command, cwd=REPOSITORY, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
