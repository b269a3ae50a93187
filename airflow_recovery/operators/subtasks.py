"""The task that decides, once a run, which subtasks a parallel vertex has, and records it."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator

from airflow_recovery.attempt.application import SparkApplication
from airflow_recovery.errors import JobDefinitionError
from airflow_recovery.job.chains import batch_label, batch_size, batches, number_of_batches
from airflow_recovery.operators.submitting import RETRIES, RETRY_DELAY
from airflow_recovery.task.failures import airflow_errors
from airflow_recovery.task.run_context import recompute_epoch, refuse_mapped, run_facts

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_recovery.attempt.application import ClaimedAttempt
    from airflow_recovery.attempt.run import Run
    from airflow_recovery.driver.region_spec import RunFacts
    from airflow_recovery.hooks.stores import Stores
    from airflow_recovery.job import Job
    from airflow_recovery.model.records import ExternalObject, Outcome

log = logging.getLogger(__name__)


class RecoverySubtasksOperator(BaseOperator):
    """Decides the subtasks of a mapped task group, and returns what is mapped: their keys, or a label for each batch.

    Made by `SparkJobTaskGroup` where ``parallelism=`` is a template or `per_file`. It goes through the same protocol as
    a region: what it has recorded is kept while the rendered keys, or the names of the files, are the same. Where they
    differ, keys that were recorded keep their order, new ones come after them, and those that are gone are left out and
    reported; each subtask is known by its key, so that its result is kept wherever it stands in the list.

    :param job: ``package.module:name`` of the job.
    :param group_id: the full id of the task group.
    :param initializer: the name in the journal, ``<region>.subtasks``.
    """

    def __init__(
        self,
        *,
        job: str,
        group_id: str,
        initializer: str,
        retries: int | None = RETRIES,
        retry_delay: timedelta | float = RETRY_DELAY,
        **kwargs: Any,
    ) -> None:
        super().__init__(retries=retries, retry_delay=retry_delay, **kwargs)
        self.job = job
        self.group_id = group_id
        self.initializer = initializer

    def execute(self, context: Context) -> list[str]:
        """One try: keep what is recorded, or decide anew and record it. Returns the keys, or labels of batches."""
        with airflow_errors():
            refuse_mapped(context)
            keys = self._decide(context)
            return [batch_label(batch) for batch in batches(keys, self._batch_size(len(keys)))]

    def _batch_size(self, count: int) -> int:
        from airflow_recovery.task.dag_operators import batch_size_of

        return batch_size_of(self.get_dag(), self.group_id)(count)

    def _decide(self, context: Context) -> Sequence[str]:
        from airflow.sdk import conf

        from airflow_recovery.attempt.job_plan import plan_job
        from airflow_recovery.attempt.region_task import RegionTask
        from airflow_recovery.job.chains import initializers
        from airflow_recovery.job.loading import load_job
        from airflow_recovery.job.parallelism import in_recorded_order
        from airflow_recovery.task.dag_operators import job_recovery_of
        from airflow_recovery.task.job_run import open_planned, recorded_keys
        from airflow_recovery.task.open_run import RunPlace

        job, facts = load_job(self.job), run_facts(context)
        place = RunPlace.of(context, self.group_id, job_recovery_of(self.get_dag(), self.group_id))
        stores = place.stores
        # Without recovery, they are today's keys, whatever there was before.
        recorded = recorded_keys(place.journal(), initializers(job)) if place.unrecorded is None else {}
        keys = dict(recorded)
        files: tuple[ExternalObject, ...] = ()
        for name in initializers(job):
            if name == self.initializer:
                today, files = _today(job, name, facts, stores)
                keys[name] = in_recorded_order(recorded.get(name, ()), today)
            elif name not in recorded:
                # So that the plan is that of the tasks to come, and written once.
                keys[name] = _today(job, name, facts, stores)[0]
        mine = keys[self.initializer]
        check_length(len(mine), self._batch_size(len(mine)), conf.getint("core", "max_map_length"), self.task_id)
        plan = plan_job(job, self.job, facts, keys)
        with open_planned(context, plan, facts, place, self.group_id, self.get_dag(), log) as planned:
            recorder = _Recorder(planned.opened.run, mine, recorded.get(self.initializer, ()), files)
            task = RegionTask(
                planned.opened.run,
                self.initializer,
                recorder,
                epoch=recompute_epoch(context),
                prepare_journal=planned.opened.prepare_journal,
            )
            return task.execute().outcome.subtasks


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
        """The names of the files that decide; what is in them, each subtask judges for itself."""
        return self._files

    def run(self, attempt: ClaimedAttempt) -> Outcome:
        """Record the keys as the attempt's result."""
        from airflow_recovery.journal.events import JobVertexInitialized

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


def check_length(count: int, size: int, limit: int, where: str) -> None:
    """Raises `JobDefinitionError` for more batches of subtasks than Airflow maps."""
    number = number_of_batches(count, size)
    if number > limit:
        raise JobDefinitionError(
            f"{where}: expected at most {limit} task instances ([core] max_map_length), found {number}, for {count} "
            f"subtasks and subtasks_per_task={size}. Leave subtasks_per_task out, or say "
            f"{batch_size(count, limit=limit)} or more; or raise max_map_length in every component."
        )


def _today(job: Job, name: str, facts: RunFacts, stores: Stores) -> tuple[tuple[str, ...], tuple[ExternalObject, ...]]:
    from airflow_recovery.attempt.job_plan import rendered_keys
    from airflow_recovery.job.chains import initializers
    from airflow_recovery.job.parallelism import PerFile, checked_keys
    from airflow_recovery.job.sources import FilePattern
    from airflow_recovery.model.records import ExternalObject
    from airflow_recovery.task.externals import list_external
    from airflow_recovery.task.inventory import object_key

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
