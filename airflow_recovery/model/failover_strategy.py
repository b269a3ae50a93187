"""How much a failure restarts: what a user declares on a job, or on its task group (FLIP-1)."""

from __future__ import annotations

from enum import Enum
from typing import Literal

from airflow_recovery.errors import JobDefinitionError


class FailoverStrategy(str, Enum):
    """Which regions restart with a failed one."""

    REGION = "region"
    """Its region, what that region needs, and what reads it."""

    FULL = "full"
    """Everything that has started."""

    INDIVIDUAL = "individual"
    """Its region and what that region needs, but no reader. Every result that another region reads must be declared
    ``deterministic="assume"``, so that its readers may keep rows of a superseded attempt."""

    APPROXIMATE_SINK = "approximate-sink"
    """FLIP-135, milestone one: a streaming region that feeds no channel restarts alone; another one starts over,
    with all that channels connect with it."""

    APPROXIMATE_DOWNSTREAM = "approximate-downstream"
    """Milestone two: a streaming region restarts, and those behind it."""

    APPROXIMATE_SINGLE = "approximate-single"
    """Milestone three: a streaming region restarts alone. What a job with channels does where nothing is said."""


class RecoveryMode(str, Enum):
    """FLIP-1, phase 1: is a failure an affair of the task, or of the whole job?"""

    TASK_LEVEL = "TASK_LEVEL"
    """The failover strategy says what restarts."""

    JOB_LEVEL = "JOB_LEVEL"
    """Every failure restarts the job, whatever the strategy says."""


FailoverStrategyLike = (
    FailoverStrategy
    | Literal["region", "full", "individual", "approximate-sink", "approximate-downstream", "approximate-single"]
)
RecoveryModeLike = RecoveryMode | Literal["TASK_LEVEL", "JOB_LEVEL"]
"""How a user may write them."""


def declared_strategy(
    strategy: FailoverStrategyLike | None, mode: RecoveryModeLike | None, where: str
) -> FailoverStrategy | None:
    """The strategy in effect; `None` where neither is declared. Raises `JobDefinitionError` for unknown ones."""
    try:
        asked = None if strategy is None else FailoverStrategy(strategy)
        level = None if mode is None else RecoveryMode(mode)
    except ValueError:
        raise JobDefinitionError(
            f"{where}: expected failover_strategy= as one of "
            f"{', '.join(strategy.value for strategy in FailoverStrategy)} and recovery_mode= as one of "
            f"{', '.join(RecoveryMode.__members__)}, found {strategy!r} and {mode!r}",
            code="failover-strategy-unknown",
        ) from None
    if level is RecoveryMode.JOB_LEVEL:
        return FailoverStrategy.FULL
    if level is RecoveryMode.TASK_LEVEL and asked is None:
        return FailoverStrategy.REGION
    return asked
