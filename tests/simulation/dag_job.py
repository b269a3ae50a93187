"""A job in its DAG: trigger rules, optional inputs, branches, operators, and what they render decide who succeeds."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING

from airflow_recovery.model.committing import Replaces
from airflow_recovery.model.determinism import Determinism
from airflow_recovery.model.failover_strategy import FailoverStrategy
from airflow_recovery.model.records import PlanRecord
from airflow_recovery.model.region_plan import RegionPlan
from airflow_recovery.testing.fake_airflow import ALL_SUCCESS, EARLY_RULES, TRIGGER_RULES
from airflow_recovery.testing.simulation import jobs
from airflow_recovery.testing.simulation.jobs import OTHER_NAME, SimulatedJob, topology, with_drawn_externals
from simulation.fake_table import table_commit

if TYPE_CHECKING:
    from typing_extensions import Self

FAILS, SKIPS = " fails", " skips"
"""The end of a fingerprint of code that always fails, or that always skips its task."""


@dataclass(frozen=True)
class DagJob(SimulatedJob):
    """A simulated job, with what its DAG has besides. Without any of that it is a job as any other."""

    is_decided: bool = False
    """Branches, trigger rules, people and the code decide which of its tasks succeed: a run may end red, or skip."""
    rules: Mapping[str, str] = field(default_factory=dict)
    """The trigger rules of its regions' tasks that are not ``all_success``."""
    optional: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The inputs of a region that may be absent, as `with_optional` puts them into the plan."""
    branches: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The branches of its DAG, each with the regions directly below it. At first each follows the first of these."""
    operators: frozenset[str] = frozenset()
    """Regions that are operators, whose fingerprints only their own tasks know."""
    texts: Mapping[str, int] = field(default_factory=dict)
    """How often the DAG's file was changed about such a region, so that it computes the same as before."""
    uneven: frozenset[str] = frozenset()
    """Regions in ``operators`` that each worker reads otherwise in the DAG's file: it has other files."""
    unsteady: frozenset[str] = frozenset()
    """Regions in ``operators`` that the DAG's file declares otherwise each time it is read."""
    skipping: frozenset[str] = frozenset()
    """Regions in ``reading`` whose code skips its task if it finds no file."""
    pulls: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Of a region in ``operators``: its inputs, in ``operators`` as well, whose XCom is an argument of it."""
    renamed: Mapping[str, str] = field(default_factory=dict)
    """Regions that commit to the table, each with the name that its task may get. Both are in ``plan``."""
    unstored: frozenset[str] = frozenset()
    """Regions in ``operators`` whose XComs can't be stored: they are too large, or hold a secret."""
    dated: frozenset[str] = frozenset()
    """Regions with the start of the data interval among their arguments."""
    using: frozenset[str] = frozenset()
    """Regions with a param of the run among their arguments."""

    @classmethod
    def of(cls, job: SimulatedJob) -> Self:
        """``job``, with nothing decided."""
        if isinstance(job, cls):
            return job
        return cls(**{each.name: getattr(job, each.name) for each in fields(SimulatedJob)})

    @cached_property
    def shared_plan(self) -> PlanRecord:
        """``plan`` as every task knows it, and as the journal has it: without the fingerprints of ``operators``."""
        return self._plan_known_to("") if self.operators else self.plan

    def plan_of(self, region: str) -> PlanRecord:
        """``plan`` as the task of ``region`` knows it."""
        if region not in self.operators:
            return self.shared_plan
        if region not in self._own_plans:
            self._own_plans[region] = self._plan_known_to(region)
        return self._own_plans[region]

    @cached_property
    def _own_plans(self) -> dict[str, PlanRecord]:
        return {}

    def _plan_known_to(self, task: str) -> PlanRecord:
        hidden = self.operators - {task}
        regions = (
            replace(region, fingerprint=None) if region.name in hidden else region for region in self.plan.regions
        )
        return replace(self.plan, regions=tuple(regions))

    def with_code(self, region: str, version: int, end: str = "") -> Self:
        """As of any job. ``end``: `FAILS` or `SKIPS` if that is all that the new code does."""
        return self.with_change(region, f" v{version}{end}") if version and end else super().with_code(region, version)

    def with_text(self, region: str, version: int) -> Self:
        """The job after the DAG's file declares ``region`` with other words, for that many times."""
        return replace(self, texts={**self.texts, region: version})

    def declares(self, region: str) -> str | None:
        """What the DAG's file says of an operator before its arguments are rendered; `None` of all others."""
        is_operator = region in self.operators
        return f"{self.regions[region].fingerprint}, text {self.texts.get(region, 0)}" if is_operator else None

    def of_run(self, interval: str, param: int) -> Self:
        """The job with the arguments that it has in a run of this data interval, and with this value of the param."""
        arguments = {
            region.name: (f"from {interval}: " if region.name in self.dated else "")
            + (f"with param {param}: " if region.name in self.using else "")
            for region in self.plan.regions
        }
        regions = (
            replace(region, fingerprint=f"{arguments[region.name]}{region.fingerprint}")
            if arguments[region.name]
            else region
            for region in self.plan.regions
        )
        return replace(self, plan=replace(self.plan, regions=tuple(regions)))

    def rendered(self, region: str, fingerprint: str | None, xcoms: Mapping[str, str | None]) -> str | None:
        """``fingerprint`` of ``region``, whose task finds these XComs of its inputs. `None`: there is no such XCom."""
        pulled = [f"{name} gives {xcoms.get(name)}, " for name in self.pulls.get(region, ())]
        return f"{''.join(pulled)}{fingerprint}" if pulled else fingerprint

    def given(self, region: str, xcoms: Mapping[str, str | None]) -> Self:
        """The job as the task of ``region`` knows it that finds these XComs of its inputs."""
        regions = (
            replace(planned, fingerprint=self.rendered(region, planned.fingerprint, xcoms))
            if planned.name == region
            else planned
            for planned in self.plan.regions
        )
        return replace(self, plan=replace(self.plan, regions=tuple(regions))) if region in self.pulls else self

    def ends_as(self, region: str, fingerprint: str | None) -> str | None:
        """``failed`` or ``skipped``, if that is how this code of ``region`` ends now; `None`: it succeeds."""
        code = fingerprint or ""
        is_skipped = code.endswith(SKIPS) or (region in self.skipping and not self.listing_of(region))
        return "failed" if code.endswith(FAILS) else "skipped" if is_skipped else None

    def text(self) -> str:
        """Its regions and its branches."""
        branches = "".join(f"; {name} -> {' | '.join(below)}" for name, below in self.branches.items())
        return f"{super().text()}{branches}"

    def region_text(self, region: RegionPlan) -> str:
        """A region with what is special about it, in its DAG too."""
        return (
            super().region_text(region)
            + (" by an operator" if region.name in self.operators else "")
            + (" other on each worker" if region.name in self.uneven else "")
            + (" other at each reading" if region.name in self.unsteady else "")
            + (" skips itself without files" if region.name in self.skipping else "")
            + (f" pulls {', '.join(self.pulls[region.name])}" if region.name in self.pulls else "")
            + (" with XComs that can't be stored" if region.name in self.unstored else "")
            + (" by date" if region.name in self.dated else "")
            + (" by param" if region.name in self.using else "")
            + (f" {self.rules[region.name]}" if region.name in self.rules else "")
            + (f" without {', '.join(self.optional[region.name])}?" if region.name in self.optional else "")
        )


