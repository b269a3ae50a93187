"""What is simulated: regions and their inputs, how deterministic each is, and what it would write undisturbed."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar

from airflow_recovery.errors import ConfigurationError
from airflow_recovery.journal.plans import plan_hash
from airflow_recovery.locations import DELTA, ICEBERG, is_table
from airflow_recovery.model.committing import CommitKind, CommitMode
from airflow_recovery.model.determinism import Determinism
from airflow_recovery.model.failover_strategy import FailoverStrategy
from airflow_recovery.model.records import ExternalObject, PlanRecord, RunIdentity
from airflow_recovery.model.region_plan import RegionPlan
from airflow_recovery.model.split import Split
from airflow_recovery.splits.mode import SplitPlan
from airflow_recovery.testing.fake_sink import fake_commit

if TYPE_CHECKING:
    from typing_extensions import Self

IDENTITY = RunIdentity("simulated", "date 2026-01-01T00:00:00+00:00", "job")

TOPOLOGIES: dict[str, dict[str, tuple[str, ...]]] = {
    "pair": {"P": (), "C": ("P",)},
    "chain": {"P": (), "C": ("P",), "E": ("C",)},
    "fork": {"P": (), "C": ("P",), "D": ("P",)},
    "diamond": {"P": (), "C": ("P",), "D": ("P",), "E": ("C", "D")},
    "fan-out": {"P": (), "C1": ("P",), "C2": ("P",), "C3": ("P",), "C4": ("P",)},
    "fan-in": {"P1": (), "P2": (), "P3": (), "E": ("P1", "P2", "P3")},
    "ladder": {"A": (), "B": (), "C": ("A", "B"), "D": ("B",), "E": ("C", "D"), "F": ("D",)},
}
RANDOM = "random"
SPLITS = 3
"""Of each region that commits split by split; and so many files of each that reads from outside."""


@dataclass(frozen=True)
class SimulatedJob:
    """``plan`` as the journal will have it; regions named in ``unstable`` may write other rows each time."""

    plan: PlanRecord
    unstable: frozenset[str] = frozenset()
    listings: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The external inputs of a region, where they have changed: its splits, or the files of one in ``reading``."""
    reading: frozenset[str] = frozenset()
    """Regions that read files from outside of the job, all that there are whenever they look."""

    folders: frozenset[str] = frozenset()
    """Regions whose jobs are given folders, and know of no attempt."""

    unseen: frozenset[str] = frozenset()
    """Regions whose code can't be seen: their fingerprints stay when it changes."""
    unseen_versions: Mapping[str, int] = field(default_factory=dict)
    """How often the code of such a region has changed."""

    @cached_property
    def regions(self) -> dict[str, RegionPlan]:
        """By name, in topological order."""
        return {region.name: region for region in self.plan.regions}

    @cached_property
    def tables(self) -> dict[str, str]:
        """The results that are snapshots of tables, each with its location."""
        fixed = [pair for region in self.plan.regions for pair in region.fixed]
        return {result: uri for result, uri in fixed if is_table(uri)}

    @cached_property
    def plan_hash(self) -> str:
        """The identity of `shared_plan`."""
        return plan_hash(self.shared_plan)

    @property
    def shared_plan(self) -> PlanRecord:
        """``plan`` as every task knows it, and as the journal has it."""
        return self.plan

    @cached_property
    def finals(self) -> tuple[str, ...]:
        """What is published: final regions, and those that nobody reads."""
        read = {name for region in self.plan.regions for name in region.inputs}
        return tuple(region.name for region in self.plan.regions if region.final or region.name not in read)

    def with_code(self, region: str, version: int) -> Self:
        """The job after the code of ``region`` was changed for that many times; 0: it is as it was first."""
        if region in self.unseen:
            return replace(self, unseen_versions={**self.unseen_versions, region: version})
        return self.with_change(region, f" v{version}" if version else "")

    def with_change(self, region: str, changed: str) -> Self:
        """The job with ``changed`` at the end of the first fingerprint of ``region``."""
        regions = (
            replace(planned, fingerprint=f"{(planned.fingerprint or '').partition(' v')[0]}{changed}")
            if planned.name == region
            else planned
            for planned in self.plan.regions
        )
        return replace(self, plan=replace(self.plan, regions=tuple(regions)))

    def resized(self, whole: SimulatedJob, absent: Collection[str]) -> Self:
        """``whole`` without those regions, and nobody reads them; its code is that of this one."""
        regions = []
        for region in whole.plan.regions:
            if region.name not in absent:
                now = self.regions.get(region.name, region)
                inputs = tuple(name for name in region.inputs if name not in absent)
                reads = tuple(result for result in region.reads if result not in absent)
                regions.append(replace(now, inputs=inputs, reads=reads))
        return replace(self, plan=replace(self.plan, regions=tuple(regions)))

    def splits_of(self, region: str) -> tuple[Split, ...]:
        """Of a region that commits split by split, what it reads; of any other nothing."""
        if not isinstance(self.regions[region].mode, SplitPlan):
            return ()
        return tuple(Split.of(f"{region} {info}") for info in self.listing_of(region))

    def externals_of(self, region: str) -> tuple[ExternalObject, ...]:
        """What a look at the external inputs of a region finds."""
        if region not in self._externals:
            self._externals[region] = self._found_by(region)
        return self._externals[region]

    @cached_property
    def _externals(self) -> dict[str, tuple[ExternalObject, ...]]:
        return {}

    def _found_by(self, region: str) -> tuple[ExternalObject, ...]:
        if isinstance(self.regions[region].mode, SplitPlan):
            return tuple(split.external(region) for split in self.splits_of(region))
        return tuple(ExternalObject(region, f"lake://{region}/{info}", 1, info) for info in self.listing_of(region))

    def listing_of(self, region: str) -> tuple[str, ...]:
        """The names of the external inputs of a region; none where it has no such input."""
        return self.listings.get(region, tuple(map(str, range(SPLITS)))) if self.has_listing(region) else ()

    def has_listing(self, region: str) -> bool:
        """Whether a region has external inputs, be they none at the moment."""
        now = self.regions.get(region)
        return now is not None and (region in self.reading or isinstance(now.mode, SplitPlan))

    def with_listing(self, region: str, listed: tuple[str, ...]) -> Self:
        """The job after the external inputs of a region have changed."""
        return replace(self, listings={**self.listings, region: listed})

    def undisturbed(self) -> dict[tuple[str, str], str]:
        """(region, result) -> the rows that a run without any fault writes. Not for unstable regions."""
        rows_of: dict[tuple[str, str], str] = {}
        for region in self.plan.regions:
            read = [rows_of[name, result] for name in region.inputs for result in self.read_of(name, region.name)]
            for result in region.results:
                rows_of[region.name, result] = rows(
                    region.name, result, region.fingerprint, read + self.lines_of(region.name)
                )
        return rows_of

    def text(self) -> str:
        """Its regions, each with what is special about it."""
        return ", ".join(map(self.region_text, self.plan.regions))

    def region_text(self, region: RegionPlan) -> str:
        """A region with what is special about it."""
        return (
            f"{region.name}({', '.join(region.inputs)}){''.join(f' {mode.value}' for _, mode in region.determinism)}"
            + (" unstable" if region.name in self.unstable else "")
            + (" split by split" if isinstance(region.mode, SplitPlan) else "")
            + (" of folders" if region.name in self.folders else "")
            + (" shared between runs" if region.persistent else "")
            + (" to a table" if self.tables.keys() & set(region.results) else "")
            + (" reads from outside" if region.name in self.reading else "")
            + (f" {region.commit.kind.value} sink, {region.commit.config}" if region.commit is not None else "")
        )

    def lines_of(self, region: str) -> list[str]:
        """What a region reads from outside now, but for splits: those are in its rows one by one."""
        return [external.uri for external in self.externals_of(region)] if region in self.reading else []

    def read_of(self, producer: str, consumer: str) -> tuple[str, ...]:
        """The results of ``producer`` that ``consumer`` reads."""
        reads = self.regions[consumer].reads
        return tuple(result for result in self.regions[producer].results if not reads or result in reads)


