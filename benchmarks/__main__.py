"""``python -m benchmarks [--only NAME ...]``: measure, write the results to files, and the page of them.

Without names: all but the longest, and those of single parts. Each result is written as soon as it is there, and the
page after it, so that what an interrupted call has measured is kept. A goal that is missed is no failure, and a
benchmark that fails keeps the result that it had before.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import traceback
from pathlib import Path

from scripts.wheel import use_wheel

use_wheel()

REPOSITORY = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(REPOSITORY / "dags"))  # as in Airflow: jobs are imported from the DAGs folder

from benchmarks.catalogue import CATALOGUE  # noqa: E402
from benchmarks.page import write_page  # noqa: E402
from benchmarks.report import RESULTS, recorded  # noqa: E402


def main() -> int:
    """Run the benchmarks that were asked for, one after the other; 1 where one of them could not be measured."""
    known = {benchmark.name: benchmark for benchmark in CATALOGUE}
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--only", nargs="+", action="extend", choices=known, metavar="NAME", help="these alone")
    parser.add_argument("--list", action="store_true", help="say what there is, and how long it takes")
    parser.add_argument("--repeats", type=int, help="rounds of each benchmark, in place of its own default")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder for the results; elsewhere: without the page")
    arguments = parser.parse_args()
    if arguments.repeats is not None and arguments.repeats < 1:
        parser.error("--repeats: expected at least 1")
    chosen = arguments.only or [benchmark.name for benchmark in CATALOGUE if benchmark.runs_unasked]
    if arguments.list:
        for benchmark in CATALOGUE:
            asked = "" if benchmark.runs_unasked else "   (with --only)"
            print(f"{benchmark.name:20} {benchmark.minutes:3g} min   {benchmark.question}{asked}")
        return 0
    failed = [name for name in chosen if not _run(name, arguments.repeats, arguments.out)]
    if failed:
        print(f"not measured: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


def _run(name: str, repeats: int | None, out: Path) -> bool:
    """Whether there is a result."""
    (benchmark,) = (benchmark for benchmark in CATALOGUE if benchmark.name == name)
    print(f"{name} ...", flush=True)
    try:
        with tempfile.TemporaryDirectory(prefix="airflow-recovery-benchmark-", ignore_cleanup_errors=True) as folder:
            for record in recorded(benchmark.measure(Path(folder) / name, repeats)):
                path = record.write(out)
                if out == RESULTS:
                    write_page()
    except Exception:
        traceback.print_exc()
        return False
    print(f"{record.report.text()}\n  ({record.seconds:.0f} s, written to {path})", flush=True)
    return True


if __name__ == "__main__":
    sys.exit(main())