def code_of(fingerprint: str | None) -> str:
    """The part of a fingerprint that is not rendered."""
    return (fingerprint or "").rpartition("code of ")[2]


def xcom_of(made: tuple[str, ...] | None) -> str | None:
    """The XCom that a region pushes which has made these rows; `None`: it has made nothing."""
    return None if made is None else f"mark of {made[0]}"


def job_of(
    upstream: Mapping[str, tuple[str, ...]],
    modes: Mapping[str, Determinism] | None = None,
    unstable: Iterable[str] = (),
    strategy: FailoverStrategy = FailoverStrategy.REGION,
) -> DagJob:
    """A job with one result a region, and nothing decided. ``upstream`` in topological order."""
    return DagJob.of(jobs.job_of(upstream, modes, unstable, strategy))


def with_optional(job: DagJob, optional: Mapping[str, tuple[str, ...]]) -> DagJob:
    """``job`` in which these inputs of its regions may be absent."""
    regions = (replace(region, optional=optional.get(region.name, ())) for region in job.plan.regions)
    return replace(job, plan=replace(job.plan, regions=tuple(regions)), optional=dict(optional))


def with_drawn_decisions(job: DagJob, rng: random.Random) -> DagJob:
    """``job`` with what decides in a DAG run which of its tasks succeed: trigger rules, optional inputs, branches."""
    rules, optional = {}, {}
    for region in job.plan.regions:
        if region.inputs and rng.random() < (0.6 if len(region.inputs) > 1 else 0.3):
            rules[region.name] = rng.choice([rule for rule in sorted(TRIGGER_RULES) if rule != ALL_SUCCESS])
            # A DAG with such a rule and without any optional input is refused, but for rules that a skip does not pass.
            chosen = [name for name in region.inputs if rng.random() < 0.6]
            if chosen and rng.random() < 0.8:
                optional[region.name] = tuple(chosen)
    branches = {}
    if rng.random() < 0.6:
        joins = [region.inputs for region in job.plan.regions if len(region.inputs) > 1]
        below = rng.choice(joins) if joins and rng.random() < 0.7 else list(job.regions)
        if len(below) > 1:
            branches["branch"] = tuple(rng.sample(sorted(below), rng.randint(2, min(3, len(below)))))
    # One that does not wait for its branch may run before that leaves it out.
    left_out = {name for below in branches.values() for name in below}
    rules = {name: rule for name, rule in rules.items() if not (name in left_out and rule in EARLY_RULES)}
    skipping = frozenset(name for name in sorted(job.reading) if rng.random() < 0.5)
    operators = (
        frozenset(name for name in job.regions if rng.random() < 0.6) if rng.random() < 0.6 else frozenset[str]()
    )
    decided = replace(job, is_decided=True, rules=rules, branches=branches, skipping=skipping, operators=operators)
    return with_optional(decided, optional)


