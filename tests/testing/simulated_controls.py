"""How many schedules it takes until a control of the simulation is found.

`PYTHONPATH=tests/testing:tests:. python -m simulated_controls` runs all of them, and prints a row of each.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from simulation import simulate

from airflow_recovery.journal.journal import Journal, Listing
from airflow_recovery.testing.simulation import Settings, Violation

MOST = 1_000
SAFE = 20
"""Of each control's schedules, so many are run with the protection first: that it holds is shown by all the others."""
COUNTED = "SIMULATED_CONTROLS_COUNTED"
"""The variable of the environment that names a file: every control begins at its first seed then, and adds a row."""


def finds(settings: Settings, what: str, most: int = MOST, *, start: int = 0) -> None:
    """One of the schedules shows ``what``; ``start`` is a seed near one that does, where such schedules are rare."""
    counted = os.environ.get(COUNTED)
    start = 0 if counted else start
    for seed in range(start, start + most):
        found = violation_of(seed, settings)
        if found is not None:
            assert what in found.splitlines()[0], found
            if counted:
                test = os.environ["PYTEST_CURRENT_TEST"].rpartition(" ")[0].partition("::")[2]
                with Path(counted).open("a") as rows:
                    rows.write(f"| {test} | {seed - start + 1} |\n")
            return
    raise AssertionError(f"none of {most} schedules shows: {what}")


def as_if_new(journal: Journal, regions: Iterable[str]) -> Listing:
    """A listing without the tombstones of a purge."""
    found = journal.list(regions)
    states = {name: replace(each, closed_at=0) for name, each in found.state.regions.items()}
    return Listing(replace(found.state, regions=states), found.objects)


def violation_of(seed: int, settings: Settings) -> str | None:
    """What is wrong in one schedule."""
    try:
        simulate(seed, settings)
    except Violation as violation:
        return str(violation)
    return None


def main() -> int:
    """Run every control, and print how many schedules each took."""
    tests = map(str, sorted(Path(__file__).parent.glob("test_simul*.py")))
    with TemporaryDirectory() as folder:
        rows = Path(folder) / "rows"
        rows.touch()
        pytest = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests]
        code = subprocess.run(pytest, env={**os.environ, COUNTED: str(rows)}, check=False).returncode
        print(rows.read_text())
    return code


if __name__ == "__main__":
    sys.exit(main())
