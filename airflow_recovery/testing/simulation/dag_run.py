"""The DAG runs of a schedule: the one that it is about, and others at the same time over the same stores."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from airflow_recovery.journal.layout import JournalLayout
from airflow_recovery.journal.replay import EventFold
from airflow_recovery.model.dag_run import DagRunFacts, DagRunRecord
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


class InRun(NamedTuple):
    """What a DAG run is. ``by_timetable``: a scheduled or backfilled run, whose interval is the date's."""

    by_timetable: bool = True
    interval: str = "day 1"
    param: int = 0

    @property
    def record(self) -> DagRunRecord:
        """As records of attempts have it."""
        ends = f"end of {self.interval}"
        return DagRunRecord("run", "", "day 1", self.interval, ends, None, params=(("param", str(self.param)),))

    def again(self, *, by_timetable: bool) -> InRun:
        """The run after it was deleted and made again: by a backfill, or triggered, with another data interval."""
        return InRun(by_timetable, InRun().interval if by_timetable else "day 0", self.param)

    def facts(self, name: str) -> DagRunFacts:
        """As its tasks see it."""
        run_id = f"{'backfill' if self.by_timetable else 'manual'}__{name}"
        ends = f"end of {self.interval}"
        return DagRunFacts(run_id, "", "day 1", self.interval, ends, None, params={"param": self.param})


@dataclass(eq=False)
class DagRun:
    """One run of ``job``, as one Airflow has it. ``name``: Airflow's run id; ``ledger`` hears of its journal.

    ``target``: where its sinks commit; ``journal_store``: that of its deployment. ``has_ended``: Airflow says so.
    ``history``: the fold of all events of its journal, as they were recorded. ``in_run``: its interval and its param.
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
    in_run: InRun = field(default_factory=InRun)

    def __post_init__(self) -> None:
        self.layout = JournalLayout(self.identity)
        self._rendered: dict[tuple[int, str, int], tuple[SimulatedJob, SimulatedJob]] = {}
        if self.job.is_decided:
            rules = {**self.job.rules, **dict.fromkeys(self.publish_keys, PUBLISH_RULE)}
            self.airflow = FakeAirflow(self.tasks(), retries=DECIDED_RETRIES, rules=rules)
        else:
            self.airflow = FakeAirflow(self.tasks(), retries=RETRIES)

    @property
    def today(self) -> SimulatedJob:
        """``job`` with the arguments that it has in this run."""
        key = id(self.job), self.in_run.interval, self.in_run.param
        if key not in self._rendered:
            # With the job itself, so that no other one gets its id.
            self._rendered[key] = self.job, self.job.of_run(self.in_run.interval, self.in_run.param)
        return self._rendered[key][1] if self.job.dated or self.job.using else self.job

    def tasks(self) -> dict[str, tuple[str, ...]]:
        """Its tasks, each with those that it waits for."""
        tasks = {
            name: (*(branch for branch, below in self.job.branches.items() if name in below), *region.inputs)
            for name, region in self.job.regions.items()
        }
        return dict.fromkeys(self.job.branches, ()) | tasks | dict.fromkeys(self.publish_keys, self.job.finals)
