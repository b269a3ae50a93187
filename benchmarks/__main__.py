"""``python -m benchmarks [--only NAME ...] [--repeats N] [--out FOLDER]``: measure, and write the results to files."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

from scripts.wheel import use_wheel

use_wheel()

REPOSITORY = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(REPOSITORY / "dags"))  # as in Airflow: jobs are imported from the DAGs folder

from benchmarks.report import Report  # noqa: E402

NAMES = (
    "parsing",
    "s3_requests",
    "kept_region",
    "plan_scale",
    "planner",
    "resume",
    "journal",
    "first_paint",
    "command_line",
    "splits",
    "split_log",
    "overhead_connect",
    "overhead_submit",
    "recovery_time",
    "lost_input",
    "split_commit",
    "approximate_channel",
    "approximate_failure",
)


def main() -> int:
    """Run the benchmarks that were asked for, one after the other. A goal that is missed is no failure."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--only", action="append", choices=NAMES, help="this benchmark alone; may be repeated")
    parser.add_argument("--repeats", type=int, help="rounds of each benchmark, in place of its own default")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results", help="folder for the results")
    arguments = parser.parse_args()
    if arguments.repeats is not None and arguments.repeats < 1:
        parser.error("--repeats: expected at least 1")
    for name in arguments.only or NAMES:
        measure: Callable[[Path, int | None], Report] = import_module(f"benchmarks.{name}").measure
        begun = time.monotonic()
        print(f"{name} ...", flush=True)
        with tempfile.TemporaryDirectory(prefix="airflow-recovery-benchmark-") as folder:
            report = measure(Path(folder) / name, arguments.repeats)
        report.write(arguments.out)
        print(
            f"{report.text()}\n  ({time.monotonic() - begun:.0f} s, written to {arguments.out / name}.md)", flush=True
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
