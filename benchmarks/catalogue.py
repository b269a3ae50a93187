"""Every benchmark: what it asks, and how long its answer takes. ``make bench`` runs the shorter ones."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from benchmarks.report import Report


@dataclass(frozen=True)
class Benchmark:
    """``minutes`` on two quiet cores. ``runs_unasked``: in a call that names none.

    ``where``: its module, and its function where that is not ``measure``. It takes a folder that is not there yet, and
    ``--repeats``. It returns a report, or yields ever more complete ones, so that what was measured is kept where it is
    interrupted.
    """

    name: str
    question: str
    minutes: float
    runs_unasked: bool = True
    where: str = ""

    def measure(self, folder: Path, repeats: int | None) -> Iterator[Report]:
        """Run it. ``repeats`` is in place of its own number of rounds."""
        module, _, function = (self.where or self.name).partition(":")
        found = getattr(import_module(f"benchmarks.{module}"), function or "measure")(folder, repeats)
        yield from [found] if isinstance(found, Report) else found


CATALOGUE = (
    Benchmark(
        "peers",
        "How long does a pipeline take to recover, here and with what people use today?",
        16,
        where="peers.comparison",
    ),
    Benchmark(
        "mtbf_per_run", "How much longer does a run take in which drivers are killed?", 7, where="mtbf:measure_per_run"
    ),
    Benchmark("mtbf_submit", "... where each region is an application of its own?", 9, where="mtbf:measure_submit"),
    Benchmark("command_line", "How much processor time does a command take before its answer is read?", 1),
    Benchmark("kept_region", "What does a region cost that need not run?", 2),
    Benchmark(
        "overhead_drop_in", "What do drop-in operators cost while nothing fails?", 6, where="overhead:measure_drop_in"
    ),
    Benchmark("overhead_submit", "... a declared job, by spark-submit?", 8, where="overhead:measure_submit"),
    Benchmark("overhead_connect", "... and on a warm Spark Connect server?", 4, where="overhead:measure_connect"),
    Benchmark(
        "overhead_connect_long", "... there, with regions of ten seconds?", 7, where="overhead:measure_connect_long"
    ),
    Benchmark("s3_requests", "How many requests does a region make?", 1),
    Benchmark("spark_start", "What does the start of an application cost, over the Spark provider's own?", 5),
    Benchmark("own_spark", "How long does a small region take on a Spark that the run has for itself?", 4),
    Benchmark("resume", "How long until a run of 1,000 finished regions is resumed?", 1),
    Benchmark("planner", "How fast are plans at Flink's scale, beside Flink's own scheduler?", 5),
    Benchmark("parsing", "What does a task group cost when its DAG file is parsed?", 1),
    Benchmark("commits", "How many vertices does a commit to a package of 500 files run?", 2, False),
    Benchmark("first_paint", "When can a run of 1,000 regions be read in the Recovery tab?", 1),
    Benchmark("viewers", "What does a task feel of twenty viewers of a run of 10,000 regions?", 3),
    Benchmark("advice", "How much sooner does a run recover that is cut as it is advised to be?", 7, False),
    Benchmark("advice_diamond", "... and one with branches?", 7, False, where="advice:measure_diamond"),
    Benchmark("recovery_time", "How long does a chain of long steps take to recover, over the work lost?", 30, False),
    Benchmark("component_faults", "How much longer does a run take when a part of Airflow dies?", 25, False),
    Benchmark("approximate_channel", "How many requests does a channel make, and how late are its rows?", 3, False),
    Benchmark("approximate_failure", "How long does a chain of streams stand still when a region dies?", 6, False),
)
