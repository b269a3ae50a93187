"""What a cell's test said when it ran last: ``results/NAME.json``, from which the page is written."""

from __future__ import annotations

import json
import platform
import re
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timezone
from functools import cache
from importlib.metadata import version
from pathlib import Path

from scripts.machine import described_java
from scripts.matrix.cells import Cell
from scripts.sparks import NEWEST

RESULTS = Path(__file__).parent / "results"


@dataclass(frozen=True)
class Record:
    """One run of one cell: the day (UTC), the test that ran, and the versions that it ran with.

    ``passed`` is `None` from the test's begin to its end, so also of one that was interrupted. ``words`` begin what a
    test has said that failed.
    """

    cell: str
    day: str
    test: str
    passed: bool | None
    airflow: str
    spark: str
    python: str
    java: str
    words: str = ""

    def write(self, folder: Path = RESULTS) -> None:
        """Write ``<folder>/<cell>.json``."""
        folder.mkdir(parents=True, exist_ok=True)
        text = json.dumps(asdict(self), indent=1)
        (folder / f"{self.cell}.json").write_text(text + "\n", encoding="utf-8")

    def stands(self, cell: Cell, since: str) -> bool:
        """Whether ``cell`` need not be tried again: this passed on ``since`` or later, with the versions of today."""
        now = record_of(cell, passed=True)
        return self.day >= since and replace(self, day=now.day) == now


def record_of(cell: Cell, *, passed: bool | None, words: str = "") -> Record:
    """A record of now. A test that names no Spark ran on the one beside Airflow."""
    return Record(
        cell=cell.name,
        day=today(),
        test=cell.test,
        passed=passed,
        airflow=version("apache-airflow"),
        spark=NEWEST[cell.series] if cell.series and cell.series in cell.test else version("pyspark"),
        python=platform.python_version(),
        java=_java(),
        words=words,
    )


def today() -> str:
    """The day in UTC, as records have it."""
    return datetime.now(timezone.utc).date().isoformat()


def read_records(folder: Path = RESULTS) -> dict[str, Record]:
    """By the name of the cell."""
    records = [Record(**json.loads(path.read_text(encoding="utf-8"))) for path in sorted(folder.glob("*.json"))]
    return {record.cell: record for record in records}


@cache
def _java() -> str:
    number = re.search(r'version "([^"]+)"', described_java())
    return number[1] if number else "unknown"