def drawn_decided_job(name: str, rng: random.Random) -> DagJob:
    """A topology whose rows are a function of code and inputs, so that they can be compared with a fresh run's."""
    upstream = topology(name, rng)
    modes = [Determinism.ALWAYS, Determinism.VERIFY]
    job = job_of(upstream, {region: rng.choice(modes) for region in upstream} if rng.random() < 0.5 else None)
    return with_drawn_decisions(with_drawn_externals(job, rng), rng)


def with_drawn_arguments(job: DagJob, rng: random.Random) -> DagJob:
    """A job that is decided, some of whose regions have arguments that are rendered in the run."""
    # An XCom of an input that may be absent is what a fresh run does not have.
    absent = {above for name in job.operators for above in job.optional.get(name, ())}
    job = replace(job, operators=job.operators | absent)
    pulls = {
        name: tuple(above for above in region.inputs if above in job.operators and rng.random() < 0.9)
        for name, region in job.regions.items()
        if name in job.operators
    }
    chosen = {name: above for name, above in pulls.items() if above}
    dated, using = (frozenset(name for name in job.regions if rng.random() < 0.4) for _ in range(2))
    unstored = frozenset(name for name in sorted(job.operators) if rng.random() < 0.3)
    return replace(job, pulls=chosen, unstored=unstored, dated=dated, using=using)


def with_drawn_declarations(job: DagJob, rng: random.Random) -> DagJob:
    """``job``, some of whose operators are declared otherwise on each worker, or each time the DAG's file is read."""
    drawn = {name: rng.random() for name in sorted(job.operators)}
    uneven = frozenset(name for name, draw in drawn.items() if draw < 0.1)
    return replace(job, uneven=uneven, unsteady=frozenset(name for name, draw in drawn.items() if draw > 0.9))


def with_table(job: DagJob, names: Iterable[str], replaces: Replaces, renamed: bool = False) -> DagJob:
    """``job`` in which these regions commit their first result to the table that all runs share.

    ``renamed``: the task of each may get another name. The job has it under both then.
    """
    regions: list[RegionPlan] = []
    names = list(names)
    for region in job.plan.regions:
        if region.name not in names:
            regions.append(region)
            continue
        regions.append(replace(region, commit=table_commit(region.results[0], replaces)))
        if renamed:
            name = f"{region.name}{OTHER_NAME}"
            commit = table_commit(name, replaces)
            regions.append(replace(region, name=name, vertices=(name,), results=(name,), commit=commit))
    new_names = {name: f"{name}{OTHER_NAME}" for name in names} if renamed else {}
    return replace(job, plan=replace(job.plan, regions=tuple(regions)), renamed=new_names)
