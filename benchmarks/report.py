"""What one benchmark has found, and the file that keeps it: ``results/NAME.json``, from which the page is written."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from statistics import median
from typing import Any

from scripts.machine import describe_machine

RESULTS = Path(__file__).parent / "results"
INNERMOST = re.compile(r"([\[{])\n\s*([^\[\]{}]*?)\n\s*([\]}])")
"""An object or a list of JSON without others in it. A line break is never inside a string."""


@dataclass(frozen=True)
class Figure:
    """One number that answers the benchmark's question; ``goal`` is the one that was set, in words."""

    name: str
    value: float
    unit: str
    goal: str = ""
    reached: bool | None = None

    @property
    def measured(self) -> str:
        """The value with its unit."""
        return f"{self.value:.4g} {self.unit}".strip()

    @property
    def text(self) -> str:
        """The value with its unit, and whether the goal is reached."""
        if self.reached is None:
            return self.measured
        return f"{self.measured} (goal: {self.goal}; {'reached' if self.reached else 'NOT reached'})"


@dataclass(frozen=True)
class Table:
    """Rows under ``columns``."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[object]]


@dataclass(frozen=True)
class Report:
    """What one benchmark found. ``method`` says how it was measured; ``samples`` holds every single measurement."""

    name: str
    title: str
    method: str
    figures: Sequence[Figure]
    tables: Sequence[Table] = ()
    samples: Mapping[str, Any] = field(default_factory=dict)

    def text(self) -> str:
        """The figures, one a line."""
        wide = max(len(figure.name) for figure in self.figures)
        return "\n".join(f"  {figure.name:{wide}}  {figure.text}" for figure in self.figures)


@dataclass(frozen=True)
class Record:
    """A report as it is kept: when it was begun, how long it took, and the machine as it was before."""

    report: Report
    measured_at: str
    seconds: float
    machine: Mapping[str, str]

    def write(self, folder: Path) -> Path:
        """Write ``<folder>/<name>.json``."""
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{self.report.name}.json"
        text = json.dumps(asdict(self), indent=1)
        path.write_text(INNERMOST.sub(_on_one_line, text) + "\n", encoding="utf-8")
        return path


def recorded(reports: Iterator[Report]) -> Iterator[Record]:
    """Each of ``reports`` with the time and the machine as they were before the first one."""
    machine, begun = describe_machine(), datetime.now(timezone.utc)
    for report in reports:
        seconds = (datetime.now(timezone.utc) - begun).total_seconds()
        yield Record(report, begun.isoformat(timespec="minutes"), round(seconds), machine)


def _on_one_line(found: re.Match[str]) -> str:
    return found[1] + re.sub(r"\n\s*", " ", found[2]) + found[3]


def read_record(path: Path) -> Record:
    """What `Record.write` has written."""
    document = json.loads(path.read_text(encoding="utf-8"))
    report = document.pop("report")
    figures = [Figure(**figure) for figure in report.pop("figures")]
    tables = [Table(**table) for table in report.pop("tables")]
    return Record(Report(**report, figures=figures, tables=tables), **document)


def summary(values: Sequence[float]) -> tuple[str, str, str, int]:
    """Median, least and most, and how many: the columns of a table of samples."""
    return f"{median(values):.3f}", f"{min(values):.3f}", f"{max(values):.3f}", len(values)
