"""What a deploy makes run again: another version of the code, over the journals of runs that there have been.

Of each run two plans are made of its state as it is, one by each version (`airflow_recovery.planning`): what runs by
the new one, and would not by the old one, is the deploy's. Nothing is imported here: a version is what
`airflow_recovery.job.vertex_changes` has described of it, and the plans that it has made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

from airflow_recovery.job.vertex_changes import differences
from airflow_recovery.journal.run_state import RegionState, RunState
from airflow_recovery.model.records import AttemptState, ExternalObject, Outcome, PlanRecord
from airflow_recovery.model.region_plan import RegionPlan
from airflow_recovery.planning.evaluation import Evaluation
from airflow_recovery.planning.plan import NOT_KEPT, Action, Plan
from airflow_recovery.planning.plan_making import plan_if
from airflow_recovery.story.compared_components import unseen_code, unseen_text
from airflow_recovery.story.mode import story_of, story_of_region
from airflow_recovery.story.run_view import RunView

ONE_HASH = (
    "its code, its parameters or its options: the journal has one hash of them all, and the old code alone tells which"
)
DECLARED_OTHERWISE = (
    "{}: the class, the arguments as they are written or the local files differ from those of the attempt that counts. "
    "If a task that reads it is cleared alone, its own task looks first; it runs again if its fingerprint differs"
)
TRIGGER_RULE = "trigger_rule"
"""As Airflow calls it among the declarations of a task."""
_OTHER = "another version's"
"""Stands in for a fingerprint that is not the recorded one."""


class Effect(str, Enum):
    """What a deploy means for a region of a run, once the run is cleared or backfilled."""

    AGAIN = "again"
    """It runs again, and would not without the deploy."""
    MAYBE = "maybe"
    """It runs again if the rows of what it reads differ, or if what can't be known here has changed."""
    FIRST = "first"
    """It has never run in this run, nor have its vertices in another region."""
    ANYWAY = "anyway"
    """It runs, and would without the deploy."""


@dataclass(frozen=True)
class Cost:
    """Of the last finished attempt: seconds of Spark, bytes read and written; `None`: not recorded.

    ``is_estimate``: the region was cut differently then, or is another run's: those with the same vertices are summed.
    """

    seconds: float | None = None
    read: int | None = None
    written: int | None = None
    is_estimate: bool = False


@dataclass(frozen=True)
class RegionImpact:
    """A region that runs. ``why``: as the planner says it. ``made_in``: the run that makes this shared result."""

    name: str
    vertices: tuple[str, ...]
    effect: Effect
    why: str
    cost: Cost
    made_in: str | None = None


@dataclass(frozen=True)
class RunImpact:
    """One run. ``why_not``: what stands in the way of an answer; ``notes``: what the answer rests on."""

    run_key: str
    regions: tuple[RegionImpact, ...] = ()
    notes: tuple[str, ...] = ()
    why_not: str = ""


@dataclass(frozen=True)
class Change:
    """Of a vertex, or (``is_region``) of how a region is cut: ``what`` is added, removed or changed, and ``why``."""

    name: str
    what: str
    why: tuple[str, ...] = ()
    is_region: bool = False


@dataclass(frozen=True)
class JobImpact:
    """One job of a DAG: a task group's, or the DAG's recoverable operators."""

    dag_id: str
    group_id: str
    job: str
    changes: tuple[Change, ...] = ()
    runs: tuple[RunImpact, ...] = ()
    notes: tuple[str, ...] = ()
    why_not: str = ""


@dataclass(frozen=True)
class Impact:
    """The whole answer. ``failures``: files that can't be imported. ``span``: which runs were looked at, in words."""

    old: str
    new: str
    span: str
    jobs: tuple[JobImpact, ...]
    failures: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def regions(self, *effects: Effect) -> list[RegionImpact]:
        """Those with one of these effects, of all runs."""
        return [region for job in self.jobs for run in job.runs for region in run.regions if region.effect in effects]

    @property
    def seconds(self) -> float:
        """Of Spark, that certainly run again."""
        return _sum(region.cost.seconds for region in self.regions(Effect.AGAIN))

    @property
    def at_most_seconds(self) -> float:
        """As `seconds`, with what may run again."""
        return _sum(region.cost.seconds for region in self.regions(Effect.AGAIN, Effect.MAYBE))

    @property
    def unmeasured(self) -> list[str]:
        """The regions that run again, or may, whose seconds no journal holds."""
        return sorted(
            {region.name for region in self.regions(Effect.AGAIN, Effect.MAYBE) if region.cost.seconds is None}
        )

    @property
    def is_complete(self) -> bool:
        """Whether there is an answer for every job and run."""
        return not self.failures and not any(job.why_not or any(run.why_not for run in job.runs) for job in self.jobs)


