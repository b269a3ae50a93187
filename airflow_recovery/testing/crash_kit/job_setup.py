"""What a crash test is about: a job, where its journal and its results are, and what runs its regions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import cached_property
from pathlib import Path
from typing import Any

from airflow_recovery.attempt.job_plan import JobPlan, plan_job
from airflow_recovery.driver.region_spec import RunFacts
from airflow_recovery.errors import ConfigurationError
from airflow_recovery.job import Job
from airflow_recovery.job.chains import initializers
from airflow_recovery.job.loading import load_job
from airflow_recovery.journal.layout import run_key
from airflow_recovery.model.records import RunIdentity

LOGICAL_DATE = "2026-01-01T00:00:00+00:00"
PUBLISH = "publish"


class Engine(str, Enum):
    """What runs a region: a made-up driver, or a real Spark."""

    PLAIN = "plain"
    """A plain process that writes made-up rows: 50 ms a region."""
    SPARK = "spark"
    """`runtime.driver`, with a local Spark of its own: the job's functions are called. Seconds a region."""


class Scenario(str, Enum):
    """What happens to the run besides crashes."""

    RUN = "an undisturbed run"
    LOSS = "a finished run loses a final result and one of its inputs, and is asked for it again"


@dataclass(frozen=True)
class JobSetup:
    """``reference`` is the job as ``package.module:name``. ``root`` is a URI; below it, runs get a place of their own.

    ``folder`` is on this machine and takes the processes' logs. Results of `Engine.SPARK` have to be there.
    """

    reference: str
    root: str
    folder: Path
    engine: Engine = Engine.PLAIN
    scenario: Scenario = Scenario.RUN
    params: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if undecided := list(initializers(self.job)):
            raise ConfigurationError(
                f"{self.reference}: expected a job whose subtasks are known when it is declared, found "
                f"{', '.join(undecided)}, which decide theirs at run time: give literal keys for a crash test"
            )

    def for_scenario(self, scenario: Scenario) -> JobSetup:
        """The set-up for the runs of one scenario. Raises `ConfigurationError` where the job has none."""
        if scenario not in self.scenarios:
            raise ConfigurationError(
                f"scenario {scenario.name.lower()!r}: expected a job with a final result that no sink takes over, "
                f"found none in {self.reference}: name another job, or leave the scenario out"
            )
        return replace(self.for_run(scenario.name.lower()), scenario=scenario)

    def for_run(self, name: str) -> JobSetup:
        """The set-up for one run, with folders of its own."""
        return replace(self, root=f"{self.root}/{name}", folder=self.folder / name)

    @cached_property
    def job(self) -> Job:
        """The job that is tested, imported by its name. Raises `JobDefinitionError`."""
        return load_job(self.reference)

    @cached_property
    def plan(self) -> JobPlan:
        """The plan of the job, the same for every run."""
        return plan_job(self.job, self.reference, self.facts)

    @cached_property
    def facts(self) -> RunFacts:
        """The dates and the conf that templates of the job see."""
        return RunFacts(LOGICAL_DATE, LOGICAL_DATE, LOGICAL_DATE, {}, dict(self.params))

    @cached_property
    def identity(self) -> RunIdentity:
        """The identity of the run in its journal."""
        return RunIdentity("crash_test", run_key(logical_date=LOGICAL_DATE, partition_key=None, run_id=""), "job")

    @property
    def journal(self) -> str:
        """The URI of the store that holds the journal."""
        return f"{self.root}/journal"

    @property
    def results(self) -> str:
        """The URI of the results; on this machine for Spark, which has no S3 jars of its own."""
        return f"file://{self.folder}/results" if self.engine is Engine.SPARK else f"{self.root}/results"

    @cached_property
    def tasks(self) -> dict[str, Sequence[str]]:
        """Every task with its upstream tasks: the regions, and the one that publishes."""
        regions = {region.name: region.inputs for region in self.plan.record.regions}
        return {**regions, PUBLISH: self.finals}

    @cached_property
    def finals(self) -> tuple[str, ...]:
        """The names of the regions that make a final result."""
        return tuple(region.name for region in self.plan.record.regions if region.final)

    @property
    def target(self) -> str:
        """The URI of the target that stands for those of its sinks."""
        return f"{self.root}/target"

    @property
    def scenarios(self) -> tuple[Scenario, ...]:
        """The scenarios that the job can go through."""
        return tuple(scenario for scenario in Scenario if scenario is not Scenario.LOSS or self.lost)

    @cached_property
    def lost(self) -> tuple[str, ...]:
        """Regions whose results are gone in `Scenario.LOSS`: the last final one, and its first input.

        None where a sink has taken over every final one: its rows are in the target, and nobody wants its files again.
        """
        again = [region.name for region in self.plan.record.regions if region.final and region.commit is None]
        return (again[-1], *self.plan.regions[again[-1]].inputs[:1]) if again else ()
