"""Deciding the subtasks of a parallel vertex, once a run: by the protocol of a region, whose result is the keys."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from airflow.sdk import conf

from airflow_recovery.attempt.application import ClaimedAttempt, SparkApplication
from airflow_recovery.attempt.job_plan import plan_job, rendered_keys
from airflow_recovery.attempt.region_task import RegionTask
from airflow_recovery.attempt.run import Run
from airflow_recovery.driver.region_spec import RunFacts
from airflow_recovery.hooks.stores import Stores
from airflow_recovery.job import FilePattern, Job, load_job
from airflow_recovery.job.chains import batches, check_length, initializers
from airflow_recovery.job.parallelism import PerFile, checked_keys, in_recorded_order
from airflow_recovery.journal.events import JobVertexInitialized
from airflow_recovery.model.records import ExternalObject, Outcome
from airflow_recovery.task.dag_operators import batch_size_of, job_recovery_of
from airflow_recovery.task.externals import list_external
from airflow_recovery.task.inventory import object_key
from airflow_recovery.task.job_run import open_planned, recorded_keys
from airflow_recovery.task.open_run import RunPlace
from airflow_recovery.task.run_context import recompute_epoch, run_facts

if TYPE_CHECKING:
    from airflow.sdk import Context

log = logging.getLogger(__name__)


def decide_subtasks(
    context: Context, dag: Any, task_id: str, job_ref: str, group_id: str, initializer: str
) -> list[Sequence[str]]:
    """One try: keep what is recorded, or decide anew and record it. Returns the batch of keys of each task instance."""
    job, facts = load_job(job_ref), run_facts(context)
    place = RunPlace.of(context, group_id, job_recovery_of(dag, group_id), dag=dag, job=job)
    stores, size = place.stores, batch_size_of(dag, group_id)
    # Without recovery, they are today's keys, whatever there was before.
    recorded = recorded_keys(place.journal(), initializers(job)) if place.unrecorded is None else {}
    keys = dict(recorded)
    files: tuple[ExternalObject, ...] = ()
    for name in initializers(job):
        if name == initializer:
            today, files = _today(job, name, facts, stores)
            keys[name] = in_recorded_order(recorded.get(name, ()), today)
        elif name not in recorded:
            # So that the plan is that of the tasks to come, and written once.
            keys[name] = _today(job, name, facts, stores)[0]
    mine = keys[initializer]
    check_length(len(mine), size(len(mine)), conf.getint("core", "max_map_length"), task_id)
    plan = plan_job(
        job, job_ref, facts, keys, code_version=place.code_version, of_group=place.of_group(dag, group_id, facts)
    )
    with open_planned(context, plan, facts, place, group_id, dag, log) as planned:
        recorder = _Recorder(planned.opened.run, mine, recorded.get(initializer, ()), files)
        task = RegionTask(
            planned.opened.run,
            initializer,
            recorder,
            epoch=recompute_epoch(context),
            prepare_journal=planned.opened.prepare_journal,
        )
        decided: Sequence[str] = task.execute().outcome.subtasks
    return batches(decided, size(len(decided)))


class _Recorder(SparkApplication):
    """In place of a Spark application: a list of keys, which is only written down."""

    def __init__(
        self, run: Run, keys: tuple[str, ...], before: tuple[str, ...], files: tuple[ExternalObject, ...]
    ) -> None:
        self._run = run
        self._keys = keys
        self._before = before
        self._files = files

    def externals(self) -> tuple[ExternalObject, ...]:
        """The names of the files that decide; what is in them, each subtask evaluates for itself."""
        return self._files

    def run(self, attempt: ClaimedAttempt) -> Outcome:
        """Record the keys as the attempt's result."""
        claim = attempt.claim
        outcome = attempt.trace.finished(self._run.now(), (), spark_seconds=0.0, subtasks=self._keys)
        self._run.journal.finish(outcome)
        vanished = tuple(key for key in self._before if key not in set(self._keys))
        appeared = tuple(key for key in self._keys if key not in set(self._before))
        self._run.events.record(
            JobVertexInitialized(
                occurred_at=self._run.now(),
                region=claim.region.removesuffix(".subtasks"),
                parallelism=len(self._keys),
                keys=self._keys,
                appeared=appeared,
                vanished=vanished,
            )
        )
        log.info("%d subtasks: %s", len(self._keys), ", ".join(self._keys[:100]))
        if self._before:
            log.warning(
                "The subtasks are others than before. New: %s. Gone: %s; nobody reads their results any more.",
                ", ".join(appeared) or "none",
                ", ".join(vanished) or "none",
            )
        return outcome

    def stop(self) -> None:
        """Does nothing: no application runs."""


def _today(job: Job, name: str, facts: RunFacts, stores: Stores) -> tuple[tuple[str, ...], tuple[ExternalObject, ...]]:
    rendered = rendered_keys(job, name, facts)
    if rendered is not None:
        return rendered, ()
    spec = initializers(job)[name]
    assert isinstance(spec, PerFile)
    splits = job.render_splits(spec.source, facts)
    assert isinstance(splits, FilePattern)
    listed = list_external(stores, splits.pattern, spec.source)
    keys = checked_keys(
        [object_key(splits.pattern, info.uri) for info in listed], where=job.vertices[spec.source].where
    )
    return keys, tuple(ExternalObject(spec.source, info.uri, 0, "") for info in listed)
