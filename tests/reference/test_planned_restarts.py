"""The planner that runs against Flink's rule, literally: what a plan restarts after a failure, with what is lost.

Over topologies of the oracle's: several results a vertex, both patterns, several subtasks, co-location with cycles
between its members. Everything is ``always``: then the two are equal.
"""

from __future__ import annotations

from graphlib import TopologicalSorter

from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_recovery.journal.run_state import Attempt, RegionState, RunState
from airflow_recovery.model.inputs import InputRef
from airflow_recovery.model.records import AttemptState, FenceCause, Outcome, PlanRecord
from airflow_recovery.model.region_plan import RegionPlan
from airflow_recovery.planning.evaluation import Evaluation
from airflow_recovery.planning.reason import Reason, Why
from airflow_recovery.planning.restart_set import RestartSet
from reference.logical import RE_CONSUMABLE
from reference.naive_topology import NaiveTopology, Partition, Subtask, logical_topologies


def planned(naive: NaiveTopology) -> tuple[PlanRecord, dict[str, frozenset[Subtask]]]:
    """The plan of a job of these regions, and which subtasks each one has."""
    names = {region: "+".join(f"{name}[{at}]" for name, at in sorted(region)) for region in naive.regions()}
    reads = {
        region: sorted(
            partition
            for subtask in region
            for partition in naive.reads[subtask]
            if naive.region[naive.producer[partition]] != region
        )
        for region in names
    }
    inputs = {
        region: sorted({names[naive.region[naive.producer[partition]]] for partition in partitions})
        for region, partitions in reads.items()
    }
    by_name = {name: region for region, name in names.items()}
    order = TopologicalSorter({names[region]: producers for region, producers in inputs.items()}).static_order()
    regions = [
        RegionPlan(
            name=name,
            vertices=(name,),
            results=tuple(text(partition) for partition, maker in naive.producer.items() if maker in by_name[name]),
            inputs=tuple(inputs[by_name[name]]),
            final=False,
            fingerprint="code",
            reads=tuple(map(text, reads[by_name[name]])),
        )
        for name in order
    ]
    return PlanRecord("job", tuple(regions)), by_name


def text(partition: Partition) -> str:
    return f"{partition[0]}/{partition[1]}"


@settings(max_examples=300)
@given(logical_topologies(), st.data())
def test_what_a_plan_restarts_is_flinks_restart_set(logical, data: st.DataObject) -> None:
    naive = NaiveTopology(logical)
    partitions = sorted(naive.producer)
    gone = set(data.draw(st.frozensets(st.sampled_from(partitions)))) if partitions else set()
    failed = data.draw(st.sampled_from(naive.subtasks))
    there = {
        text(partition): naive.type_of[partition[0]] in RE_CONSUMABLE and partition not in gone
        for partition in partitions
    }
    plan, subtasks = planned(naive)
    states: dict[str, RegionState] = {}
    for region in plan.regions:
        refs = tuple(InputRef(name, 1) for name in region.inputs)
        state = AttemptState.FENCED if failed in subtasks[region.name] else AttemptState.FINISHED
        outcome = Outcome(region.name, 1, state, "w", "now", "code", refs, cause=FenceCause.OWN_FAILURE)
        states[region.name] = RegionState({1: Attempt(1, is_claimed=True, has_outcome=True, outcome=outcome)})

    asked: list[str] = []

    def available(region: str, attempt: Attempt, result: str) -> Reason | None:
        asked.append(result)
        return None if there[result] else Reason(region, Why.OUTPUT_MISSING)

    evaluation = Evaluation(plan, RunState(states), available=available)
    of_failed = next(name for name, members in subtasks.items() if failed in members)
    for begun in (None, [of_failed]):
        restarted = {
            subtask for name in RestartSet(evaluation, same_rows=True, failed=begun) for subtask in subtasks[name]
        }
        assert restarted == naive.restart(failed, lambda partition: there[text(partition)])
    assert len(asked) == len(set(asked))
