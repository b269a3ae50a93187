"""What a schedule is about, and what it came to."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from airflow_recovery.model.retention import Retention
from airflow_recovery.testing.simulation.jobs import (
    RANDOM,
    SimulatedJob,
    drawn_job,
    with_drawn_externals,
    with_drawn_folders,
    with_drawn_rows,
    with_drawn_shared,
    with_drawn_sinks,
    with_drawn_splits,
    with_drawn_tables,
    with_drawn_unseen,
)


class Violation(AssertionError):
    """A promise was broken. The message has the seed, what was broken, and the steps that led there."""


class Trouble(str, Enum):
    """The kinds. Each happens as often as a schedule says."""

    KILL = "kill -9 of a process"
    KILL_TASK = "kill -9 of a task's process, whose driver may live on"
    SIGTERM = "SIGTERM to a process"
    HEARTBEAT = "Airflow gives up on a task that lives"
    PAUSE = "a process is frozen for long"
    CLEAR = "a user clears a task, perhaps with all below it"
    CLEAR_ALL = "a user clears the whole run"
    RESTART = "a user restarts a region"
    MARK = "a user marks a task"
    DELETE = "an outsider deletes results"
    ALTER = "an outsider overwrites results"
    SWEEP = "the sweeper goes through the run"
    PURGE = "the run is purged, and made again under the same key"
    DATABASE = "the metadata database is lost"
    DEPLOY = "new code is deployed and the run cleared"
    RECOMPUTE = "the run is cleared in recompute mode"
    LISTING = "external inputs come, go or change, and the run is cleared"
    JUMP = "the clocks of all machines jump"
    STORE_JUMP = "the clock of a store jumps"
    RETURN = "the run is purged, and comes back meanwhile"
    RESIZE = "regions are added or removed, and the run is cleared"
    REFUSE = "a sink refuses for good what some code makes"
    NEIGHBOUR = "a run of another date is at work, with which results are shared"
    TWIN = "another run of the same key is at work"
    EXPIRE = "a maintenance job has snapshots of a table expire"
    TABLE = "somebody commits to a table, rolls it back, or forces its branch elsewhere"
    VERSION = "a version of this package to come is deployed, or rolled back to this one"
    EMPTY = "somebody empties or overwrites the target of a sink, and the run is cleared"
    DEPLOYMENT = "another deployment, with a journal of its own, is given the same place of results"


PURGES = frozenset({Trouble.PURGE, Trouble.RETURN, Trouble.STORE_JUMP})
"""With these, what the journal knows of a run may go."""
RELEASES = (Retention.as_consumed(), Retention.on_run_success())
"""What tasks let go of at once where a job is declared so."""
DRASTIC = frozenset(
    {
        Trouble.PURGE,
        Trouble.RETURN,
        Trouble.DATABASE,
        Trouble.DEPLOY,
        Trouble.RECOMPUTE,
        Trouble.MARK,
        Trouble.CLEAR_ALL,
    }
)
"""After these nearly everything begins again: drawn less often."""


def drawn_troubles(rng: random.Random) -> dict[Trouble, int]:
    """One to five troubles of up to three kinds. One that can't happen to a job does not."""
    weights = [1 if trouble in DRASTIC else 3 for trouble in Trouble]
    kinds = rng.choices(list(Trouble), weights, k=rng.randint(1, 3))
    troubles: dict[Trouble, int] = dict.fromkeys(kinds, 1)
    for _ in range(rng.randint(0, 2)):
        troubles[rng.choice(kinds)] += 1
    return troubles


