"""Result types: each value answers whether it glues a region and whether it can be read again (FLIP-1, DESIGN 4)."""

from __future__ import annotations

from enum import Enum


class ResultType(str, Enum):
    """The type of an intermediate result. Two members today; the pure layer asks the questions, not the names."""

    PIPELINED = "PIPELINED"
    """A lazy DataFrame inside one Spark application: producer and consumers form one region."""

    BLOCKING = "BLOCKING"
    """Written, registered in the journal and read again: recovery never goes back past it while it is registered."""

    @property
    def must_run_together(self) -> bool:
        """Producer and consumer are one unit of restart."""
        return self is ResultType.PIPELINED

    @property
    def re_consumable(self) -> bool:
        """A later attempt of a consumer can read the result of an earlier attempt of the producer."""
        return self is ResultType.BLOCKING


PIPELINED = ResultType.PIPELINED
BLOCKING = ResultType.BLOCKING
