"""A plugin of pytest that keeps what the test of a cell said, as soon as it has ended; `scripts.matrix` loads it.

From its begin on the cell says that it has not ended, so that one which takes this process along is no silent one.
"""

from __future__ import annotations

import pytest

from scripts.matrix.cells import cells
from scripts.matrix.page import write_page
from scripts.matrix.record import record_of

WORDS = 300
"""So many characters of a failure, at most, get into the page."""


def pytest_runtest_logstart(nodeid: str) -> None:
    """Called before a test's set-up."""
    _keep(nodeid, passed=None)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Called for a test's set-up, call and teardown: each may fail, the call alone can pass. A skip is a failure."""
    if report.failed or report.skipped:
        _keep(report.nodeid, passed=False, words=_words(report))
    elif report.when == "call":
        _keep(report.nodeid, passed=True)


def _words(report: pytest.TestReport) -> str:
    crash = getattr(report.longrepr, "reprcrash", None)
    said = report.longreprtext if crash is None else str(crash.message)
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    return f"{report.when}: {' '.join(lines)}"[:WORDS]


def _keep(nodeid: str, *, passed: bool | None, words: str = "") -> None:
    for cell in cells():
        if cell.test == nodeid:
            record_of(cell, passed=passed, words=words).write()
            write_page()
