"""What a vertex counts beside its rows, as Flink's accumulators: bad lines, calls to another system."""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable

from airflow_recovery.errors import JobDefinitionError

log = logging.getLogger(__name__)

Amount = int | float
MAX_NAMES = 1_000
MAX_NAME_LENGTH = 200
LATER_TIMEOUT_S = 30.0


class Accumulators:
    """Sums by name, of one attempt of one region: ``context.accumulators.add("bad lines", 3)``.

    They are written into the outcome of the attempt that finishes, and into its `ExecutionVertexFinished` event. Those
    of an attempt that fails are lost with it, so that nothing is counted twice. They live in the driver: code that runs
    in executors does not reach them. Count there with Spark, and add what was counted::

        seen = Observation()
        lines = lines.observe(seen, count_if(col("bad")).alias("bad"))
        context.accumulators.add_later("bad lines", lambda: seen.get["bad"])

    Fingerprints don't know of them, and no row may depend on them.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sums: dict[str, Amount] = {}
        self._later: list[tuple[str, Callable[[], Amount]]] = []

    def add(self, name: str, amount: Amount = 1) -> None:
        """Add to the sum of ``name``. Raises `JobDefinitionError` for what is no finite number, or too many names."""
        _check(name, amount)
        with self._lock:
            if name not in self._sums and len(self._sums) >= MAX_NAMES:
                raise JobDefinitionError(
                    f"expected at most {MAX_NAMES} accumulators in a region, found {name!r} too",
                    code="too-many-accumulators",
                )
            self._sums[name] = self._sums.get(name, 0) + amount

    def add_later(self, name: str, amount: Callable[[], Amount]) -> None:
        """Add what ``amount`` returns when the region's results have been written.

        Where it raises, or takes longer than 30 seconds (as `Observation.get` does for a frame that nobody computed),
        it is left out with a warning: the results are good without it.
        """
        _check(name, 0)
        with self._lock:
            self._later.append((name, amount))

    def totals(self) -> tuple[tuple[str, Amount], ...]:
        """(name, sum), ordered by name. Calls what `add_later` was given, once."""
        with self._lock:
            later, self._later = self._later, []
        for name, amount in later:
            self._add_asked(name, amount)
        with self._lock:
            return tuple(sorted(self._sums.items()))

    def _add_asked(self, name: str, amount: Callable[[], Amount]) -> None:
        try:
            self.add(name, _ask(amount))
        except Exception as error:
            log.warning("Accumulator %r is left out: %s: %s", name, type(error).__name__, error)


def _ask(amount: Callable[[], Amount]) -> Amount:
    answers: list[Amount] = []
    failed: list[Exception] = []

    def ask() -> None:
        try:
            answers.append(amount())
        except Exception as error:
            failed.append(error)

    thread = threading.Thread(target=ask, name="accumulator", daemon=True)
    thread.start()
    thread.join(LATER_TIMEOUT_S)
    if failed:
        raise failed[0]
    if not answers:
        raise TimeoutError(f"no answer within {LATER_TIMEOUT_S:.0f} s; is what it counts part of a result?")
    return answers[0]


def _check(name: str, amount: Amount) -> None:
    if not isinstance(name, str) or not 0 < len(name) <= MAX_NAME_LENGTH:
        raise JobDefinitionError(
            f"expected the name of an accumulator, at most {MAX_NAME_LENGTH} characters, found {name!r}"
        )
    if isinstance(amount, bool) or not isinstance(amount, (int, float)) or not math.isfinite(amount):
        raise JobDefinitionError(f"accumulator {name!r}: expected a finite number, found {amount!r}")
