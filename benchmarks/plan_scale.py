"""What a plan costs: 1,000 regions of a random DAG, and how the cost grows to 100,000 execution vertices."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from airflow_recovery.journal.run_state import Attempt, RegionState, RunState
from airflow_recovery.model.groups import DistributionPattern, GroupEdge, GroupedRegions, RegionGroup
from airflow_recovery.model.inputs import InputRef
from airflow_recovery.model.manifest import PartitionManifest, ResultObject
from airflow_recovery.model.records import AttemptState, Outcome, PlanRecord
from airflow_recovery.model.region_plan import CoordinatorPlan, RegionPlan
from airflow_recovery.planning.evaluation import Available, Evaluation
from airflow_recovery.planning.plan import Plan
from airflow_recovery.planning.plan_making import plan
from airflow_recovery.planning.plan_text import plan_text
from airflow_recovery.planning.reason import Reason, Why
from airflow_recovery.planning.scenario import REBUILD, PartitionGone, RegionFailure, Request, RestartRegion, Together
from benchmarks.report import Figure, Report, Table, summary

JOB_VERTICES = 1_000
SIZES = (1_000, 3_000, 10_000, 30_000, 100_000)
LADDERS = (100, 200, 400, 800)
VERTICES = (500, 1_000, 2_000, 4_000)
MOST_INPUTS = 3
REACH = 50
"""How far back, in topological order, an input may lie: long chains and much sharing, as in a real pipeline."""


class Case(NamedTuple):
    """What a plan is made of."""

    topology: PlanRecord
    state: RunState
    available: Available
    request: Request

    def plan(self) -> Plan:
        """Make it."""
        return plan(self.topology, self.state, self.available, self.request)


def measure(folder: Path, repeats: int | None) -> Report:
    """In this process: a plan is pure, so nothing else is started or asked."""
    del folder
    rounds = repeats or 5
    topology, state = random_run(JOB_VERTICES)
    requests = {
        "the run as it is": REBUILD,
        "restart a source": RestartRegion("r0"),
        "restart one in the middle, and lose ten results": Together(
            (RestartRegion(f"r{JOB_VERTICES // 2}"), *(PartitionGone(f"r{at * 97 % JOB_VERTICES}") for at in range(10)))
        ),
    }
    table, samples, slowest = [], {}, 0.0
    for said, request in requests.items():
        found, times = _timed(rounds, lambda request=request: plan(topology, state, _there, request))  # type: ignore[misc]
        samples[said] = times
        slowest = max(slowest, median(times))
        table.append((said, len(found.running), *summary([1000 * candidate for candidate in times])))
    text = _timed(rounds, lambda: plan_text(found))[1]
    document = _timed(rounds, lambda: Plan.from_json(json.loads(json.dumps(found.to_json()))))[1]
    evaluation = _timed(rounds, lambda: _evaluate(topology, state))[1]
    growth, by_size = _growth(max(1, rounds // 2))
    shapes = [*_shape("ladder", ladder, LADDERS, rounds), *_shape("volatile vertex", volatile_vertex, VERTICES, rounds)]
    first, last = by_size[SIZES[0]] / SIZES[0], by_size[SIZES[-1]] / SIZES[-1]
    return Report(
        name="plan_scale",
        title=f"A plan for {JOB_VERTICES} job vertices in a random DAG, and up to {SIZES[-1]} execution vertices",
        method=(
            f"A finished run of a random DAG: each region reads up to {MOST_INPUTS} of the {REACH} before it. "
            "Availability is answered from memory, so the figures are the planner's own. Every request is planned "
            "anew, from the records of the run to the finished plan with all reasons."
        ),
        figures=[
            Figure("slowest of three plans", 1000 * slowest, "ms"),
            Figure("text of the plan", 1000 * median(text), "ms"),
            Figure("JSON and back", 1000 * median(document), "ms"),
            Figure("what all regions' own pre-checks judge, for comparison", 1000 * median(evaluation), "ms"),
            Figure(f"a vertex at {SIZES[-1]} against one at {SIZES[0]}", last / first, "times"),
            Figure(f"a ladder of {LADDERS[-1]}, all producers lost", shapes[len(LADDERS) - 1][2], "ms"),
            Figure(f"a failed subtask of a volatile vertex of {VERTICES[-1]}", shapes[-1][2], "ms"),
        ],
        tables=[
            Table(
                f"Milliseconds a plan of {JOB_VERTICES} regions",
                ("asked", "regions that run", "median", "least", "most", "plans"),
                table,
            ),
            Table(
                "Shapes that spread", ("shape", "size", "ms", "µs a region", "a region against the smallest"), shapes
            ),
            Table("Growth: restart of a source", ("execution vertices", "run", "ms", "µs a vertex", ""), growth),
        ],
        samples={**samples, "by_size": {str(size): each for size, each in by_size.items()}},
    )


def ladder(size: int) -> Case:
    """Rung by rung, a region reads its own producer and the one before. All producers are lost, and one rung restarts.

    Each loss makes the next rung run, which finds the next loss.
    """
    regions = []
    for at in range(size):
        inputs = tuple(f"p{number}" for number in (at - 1, at) if number >= 0)
        regions.append(RegionPlan(f"p{at}", (f"p{at}",), (f"p{at}",), (), False, "code"))
        regions.append(RegionPlan(f"r{at}", (f"r{at}",), (f"r{at}",), inputs, True, "code", reads=inputs))

    def available(region: str, attempt: Attempt, result: str) -> Reason | None:
        return Reason(region, Why.OUTPUT_MISSING, "gone") if region.startswith("p") else None

    return Case(*_all_finished(regions), available, RestartRegion("r0"))


def volatile_vertex(size: int) -> Case:
    """A vertex whose coordinator takes no snapshots, and one that reads all its subtasks. One subtask fails."""
    coordinators = (CoordinatorPlan("v", supports_batch_snapshot=False),)
    vertex = RegionPlan("v", ("v",), ("v",), (), False, None, (("v", "code"),), coordinators=coordinators)
    reader = RegionPlan("r", ("r",), ("r",), (), True, "code", reads=("v",))
    groups = (
        RegionGroup(vertex, (), tuple(map(str, range(size)))),
        RegionGroup(reader, (GroupEdge("v", DistributionPattern.ALL_TO_ALL),)),
    )
    return Case(*_all_finished(GroupedRegions(groups)), _there, RegionFailure("v[0]"))


def random_run(size: int, seed: int = 7) -> tuple[PlanRecord, RunState]:
    """A job of ``size`` regions, and a run of it in which each has finished once."""
    rng = random.Random(seed)
    inputs: list[list[int]] = []
    for at in range(size):
        reachable = range(max(0, at - REACH), at)
        inputs.append(sorted(rng.sample(reachable, min(len(reachable), rng.randint(1, MOST_INPUTS)))))
    read = {number for found in inputs for number in found}
    regions = tuple(
        RegionPlan(f"r{at}", (f"r{at}",), (f"r{at}",), tuple(f"r{number}" for number in found), at not in read, "code")
        for at, found in enumerate(inputs)
    )
    return _all_finished(regions)


def _all_finished(regions: Sequence[RegionPlan]) -> tuple[PlanRecord, RunState]:
    record = PlanRecord("random", regions)
    return record, finished(record)


def finished(record: PlanRecord) -> RunState:
    """A run in which every region of a plan has finished once."""
    regions: dict[str, RegionState] = {}
    names: Sequence[str] = ()
    pins: Sequence[InputRef] = ()
    for region in record.regions:
        # Regions that read the same ones stand one after the other, and share the names: 10,000 times 10,000 are many.
        if region.inputs is not names:
            names = region.inputs
            pins = record.grouped(region.name, tuple(InputRef(producer, 1) for producer in names))
        regions[region.name] = RegionState({1: _finished(region, pins)})
    return RunState(regions)


def _finished(region: RegionPlan, pins: Sequence[InputRef]) -> Attempt:
    manifest = PartitionManifest(region.results[0], f"s3://b/{region.name}", (ResultObject("part-0", 1, "e"),), 1)
    outcome = Outcome(region.name, 1, AttemptState.FINISHED, "w", "now", region.fingerprint, pins, outputs=(manifest,))
    return Attempt(1, is_claimed=True, has_outcome=True, outcome=outcome)


def _there(region: str, attempt: Attempt, result: str) -> Reason | None:
    return None


def _evaluate(topology: PlanRecord, state: RunState) -> int:
    evaluation = Evaluation(topology, state, available=_there)
    reasons = [evaluation.why_must_run(region.name) for region in topology.regions]
    return sum(reason is not None and reason.why is not Why.RESET for reason in reasons)


def _shape(name: str, make: Callable[[int], Case], sizes: Sequence[int], rounds: int) -> list[tuple[Any, ...]]:
    """Each size anew: what a plan record knows of itself is found out once."""
    rows: list[tuple[Any, ...]] = []
    least_us = 0.0
    for size in sizes:
        times = [_timed(1, make(size).plan)[1][0] for _ in range(rounds)]
        each_us = 1e6 * median(times) / len(make(size).topology.regions)
        least_us = least_us or each_us
        rows.append((name, size, 1000 * median(times), each_us, each_us / least_us))
    return rows


def _growth(rounds: int) -> tuple[list[tuple[object, ...]], dict[int, float]]:
    rows: list[tuple[object, ...]] = []
    medians: dict[int, float] = {}
    for size in SIZES:
        topology, state = random_run(size)
        request: Request = RestartRegion("r0")
        found, times = _timed(rounds, lambda: plan(topology, state, _there, request))  # noqa: B023 - called at once
        medians[size] = median(times)
        per_vertex_us = 1e6 * medians[size] / size
        bar = "█" * round(per_vertex_us / 5)
        rows.append(
            (f"{size:,}", f"{len(found.running):,}", f"{1000 * medians[size]:,.0f}", f"{per_vertex_us:.1f}", bar)
        )
    return rows, medians


def _timed(rounds: int, work: Callable[[], Plan | str | int]) -> tuple[Plan, list[float]]:
    times: list[float] = []
    for _ in range(rounds):
        begun = time.perf_counter()
        found = work()
        times.append(time.perf_counter() - begun)
    return found, times  # type: ignore[return-value]
