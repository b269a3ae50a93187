"""One DAG run of a job in its DAG: trigger rules, branches, the data interval and the params of the run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from airflow_recovery.model.dag_run import DagRunFacts, DagRunRecord
from airflow_recovery.testing.fake_airflow import ALL_SUCCESS, FakeAirflow
from airflow_recovery.testing.simulation.dag_run import DagRun
from simulation.dag_job import DagJob

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
class RunOfDag(DagRun):
    """A run of a job in its DAG. ``in_run``: its interval and its param."""

    job: DagJob
    in_run: InRun = field(default_factory=InRun)

    def __post_init__(self) -> None:
        self._rendered: dict[tuple[int, str, int], tuple[DagJob, DagJob]] = {}
        super().__post_init__()

    def _new_airflow(self) -> FakeAirflow:
        if not self.job.is_decided:
            return super()._new_airflow()
        rules = {**self.job.rules, **dict.fromkeys(self.publish_keys, PUBLISH_RULE)}
        return FakeAirflow(self.tasks(), retries=DECIDED_RETRIES, rules=rules)

    @property
    def today(self) -> DagJob:
        """``job`` with the arguments that it has in this run."""
        key = id(self.job), self.in_run.interval, self.in_run.param
        if key not in self._rendered:
            # With the job itself, so that no other one gets its id.
            self._rendered[key] = self.job, self.job.of_run(self.in_run.interval, self.in_run.param)
        return self._rendered[key][1] if self.job.dated or self.job.using else self.job

    def tasks(self) -> Mapping[str, tuple[str, ...]]:
        """Its tasks and its branches, each with those that it waits for."""
        tasks = {
            name: (*(branch for branch, below in self.job.branches.items() if name in below), *inputs)
            for name, inputs in super().tasks().items()
        }
        return dict.fromkeys(self.job.branches, ()) | tasks

    def xcoms_counted(self, task: str) -> dict[str, bool]:
        """The tasks whose XCom is an argument of ``task``, and whether each is a success, as `XComsOfRun` has it."""
        pulls = self.today.pulls.get(task, ())
        waits = self.airflow.rules.get(task, ALL_SUCCESS) == ALL_SUCCESS
        return {name: waits or self.airflow.state(name) == "success" for name in pulls}
