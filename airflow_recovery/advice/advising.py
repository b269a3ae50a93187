"""From what past runs tell to what a person is advised: which boundary to cut or glue, and how sure that is."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from airflow_recovery.advice.costs import Expected, Pipeline, Prices, Step, Stretch
from airflow_recovery.advice.history import (
    History,
    determinism_of,
    fixed_because,
    is_measured,
    steps_of,
)
from airflow_recovery.advice.search import best_cuts
from airflow_recovery.model.determinism import Determinism

REGION_S = 10.0
"""What a region takes beyond its work, where no run tells."""
COMMIT_S = 2.0
"""What a committed batch of splits takes beyond its work: an assumption, of the order of a write and a record."""
WORTH = 0.01
"""Advice that saves less than this part of the expected time is not given."""


@dataclass(frozen=True)
class Assumed:
    """What the user says in place of history: mean seconds of work between failures, bytes/s of the results' store."""

    mtbf_s: float | None = None
    bytes_per_s: float = 1e8


@dataclass(frozen=True)
class Boundary:
    """A result between vertices. ``costs_s``: what it costs to write it, beside gluing it; ``saves_s``: of recovery.

    Both with all other boundaries as advised. ``moved_bytes``: written, and read again by each reader; ``is_guessed``:
    it was never written, so that the bytes are those of its region's border. ``fixed``: why it can't be changed.
    """

    result: str
    readers: tuple[str, ...]
    is_cut: bool
    advised: bool
    moved_bytes: int
    is_guessed: bool
    costs_s: float
    saves_s: float
    fixed: str = ""


@dataclass(frozen=True)
class Change:
    """One thing to do. ``what``: ``cut``, ``glue``, ``verify``, ``cache`` or ``splits``; ``of``: a vertex.

    ``before`` and ``after``: a run without this change and with it, with all other cuts as advised. ``how_sure``: a
    sentence. Only cuts and glued boundaries are in `Advice.best`.
    """

    what: str
    of: str
    before: Expected
    after: Expected
    why: str
    how_sure: str


@dataclass(frozen=True)
class Advice:
    """``now`` and ``best``: a run with the cuts of now, and with those advised. ``how``: how these were searched for.

    ``mtbf_s``: mean seconds of work between failures, `None` where nothing has failed and no rate was given;
    ``is_given``: the user has given it. ``notes``: what is not known, and how it was taken.
    """

    job: str
    runs: int
    finishes: int
    failures: float
    kinds: Mapping[str, float]
    mtbf_s: float | None
    is_given: bool
    region_s: float
    now: Expected
    best: Expected
    how: str
    is_exact: bool
    boundaries: tuple[Boundary, ...]
    changes: tuple[Change, ...]
    notes: tuple[str, ...]

    def in_one_line(self) -> str:
        """The whole of it in one line."""
        if self.mtbf_s is None:
            return f"{self.runs} runs, and nothing has failed: what a cut saves can't be told without --mtbf."
        if not self.changes:
            return f"Leave it as it is: {_text(self.now)} a run is within {WORTH:.0%} of the best found."
        first = self.changes[0]
        more = f", and {len(self.changes) - 1} more" if len(self.changes) > 1 else ""
        return f"{first.what} {first.of}{more}: {_text(self.now)} a run now, {_text(self.best)} with the cuts advised."


def advise(history: History, assumed: Assumed = Assumed()) -> Advice:
    """What to change, by the cheapest cuts of `airflow_recovery.advice.search`. Changes nothing."""
    notes = list(history.notes)
    region_s = REGION_S if history.region_s is None else history.region_s
    if history.region_s is None:
        notes.append(f"No claim's time was read: a region is taken to cost {REGION_S:g} s beyond its work.")
    prices = Prices(region_s, assumed.bytes_per_s)
    pooled = _pooled_rate(history, assumed)
    pipeline = _pipeline(history, prices, pooled, assumed.mtbf_s is not None, 1.0)
    if pooled == 0.0:
        notes.append(
            f"No failure in {history.exposure_s:,.0f} s of work of {history.finishes} attempts: give a rate with "
            "--mtbf, such as --mtbf 12h, to be advised. At this many seconds, one failure in less than "
            f"{history.exposure_s / 3:,.0f} s can be excluded (95 %)."
        )
    best = best_cuts(pipeline)
    now = pipeline.expected(pipeline.as_it_is)
    # What is hardly worth a change is not one.
    is_worth = pooled > 0 and now.total_s - best.expected.total_s > WORTH * now.total_s
    cuts = best.cuts if is_worth else pipeline.as_it_is
    guessed = _guessed(history)
    if guessed:
        notes.append(
            f"Never written, so of unknown size: {', '.join(guessed)}. Each is taken to be as large as the largest "
            "result that its region reads or writes."
        )
    kinds: dict[str, float] = {}
    for vertex in history.vertices.values():
        for kind, count in vertex.failures.items():
            kinds[kind] = kinds.get(kind, 0.0) + count
    changes = [
        *_cut_changes(history, assumed, pipeline, cuts, prices, pooled),
        *(_other_changes(history, pipeline, cuts, pooled) if pooled else ()),
    ]
    return Advice(
        history.plan.job,
        history.runs,
        history.finishes,
        history.failures,
        {kind: round(count, 6) for kind, count in kinds.items()},
        1 / pooled if pooled else None,
        assumed.mtbf_s is not None,
        region_s,
        now,
        pipeline.expected(cuts),
        best.how,
        best.is_exact,
        tuple(_boundary(history, pipeline, name, cuts, guessed) for name in _read(pipeline)),
        tuple(sorted(changes, key=lambda change: change.after.total_s - change.before.total_s)),
        tuple(notes),
    )


