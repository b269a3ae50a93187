"""What a schedule is of: streaming regions, channels, what goes wrong and when."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from airflow_recovery.model.channel_options import UNLIMITED, LossBudget, Overflow, Reconnect
from airflow_recovery.model.failover_strategy import FailoverStrategy

STRATEGIES = [
    FailoverStrategy.APPROXIMATE_SINK,
    FailoverStrategy.APPROXIMATE_DOWNSTREAM,
    FailoverStrategy.APPROXIMATE_SINGLE,
]


class Violation(AssertionError):
    """A promise was broken. The message says which, in which schedule, and what had happened."""


class Fault(str, Enum):
    """What happens to the process that makes the request of a step."""

    KILL = "killed after its request"
    KILL_FLYING = "killed, its request lands later"
    FREEZE = "frozen before its request, wakes later"
    LOSE_REPLY = "its reply is lost"
    LOSE_REQUEST = "no reply, its request lands later"
    STRAY = "frozen, its record lands at the tail unchecked"
    WAKE = "the frozen ones wake, and go on until they are refused or have nothing to do"


@dataclass(frozen=True)
class Settings:
    """``regions``: 2 is source and sink, each further one a scorer between. ``faults`` by step, from 0."""

    regions: int = 3
    subpartitions: int = 2
    batches: int = 3
    batch_records: int = 4
    max_records: int = 3
    strategy: FailoverStrategy = FailoverStrategy.APPROXIMATE_SINGLE
    reconnect: Reconnect = Reconnect.REWIND
    overflow: Overflow = Overflow.BLOCK
    max_bytes: int = 6
    budget: LossBudget = UNLIMITED
    replays: bool = True
    faults: Mapping[int, Fault] = field(default_factory=dict)

    @classmethod
    def drawn(cls, seed: int) -> Settings:
        """One of everything, at random, with a fault at about every thirtieth step."""
        rng = random.Random(seed)
        steps = sorted(rng.sample(range(400), rng.randint(1, 12)))
        return cls(
            regions=rng.choice([2, 3, 3, 4]),
            subpartitions=rng.randint(1, 3),
            batches=rng.randint(1, 4),
            max_records=rng.randint(1, 6),
            strategy=rng.choice(STRATEGIES),
            reconnect=rng.choice(list(Reconnect)),
            overflow=rng.choice(list(Overflow)),
            max_bytes=rng.randint(1, 12),
            budget=rng.choice([UNLIMITED, UNLIMITED, LossBudget(max_lost_records=rng.randint(0, 6))]),
            replays=rng.random() < 0.8,
            faults={step: rng.choice(list(Fault)) for step in steps},
        )

    def text(self) -> str:
        """One line."""
        faults = ", ".join(f"{step}: {fault.name}" for step, fault in sorted(self.faults.items()))
        return (
            f"{self.regions} regions, {self.subpartitions} subpartitions, {self.batches} batches, credit "
            f"{self.max_records}, {self.strategy.value}, {self.reconnect.value}, {self.overflow.value} at "
            f"{self.max_bytes}, {self.budget}, replays {self.replays}, faults {{{faults}}}"
        )
