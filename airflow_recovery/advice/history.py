"""What past runs tell of each vertex: seconds, bytes, failures. What they can't tell is named, and how it is taken.

A vertex that shares its region with others has no time of its own in a journal: only the region's is measured. Its
share is what fits every way in which the pipeline was cut so far, and as equal as that leaves open (`shared_seconds`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from airflow_recovery.errors import Failure
from airflow_recovery.journal.run_state import RunState
from airflow_recovery.model.determinism import Determinism
from airflow_recovery.model.groups import RegionGroup
from airflow_recovery.model.mode import BATCH
from airflow_recovery.model.records import AttemptState, FenceCause, Outcome, PlanRecord

CLASS_LABEL = "class"
ROUNDS = 200


@dataclass(frozen=True)
class PastRun:
    """One run as its journal has it. ``attempt_s``: seconds from claim to end, by region and attempt, where known."""

    run_key: str
    plan: PlanRecord
    state: RunState
    attempt_s: Mapping[tuple[str, int], float] = field(default_factory=dict)


@dataclass
class VertexHistory:
    """What is known of one vertex. ``seconds``: of the region that it is alone in, or its share of a region's.

    ``alone``: in how many runs it had a region of its own. ``bytes`` of its result, `None` where it was never written.
    ``failures`` by kind; one that names no vertex is shared among those of its region, so they need not be whole.
    ``exposure_s``: seconds in which it could have failed. ``remade``: how often its result was made again after it was
    there, and ``remade_alike`` of these with as many rows and bytes. ``objects``: how many it reads from outside.
    """

    name: str
    inputs: tuple[str, ...] = ()
    seconds: float = 0.0
    alone: int = 0
    bytes: int | None = None
    failures: dict[str, float] = field(default_factory=dict)
    exposure_s: float = 0.0
    finishes: int = 0
    losses: int = 0
    remade: int = 0
    remade_alike: int = 0
    objects: int = 0

    @property
    def failed(self) -> float:
        """All failures."""
        return sum(self.failures.values())


@dataclass(frozen=True)
class History:
    """The vertices of ``plan``, the newest one, in its order, and what ``runs`` have told of them.

    ``notes``: what could not be used or is not known, each in a sentence. ``region_s``: what a region takes beyond its
    Spark time (median), `None` where no claim was read. ``finishes``: attempts that have finished, or failed of their
    own.
    """

    plan: PlanRecord
    runs: int
    vertices: Mapping[str, VertexHistory]
    region_s: float | None
    finishes: int
    notes: tuple[str, ...] = ()

    @property
    def failures(self) -> float:
        """All failures of all vertices."""
        return sum(vertex.failed for vertex in self.vertices.values())

    @property
    def exposure_s(self) -> float:
        """The seconds of work in which they have come."""
        return sum(vertex.exposure_s for vertex in self.vertices.values())


def steps_of(group: RegionGroup) -> tuple[str, ...]:
    """The vertices of a region; of one that has none (it decides a parallelism), the region itself."""
    return group.template.vertices or (group.name,)


def history_of(runs: Sequence[PastRun], inputs: Mapping[str, tuple[str, ...]] | None = None) -> History:
    """Of ``runs``, the oldest first, at least one. ``inputs``: what each vertex reads, where the job's code was asked.

    Runs of another job, which shares no vertex with the newest, are left out and named.
    """
    return _Reading(runs, inputs).history()


class _Reading:
    def __init__(self, runs: Sequence[PastRun], inputs: Mapping[str, tuple[str, ...]] | None) -> None:
        self._plan = runs[-1].plan
        self._declared = inputs
        self._notes: list[str] = []
        names = {name for group in self._plan.groups for name in steps_of(group)}
        self._runs = [run for run in runs if names & {name for group in run.plan.groups for name in steps_of(group)}]
        others: dict[str, list[str]] = {}
        for run in runs:
            if run not in self._runs:
                others.setdefault(run.plan.job, []).append(run.run_key)
        self._notes += [
            f"{len(keys)} runs are of another job under this DAG id, {job!r} (the newest is {keys[-1]}), and have no "
            f"vertex of {self._plan.job!r}: left out."
            for job, keys in others.items()
        ]
        self._vertices = {name: VertexHistory(name) for name in names}
        self._spark_s: dict[frozenset[str], list[float]] = {}
        self._finishes = 0
        self._beyond_s: list[float] = []
        self._sizes: dict[str, list[int]] = {}
        self._failures: list[tuple[tuple[str, ...], Failure | None]] = []

    def history(self) -> History:
        for run in self._runs:
            for group in run.plan.groups:
                self._read(run, group)
        self._say_cuts()
        for name, sizes in self._sizes.items():
            self._vertices[name].bytes = int(median(sizes))
        observed = [(members, median(seconds), len(seconds)) for members, seconds in self._spark_s.items()]
        for name, seconds in shared_seconds(observed).items():
            if name in self._vertices:
                self._vertices[name].seconds = seconds
        self._connect()
        self._attribute()
        ordered = {name: self._vertices[name] for group in self._plan.groups for name in steps_of(group)}
        return History(
            self._plan,
            len(self._runs),
            ordered,
            median(self._beyond_s) if self._beyond_s else None,
            self._finishes,
            tuple(self._notes),
        )

    def _read(self, run: PastRun, group: RegionGroup) -> None:
        """All attempts of a group of regions in one run."""
        members = steps_of(group)
        known = [name for name in members if name in self._vertices]
        seconds: list[float] = []
        for region in group.names:
            finished: list[Outcome] = []
            for number, attempt in sorted(run.state.of(region).attempts.items()):
                outcome = attempt.outcome
                if outcome is None or outcome.shared is not None:
                    continue
                if attempt.is_lost:
                    for name in known:
                        self._vertices[name].losses += 1
                if outcome.state is AttemptState.FINISHED:
                    finished.append(outcome)
                    self._beyond(run, region, number, outcome)
                elif outcome.cause is FenceCause.OWN_FAILURE:
                    self._failures.append((members, outcome.failure))
                    self._finishes += 1
            if finished:
                self._finished(known, group, finished)
                seconds += [outcome.spark_seconds for outcome in finished if outcome.spark_seconds is not None]
        if seconds:
            mean = sum(seconds) / len(seconds)
            self._spark_s.setdefault(frozenset(members), []).append(mean * len(group))
            if len(members) == 1 and known:
                self._vertices[known[0]].alone += 1

    def _beyond(self, run: PastRun, region: str, number: int, outcome: Outcome) -> None:
        whole = run.attempt_s.get((region, number))
        if whole is not None and outcome.spark_seconds is not None:
            self._beyond_s.append(max(0.0, whole - outcome.spark_seconds))

    def _finished(self, known: Iterable[str], group: RegionGroup, finished: list[Outcome]) -> None:
        self._finishes += len(finished)
        for name in known:
            vertex = self._vertices[name]
            vertex.finishes += len(finished)
            vertex.objects = max(
                vertex.objects,
                *(sum(external.vertex == name for external in outcome.externals) for outcome in finished),
            )
            made = [
                [(output.rows, output.size) for output in outcome.outputs if _vertex_of(output.result, group) == name]
                for outcome in finished
            ]
            if made[-1]:
                self._sizes.setdefault(name, []).append(sum(size for _, size in made[-1]) * len(group))
            vertex.remade += len(made) - 1
            vertex.remade_alike += sum(before == after for before, after in pairwise(made))

    def _connect(self) -> None:
        """What each vertex reads: as declared; of one that had a region of its own, as planned; else the one before."""
        planned: dict[str, tuple[str, ...]] = {}
        for run in self._runs:
            for group in run.plan.groups:
                if len(steps_of(group)) == 1:
                    planned[steps_of(group)[0]] = _reads(run.plan, group)
        guessed: list[str] = []
        for group in self._plan.groups:
            before: tuple[str, ...] = _reads(self._plan, group)
            members = steps_of(group)
            for name in members:
                inputs = (self._declared or {}).get(name)
                if inputs is None:
                    inputs = planned.get(name)
                if inputs is None:
                    inputs = before
                    guessed += [name] if len(members) > 1 else []
                self._vertices[name].inputs = tuple(read for read in inputs if read in self._vertices)
                before = (name,)
        if guessed:
            self._notes.append(
                f"Which vertices {', '.join(guessed)} read stands in no journal: each is taken to read the one before "
                "it in its region. With --job the job's code says it."
            )

    def _attribute(self) -> None:
        """Failures to vertices; then the seconds in which each could have failed: half its own where it did."""
        unnamed = 0
        for members, failure in self._failures:
            kind = _kind(failure)
            named = failure.vertex if failure is not None else None
            if named in self._vertices and named in members:
                shares = {named: 1.0}
            else:
                unnamed += len(members) > 1
                known = [name for name in members if name in self._vertices]
                whole = sum(self._vertices[name].seconds for name in known)
                shares = {name: self._vertices[name].seconds / whole if whole else 1 / len(known) for name in known}
            for name, share in shares.items():
                counts = self._vertices[name].failures
                counts[kind] = counts.get(kind, 0.0) + share
        subtasks = {name: len(group) for group in self._plan.groups for name in steps_of(group)}
        for name, vertex in self._vertices.items():
            vertex.exposure_s = vertex.seconds / subtasks[name] * (vertex.finishes + vertex.failed / 2)
        if unnamed:
            self._notes.append(
                f"{unnamed} failures of regions with several vertices name none of them: shared by their seconds."
            )

    def _say_cuts(self) -> None:
        def cut(plan: PlanRecord) -> set[tuple[str, ...]]:
            return {steps_of(group) for group in plan.groups}

        others = [run for run in self._runs if cut(run.plan) != cut(self._plan)]
        if others:
            self._notes.append(
                f"{len(others)} of {len(self._runs)} runs were cut differently, or had other vertices (the newest of "
                f"them is {others[-1].run_key}): used for the vertices that are still there."
            )
        unfinished = [group.name for group in self._plan.groups if not self._has_seconds(group)]
        if unfinished:
            self._notes.append(
                f"No run has finished {', '.join(unfinished)}: how long these take is not known, and their "
                "boundaries stay as they are in what follows."
            )

    def _has_seconds(self, group: RegionGroup) -> bool:
        measured = {name for members in self._spark_s for name in members}
        return set(steps_of(group)) <= measured


def shared_seconds(observed: Sequence[tuple[frozenset[str], float, int]]) -> dict[str, float]:
    """The seconds of each vertex, from those of regions: (vertices, seconds, runs) of each way that they were cut.

    Begins with equal shares, and scales them until they add up to what was observed as well as they can: the most
    likely ones (expectation maximisation of Poisson counts). What no region tells apart stays equal.
    """
    seconds = {name: 1.0 for members, _, _ in observed for name in members}
    of: dict[str, list[int]] = {name: [] for name in seconds}
    for at, (members, _, _) in enumerate(observed):
        for name in members:
            of[name].append(at)
    for _ in range(ROUNDS):
        ratios = [spent / max(sum(seconds[name] for name in members), 1e-9) for members, spent, _ in observed]
        for name, observations in of.items():
            weight = sum(observed[at][2] for at in observations)
            seconds[name] *= sum(observed[at][2] * ratios[at] for at in observations) / weight
    return seconds


def is_measured(group: RegionGroup, history: History) -> bool:
    """Whether runs have told how long each vertex of it takes, alone or shared."""
    return all(history.vertices[name].finishes for name in steps_of(group))


def fixed_because(plan: PlanRecord, group: RegionGroup) -> str:
    """Why the results of this region stay written, whatever that costs; empty where they need not."""
    template = group.template
    if ":" not in plan.job:
        return "an application of your own"
    if template.persistent:
        return "shared between runs"
    if template.mode != BATCH:
        return f"its region runs {template.mode.name}"
    if group.keys is not None or not template.vertices:
        return "it has subtasks"
    return ""


def determinism_of(group: RegionGroup, result: str) -> Determinism:
    """What the user says of the rows of one of its results."""
    return dict(group.template.determinism).get(result, Determinism.ALWAYS)


def median(values: Iterable[float]) -> float:
    """The middle one, or the mean of the two in the middle."""
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def _reads(plan: PlanRecord, group: RegionGroup) -> tuple[str, ...]:
    """The vertices of other regions that this one reads. Where the plan names no results: all of its inputs'."""
    wanted = group.template.reads
    producers = [plan.groups_by_name[edge.group] for edge in group.inputs]
    vertices = (
        _vertex_of(result, producer)
        for producer in producers
        for result in producer.template.results or (producer.name,)
        if not wanted or result in wanted
    )
    names = dict.fromkeys(vertices)
    names |= dict.fromkeys(producer.name for producer in producers if not producer.template.results)
    return tuple(names)


def _vertex_of(result: str, group: RegionGroup) -> str:
    """The vertex that makes a result: it bears its name; an application of a user's own makes several."""
    members = steps_of(group)
    return result if result in members else members[-1]


def _kind(failure: Failure | None) -> str:
    if failure is None:
        return "unknown"
    return dict(failure.labels).get(CLASS_LABEL) or failure.type
