"""More memory for the next attempt after one that ran out of it (fault 74). Optional; spark-submit only.

What it can't do: a Spark Connect server has the memory that it was started with, whatever a session asks for; and a
process that the operating system killed did not say that it was for its memory, so that is not taken for it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from airflow_recovery.checks import check_arguments
from airflow_recovery.driver.failure_class import MEMORY_LABEL, MemoryOf, label_of
from airflow_recovery.errors import ConfigurationError, Failure

SPARKS_DEFAULT = "1g"
_MIB = {"": 1.0, "m": 1.0, "g": 1024.0, "t": 1024.0**2, "k": 1 / 1024}


@dataclass(frozen=True)
class RaiseMemory:
    """After each out-of-memory of the driver or of an executor, that one's memory times ``factor``, up to its cap.

    Sizes are Spark's (``512m``, ``8g``). Without a cap the memory of that side is not raised. Each attempt begins anew
    from the declared size when the region's failures are counted anew. Raises `ConfigurationError`.
    """

    factor: float = 2.0
    max_driver_memory: str | None = None
    max_executor_memory: str | None = None

    def __post_init__(self) -> None:
        check_arguments(RaiseMemory.__init__, vars(self), "RaiseMemory", error=ConfigurationError)
        if not self.factor > 1:
            raise ConfigurationError(f"Expected the factor of RaiseMemory to be above 1, found {self.factor!r}.")
        if self.max_driver_memory is None and self.max_executor_memory is None:
            raise ConfigurationError("Expected RaiseMemory to have max_driver_memory, max_executor_memory or both.")
        for cap in (self.max_driver_memory, self.max_executor_memory):
            if cap is not None:
                mebibytes(cap)

    def raised(
        self, failures: Sequence[Failure], *, driver: str | None, executor: str | None, is_local: bool = False
    ) -> Memory:
        """The memory for the next attempt after ``failures``; ``driver`` and ``executor`` are what is declared.

        ``is_local``: master ``local[...]``, where the executors are threads of the driver.
        """
        sides = [label_of(failure, MEMORY_LABEL) for failure in failures]
        of_driver = sides.count(MemoryOf.DRIVER.value)
        of_executor = sides.count(MemoryOf.EXECUTOR.value)
        if is_local:
            of_driver, of_executor = of_driver + of_executor, 0
        return Memory(
            driver=self._one(driver, self.max_driver_memory, of_driver),
            executor=self._one(executor, self.max_executor_memory, of_executor),
        )

    def _one(self, declared: str | None, cap: str | None, times: int) -> str | None:
        if not times or cap is None:
            return None
        base, most = mebibytes(declared or SPARKS_DEFAULT), mebibytes(cap)
        # A cap below what is declared is no reason to take memory away.
        return f"{int(max(base, min(base * self.factor**times, most)))}m"


@dataclass(frozen=True)
class Memory:
    """Sizes for one attempt; `None`: as declared."""

    driver: str | None
    executor: str | None


def mebibytes(size: str) -> float:
    """Spark's notation of a size in MiB; a number without a unit is MiB. Raises `ConfigurationError`."""
    match = re.fullmatch(r"(\d+)([kmgt]?)b?", size.strip().lower())
    if match is None:
        raise ConfigurationError(f"Expected a size such as 512m or 8g, found {size!r}.")
    return int(match[1]) * _MIB[match[2]]
