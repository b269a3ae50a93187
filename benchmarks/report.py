"""A benchmark's outcome, as a file for people and one for programs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.machine import describe_machine


@dataclass(frozen=True)
class Figure:
    """One number that answers the benchmark's question; ``goal`` is the one that was set, in words."""

    name: str
    value: float
    unit: str
    goal: str = ""
    reached: bool | None = None

    @property
    def text(self) -> str:
        """The value with its unit, and whether the goal is reached."""
        if self.reached is None:
            return f"{self.value:.4g} {self.unit}"
        return f"{self.value:.4g} {self.unit} (goal: {self.goal}; {'reached' if self.reached else 'NOT reached'})"


@dataclass(frozen=True)
class Table:
    """Rows under ``columns``."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[object]]


@dataclass(frozen=True)
class Report:
    """What one benchmark found. ``method`` says how it was measured; ``samples`` holds every single measurement.

    ``files`` are written beside it: a plot, under its file name.
    """

    name: str
    title: str
    method: str
    figures: Sequence[Figure]
    tables: Sequence[Table] = ()
    samples: Mapping[str, Any] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)

    def write(self, folder: Path) -> None:
        """Write ``<folder>/<name>.json`` and ``.md``, with the machine's description."""
        folder.mkdir(parents=True, exist_ok=True)
        machine = describe_machine()
        measured_at = datetime.now(timezone.utc).isoformat(timespec="seconds")
        document = {"measured_at": measured_at, "machine": machine, **asdict(self)}
        for file, content in document.pop("files").items():
            (folder / file).write_text(content, encoding="utf-8")
        (folder / f"{self.name}.json").write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
        (folder / f"{self.name}.md").write_text(self._markdown(measured_at, machine), encoding="utf-8")

    def text(self) -> str:
        """The figures, one a line."""
        wide = max(len(figure.name) for figure in self.figures)
        return "\n".join(f"  {figure.name:{wide}}  {figure.text}" for figure in self.figures)

    def _markdown(self, measured_at: str, machine: Mapping[str, str]) -> str:
        figures = [(figure.name, figure.text) for figure in self.figures]
        parts = [
            f"# {self.title}",
            self.method,
            *_table(Table("Result", ("what", "found"), figures)),
            *(part for table in self.tables for part in _table(table)),
            *(f"![{file}]({file})" for file in self.files if file.endswith(".svg")),
            *_table(Table(f"Machine, at {measured_at}", ("what", "found"), list(machine.items()))),
        ]
        return "\n\n".join(parts) + "\n"


def summary(values: Sequence[float]) -> tuple[str, str, str, int]:
    """Median, least and most, and how many: the columns of a table of samples."""
    return f"{median(values):.3f}", f"{min(values):.3f}", f"{max(values):.3f}", len(values)


def _table(table: Table) -> tuple[str, str]:
    lines = [table.columns, ["---"] * len(table.columns), *table.rows]
    return f"## {table.title}", "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines)
