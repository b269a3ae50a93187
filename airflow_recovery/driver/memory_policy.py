"""More memory for the next attempt after one that ran out of it (fault 74). Optional; spark-submit only.

What it can't do: a Spark Connect server has the memory that it was started with, whatever a session asks for. And a
process that the operating system killed reports no reason, so such a failure is not taken for out of memory.
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
    """Multiplies the memory of the driver, or of executors, by ``factor`` after each time that it was too small.

    Each side is raised up to its cap; without a cap it is not raised. Sizes are Spark's (``512m``, ``8g``). When the
    count of the region's failures begins again at 0, so does the memory at its declared size. Raises
    `ConfigurationError`.
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
            driver=self._raised(driver, self.max_driver_memory, of_driver),
            executor=self._raised(executor, self.max_executor_memory, of_executor),
        )

    def _raised(self, declared: str | None, cap: str | None, times: int) -> str | None:
        if not times or cap is None:
            return None
        base, most = mebibytes(declared or SPARKS_DEFAULT), mebibytes(cap)
        # A cap below what is declared is no reason to take memory away.
        return f"{int(max(base, min(base * self.factor**times, most)))}m"


@dataclass(frozen=True)
class Memory:
    """The memory of one attempt's driver and of each executor, such as ``2048m``; `None`: as declared."""

    driver: str | None
    executor: str | None


def mebibytes(size: str) -> float:
    """Spark's notation of a size in MiB; a number without a unit is MiB. Raises `ConfigurationError`."""
    match = re.fullmatch(r"(\d+)([kmgt]?)b?", size.strip().lower())
    if match is None:
        raise ConfigurationError(f"Expected a size such as 512m or 8g, found {size!r}.")
    return int(match[1]) * _MIB[match[2]]
