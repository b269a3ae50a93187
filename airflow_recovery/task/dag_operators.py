"""The recoverable operators of one DAG, seen as one job: each is a region of one vertex."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from airflow_recovery.errors import JobDefinitionError
from airflow_recovery.job.chains import batch_size
from airflow_recovery.model.determinism import Determinism
from airflow_recovery.model.job_recovery import NOTHING_DECLARED, DeclaredJobRecovery
from airflow_recovery.model.records import PlanRecord
from airflow_recovery.model.region_plan import RegionPlan
from airflow_recovery.results.prober import OnAltered
from airflow_recovery.task.references import qualified

if TYPE_CHECKING:
    from airflow_recovery.model.failover_strategy import FailoverStrategy
    from airflow_recovery.model.retention import Retention
    from airflow_recovery.task.references import DropIn


def drop_ins_of(dag: Any) -> dict[str, DropIn]:
    """What the recoverable operators of ``dag`` declare, by task id, each after the ones that it reads.

    Raises `JobDefinitionError` where one reads what nobody makes.
    """
    drop_ins: dict[str, DropIn] = {
        task.task_id: task.drop_in for task in dag.tasks if getattr(task, "drop_in", None) is not None
    }
    for task_id, drop_in in drop_ins.items():
        for name, reference in drop_in.references.items():
            producer = drop_ins.get(reference.task_id)
            if producer is None or reference.name not in producer.outputs:
                raise JobDefinitionError(
                    f"{task_id}: input {name!r} is output {reference.name!r} of {reference.task_id!r}, which is not "
                    f"declared. Recoverable operators of this DAG: {', '.join(sorted(drop_ins))}.",
                    code="input-not-declared",
                    task=task_id,
                    input=name,
                )
    ordered: dict[str, DropIn] = {}
    # Airflow has refused cycles already, so each round places at least one.
    while len(ordered) < len(drop_ins):
        for task_id, drop_in in drop_ins.items():
            if all(reference.task_id in ordered for reference in drop_in.references.values()):
                ordered.setdefault(task_id, drop_in)
    return ordered


def plan_of_dag(dag: Any) -> PlanRecord:
    """The DAG's operators as a plan, the same for each of them.

    Without fingerprints: an operator's arguments are rendered by its own task only, which evaluates by its own
    (`Run.fingerprints`). To everybody else the recorded one is as good as today's.
    """
    drop_ins = drop_ins_of(dag)
    read = {reference.task_id for drop_in in drop_ins.values() for reference in drop_in.references.values()}
    return PlanRecord(
        job=f"operators of {dag.dag_id}",
        regions=tuple(_region_of(drop_in, is_final=task_id not in read) for task_id, drop_in in drop_ins.items()),
    )


def _region_of(drop_in: DropIn, *, is_final: bool) -> RegionPlan:
    task_id, references = drop_in.task_id, drop_in.references.values()
    return RegionPlan(
        name=task_id,
        vertices=(task_id,),
        results=tuple(qualified(task_id, name) for name in drop_in.outputs),
        inputs=tuple(dict.fromkeys(reference.task_id for reference in references)),
        final=is_final,
        fingerprint=None,
        reads=tuple(dict.fromkeys(qualified(reference.task_id, reference.name) for reference in references)),
        determinism=tuple(
            (qualified(task_id, name), drop_in.determinism)
            for name in drop_in.outputs
            if drop_in.determinism is not Determinism.ALWAYS
        ),
        commit=drop_in.commit_spec,
        optional=drop_in.optional_producers,
        # As declared: another operator's task can't render it, and all of them have one plan.
        fixed=tuple(
            (qualified(task_id, name), uri) for name, uri in drop_in.declared_outputs.items() if uri is not None
        ),
    )


def on_altered_of(dag: Any) -> dict[str, OnAltered]:
    """What each operator wants done where objects at its own fixed location were altered."""
    return {task_id: drop_in.on_altered for task_id, drop_in in drop_ins_of(dag).items()}


def publish_tasks_of(dag: Any, group_id: str | None = None) -> tuple[str, ...]:
    """The tasks that publish the job of a group, or, without one, the operators of ``dag``."""
    return tuple(
        task.task_id for task in dag.tasks if getattr(task, "publishes_results", False) and task.group_id == group_id
    )


def retention_of(dag: Any, group_id: str) -> Retention | None:
    """What the task group declares about the release of its results; `None`: as the job, or the configuration, says."""
    retention: Retention | None = getattr(dag.task_group_dict.get(group_id), "retention", None)
    return retention


def batch_size_of(dag: Any, group_id: str) -> Callable[[int], int]:
    """How many of n subtasks one task instance of the task group runs, as `in_batches` of a plan asks for it."""
    from airflow.sdk import conf

    limit = conf.getint("core", "max_map_length")
    declared: int | None = getattr(dag.task_group_dict.get(group_id), "subtasks_per_task", None)
    return lambda count: batch_size(count, limit=limit, declared=declared)


def job_recovery_of(dag: Any, group_id: str) -> DeclaredJobRecovery:
    """What the task group, and its job, declare of FLIP-383's options."""
    recovery: DeclaredJobRecovery = getattr(dag.task_group_dict.get(group_id), "job_recovery", NOTHING_DECLARED)
    return recovery


def recovers(dag: Any, group_id: str | None) -> bool:
    """Whether the job of a group recovers, or, without one, any of the operators of ``dag``."""
    from airflow_recovery.hooks.settings import is_recovery_on

    if group_id is None:
        return any(drop_in.recovers for drop_in in drop_ins_of(dag).values())
    return is_recovery_on(job_recovery_of(dag, group_id))


def strategy_of(dag: Any, group_id: str) -> FailoverStrategy | None:
    """The failover strategy that the task group declares; `None`: as the job says."""
    strategy: FailoverStrategy | None = getattr(dag.task_group_dict.get(group_id), "failover_strategy", None)
    return strategy
