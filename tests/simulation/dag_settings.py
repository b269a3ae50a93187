"""What a schedule of a job in its DAG is about."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING, Any

from airflow_recovery.model.committing import Replaces
from airflow_recovery.testing.simulation.jobs import RANDOM, drawn_job
from airflow_recovery.testing.simulation.settings import Settings, Trouble
from simulation.dag_job import (
    DagJob,
    drawn_decided_job,
    with_drawn_arguments,
    with_drawn_declarations,
    with_table,
)

if TYPE_CHECKING:
    from typing_extensions import Self


class DagTrouble(str, Enum):
    """What happens to a job in its DAG, besides every `Trouble`. The last two are never drawn."""

    BREAK = "code that always fails is deployed, or the first code again, and the run cleared"
    SKIP = "a task skips itself from now on: by its code, or because its input is empty; and the run is cleared"
    BRANCH = "a branch decides otherwise, and is cleared with the run, or with all below it"
    HAND = "a user marks a task, and it stays so"
    ALONE = "the DAG's file declares a task otherwise, and a task below it is cleared alone"
    PARAM = "a param of the run changes, and a task or the run is cleared"
    AGAIN = "the run is deleted, and made again: by a backfill, or triggered"
    READER = "a sensor of another DAG waits for a published result"
    WITHDRAW = "a person withdraws a published result, or gives it back"
    OTHER_DAG = "another DAG commits to the same table, or Airflow loses it"
    RENAME = "a task that commits to the table gets another name, or its old one, and the run is cleared"
    BACKUP = "the journal is backed up; the next time, it comes back from that backup"
    FORGE = "somebody overwrites the cache of outcomes, so that all of them are of today's code"


DECISIONS = frozenset({DagTrouble.BREAK, DagTrouble.SKIP, DagTrouble.BRANCH, DagTrouble.HAND})
"""Drawn for jobs that are decided (`DagSettings.decided`)."""
OF_RUNS = frozenset({DagTrouble.PARAM, DagTrouble.AGAIN})
"""Drawn for them as well: their arguments are rendered in the run."""
OF_DECLARATIONS = frozenset({DagTrouble.ALONE})
"""Drawn for some of them: in other runs whoever has new code is cleared."""
OF_READERS = frozenset({DagTrouble.READER, DagTrouble.WITHDRAW})
"""Of runs that publish."""
OF_A_TABLE = frozenset({DagTrouble.OTHER_DAG, DagTrouble.RENAME})
"""Drawn for jobs that commit to the table of all runs (`DagSettings.sharing_a_table`)."""
BESIDE_A_TABLE = (
    Trouble.NEIGHBOUR,
    Trouble.NEIGHBOUR,
    Trouble.DEPLOY,
    Trouble.CLEAR,
    Trouble.RESTART,
    Trouble.DATABASE,
    Trouble.DELETE,
    Trouble.KILL,
    Trouble.HEARTBEAT,
    Trouble.PAUSE,
)
BESIDE_DECISIONS = (
    Trouble.DEPLOY,
    Trouble.CLEAR_ALL,
    Trouble.CLEAR,
    Trouble.RESTART,
    Trouble.LISTING,
    Trouble.DATABASE,
    Trouble.DELETE,
    Trouble.SWEEP,
    Trouble.KILL,
    Trouble.HEARTBEAT,
    Trouble.PAUSE,
)
"""What else may happen to a job that is decided."""


@dataclass(frozen=True)
class DagSettings(Settings):
    """What a schedule is about. ``troubles`` has those of `DagTrouble`, too."""

    job: DagJob

    @classmethod
    def decided(cls, seed: int, topology: str = RANDOM) -> Self:
        """Everything by ``seed``, of a job in whose runs branches, rules, people and code decide who succeeds."""
        rng = random.Random(f"decided {seed}")
        job = with_drawn_arguments(drawn_decided_job(topology, rng), rng)
        kinds: list[Any] = rng.choices(sorted(DECISIONS | OF_RUNS), k=rng.randint(1, 3))
        kinds += rng.sample(BESIDE_DECISIONS, rng.randint(0, 2))
        kinds += rng.choices(sorted(OF_READERS), k=rng.randint(0, 2))
        of_declarations = random.Random(f"declarations {seed}")
        if of_declarations.random() < 0.3:
            job = with_drawn_declarations(job, of_declarations)
            kinds += [DagTrouble.ALONE] * of_declarations.randint(1, 2)
        return cls(
            job=job,
            troubles={kind: kinds.count(kind) for kind in kinds},
            publishes=rng.random() < 0.7,
            page_keys=rng.choice([None, None, None, 2, 5]),
            store_faults=rng.choice([0, 0, 0, 4]),
            detached_share=rng.choice([0.0, 0.3]),
        )

    @classmethod
    def sharing_a_table(cls, seed: int, topology: str = RANDOM) -> Self:
        """Everything by ``seed``: several dates and DAGs commit to one table, and their tasks are renamed."""
        rng = random.Random(f"table {seed}")
        job = DagJob.of(drawn_job(topology, rng))
        replaces = rng.choice(list(Replaces))
        # Two sinks of one job that replace all rows are refused at parse.
        is_shared = replaces in (Replaces.RUN, Replaces.NOTHING) and rng.random() < 0.5
        sinks = rng.sample(job.finals, min(2, len(job.finals)) if is_shared else 1)
        job = with_table(replace(job, unstable=frozenset()), sinks, replaces, rng.random() < 0.5)
        kinds = rng.choices([Trouble.NEIGHBOUR, *sorted(OF_A_TABLE)], k=rng.randint(1, 3))
        kinds += rng.sample(BESIDE_A_TABLE, rng.randint(0, 2))
        return cls(
            job=job,
            troubles={kind: kinds.count(kind) for kind in kinds},
            publishes=rng.random() < 0.5,
            page_keys=rng.choice([None, None, 2]),
            store_faults=rng.choice([0, 0, 4]),
            detached_share=rng.choice([0.0, 0.3]),
        )