@dataclass(frozen=True)
class JobVersion:
    """A job of one version. ``vertices``: as `describe_vertex`; ``regions``: name -> (vertices, results)."""

    vertices: Mapping[str, Mapping[str, Any]]
    regions: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]]


@dataclass(frozen=True)
class PlannedVersion:
    """A job of one version, and its plan of one run.

    ``rendered``: fingerprints of operators, where it tells them; ``not_rendered``: what was raised for others.
    """

    job: JobVersion
    plan: PlanRecord
    rendered: Mapping[str, str] = field(default_factory=dict)
    not_rendered: Mapping[str, str] = field(default_factory=dict)


@dataclass
class SharedResults:
    """Which run makes each shared result: the first that wants it; all others read it."""

    made_in: dict[tuple[str, str | None, tuple[ExternalObject, ...]], str] = field(default_factory=dict)


def job_changes(old: JobVersion, new: JobVersion) -> tuple[Change, ...]:
    """What is different between two versions of a job, vertices first."""
    found: list[Change] = []
    for name in [*new.vertices, *(name for name in old.vertices if name not in new.vertices)]:
        if name not in old.vertices:
            found.append(Change(name, "added"))
        elif name not in new.vertices:
            found.append(Change(name, "removed"))
        elif why := differences(old.vertices[name], new.vertices[name]):
            found.append(Change(name, "changed", why))
    return (*found, *_recut(old.regions, new.regions))


def changes_since_recorded(recorded: PlanRecord, new: PlannedVersion) -> tuple[Change, ...]:
    """As `job_changes`, where the old version is the plan in a journal: what its hashes and its regions tell."""
    before = {name: digest for region in recorded.regions for name, digest in region.vertex_fingerprints}
    after = {name: digest for region in new.plan.regions for name, digest in region.vertex_fingerprints}
    known = {name for region in recorded.regions for name in region.vertices}
    found: list[Change] = []
    for name, described in new.job.vertices.items():
        if name not in known:
            found.append(Change(name, "added"))
        elif name in before and before[name] != after.get(name):
            unknown = described["unknown"]
            what = "may have changed" if unknown else "changed"
            why = f"it is templated over {', '.join(unknown)}, which the journal does not hold" if unknown else ONE_HASH
            found.append(Change(name, what, (why,)))
    found += [Change(name, "removed") for name in sorted(known - new.job.vertices.keys())]
    shapes = {_family(region): (region.vertices, region.results) for region in recorded.regions if region.vertices}
    return (*found, *_recut(shapes, new.job.regions))


