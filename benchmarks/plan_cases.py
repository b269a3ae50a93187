"""Jobs, and runs of them in memory, whose plans are measured: a ladder, a volatile vertex, a random DAG."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import NamedTuple

from airflow_recovery.journal.run_state import Attempt, RegionState, RunState
from airflow_recovery.model.groups import DistributionPattern, GroupEdge, GroupedRegions, RegionGroup
from airflow_recovery.model.inputs import InputRef
from airflow_recovery.model.manifest import PartitionManifest, ResultObject
from airflow_recovery.model.records import AttemptState, Outcome, PlanRecord
from airflow_recovery.model.region_plan import CoordinatorPlan, RegionPlan
from airflow_recovery.planning.evaluation import Available
from airflow_recovery.planning.plan import Plan
from airflow_recovery.planning.plan_making import plan
from airflow_recovery.planning.reason import Reason, Why
from airflow_recovery.planning.scenario import RegionFailure, Request, RestartRegion

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
