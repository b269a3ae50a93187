"""``python -m scripts.matrix [--only NAME ...]``: try the cells, write what they said to files, and the page of them.

Without names: every cell that has a test. A name stands for all whose names hold it (``4.0``, ``standalone``). All of
them run in one call of pytest, whose exit code this has, so that tests share an Airflow. What a test said is kept as
soon as it has ended, and the page says so: also that it has failed.

A cell that has passed today (``--since DAY``: that day or later), by the same test and with the same versions, is not
tried again: so an interrupted call goes on where it was. ``--again`` tries all.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from scripts.matrix.cells import Cell, cells
from scripts.matrix.page import write_page
from scripts.matrix.record import Record, read_records, today
from scripts.sparks import spark_of

REPOSITORY = Path(__file__).resolve().parents[2]


def main(arguments: Sequence[str]) -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m scripts.matrix", description=__doc__)
    parser.add_argument(
        "--only", nargs="+", action="extend", metavar="NAME", help="cells whose names hold one of these"
    )
    parser.add_argument("--list", action="store_true", help="say which cells there are, with their tests")
    parser.add_argument("--since", metavar="DAY", default=today(), help="leave out what passed then or later")
    parser.add_argument("--again", action="store_true", help="leave out nothing")
    given = parser.parse_args(arguments)
    chosen = [cell for cell in cells() if cell.test and any(name in cell.name for name in given.only or [""])]
    if given.list:
        for cell in chosen:
            print(f"{cell.name:44} {cell.test}")
        return 0
    sparks = {cell.series for cell in chosen if cell.series and cell.series in cell.test}
    missing = sorted(series for series in sparks if not spark_of(series).is_installed())
    if missing or not chosen:
        wanted = (
            f"these Sparks: python -m scripts.sparks {' '.join(missing)}" if missing else "the name of a cell (--list)"
        )
        parser.error(f"expected {wanted}")
    write_page()
    if not given.again:
        chosen = to_try(chosen, read_records(), given.since)
    if not chosen:
        print(f"all of these have passed on {given.since} or later: --again tries them again")
        return 0
    tests = list(dict.fromkeys(cell.test for cell in chosen))
    command = [sys.executable, "-m", "pytest", *tests, "--drill", "1", "-p", "scripts.matrix.recording"]
    return subprocess.run(command, cwd=REPOSITORY, check=False).returncode


def to_try(chosen: Sequence[Cell], records: Mapping[str, Record], since: str) -> list[Cell]:
    """Those whose records do not stand (`Record.stands`)."""
    return [cell for cell in chosen if not (cell.name in records and records[cell.name].stands(cell, since))]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
