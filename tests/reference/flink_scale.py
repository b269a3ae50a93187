"""The topology and the restart set at Flink's scale: beside Flink's own planner in one run, where that can be run.

``PYTHONPATH=tests:. python -m reference.flink_scale [REPEATS]`` prints it. ``FLINK_PEER`` names the folder of Flink's
side, with a ``run.sh`` that needs Java and Maven. Without it our side is measured alone, against figures recorded with
it.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import isnan
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.report import Figure, Report, Table
from scripts.wheel import INSTALLED, use_wheel

STEPS = ("graph", "regions", "source_ok", "mid_ok", "mid_one_lost", "sink_all_lost")

# Flink 2.3.0, Java 17, two cores at a load of 3.6 to 5.4: cold ms by step in the order of `STEPS`, heap in MB, and
# what was counted: vertices, regions, and the tasks to restart.
RECORDED: dict[tuple[str, int, int], tuple[tuple[float, ...], int, tuple[int, ...]]] = {
    ("all_to_all_blocking", 2, 10_000): (
        (1136, 237, 40, 6.7, 33, 74), 60, (20_000, 20_000, 10_001, 1, 10_001, 20_000),
    ),
    ("all_to_all_pipelined", 2, 10_000): (
        (672, 53, 106, 96, 55, 40), 43, (20_000, 1, 20_000, 20_000, 20_000, 20_000),
    ),
    ("pointwise_blocking", 100, 1_000): (
        (6792, 1098, 5.1, 4.8, 6.1, 13), 391, (100_000, 100_000, 100, 50, 51, 100),
    ),
    ("pointwise_pipelined", 100, 1_000): (
        (6566, 757, 12, 3.9, 2.2, 5.4), 259, (100_000, 1_000, 100, 100, 100, 100),
    ),
    ("pointwise_blocking", 100_000, 1): (
        (7845, 1962, 1968, float("nan"), 635, 1093), 617, (100_000, 100_000, 100_000, 50_000, 50_001, 100_000),
    ),
}  # fmt: skip

GROWTH = (1_000, 3_000, 10_000, 30_000, 100_000)


@dataclass(frozen=True)
class Line:
    """One step of one case, on both sides. Flink's memory is its live heap, ours the growth of peak RSS."""

    case: tuple[str, int, int]
    step: str
    ours_ms: float
    ours_mb: float
    ours_result: int
    flink_ms: float
    flink_mb: float
    flink_result: int

    @property
    def name(self) -> str:
        pattern, levels, parallelism = self.case
        return f"{pattern.replace('_', ' ')} {levels} x {parallelism}: {self.step}"


def measure(folder: Path, repeats: int | None) -> Report:
    """Every measurement is a process of its own. ``repeats``: how many of each, of which the median counts (3)."""
    folder.mkdir(parents=True)
    peer = find_peer()
    if peer is None:
        lines, samples = _alone(repeats or 3)
    else:
        lines, samples = _side_by_side(peer, folder, repeats or 1)
    growth = _growth()
    where = (
        "in this run, each of its lines followed by ours" if peer else "recorded before on two cores, load 3.6 to 5.4"
    )
    return Report(
        name="flink_scale",
        title="Topology and restart sets at Flink's scale",
        method=(
            f"Every figure is the first call in a fresh process, until all region ids or all ids to restart are there. "
            f"Flink's cold figures: {where}. Its counts of vertices, regions and tasks to restart are compared with "
            "ours for every line. `graph` is from the declared job to regions, `regions` their building alone; restart "
            "steps: subtask 0 of the first (`source`), middle (`mid`) or last (`sink`) job vertex fails, with "
            "everything available (`ok`), one input lost, or all partitions lost. Memory: ours is the growth of peak "
            "RSS from before the job's declaration, Flink's its live heap after a collection."
        ),
        figures=_figures(lines),
        tables=[
            Table(
                "Each step, cold",
                ("case", "step", "ours, ms", "Flink, ms", "ours, MB", "Flink, MB", "counted, both"),
                [_row(line) for line in lines],
            ),
            Table("Growth of our cost, ms", ("case and step", *(f"{size:,}" for size in GROWTH)), growth[0]),
        ],
        samples={"lines": samples, "growth": growth[1]},
    )


def find_peer() -> Path | None:
    """Flink's side, if it and what it needs are there."""
    folder = Path(os.environ.get("FLINK_PEER", ""))
    usable = (folder / "run.sh").is_file() and shutil.which("java") and shutil.which("mvn")
    return folder if usable else None


def _row(line: Line) -> tuple[object, ...]:
    pattern, levels, parallelism = line.case
    same = line.ours_result == line.flink_result
    return (
        f"{pattern} {levels} x {parallelism}",
        line.step,
        f"{line.ours_ms:.1f}",
        "-" if isnan(line.flink_ms) else f"{line.flink_ms:.1f}",
        f"{line.ours_mb:.1f}",
        f"{line.flink_mb:.0f}",
        line.ours_result if same else f"{line.ours_result} / {line.flink_result}",
    )


