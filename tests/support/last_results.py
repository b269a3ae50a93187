"""A part of the test run: how each test of a fault ended last, kept in pytest's own cache for `scripts.faults`."""

from __future__ import annotations

import subprocess
from datetime import datetime, timezone
from pathlib import Path

import pytest

from scripts.faults import LAST_RESULTS, OUTCOMES, PAGE, REAL, faults


class LastResults:
    """Of the controller, where tests run in several processes: it hears of all of them."""

    def __init__(self, config: pytest.Config) -> None:
        self._cache: pytest.Cache | None = getattr(config, "cache", None)  # may be switched off
        self._tests = {test for fault in faults(PAGE.read_text(encoding="utf-8")) for test in fault.tests}
        self._said: dict[str, dict[str, str]] = {}
        self._marks: dict[str, list[str]] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """A test's set-up, call and teardown: the worst of them counts; without a call nothing has passed."""
        test, _, parameters = report.nodeid.partition("[")
        if test not in self._tests or report.outcome not in OUTCOMES or (report.when != "call" and report.passed):
            return
        said = self._said.setdefault(test, {})
        said[parameters] = max(said.get(parameters, "passed"), report.outcome, key=OUTCOMES.index)
        self._marks[test] = [mark for mark in REAL if mark in report.keywords]

    def pytest_sessionfinish(self) -> None:
        """Adds them to what earlier runs have said. A run of one parameter leaves what others have said."""
        if self._cache is None or not self._said:
            return
        day, commit = datetime.now(timezone.utc).date().isoformat(), _commit()
        known = self._cache.get(LAST_RESULTS, {})
        for test, said in self._said.items():
            before = known.get(test, {"said": {}})["said"]
            new = {parameters: [outcome, day, commit] for parameters, outcome in said.items()}
            known[test] = {"marks": self._marks[test], "said": {**before, **new}}
        self._cache.set(LAST_RESULTS, known)


def _commit() -> str:
    command = ["git", "describe", "--always", "--dirty=+", "--exclude=*"]
    done = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "no commit"
