"""The one deadline of waits in tests: it ends a test that hangs, and decides nothing else.

No test depends on how fast the machine is. A wait ends when the awaited state is there, or when a process that must
bring it about has ended. `HANG_S` is for the rest. It is below pytest's own ``timeout`` (``pyproject.toml``), so that
the message shows what the test waited for.
"""

from __future__ import annotations

import time
from collections.abc import Callable

HANG_S = 900.0
"""Seconds after which a wait counts as hung. A machine that is five times slower than usual does not get there."""
NEVER_S = 86_400
"""A limit of another program (Airflow, Spark, PostgreSQL) that no test may reach: seconds, or a number of failures."""


def wait_until(
    is_so: Callable[[], object],
    what: str,
    *,
    describe: Callable[[], str] = lambda: "",
    is_over: Callable[[], object] = lambda: False,
    poll_s: float = 0.05,
) -> None:
    """Poll ``is_so`` until it is true.

    ``what`` names the awaited state. ``is_over``: true if the state can't come any more, say because a process has
    ended. Raises `AssertionError` with ``what`` and ``describe()`` in that case, and after `HANG_S`.
    """
    deadline = time.monotonic() + HANG_S
    while not is_so():
        # The state may have come right before the end.
        if is_over() and not is_so():
            raise AssertionError(f"Expected {what}, but the process that brings it about has ended.\n{describe()}")
        if time.monotonic() > deadline:
            raise AssertionError(f"Expected {what} within {HANG_S:.0f} s.\n{describe()}")
        time.sleep(poll_s)
