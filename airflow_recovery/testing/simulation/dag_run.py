"""The DAG runs of a schedule: the one that it is about, and others at the same time over the same stores."""

from __future__ import annotations

from dataclasses import dataclass, field

from airflow_recovery.journal.layout import JournalLayout
from airflow_recovery.journal.replay import EventFold
from airflow_recovery.model.records import RunIdentity
from airflow_recovery.testing.fake_airflow import FakeAirflow
from airflow_recovery.testing.fake_sink import FakeTarget
from airflow_recovery.testing.simulation.jobs import SimulatedJob
from airflow_recovery.testing.simulation.ledger import Ledger
from airflow_recovery.testing.simulation.memory import MemoryStore

PUBLISH = "publish"
RETRIES = 1_000_000
DECIDED_RETRIES = 8
"""In a run that may end red, so that a task whose input never comes is failed one day."""
PUBLISH_RULE = "none_failed_min_one_success"
"""The trigger rule of `airflow_recovery.operators.publish`."""


@dataclass(eq=False)
class DagRun:
    """One run of ``job``, as one Airflow has it. ``name``: Airflow's run id; ``ledger`` hears of its journal.

    ``target``: where its sinks commit; ``journal_store``: that of its deployment. ``has_ended``: Airflow says so.
    ``history``: the fold of all events of its journal, as they were recorded.
    """

    name: str
    job: SimulatedJob
    identity: RunIdentity
    ledger: Ledger
    target: FakeTarget
    journal_store: MemoryStore
    publish_keys: tuple[str, ...] = ()
    has_ended: bool = False
    history: EventFold = field(default_factory=lambda: EventFold({}))

    def __post_init__(self) -> None:
        self.layout = JournalLayout(self.identity)
        if self.job.is_decided:
            rules = {**self.job.rules, **dict.fromkeys(self.publish_keys, PUBLISH_RULE)}
            self.airflow = FakeAirflow(self.tasks(), retries=DECIDED_RETRIES, rules=rules)
        else:
            self.airflow = FakeAirflow(self.tasks(), retries=RETRIES)

    def tasks(self) -> dict[str, tuple[str, ...]]:
        """Its tasks, each with those that it waits for."""
        tasks = {
            name: (*(branch for branch, below in self.job.branches.items() if name in below), *region.inputs)
            for name, region in self.job.regions.items()
        }
        return dict.fromkeys(self.job.branches, ()) | tasks | dict.fromkeys(self.publish_keys, self.job.finals)