OTHER_NAME = " renamed"
"""The end of the second name of a region whose task may be renamed."""


def rows(region: str, result: str, fingerprint: str | None, read: Iterable[str], draw: int = 0) -> str:
    """What stands for the rows of one result: other for other code, other inputs, and another ``draw``.

    The name of a renamed region changes nothing.
    """
    names = (name.removesuffix(OTHER_NAME) for name in (region, result))
    content = "\n".join([*names, fingerprint or "", str(draw), *sorted(read)])
    return hashlib.md5(content.encode(), usedforsecurity=False).hexdigest()[:16]


Job = TypeVar("Job", bound=SimulatedJob)


def job_of(
    upstream: Mapping[str, tuple[str, ...]],
    modes: Mapping[str, Determinism] | None = None,
    unstable: Iterable[str] = (),
    strategy: FailoverStrategy = FailoverStrategy.REGION,
) -> SimulatedJob:
    """A job with one result a region. ``upstream`` in topological order."""
    read = {name for inputs in upstream.values() for name in inputs}
    chosen = {name: mode for name, mode in (modes or {}).items() if mode is not Determinism.ALWAYS}
    regions = tuple(
        RegionPlan(
            name=name,
            vertices=(name,),
            results=(name,),
            inputs=tuple(inputs),
            final=name not in read,
            fingerprint=f"code of {name}",
            reads=tuple(inputs),
            determinism=((name, chosen[name]),)
            if chosen.get(name, Determinism.ALWAYS) is not Determinism.ALWAYS
            else (),
        )
        for name, inputs in upstream.items()
    )
    return SimulatedJob(PlanRecord("simulated:job", regions, failover_strategy=strategy), frozenset(unstable))