@dataclass(frozen=True)
class Settings:
    """What a schedule is about. The seed decides everything else.

    ``troubles``: how often each `Trouble` happens.
    Without ``publishes`` the job has no publish task, which would find and repair much of what the regions get wrong.
    ``max_attempts``: a region that is claimed more often is waste. ``page_keys``: a listing is a request a page, and
    others may write between two. ``store_faults``: so many requests to the journal go wrong.
    ``kills``: the numbers of the steps at which whoever was at work dies, to go through them one by one.
    ``trouble``: the probability that an application fails or that its status lies. ``detached_share``: of so many the
    driver outlives its task, and is waited for until it has given no heartbeat for ``heartbeat_timeout_s``.
    ``clocks_differ_s``: the clock of each process is wrong by up to so much; nobody's own runs backwards.
    ``is_patient``: an application that is submitted beside a driver that gives signs of life is a violation.
    ``releases``: what tasks let go of at once, without a sweeper. ``has_event_files``: tries write their streams.
    """

    job: SimulatedJob
    troubles: Mapping[Any, int] = field(default_factory=dict)
    kills: frozenset[int] = frozenset()
    max_attempts: Mapping[str, int] = field(default_factory=dict)
    publishes: bool = True
    page_keys: int | None = None
    store_faults: int = 0
    trouble: float = 0.0
    heartbeat_timeout_s: float = 10.0
    detached_share: float = 0.3
    clocks_differ_s: float = 0.0
    releases: Retention | None = None
    has_event_files: bool = False
    is_patient: bool = False
    compares: bool = True
    is_conditional: bool = True

    @classmethod
    def drawn(cls, seed: int, topology: str = RANDOM, job: SimulatedJob | None = None) -> Settings:
        """Everything by ``seed``: of a job of that topology, or of the given one."""
        rng = random.Random(f"settings {seed}")
        chosen = drawn_job(topology, rng) if job is None else with_drawn_rows(job, rng)
        troubles = drawn_troubles(rng)
        chosen = with_drawn_sinks(chosen, random.Random(f"sinks {seed}"), is_purged=bool(PURGES & troubles.keys()))
        if Trouble.DEPLOYMENT not in troubles:
            chosen = with_drawn_splits(chosen, random.Random(f"splits {seed}"))
        chosen = with_drawn_shared(chosen, random.Random(f"shared {seed}"))
        if Trouble.DEPLOYMENT not in troubles:
            # Of one table two journals count the attempts, and each refuses the other's.
            chosen = with_drawn_tables(chosen, random.Random(f"tables {seed}"))
        if not {Trouble.DELETE, Trouble.ALTER} & troubles.keys():
            # A folder from which an outsider takes a file while it is read is read without that file.
            chosen = with_drawn_folders(chosen, random.Random(f"folders {seed}"))
        chosen = with_drawn_unseen(chosen, random.Random(f"unseen {seed}"))
        return cls(
            job=with_drawn_externals(chosen, random.Random(f"externals {seed}")),
            troubles=troubles,
            publishes=rng.random() < 0.5,
            page_keys=rng.choice([None, None, None, 2, 5]),
            store_faults=rng.choice([0, 0, 4, 10]),
            trouble=rng.choice([0.0, 0.0, 0.1]),
            releases=random.Random(f"releases {seed}").choice([None, None, *RELEASES]),
            has_event_files=random.Random(f"event files {seed}").random() < 0.25,
            clocks_differ_s=random.Random(f"clocks {seed}").choice([0.0, 600.0, 30 * 86_400.0]),
        )

    def text(self) -> str:
        """For people: what the schedule is about."""
        troubles = ", ".join(f"{count} x {kind.value}" for kind, count in self.troubles.items()) or "no trouble"
        releases = self.releases.text() if self.releases is not None else "nothing"
        return (
            f"{self.job.text()}; strategy {self.job.plan.failover_strategy.value}; {troubles}; store faults "
            f"{self.store_faults}, pages of {self.page_keys or 'any number of'} keys, "
            f"{'with' if self.publishes else 'without'} a publish, failures {self.trouble}, clocks wrong by up to "
            f"{self.clocks_differ_s:g} s, released at once: {releases}"
            f"{', with event files' if self.has_event_files else ''}"
        )


@dataclass(frozen=True)
class Report:
    """What a schedule came to. ``ran``: (region, attempt) of every Spark application."""

    seed: int
    steps: int
    tries: int
    ran: tuple[tuple[str, int], ...]
    trace: tuple[str, ...]