def _pooled_rate(history: History, assumed: Assumed) -> float:
    if assumed.mtbf_s is not None:
        return 1 / assumed.mtbf_s
    return history.failures / history.exposure_s if history.failures and history.exposure_s else 0.0


def _pipeline(history: History, prices: Prices, pooled: float, is_given: bool, times: float) -> Pipeline:
    """The vertices as steps. ``times``: as if failures were so many times as frequent."""
    plan = history.plan
    written = {name for group in plan.groups for name in _written(history, steps_of(group))}
    held = _held(history)
    steps = []
    for group in plan.groups:
        members = steps_of(group)
        for name in members:
            vertex = history.vertices[name]
            readers = [other for other in history.vertices.values() if name in other.inputs]
            is_cut = any(reader.name not in members for reader in readers)
            size = _bytes(history, members, name)
            io_s = (size if name in written else 0) / prices.bytes_per_s + sum(
                _bytes(history, (read,), read) / prices.bytes_per_s for read in vertex.inputs if read not in members
            )
            rate = pooled
            if not is_given and pooled:
                # One more failure, at the rate of all: a vertex of little evidence has nearly that rate.
                rate = (vertex.failed + 1) / (vertex.exposure_s + 1 / pooled)
            steps.append(
                Step(
                    name,
                    vertex.inputs,
                    max(0.0, vertex.seconds - io_s),
                    size,
                    rate * times,
                    vertex.losses / history.runs,
                    is_sink=name in group.template.results and not readers,
                    is_cut=is_cut,
                    is_fixed=name in held,
                    subtasks=len(group),
                )
            )
    return Pipeline(steps, prices)


def _held(history: History) -> dict[str, str]:
    """The vertices whose result stays as it is, and why."""
    held: dict[str, str] = {}
    for group in history.plan.groups:
        why = fixed_because(history.plan, group)
        if not why and not is_measured(group, history):
            why = "no run has finished it"
        if why:
            for name in steps_of(group):
                held.setdefault(name, why)
                for read in history.vertices[name].inputs:
                    held.setdefault(read, f"of its reader {name}: {why}")
    return held


def _written(history: History, members: tuple[str, ...]) -> set[str]:
    """Those of a region's vertices whose results it writes."""
    group = next(group for group in history.plan.groups if steps_of(group) == members)
    return set(group.template.results) or {members[-1]}


def _bytes(history: History, members: tuple[str, ...], name: str) -> int:
    known = history.vertices[name].bytes
    if known is not None:
        return known
    border = {*members, *(read for member in members for read in history.vertices[member].inputs)}
    return max((history.vertices[vertex].bytes or 0 for vertex in border), default=0)


def _guessed(history: History) -> list[str]:
    read = {name for vertex in history.vertices.values() for name in vertex.inputs}
    return [name for name, vertex in history.vertices.items() if vertex.bytes is None and name in read]


def _read(pipeline: Pipeline) -> list[str]:
    return [step.name for step in pipeline.steps if pipeline.readers[step.name]]


def _boundary(history: History, pipeline: Pipeline, name: str, cuts: frozenset[str], guessed: list[str]) -> Boundary:
    with_it, without = pipeline.expected(cuts | {name}), pipeline.expected(cuts - {name})
    readers = tuple(pipeline.readers[name])
    return Boundary(
        name,
        readers,
        name in pipeline.as_it_is or pipeline.by_name[name].is_cut,
        name in cuts,
        pipeline.by_name[name].bytes * (1 + len(readers)),
        name in guessed,
        with_it.run_s - without.run_s,
        without.recovery_s - with_it.recovery_s,
        _held(history).get(name, ""),
    )


