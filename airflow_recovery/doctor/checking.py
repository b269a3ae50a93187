"""Running checks one after the other: none stops the others, and none is waited for without end."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from airflow_recovery.doctor.result import CheckResult, wrong
from airflow_recovery.errors import RecoveryError

TIMEOUT_S = 20.0
CHECK_THREAD = "doctor: "
"""The names of the checks' threads begin with this."""
STOPPING_S = 15.0
"""How long a check that was stopped may still clean up."""


@dataclass(frozen=True)
class Check:
    """One check. ``results`` is called in a thread of its own. ``timeout_s``: in place of the general one.

    ``stop`` is called, from another thread, when the check has run out of time.
    """

    name: str
    results: Callable[[], Iterable[CheckResult]]
    timeout_s: float | None = None
    stop: Callable[[], None] | None = None


def run_checks(checks: Iterable[Check], timeout_s: float = TIMEOUT_S) -> Iterator[CheckResult]:
    """The results of all, as they come. Whatever a check raises is a result as well.

    A check that has no answer in time is left behind in its thread, which is no reason for the process to wait.
    """
    for check in checks:
        yield from _run(check, check.timeout_s or timeout_s)


def _run(check: Check, timeout_s: float) -> Iterator[CheckResult]:
    results: queue.SimpleQueue[CheckResult | None] = queue.SimpleQueue()

    def run() -> None:
        try:
            for result in check.results():
                results.put(result)
        except Exception as error:
            found = error if isinstance(error, RecoveryError) else f"{type(error).__name__}: {error}"
            next_step = "What the message asks for comes first; then call this again."
            results.put(wrong(check.name, expected="no error", found=found, next_step=next_step))
        finally:
            results.put(None)

    thread = threading.Thread(target=run, name=f"{CHECK_THREAD}{check.name}", daemon=True)
    thread.start()
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            result = results.get(timeout=max(deadline - time.monotonic(), 0.0))
        except queue.Empty:
            break
        if result is None:
            return
        yield result
    if check.stop is not None:
        check.stop()
        thread.join(STOPPING_S)
    yield wrong(
        check.name,
        expected=f"an answer within {timeout_s:g} s",
        found="none",
        next_step="Look whether what is asked is up, and can be reached from this machine; --timeout gives it longer.",
    )
