"""One DAG run in a simulation: its Airflow, its journal, its checker, its sinks, and the events that were recorded."""

from __future__ import annotations

from collections.abc import Mapping
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
        self.airflow = self._new_airflow()

    def _new_airflow(self) -> FakeAirflow:
        return FakeAirflow(self.tasks(), retries=RETRIES)

    @property
    def today(self) -> SimulatedJob:
        """``job`` with the arguments that it has in this run."""
        return self.job

    def tasks(self) -> Mapping[str, tuple[str, ...]]:
        """Its tasks, each with those that it waits for."""
        tasks = {name: tuple(region.inputs) for name, region in self.job.regions.items()}
        return tasks | dict.fromkeys(self.publish_keys, self.job.finals)
