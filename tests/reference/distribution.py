"""How the partitions of one result reach the subtasks of one consumer: Flink's wiring, in ranges instead of lists.

Everything a job edge can be is one of two patterns, and both keep neighbours together. So what a *range* of subtasks
reads, and what a *range* of partitions feeds, is again one range, found by arithmetic however many there are.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from itertools import product

from reference.logical import DistributionPattern

ALL_TO_ALL = DistributionPattern.ALL_TO_ALL  # a member costs a look-up in its class each time, here a hundred thousand


@dataclass(frozen=True)
class Wiring:
    """``producers`` partitions read by ``consumers`` subtasks, as groups numbered from 0.

    A *group* is a range of partitions together with the range of consumers that read exactly these: consumers that
    read the same partitions share one group, so an all-to-all edge is one group, not n times m links. Pointwise there
    are as many groups as there are subtasks on the narrower side:

        2 to 3      0 --> 0, 1         3 to 2      0     --> 0
                    1 --> 2                        1, 2  --> 1

    Arguments and answers are ranges of numbers within this edge; an empty range has an empty answer.
    """

    pattern: DistributionPattern
    producers: int
    consumers: int

    @property
    def groups(self) -> int:
        """How many groups there are."""
        return 1 if self.pattern is ALL_TO_ALL else min(self.producers, self.consumers)

    def partitions_in(self, groups: range) -> range:
        """The partitions of these groups."""
        if self.pattern is ALL_TO_ALL:
            return range(self.producers) if groups else range(0)
        if self.producers < self.consumers:
            return groups
        return range(groups.start * self.producers // self.consumers, groups.stop * self.producers // self.consumers)

    def consumers_of(self, groups: range) -> range:
        """The consumers that read these groups."""
        if self.pattern is ALL_TO_ALL:
            return range(self.consumers) if groups else range(0)
        if self.producers >= self.consumers:
            return groups
        # -(-a // b) is a / b, rounded up
        return range(
            -(-groups.start * self.consumers // self.producers), -(-groups.stop * self.consumers // self.producers)
        )

    def groups_read_by(self, consumers: range) -> range:
        """The groups that these consumers read; each reads exactly one."""
        if not consumers:
            return range(0)
        if self.pattern is ALL_TO_ALL:
            return range(1)
        if self.producers >= self.consumers:
            return consumers
        return range(
            consumers.start * self.producers // self.consumers,
            (consumers.stop - 1) * self.producers // self.consumers + 1,
        )

    def groups_holding(self, partitions: range) -> range:
        """The groups that these partitions are in; each is in exactly one."""
        if not partitions:
            return range(0)
        if self.pattern is ALL_TO_ALL:
            return range(1)
        if self.producers < self.consumers:
            return partitions
        return range(
            ((partitions.start + 1) * self.consumers - 1) // self.producers,
            (partitions.stop * self.consumers - 1) // self.producers + 1,
        )

    def links(self) -> Iterable[tuple[int, int]]:
        """Every ``(partition, consumer)``: as many as the wider side has pointwise, the product of both all-to-all."""
        if self.pattern is ALL_TO_ALL:
            return product(range(self.producers), range(self.consumers))
        if self.producers >= self.consumers:
            return ((number, ((number + 1) * self.consumers - 1) // self.producers) for number in range(self.producers))
        return ((number * self.producers // self.consumers, number) for number in range(self.consumers))


@lru_cache(maxsize=1024)
def wiring(pattern: DistributionPattern, producers: int, consumers: int) -> Wiring:
    """The `Wiring` of these three; edges that are alike share one."""
    return Wiring(pattern, producers, consumers)
