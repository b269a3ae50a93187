"""Which tests `make test` runs, and which run in `make test-all` only. The rule is in docs/testing.md."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import Any

import pytest
from cloud_servers import CLOUD_SERVERS

OF_REAL_PROCESSES = ("airflow", "browser", "spark")
"""A test with one of these markers starts large programs. It belongs to `make test` only if it is marked `smoke`."""
SERVER_PARAMETERS = ("store", "s3_server")
CONTROL = "control"


def is_fast(item: pytest.Item, servers: Sequence[str]) -> bool:
    """Return whether `make test` runs ``item``. If a test runs on several S3 ``servers``, only its last run does."""
    if any(map(item.get_closest_marker, ("drill", "slow"))):
        return False
    if {"cloud_server", "azurite"}.intersection(getattr(item, "fixturenames", ())):
        return False
    parameters = item.callspec.params if hasattr(item, "callspec") else {}
    server = next((parameters[name] for name in SERVER_PARAMETERS if name in parameters), None)
    if server in (*CLOUD_SERVERS, *servers[:-1]):
        return False
    if any(map(item.get_closest_marker, OF_REAL_PROCESSES)):
        return item.get_closest_marker("smoke") is not None
    return True


def mark_controls(items: Iterable[pytest.Item]) -> None:
    """Mark the tests with the word `control` in their names. Each switches a protection off, and expects the damage."""
    for item in items:
        if CONTROL in item.name.partition("[")[0].split("_"):
            item.add_marker(CONTROL)


class Until:
    """Starts no test after a moment, and counts at the end, by file, the tests that did not run.

    With pytest-xdist, each worker has an `Until`, and the controller has another one.
    """

    def __init__(self, config: pytest.Config, moment: float) -> None:
        self._config = config
        self._moment = moment
        self._not_run: list[str] = []

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> bool | None:
        if time.time() < self._moment:
            return None
        self._not_run.append(item.nodeid)
        return True

    def pytest_sessionfinish(self) -> None:
        if hasattr(self._config, "workeroutput"):
            self._config.workeroutput["not_run"] = self._not_run

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        self._not_run += getattr(node, "workeroutput", {}).get("not_run", [])

    @pytest.hookimpl(trylast=True)
    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self._not_run:
            terminalreporter.section(f"no time was left for {len(self._not_run)} tests")
            files = sorted({nodeid.partition("::")[0] for nodeid in self._not_run})
            for file in files:
                tests = [nodeid for nodeid in self._not_run if nodeid.startswith(f"{file}::")]
                terminalreporter.write_line(f"NOT RUN {tests[0] if len(tests) == 1 else f'{file}: {len(tests)} tests'}")
