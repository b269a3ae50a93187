"""``docs/benchmarks.md`` and its charts, written whole from the results: ``python -m benchmarks.page``.

A benchmark without a result has no section. A result keeps its section until it is measured again, and says when
and under which load it was measured; `tests/project/test_benchmarks_page.py` holds the page to the results.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks import plot
from benchmarks.catalogue import CATALOGUE, Benchmark
from benchmarks.report import RESULTS, Figure, Record, Table, read_record

PAGE = Path(__file__).resolve().parents[1] / "docs" / "benchmarks.md"
CHARTS = {"peers": plot.recoveries, "mtbf_per_run": plot.failures, "mtbf_submit": plot.failures}
"""Drawn from the samples of these results."""
LOAD = "load in the last minute"

PREFACE = """\
# Benchmarks

This page has what was measured, each figure with its goal; those that miss it stand here too. `make bench` measures,
and writes the page from the results (`benchmarks/results/*.json`); nothing of it is written by hand.
`make bench ONLY="peers command_line"` measures these parts alone, and `python -m benchmarks --list` says what there is
and how long it takes. A part that was not measured again keeps its date.

Times on two cores with other work are worth little by themselves. So most figures are ratios of what ran side by side
in one call, or seconds of processor time. Every part says its load before it began: below 0.3 the machine was quiet.
"""


def write_page(folder: Path = RESULTS, page: Path = PAGE) -> None:
    """Write the page, and its charts beside it."""
    records = read_records(folder)
    page.write_text(render(records), encoding="utf-8")
    for name, svg in charts(records).items():
        (page.parent / name).write_text(svg, encoding="utf-8")


def read_records(folder: Path = RESULTS) -> dict[str, Record]:
    """The results that are there, in the order of the catalogue."""
    names = (benchmark.name for benchmark in CATALOGUE)
    return {name: read_record(folder / f"{name}.json") for name in names if (folder / f"{name}.json").exists()}


def charts(records: Mapping[str, Record]) -> dict[str, str]:
    """By file name: the charts that the page shows."""
    return {_chart(name): draw(records[name].report.samples) for name, draw in CHARTS.items() if name in records}


def render(records: Mapping[str, Record]) -> str:
    """The page of these results."""
    if not records:
        return f"{PREFACE}\nNothing was measured yet.\n"
    newest = max(records.values(), key=lambda record: record.measured_at)
    common = {name: value for name, value in newest.machine.items() if name != LOAD}
    known = {benchmark.name: benchmark for benchmark in CATALOGUE}
    parts = [PREFACE.rstrip(), "## Goals", _goals(records)]
    for name, record in records.items():
        parts += _section(known[name], record, common)
    parts += ["## Machine", _rows(("what", "found"), list(common.items()))]
    return "\n\n".join(parts) + "\n"


def _goals(records: Mapping[str, Record]) -> str:
    rows = [
        (
            f"[{record.report.title}](#{_anchor(record.report.title)})",
            figure.name,
            figure.measured,
            figure.goal,
            _reached(figure),
        )
        for record in records.values()
        for figure in record.report.figures
        if figure.reached is not None
    ]
    return _rows(("part", "figure", "found", "goal", ""), rows)


def _section(benchmark: Benchmark, record: Record, common: Mapping[str, str]) -> list[str]:
    report = record.report
    figures = [(figure.name, figure.measured, figure.goal or "", _reached(figure)) for figure in report.figures]
    other = [f"{name} {value}" for name, value in record.machine.items() if name != LOAD and common.get(name) != value]
    measured = (
        f"Measured {record.measured_at[:16].replace('T', ' ')} UTC in {record.seconds:.0f} s, at a load of "
        f"{record.machine[LOAD]} before{''.join(f'; {what}' for what in other)}. Again: "
        f"`make bench ONLY={benchmark.name}`."
    )
    chart = [f"![{report.title}]({_chart(benchmark.name)})"] if benchmark.name in CHARTS else []
    return [
        f"## {report.title}",
        f"*{benchmark.question}*",
        *chart,
        _rows(("figure", "found", "goal", ""), figures),
        report.method,
        *(part for table in report.tables for part in (f"**{table.title}**", _table(table))),
        measured,
    ]


def _chart(name: str) -> str:
    return f"benchmarks-{name}.svg"


def _reached(figure: Figure) -> str:
    if figure.reached is None:
        return ""
    return "reached" if figure.reached else "**missed**"


def _anchor(title: str) -> str:
    """As Python-Markdown makes it of a heading."""
    return re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", title).strip().lower())


def _table(table: Table) -> str:
    return _rows(table.columns, table.rows)


def _rows(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join("| " + " | ".join(str(cell).replace("|", "\\|") for cell in line) + " |" for line in lines)


if __name__ == "__main__":
    write_page()
