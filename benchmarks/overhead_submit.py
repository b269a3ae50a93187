"""The demo's job by spark-submit, with recovery and without."""

from __future__ import annotations

from pathlib import Path

from benchmarks.local_pipeline import open_local_pipeline
from benchmarks.overhead import lake_env, measure_overhead
from benchmarks.report import Report


def measure(folder: Path, repeats: int | None) -> Report:
    """``repeats`` (default 2) pairs of runs, about 80 s each."""
    with open_local_pipeline(folder / "pipeline", lake_env(folder)) as pipeline:
        return measure_overhead(pipeline, "submit", repeats or 2)
