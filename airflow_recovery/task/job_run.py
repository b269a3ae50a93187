"""Opens a run of a declared job for one task of it: with the subtasks that this run has recorded."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from airflow_recovery.attempt.job_plan import JobPlan, plan_job
from airflow_recovery.driver.region_spec import RunFacts
from airflow_recovery.errors import SubtasksUnknown
from airflow_recovery.job import Job
from airflow_recovery.job.chains import initializers
from airflow_recovery.journal.events import JobVertexInitialized
from airflow_recovery.journal.journal import Journal
from airflow_recovery.model.manifest import PartitionManifest
from airflow_recovery.model.records import RunIdentity
from airflow_recovery.task.dag_operators import (
    batch_size_of,
    job_recovery_of,
    publish_tasks_of,
    retention_of,
    strategy_of,
)
from airflow_recovery.task.open_run import OpenRun, RunPlace, open_run
from airflow_recovery.task.run_context import run_facts


@dataclass(frozen=True)
class OpenJobRun:
    """A run of a declared job, and its plan."""

    opened: OpenRun
    plan: JobPlan
    facts: RunFacts
    identity: RunIdentity

    def prepare_journal(self) -> None:
        """Before the run's first record of this plan: is this a store for a journal, and what are the subtasks?"""
        self.opened.prepare_journal()
        run = self.opened.run
        for group in self.plan.record.groups:
            if group.keys is None:
                continue
            run.events.record(
                JobVertexInitialized(
                    occurred_at=run.now(),
                    region=group.name,
                    parallelism=len(group),
                    keys=group.keys,
                    appeared=(),
                    vanished=(),
                )
            )


@contextmanager
def open_job_run(
    context: Mapping[str, Any],
    job: Job,
    ref: str,
    group_id: str,
    dag: Any,
    log: logging.Logger,
    ask_cached: Callable[[PartitionManifest], str | None] | None = None,
) -> Iterator[OpenJobRun]:
    """The run of ``context`` for one try of one task of ``job``. ``ask_cached`` is `ResultProber`'s.

    Raises `SubtasksUnknown` where subtasks are decided at run time and the run has not recorded them.
    """
    facts = run_facts(context)
    place = RunPlace.of(context, group_id, job_recovery_of(dag, group_id), dag=dag, job=job)
    keys = recorded_keys(place.journal(), initializers(job))
    for name in initializers(job):
        if name not in keys:
            raise SubtasksUnknown(
                f"{group_id}: expected the subtasks of {name.removesuffix('.subtasks')} to be recorded in this run's "
                f"journal, found none: clear the task {group_id}.{name}, which decides and records them.",
                code="subtasks-not-recorded",
                group=group_id,
            )
    plan = plan_job(
        job, ref, facts, keys, code_version=place.code_version, of_group=place.of_group(dag, group_id, facts)
    )
    with open_planned(context, plan, facts, place, group_id, dag, log, ask_cached) as planned:
        yield planned


@contextmanager
def open_planned(
    context: Mapping[str, Any],
    plan: JobPlan,
    facts: RunFacts,
    place: RunPlace,
    group_id: str,
    dag: Any,
    log: logging.Logger,
    ask_cached: Callable[[PartitionManifest], str | None] | None = None,
) -> Iterator[OpenJobRun]:
    """The run of ``context`` with a plan that is known."""
    retention = retention_of(dag, group_id)
    if retention is not None:
        plan = replace(plan, record=replace(plan.record, retention=retention))
    plan = plan.in_batches(batch_size_of(dag, group_id))
    strategy = strategy_of(dag, group_id)
    if strategy is not None:
        plan = replace(plan, record=replace(plan.record, failover_strategy=strategy))
    keys, publishes = plan.task_keys(group_id), publish_tasks_of(dag, group_id)
    with open_run(
        context,
        place,
        plan.record,
        keys,
        log,
        publish_keys=publishes,
        components_of=plan.components_of,
        ask_cached=ask_cached,
    ) as opened:
        yield OpenJobRun(opened, plan, facts, place.identity)


def recorded_keys(journal: Journal, names: Collection[str]) -> dict[str, tuple[str, ...]]:
    """The keys that the run has recorded, by `initializers` name; one listing where any are decided at run time."""
    if not names:
        return {}
    state = journal.load(journal.list(names), names)
    current = {name: state.of(name).current for name in names}
    return {
        name: attempt.outcome.subtasks
        for name, attempt in current.items()
        if attempt is not None and attempt.outcome is not None
    }