def _cut_changes(
    history: History,
    assumed: Assumed,
    pipeline: Pipeline,
    cuts: frozenset[str],
    prices: Prices,
    pooled: float,
) -> list[Change]:
    changed = cuts ^ pipeline.as_it_is
    if not changed:
        return []
    low, high = _interval(history.failures)
    is_given = assumed.mtbf_s is not None
    if is_given:
        low, high = 0.5, 2.0
    holds = {times: best_cuts(_pipeline(history, prices, pooled, is_given, times)).cuts for times in (low, high)}
    after = pipeline.expected(cuts)
    changes = []
    for name in sorted(changed):
        is_cut = name in cuts
        agree = [times for times, others in holds.items() if (name in others) == is_cut]
        based = "the rate that was given" if is_given else f"{history.failures:g} failures in {history.runs} runs"
        sure = f"rests on {based}; the same if failures were {low:.2g} or {high:.2g} times as frequent"
        if len(agree) == 1:
            sure = f"rests on {based}; the same at {agree[0]:.2g} times as many failures, but not at the other end"
        elif not agree:
            sure = f"rests on {based}; not the same at {low:.2g} or {high:.2g} times as many"
        readers = ", ".join(pipeline.readers[name])
        why = (
            f"what is behind it ({readers}) fails often enough for what is before it to be kept"
            if is_cut
            else f"writing it and reading it again ({readers}) costs more than it saves"
        )
        changes.append(Change("cut" if is_cut else "glue", name, pipeline.expected(cuts ^ {name}), after, why, sure))
    return changes


def _interval(failures: float) -> tuple[float, float]:
    """Between how many times what was seen the true rate lies (95 %, Wilson and Hilferty's approximation)."""
    if not failures:
        return 0.5, 2.0
    low = failures * (1 - 1 / (9 * failures) - 1.96 / (3 * math.sqrt(failures))) ** 3
    more = failures + 1
    high = more * (1 - 1 / (9 * more) + 1.96 / (3 * math.sqrt(more))) ** 3
    return max(0.01, low / failures), high / failures


def _other_changes(history: History, pipeline: Pipeline, cuts: frozenset[str], pooled: float) -> list[Change]:
    """What to verify or cache, and which source to commit split by split. Each by itself, with the cuts advised."""
    all_ = pipeline.expected(cuts)
    regions = {step.name: region for region in pipeline.regions(cuts) for step in region}
    expected = {name: pipeline.region_expected(region)[1] for name, region in regions.items()}
    groups = {name: group for group in history.plan.groups for name in steps_of(group)}
    changes = []
    for step in pipeline.steps:
        vertex, readers, io_s = history.vertices[step.name], pipeline.readers[step.name], pipeline.io_s(step)
        is_cut = step.name in cuts and bool(readers)
        again_s = sum({id(regions[name]): expected[name] for name in readers}.values())
        if is_cut and vertex.remade and determinism_of(groups[step.name], step.name) is Determinism.ALWAYS:
            often, alike = vertex.remade / history.runs, vertex.remade_alike / vertex.remade
            before = replace(all_, recovery_s=all_.recovery_s + often * again_s)
            after = Expected(all_.run_s + io_s, all_.recovery_s + often * (1 - alike) * again_s)
            seen = f"made again {vertex.remade} times in {history.runs} runs, {vertex.remade_alike} times as large"
            changes.append(
                Change("verify", step.name, before, after, seen, "its readers keep theirs if rows are equal")
            )
        if is_cut and not step.is_fixed and not step.is_sink:
            saved_s = io_s * (1 + len(readers))
            lost_s = pooled * (expected[step.name] + again_s) * expected[step.name]
            after = Expected(all_.run_s - saved_s, all_.recovery_s + lost_s)
            why = "cheaper kept by a Spark Connect server than written (result=CACHED; only over Spark Connect)"
            changes.append(
                Change("cache", step.name, all_, after, why, "takes the server to fail as often as the work")
            )
        if not step.inputs and vertex.objects > 1 and not step.is_fixed and groups[step.name].keys is None:
            best_s = math.sqrt(2 * COMMIT_S / step.failures_per_s)
            parts = min(vertex.objects, max(1, round(step.seconds / best_s)))
            whole = Stretch.of(step.seconds, step.failures_per_s).expected_s - step.seconds
            split_s = Stretch.of(step.seconds / parts + COMMIT_S, step.failures_per_s).expected_s * parts
            run_s = all_.run_s + COMMIT_S * parts
            rest_s = split_s - step.seconds - COMMIT_S * parts
            after = Expected(run_s, max(0.0, all_.recovery_s - whole + rest_s))
            why = f"{vertex.objects} objects: commit about every {best_s:,.0f} s of work (Young)"
            changes.append(Change("splits", step.name, all_, after, why, f"takes a commit to cost {COMMIT_S:g} s"))
    return [change for change in changes if change.before.total_s - change.after.total_s > WORTH * all_.total_s]


def _text(expected: Expected) -> str:
    return f"{expected.total_s:,.0f} s ({expected.run_s:,.0f} + {expected.recovery_s:,.0f} of recovery)"
