"""The wall time and the CPU time of each test, for set-up, call and tear-down.

    pytest --costs build/costs ...          writes build/costs/WORKER.jsonl, a line for each phase of each test
    python tests/support/costs.py build/costs

The second command prints the totals by phase, kind, folder, file and test, and of each the 60 largest.

A test's CPU time includes all processes that the test has started: as root on Linux with control groups of
version 1, each worker runs in a group of its own. Elsewhere only processes that have ended count. A part that tests
share (an Airflow, a Spark) uses processors all the time, so its time falls on the tests that run meanwhile.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

KINDS = ("drill", "browser", "airflow", "spark", "postgres", "s3")
"""The markers of real parts, the most expensive first. A test without any of them is pure."""
CPU_GROUPS = Path("/sys/fs/cgroup/cpuacct")


class Costs:
    """The plugin of one worker of pytest-xdist, or of the only process."""

    def __init__(self, folder: Path, worker: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._lines = (folder / f"{worker}.jsonl").open("w", buffering=1)
        self._cpu = processor_clock(f"tests-{os.getpid()}")

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Generator[None, object, object]:
        with self._measured(item, "setup"):
            return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, object, object]:
        with self._measured(item, "call"):
            return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> Generator[None, object, object]:
        with self._measured(item, "teardown"):
            return (yield)

    @contextmanager
    def _measured(self, item: pytest.Item, phase: str) -> Iterator[None]:
        wall, cpu = time.perf_counter(), self._cpu()
        try:
            yield
        finally:
            kind = next((kind for kind in KINDS if item.get_closest_marker(kind)), "pure")
            seconds = {"wall": round(time.perf_counter() - wall, 4), "cpu": round(self._cpu() - cpu, 4)}
            line = {"test": item.nodeid, "kind": kind, "phase": phase, **seconds}
            self._lines.write(json.dumps(line) + "\n")


def processor_clock(group: str) -> Callable[[], float]:
    """Return a function that returns the CPU time, in seconds, of this process and of all that it has started."""
    folder = CPU_GROUPS / group
    try:
        folder.mkdir()
        (folder / "cgroup.procs").write_text(str(os.getpid()))
    except OSError:  # not root, not this kind of control groups, or a group of this name is left
        return lambda: sum(
            usage.ru_utime + usage.ru_stime
            for usage in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
        )
    return lambda: int((folder / "cpuacct.usage").read_text()) / 1e9


def report(folder: Path) -> Iterator[str]:
    """Yield the lines of the report on the measurements in ``folder``."""
    lines = [json.loads(line) for file in sorted(folder.glob("*.jsonl")) for line in file.read_text().splitlines()]
    groupings: dict[str, Callable[[dict[str, str]], str]] = {
        "phase": lambda line: line["phase"],
        "kind": lambda line: line["kind"],
        "folder": lambda line: "/".join(line["test"].split("::")[0].split("/")[:2]),
        "file": lambda line: line["test"].split("::")[0],
        "test": lambda line: line["test"],
    }
    for name, key in groupings.items():
        wall: Counter[str] = Counter()
        cpu: Counter[str] = Counter()
        tests: dict[str, set[str]] = {}
        for line in lines:
            wall[key(line)] += line["wall"]
            cpu[key(line)] += line["cpu"]
            tests.setdefault(key(line), set()).add(line["test"])
        yield f"| {name} | tests | CPU time, s | wall time, s |\n| --- | ---: | ---: | ---: |"
        for group, seconds in cpu.most_common(60):
            yield f"| {group} | {len(tests[group])} | {seconds:.1f} | {wall[group]:.1f} |"
        yield f"| all | {len({line['test'] for line in lines})} | {cpu.total():.1f} | {wall.total():.1f} |\n"


if __name__ == "__main__":
    print("\n".join(report(Path(sys.argv[1]))))