def _figures(lines: Sequence[Line]) -> list[Figure]:
    figures = []
    for line in lines:
        known = not isnan(line.flink_ms)  # Flink's side was not run for every one
        goal = f"at most Flink's {line.flink_ms:.4g} ms" if known else ""
        figures.append(Figure(line.name, line.ours_ms, "ms", goal, line.ours_ms <= line.flink_ms if known else None))
    for case in dict.fromkeys(line.case for line in lines):
        ours = max(line.ours_mb for line in lines if line.case == case)
        flink = max(line.flink_mb for line in lines if line.case == case)
        name = f"{case[0].replace('_', ' ')} {case[1]} x {case[2]}: memory"
        figures.append(Figure(name, ours, "MB", f"at most Flink's {flink:.0f} MB", ours <= flink))
    differ = sum(line.ours_result != line.flink_result for line in lines)
    figures.append(Figure("counts that differ from Flink's", differ, "", "none", differ == 0))
    return figures


def _alone(repeats: int) -> tuple[list[Line], list[dict[str, Any]]]:
    lines: list[Line] = []
    samples: list[dict[str, Any]] = []
    for case, (recorded_ms, heap_mb, counts) in RECORDED.items():
        for step, flink_ms, count in zip(STEPS, recorded_ms, counts, strict=True):
            ours = [_ours(case, step) for _ in range(repeats)]
            samples += ours
            lines.append(_line(case, step, ours, flink_ms, heap_mb, count))
    return lines, samples


def _side_by_side(peer: Path, folder: Path, repeats: int) -> tuple[list[Line], list[dict[str, Any]]]:
    shapes = "|".join(" ".join(map(str, case)) for case in RECORDED)
    done = subprocess.run(
        ["bash", str(peer / "run.sh")],
        env={
            "WARM": "1",  # only cold figures are compared
            "FLINKBENCH_BUILD": str(folder / "flink"),
            **os.environ,
            "ONLY": f"^({shapes}) ({'|'.join(STEPS)})$",
            "PEER": f"{sys.executable} -m reference.flink_scale_case",
            "PYTHONPATH": _import_path(),
        },
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    samples = [json.loads(line) for line in done.stdout.splitlines()]
    by_step: dict[tuple[tuple[str, int, int], str], dict[bool, list[dict[str, Any]]]] = {}
    for sample in samples:
        if "case" in sample:
            if "error" in sample:
                raise RuntimeError(f"Flink's side failed: {sample}")
            key = (sample["case"], sample["levels"], sample["parallelism"]), sample["step"]
            by_step.setdefault(key, {True: [], False: []})[sample.get("ours", False)].append(sample)
    lines = []
    for (case, step), sides in by_step.items():
        more = [_ours(case, step) for _ in range(repeats - 1)]
        flink = sides[False][0]
        lines.append(_line(case, step, sides[True] + more, flink["cold_ms"], flink["heap_mb"], flink["result"]))
    return lines, samples


def _line(
    case: tuple[str, int, int], step: str, ours: list[dict[str, Any]], flink_ms: float, flink_mb: float, count: int
) -> Line:
    cold = median(our["cold_ms"] for our in ours)
    memory = median(our["memory_mb"] for our in ours)
    return Line(case, step, cold, memory, ours[0]["result"], flink_ms, flink_mb, count)


def _ours(case: tuple[str, int, int], step: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "reference.flink_scale_case", *map(str, case), step],
        cwd=INSTALLED,
        env={**os.environ, "PYTHONPATH": _import_path(), "WARM": "0"},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def _growth() -> tuple[list[tuple[str, ...]], dict[str, list[tuple[float, float]]]]:
    """A row for people and a line to plot, for each shape and step."""
    shapes: dict[str, Callable[[int], tuple[str, int, int]]] = {
        "all-to-all, 2 job vertices": lambda size: ("all_to_all_blocking", 2, size // 2),
        "pointwise, 100 job vertices": lambda size: ("pointwise_blocking", 100, size // 100),
        "chain of single subtasks": lambda size: ("pointwise_blocking", size, 1),
    }
    lines: dict[str, list[tuple[float, float]]] = {}
    for shape, case_of in shapes.items():
        for step in ("graph", "mid_one_lost"):
            lines[f"{shape}: {step}"] = [(size, _ours(case_of(size), step)["cold_ms"]) for size in GROWTH]
    return [(name, *(f"{ms:.1f}" for _, ms in points)) for name, points in lines.items()], lines


def _import_path() -> str:
    """What a measured process has as its ``PYTHONPATH``: the installed wheel first, and these references."""
    return os.pathsep.join([os.environ["PYTHONPATH"], str(Path(__file__).resolve().parents[1])])


if __name__ == "__main__":
    use_wheel()
    with tempfile.TemporaryDirectory() as scratch:
        print(measure(Path(scratch) / "flink_scale", int(sys.argv[1]) if sys.argv[1:] else None).text())
