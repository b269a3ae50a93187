"""What doctor's checks have found, for its tests."""

from __future__ import annotations

from collections.abc import Iterable

from airflow_recovery.doctor.result import CheckResult, Status


def wrongs(results: Iterable[CheckResult]) -> dict[str, CheckResult]:
    """Those that are, by check. Each says what was expected, what was found, and what to do."""
    found = {result.check: result for result in results if result.status is Status.WRONG}
    for each in found.values():
        assert each.expected, each
        assert each.found, each
        assert each.next_step, each
    return found
