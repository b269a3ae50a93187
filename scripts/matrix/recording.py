"""A plugin of pytest that keeps what the test of a cell said, as soon as it has ended; `scripts.matrix` loads it."""

from __future__ import annotations

import pytest

from scripts.matrix.cells import cells
from scripts.matrix.page import write_page
from scripts.matrix.record import record_of


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Called for a test's set-up, call and teardown: each may fail, the call alone can pass. A skip says nothing."""
    if report.failed or (report.when == "call" and report.passed):
        for cell in cells():
            if cell.test == report.nodeid:
                record_of(cell, passed=report.passed).write()
                write_page()