def _recut(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[Change]:
    found = []
    for name, (vertices, results) in new.items():
        was = old.get(name)
        if was is None:
            pieces = [other for other, (members, _) in old.items() if {*members} & {*vertices}]
            if pieces:
                said = f"{', '.join(vertices)} ran in {', '.join(pieces)} before"
                found.append(Change(name, "cut differently", (said,), is_region=True))
        elif set(was[0]) != set(vertices):
            said = f"runs {', '.join(vertices)} together, before {', '.join(was[0])}"
            found.append(Change(name, "cut differently", (said,), is_region=True))
        elif set(was[1]) != set(results):
            said = f"writes {', '.join(results) or 'nothing'}, before {', '.join(was[1]) or 'nothing'}"
            found.append(Change(name, "cut differently", (said,), is_region=True))
    return found


def run_impact(
    view: RunView,
    old: PlannedVersion | None,
    new: PlannedVersion,
    evaluate: Callable[[PlanRecord, RunState], Evaluation],
    shared: SharedResults,
) -> RunImpact:
    """What would run of one run. ``old``: `None` where that is the plan in its journal. Raises the store's errors.

    ``evaluate`` is told a plan and the state of the plan's regions.
    """
    topologies = [view.in_use.plan, new.plan, *([old.plan] if old is not None else [])]
    names = {name: None for plan in (*view.in_use.recorded, *topologies) for name in plan.by_name}
    state = view.journal.load(view.in_use.listing.of(names))
    said = _Fingerprints((view.in_use.plan, *view.in_use.recorded), state, old, new)

    def plan(topology: PlanRecord) -> Plan:
        own = replace(state, regions={name: state.of(name) for name in topology.by_name})
        return plan_if(evaluate(topology, own), published=view.published)

    before = plan(view.in_use.plan if old is None else said.as_deployed(old.plan))
    certain = plan(said.of(new.plan, unknown_changed=False))
    possible = plan(said.of(new.plan, unknown_changed=True)) if said.unknown else certain
    runs_anyway = {
        (vertex, region.subtask)
        for region in before.regions
        if _runs(region.action)
        for vertex in region.vertices or (region.name,)
    }
    found = []
    notes = said.notes()
    for region in possible.regions:
        planned = certain.of(region.name)
        if not _runs(region.action) and region.action is not Action.WAIT:
            continue
        cost, has_run = _cost(region.name, region.vertices, state, view.in_use.recorded)
        if all((vertex, region.subtask) in runs_anyway for vertex in region.vertices or (region.name,)):
            effect = Effect.ANYWAY
        elif not has_run:
            effect = Effect.FIRST
        else:
            effect = Effect.AGAIN if _runs(planned.action) else Effect.MAYBE
        told = planned if planned.action in NOT_KEPT else region
        made = _finished(state.of(region.name))
        if effect is Effect.ANYWAY and (what := said.given_up(region.name)):
            notes.append(f"{region.name}: without the deploy it would go on from {what}, with it it starts over")
        elif made is not None and not story_of(made).is_whole(made):
            notes.append(f"{region.name}: attempt {made.attempt} went on from earlier ones: it takes at least as long")
        impact = RegionImpact(region.name, region.vertices, effect, told.told, cost)
        found.append(_shared(impact, new.plan.by_name[region.name], state.of(region.name), view, shared))
    again = {region.name for region in found}
    kept = {name: names for name, names in unseen_code(view).items() if name not in again and name in new.plan.by_name}
    if kept:
        notes.append(f"{unseen_text(kept)} They are taken to be unchanged")
    looked_at = set(_declared_otherwise(state, old, new)) - again
    if looked_at:
        notes.append(DECLARED_OTHERWISE.format(", ".join(name for name in new.plan.by_name if name in looked_at)))
    return RunImpact(view.journal.identity.run_key, tuple(found), tuple(notes))


def _declared_otherwise(state: RunState, old: PlannedVersion | None, new: PlannedVersion) -> Iterator[str]:
    """The operators that other tasks read, and find declared otherwise than the attempt that counts has them."""
    for name in new.plan.by_name:
        current = state.of(name).current
        made_by = current.outcome.declared if current is not None and current.outcome is not None else None
        now = new.job.vertices.get(name, {}).get("declared", ())
        before = old.job.vertices.get(name, {}).get("declared", ()) if old is not None else ()
        if made_by is None or not now or {made_by.own, *before} & {*now}:
            continue
        if new.plan.readers.get(name):
            yield name


def _runs(action: Action) -> bool:
    return action in (Action.RUN, Action.REFUSED, Action.BLOCKED)


class _Fingerprints:
    """Whether each region has the fingerprint that its finish in the run has, where a template may hide that."""

    def __init__(
        self, plans: Sequence[PlanRecord], state: RunState, old: PlannedVersion | None, new: PlannedVersion
    ) -> None:
        """``plans``: those that the run has recorded, the one in use first."""
        self._plans = plans
        self._state = state
        self._old = old
        self._new = new
        self.unknown: dict[str, str] = {}
        """The regions of which nobody can say it here, and why."""
        self._same: set[str] = set()
        self._other: set[str] = set()
        for region in new.plan.regions:
            self._look(region)

    def of(self, plan: PlanRecord, *, unknown_changed: bool) -> PlanRecord:
        """The new plan, by what is known. A region without a fingerprint is taken to be of the recorded one."""
        other = self._other | (self.unknown.keys() if unknown_changed else set())
        same = self._same | (set() if unknown_changed else self.unknown.keys())
        return _altered(plan, same, other)

    def as_deployed(self, plan: PlanRecord) -> PlanRecord:
        """The old plan: what may be of the recorded code is taken to be."""
        assert self._old is not None
        vertices = self._old.job.vertices
        uncertain = {region.name for region in plan.regions if _unknown_of(region, vertices) or not region.vertices}
        return _altered(plan, uncertain, set())

    def given_up(self, name: str) -> str:
        """What other code than the deployed one's does not go on from, in words; empty: nothing, or the same code."""
        region = self._new.plan.by_name[name]
        deployed = (self._plans[0] if self._old is None else self._old.plan).by_name.get(name)
        if deployed is None or deployed.fingerprint == region.fingerprint:
            return ""
        if self._old is None and _unknown_of(region, self._new.job.vertices):
            return ""
        return story_of_region(region).goes_on_from(self._state.of(name))

    def notes(self) -> list[str]:
        """What could not be known, by name; and where the run was made by other code than the old version's."""
        by_reason: dict[str, list[str]] = {}
        for name, why in self.unknown.items():
            by_reason.setdefault(why, []).append(name)
        found = [f"{', '.join(names)}: {why}" for why, names in by_reason.items()]
        if self._old is None:
            return found
        vertices = self._old.job.vertices
        others = [
            region.name
            for region in self._old.plan.regions
            if region.fingerprint is not None
            and (made := _finished(self._state.of(region.name))) is not None
            and made.fingerprint != region.fingerprint
            and not _unknown_of(region, vertices)
            and region.vertices
        ]
        if others:
            found.append(f"made by other code than --from: {', '.join(others)}")
        return found

    def _look(self, region: RegionPlan) -> None:
        current = self._state.of(region.name).current
        made = current.outcome.fingerprint if current is not None and current.outcome is not None else None
        if made is None or made == region.fingerprint:
            return
        vertices = self._new.job.vertices
        unknown = _unknown_of(region, vertices)
        if self._is_operator(region):
            rendered = self._new.rendered.get(region.name)
            if made in (vertices[region.name]["fingerprint"], rendered):
                self._same.add(region.name)
                return
            unknown = (
                unknown if unknown and rendered is None else ["what its own task finds, such as files of the worker"]
            )
        elif not unknown and region.vertices:
            return  # what it has is right, and is another one
        self._compare(region, made, unknown)

    def _compare(self, region: RegionPlan, made: str, unknown: Sequence[str]) -> None:
        """The fingerprint can't be computed for this run, but the two versions can be compared."""
        before = None if self._old is None else self._old.plan.by_name.get(region.name)
        if self._old is not None and (before is not None or not region.vertices):
            old = self._old.job.vertices
            is_same = before is not None and (before.vertices, before.results) == (region.vertices, region.results)
            if is_same and not region.vertices and before is not None:
                is_same = before.fingerprint == region.fingerprint
            if is_same and not any(differences(old[name], self._new.job.vertices[name]) for name in region.vertices):
                self._same.add(region.name)
            else:
                self._other.add(region.name)
            return
        # Also where the old version has no such region: one before it has made what the run holds of it.
        planned = [plan.by_name[region.name] for plan in self._plans if region.name in plan.by_name]
        recorded = next((each for each in planned if each.fingerprint == made), planned[0] if planned else None)
        known = dict(recorded.vertex_fingerprints) if recorded is not None else {}
        if (
            recorded is None
            or (recorded.vertices, recorded.results) != (region.vertices, region.results)
            or any(
                known.get(name, digest) != digest and not self._new.job.vertices[name]["unknown"]
                for name, digest in region.vertex_fingerprints
            )
        ):
            self._other.add(region.name)
        else:
            error = self._new.not_rendered.get(region.name)
            what = f"over {', '.join(unknown)}" if unknown else "when it runs"
            why = f"since rendering it here raises {error}" if error else f"without rendering it {what}"
            self.unknown[region.name] = f"can't be known {why}: it counts as one that may run"

    def _is_operator(self, region: RegionPlan) -> bool:
        return region.fingerprint is None and "fingerprint" in self._new.job.vertices.get(region.name, {})


def _unknown_of(region: RegionPlan, vertices: Mapping[str, Mapping[str, Any]]) -> list[str]:
    return sorted({name for vertex in region.vertices if vertex in vertices for name in vertices[vertex]["unknown"]})


def _altered(plan: PlanRecord, same: Iterable[str], other: Iterable[str]) -> PlanRecord:
    fingerprints: dict[str, str | None] = {**dict.fromkeys(same), **dict.fromkeys(other, _OTHER)}
    if not fingerprints:
        return plan
    return replace(
        plan,
        regions=tuple(
            replace(region, fingerprint=fingerprints[region.name]) if region.name in fingerprints else region
            for region in plan.regions
        ),
    )


def _shared(
    impact: RegionImpact, region: RegionPlan, state: RegionState, view: RunView, shared: SharedResults
) -> RegionImpact:
    """Of a shared result that is made once for all runs, the first run alone has the cost."""
    if not region.persistent or impact.effect not in (Effect.AGAIN, Effect.MAYBE):
        return impact
    made = _finished(state)
    key = (region.name, region.fingerprint, made.externals if made is not None else ())
    run_key = view.journal.identity.run_key
    first = shared.made_in.setdefault(key, run_key)
    return impact if first == run_key else replace(impact, cost=Cost(0.0, 0, 0), made_in=first)


def _cost(name: str, vertices: Sequence[str], state: RunState, recorded: Sequence[PlanRecord]) -> tuple[Cost, bool]:
    """What the last finish has cost, and whether it, or its vertices in other regions, ever ran in this run."""
    made = _finished(state.of(name))
    if not vertices:  # what decides the subtasks of others starts no Spark
        return Cost(0.0, 0, 0), made is not None
    earlier = [plan.by_name[name] for plan in recorded if name in plan.by_name]
    if made is not None and any(set(region.vertices) == set(vertices) for region in earlier):
        return _measured(made), True
    pieces = {region.name for plan in recorded for region in plan.regions if set(region.vertices) & set(vertices)}
    costs = [_measured(outcome) for piece in sorted(pieces) if (outcome := _finished(state.of(piece))) is not None]
    if not costs:
        return Cost(), False
    return (
        Cost(
            _sum_or_none([cost.seconds for cost in costs]),
            _sum_or_none([cost.read for cost in costs]),
            _sum_or_none([cost.written for cost in costs]),
            is_estimate=True,
        ),
        True,
    )


def _measured(outcome: Outcome) -> Cost:
    read = outcome.read.bytes if outcome.read is not None else None
    if {*outcome.mode.attempts} - {outcome.attempt}:  # made of others' work, too: what these have read is not in it
        read = max(read or 0, sum(external.size for external in outcome.externals))
    written = sum(output.size for output in outcome.outputs)
    return Cost(outcome.spark_seconds, read, written, is_estimate=not story_of(outcome).is_whole(outcome))


def _finished(state: RegionState) -> Outcome | None:
    """The outcome of the last attempt that has finished, whether it counts or not."""
    found = [n for n, attempt in state.attempts.items() if attempt.is_finished]
    outcome = state.attempts[max(found)].outcome if found else None
    return outcome if outcome is not None and outcome.state is AttemptState.FINISHED else None


def with_estimates(runs: Sequence[RunImpact]) -> tuple[RunImpact, ...]:
    """Where a run has not recorded the seconds of a region, the longest that another run has of it."""
    longest: dict[str, float] = {}
    for run in runs:
        for region in run.regions:
            if region.cost.seconds:
                longest[region.name] = max(longest.get(region.name, 0.0), region.cost.seconds)

    def estimated(region: RegionImpact) -> RegionImpact:
        if region.cost.seconds is not None or region.name not in longest or region.effect is Effect.FIRST:
            return region
        return replace(region, cost=replace(region.cost, seconds=longest[region.name], is_estimate=True))

    return tuple(replace(run, regions=tuple(map(estimated, run.regions))) for run in runs)


def _family(region: RegionPlan) -> str:
    return region.name if region.subtask is None else region.subtask.of


def _sum(values: Iterable[float | None]) -> float:
    return sum(value for value in values if value is not None)


def _sum_or_none(values: Sequence[Any]) -> Any:
    return None if None in values else sum(values)