def topology(name: str, rng: random.Random) -> Mapping[str, tuple[str, ...]]:
    """By name; ``random`` is drawn: 2 to 7 regions, each of which reads up to three before it."""
    if name != RANDOM:
        if name not in TOPOLOGIES:
            raise ConfigurationError(f"expected one of {', '.join([*TOPOLOGIES, RANDOM])}, found {name!r}")
        return TOPOLOGIES[name]
    names = [f"R{number}" for number in range(1, rng.randint(2, 7) + 1)]
    return {
        region: tuple(sorted(rng.sample(names[:at], min(at, rng.choice([0, 1, 1, 2, 3])))))
        for at, region in enumerate(names)
    }


def drawn_job(name: str, rng: random.Random) -> SimulatedJob:
    """A topology with everything else drawn: modes, who is not deterministic, the failover strategy."""
    upstream = topology(name, rng)
    modes: dict[str, Determinism] = {}
    unstable: list[str] = []
    if rng.random() < 0.5:
        modes = {name: rng.choice(list(Determinism)) for name in upstream}
        unstable = [name for name in upstream if rng.random() < 0.4]
    strategy = FailoverStrategy.FULL if rng.random() < 0.15 else FailoverStrategy.REGION
    return job_of(upstream, modes, unstable, strategy)


def with_drawn_rows(job: Job, rng: random.Random) -> Job:
    """A given job, of which now and then some regions write other rows each time, whatever they declare."""
    if rng.random() < 0.5:
        return job
    return replace(job, unstable=frozenset(region for region in job.regions if rng.random() < 0.4))


def with_sinks(job: Job, kinds: Mapping[str, tuple[CommitKind, CommitMode]]) -> Job:
    """``job`` in which these regions commit their first result to a sink."""
    regions = tuple(
        replace(region, commit=fake_commit(region.results[0], *kinds[region.name])) if region.name in kinds else region
        for region in job.plan.regions
    )
    return replace(job, plan=replace(job.plan, regions=regions))


def with_splits(job: Job, names: Iterable[str]) -> Job:
    """``job`` in which these regions commit split by split. They have to write the same rows each time."""
    chosen = set(names) - job.unstable
    regions = (
        replace(region, mode=SplitPlan(split_source=region.name)) if region.name in chosen else region
        for region in job.plan.regions
    )
    return replace(job, plan=replace(job.plan, regions=tuple(regions)))


def with_drawn_splits(job: Job, rng: random.Random) -> Job:
    """Of every second job, some regions commit split by split."""
    able = [
        region.name
        for region in job.plan.regions
        if region.commit is None and region.results and not region.coordinators
    ]
    chosen = [name for name in able if rng.random() < 0.5]
    return with_splits(job, chosen) if rng.random() < 0.5 else job


def with_externals(job: Job, names: Iterable[str]) -> Job:
    """``job`` in which those of its regions read files from outside that do not commit split by split."""
    able = frozenset(region.name for region in job.plan.regions if not isinstance(region.mode, SplitPlan))
    return replace(job, reading=able & frozenset(names))


def with_drawn_externals(job: Job, rng: random.Random) -> Job:
    """Of every second job, some regions read files from outside."""
    chosen = [name for name in job.regions if rng.random() < 0.4]
    return with_externals(job, chosen) if rng.random() < 0.5 else job


def with_unseen(job: Job, names: Iterable[str]) -> Job:
    """``job`` in which the code of those of its regions can't be seen that are no shared results."""
    able = {region.name for region in job.plan.regions if not region.persistent}
    return replace(job, unseen=frozenset(able & set(names)))


