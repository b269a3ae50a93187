"""How a driver learns that its attempt was fenced, long before it wants to finish.

A later try fences an attempt that it takes for dead. A driver that is not dead would use the cluster for hours, for a
result that nobody registers. So it looks with each heartbeat that it gives (`airflow_recovery.driver.heartbeat`), and
stops Spark. Correctness does not depend on it: the finish of a fenced attempt is refused whenever it comes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from airflow_recovery.journal.journal import Journal
from airflow_recovery.model.records import AttemptState


@dataclass(frozen=True)
class FenceWatch:
    """``is_fenced`` asks, ``stop`` ends the attempt's work. Both are called in the heartbeat's thread.

    ``stop`` is called again as long as the work goes on: a vertex may have caught what it was stopped with.
    """

    is_fenced: Callable[[], bool]
    stop: Callable[[], object]


def is_fenced(journal: Journal, region: str, attempt: int) -> bool:
    """Whether the attempt was ended without a finish. One LIST; and a GET once it has an outcome."""
    if not journal.has_outcome(region, attempt):
        return False
    outcome = journal.read_outcome(region, attempt)
    return outcome is not None and outcome.state is AttemptState.FENCED