def with_drawn_unseen(job: Job, rng: random.Random) -> Job:
    """Of every fourth job, the code of some regions can't be seen."""
    chosen = [name for name in job.regions if rng.random() < 0.5]
    return with_unseen(job, chosen) if rng.random() < 0.25 else job


def with_folders(job: Job, names: Iterable[str]) -> Job:
    """``job`` in which those of its regions are jobs of a user's own that can be, and read none made of batches."""
    split = {region.name for region in job.plan.regions if isinstance(region.mode, SplitPlan)}
    able = {
        region.name
        for region in job.plan.regions
        if not (region.commit or region.persistent or region.name in split or split & set(region.inputs))
    }
    return replace(job, folders=frozenset(able & set(names)))


def with_drawn_folders(job: Job, rng: random.Random) -> Job:
    """Of every third job, some regions are jobs of a user's own."""
    chosen = [name for name in job.regions if rng.random() < 0.6]
    return with_folders(job, chosen) if rng.random() < 0.34 else job


def with_tables(job: Job, names: Iterable[str], delta: Collection[str] = ()) -> Job:
    """``job`` in which the first results of those of these regions that can be are snapshots of a table of their own.

    Those of ``delta`` are Delta tables, all others are Iceberg's. A table is the same in all runs. Needs pyiceberg and
    deltalake.
    """
    wanted = set(names)
    places = {name: f"{DELTA}s3://simulated/delta/" if name in delta else f"{ICEBERG}simulated/db." for name in wanted}
    regions = (
        replace(region, fixed=((region.results[0], f"{places[region.name]}{region.results[0]}"),))
        if region.name in wanted
        and region.results
        and not (region.commit or region.persistent or isinstance(region.mode, SplitPlan))
        else region
        for region in job.plan.regions
    )
    return replace(job, plan=replace(job.plan, regions=tuple(regions)))


def with_drawn_tables(job: Job, rng: random.Random) -> Job:
    """Of every third job, the results of some regions are snapshots of tables."""
    chosen = [name for name in job.regions if rng.random() < 0.6]
    return with_tables(job, chosen, [name for name in chosen if rng.random() < 0.4]) if rng.random() < 0.34 else job


def with_shared(job: Job, names: Iterable[str]) -> Job:
    """``job`` in which these regions make results that runs share, as far as what they read is shared, too."""
    wanted, shared = set(names), set[str]()
    for region in job.plan.regions:
        able = region.commit is None and not isinstance(region.mode, SplitPlan) and region.results
        if able and region.name in wanted and shared.issuperset(region.inputs):
            shared.add(region.name)
    regions = (replace(region, persistent=region.name in shared) for region in job.plan.regions)
    return replace(job, plan=replace(job.plan, regions=tuple(regions)))


def with_drawn_shared(job: Job, rng: random.Random) -> Job:
    """Of every third job, some regions make results that runs share."""
    chosen = [name for name in job.regions if rng.random() < 0.6]
    return with_shared(job, chosen) if rng.random() < 0.34 else job


def with_drawn_sinks(job: Job, rng: random.Random, *, is_purged: bool) -> Job:
    """Every second job has sinks at some of its ends. ``is_purged``: none that can only be probed.

    A process that sleeps through a purge is known to nobody, and its commit only a target can refuse.
    """
    finals = [region.name for region in job.plan.regions if region.final and region.results and region.commit is None]
    kinds = [CommitKind.TOKEN] if is_purged else list(CommitKind)
    chosen = {name: (rng.choice(kinds), rng.choice(list(CommitMode))) for name in finals if rng.random() < 0.6}
    return with_sinks(job, chosen) if rng.random() < 0.5 else job


def declared_job(
    reference: str, logical_date: str = "2026-01-01T00:00:00+00:00", params: Mapping[str, object] | None = None
) -> SimulatedJob:
    """A declared job, as ``package.module:name``, as the run of ``logical_date`` with ``params`` would plan it.

    Parallel vertices with literal keys become a region a subtask. Raises `JobDefinitionError` as a DAG file would.
    """
    from airflow_recovery.attempt.job_plan import plan_job
    from airflow_recovery.driver.region_spec import RunFacts
    from airflow_recovery.job.loading import load_job

    facts = RunFacts(logical_date, logical_date, logical_date, {}, dict(params or {}))
    return SimulatedJob(plan_job(load_job(reference), reference, facts).record)
