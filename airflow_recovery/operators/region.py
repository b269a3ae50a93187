"""One region of a declared job, as one Airflow task and one Spark application."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from airflow_recovery.attempt.heartbeat_watch import beat_of
from airflow_recovery.attempt.region_task import RegionResult, RegionTask
from airflow_recovery.checks import check_arguments
from airflow_recovery.driver.heartbeat import interval_s
from airflow_recovery.errors import JobDefinitionError, RegionFailed, StoreError, SubtasksUnknown
from airflow_recovery.job import Job
from airflow_recovery.job.loading import job_reference
from airflow_recovery.model.build_in_progress import BuildInProgress, BuiltElsewhere
from airflow_recovery.model.codec import from_json, to_json
from airflow_recovery.model.groups import subtask_region
from airflow_recovery.operators.submitting import SubmittingOperator
from airflow_recovery.task.mode import RegionTry, task_of
from airflow_recovery.task.notes import undeclared_of
from airflow_recovery.task.run_context import die_with_supervisor, recompute_epoch, refuse_mapped
from airflow_recovery.task.spark_connection import (
    PER_REGION,
    PER_RUN,
    SparkScope,
    cache_server,
    check_cached_connection,
    region_application,
    user_of,
)
from airflow_recovery.task.subtask_batch import BatchResult, GuardedApplication, SubtaskBatch, batch_of

if TYPE_CHECKING:
    from airflow.sdk import Connection, Context

    from airflow_recovery.attempt.application import ClaimedAttempt, SparkApplication
    from airflow_recovery.attempt.run import Run
    from airflow_recovery.hooks.settings import RecoverySettings
    from airflow_recovery.model.manifest import PartitionManifest
    from airflow_recovery.model.records import Claim, RunIdentity
    from airflow_recovery.task.attempt_sessions import ServerChoice
    from airflow_recovery.task.region_program import RegionProgram
    from airflow_recovery.task.run_spark import RunSpark
    from airflow_recovery.task.spark_submission import Keeping
    from airflow_recovery.task.subtask_batch import BeforeClaim

log = logging.getLogger(__name__)


class SparkRegionOperator(SubmittingOperator):
    """Runs one recovery region of a job, or keeps it, or clears the producers of what it misses.

    Made by `SparkJobTaskGroup`; takes every argument of `SparkSubmitOperator` except those that name the application.
    The connection's type decides how the region runs: ``spark`` by spark-submit (any deploy mode of the provider's
    operator), ``spark_connect`` over a warm server. Over Connect, ``conf`` is set in the attempt's session as far as a
    running server lets it be set; the other arguments of spark-submit have no meaning there.

    Every try begins with the same pre-check (docs/protocol.md#pre-check). What a try did is its return value: the
    decision, the attempt, why, and the Spark seconds saved; recovery itself reads only the journal.

    :param job: ``package.module:name`` of the job, importable on this worker.
    :param region: the region's name.
    :param group_id: the full id of the task group, which is a part of the journal's identity.
    :param deferrable: wait in the triggerer, and not in the worker, while another run makes a shared result
        (``BLOCKING_PERSISTENT``) that this region needs, or until the channel is open that it reads
        (``PIPELINED_APPROXIMATE``).
    :param start_timeout_s: of a streaming region that reads a channel: it fails where its producer has not opened it
        for so many seconds. Without it, it waits as long as the producer may come.
    :param spark: ``per-region``, or ``per-run``: on the run's own Spark, which is started where it is not there.
    :param subtask: in a mapped task group, the key of the subtask that each task instance is, or the label of its batch
        of subtasks; Airflow fills it in.
    """

    template_fields: Sequence[str] = (*SubmittingOperator.template_fields, "subtask")

    def __init__(
        self,
        *,
        job: str | Job,
        region: str,
        group_id: str,
        subtask: Any = None,
        deferrable: bool = True,
        start_timeout_s: float | None = None,
        spark: SparkScope = PER_REGION,
        **kwargs: Any,
    ) -> None:
        check_arguments(SparkRegionOperator.__init__, locals(), str(kwargs.get("task_id")))
        super().__init__(**kwargs)
        if start_timeout_s is not None and not start_timeout_s > 0:
            raise JobDefinitionError(
                f"{self.task_id}: expected start_timeout_s above 0 seconds, found {start_timeout_s!r}",
                code="start-timeout-unfit",
            )
        self.subtask = subtask
        self.job = job_reference(job, self.task_id)
        self.region = region
        self.group_id = group_id
        self.deferrable = deferrable
        self.start_timeout_s = start_timeout_s
        self.spark = spark
        self._run_spark: RunSpark | None = None
        self._silent: BuildInProgress | None = None
        self.start_deadline: float | None = None
        self._summary: Mapping[str, Any] = {}
        self._note: str | None = None
        self._claim: Claim | None = None

    def execute_after_wait(self, context: Context, event: dict[str, Any]) -> dict[str, Any]:
        """After the trigger: the whole try, from its beginning."""
        self._silent = None if event["silent"] is None else from_json(BuildInProgress, event["silent"])
        return self.execute(context)

    def execute_after_start(self, context: Context, event: dict[str, Any]) -> dict[str, Any]:
        """After the trigger of the start gate: the whole try, from its beginning."""
        self.start_deadline = event["deadline"]
        return self.execute(context)

    def execute(self, context: Context) -> dict[str, Any]:  # type: ignore[override]
        """As `SubmittingOperator.execute`, with what the region's mode adds."""
        return {**super().execute(context), **self._summary}

    def execute_region(self, context: Context) -> RegionResult | BatchResult:
        """One try: plan the job, open the run, and go through the protocol. Raises our own errors."""
        from airflow_recovery.job.loading import load_job
        from airflow_recovery.task.job_run import open_job_run
        from airflow_recovery.task.written_places import check_settings

        if self.subtask is None:
            refuse_mapped(context)
        die_with_supervisor()
        job = load_job(self.job)
        ask_cached = self._ask_cached
        with open_job_run(context, job, self.job, self.group_id, self.get_dag(), log, ask_cached) as job_run:
            check_settings(self, job_run.opened.stores.check)
            os.environ.update(job_run.opened.stores.driver_env())
            if self.spark == PER_RUN:
                from airflow_recovery.task.run_spark import open_run_spark

                self._run_spark = open_run_spark(self._connection, job_run.opened, job_run.identity)
            batch = batch_of(job_run.plan.record, self.region, self.subtask, context["ti"].map_index)
            try:
                if batch is not None:

                    def run_subtask(name: str, before_claim: BeforeClaim) -> RegionResult:
                        return self._run_region(job, RegionTry(self, context, job_run, name), before_claim)

                    results = SubtaskBatch(job_run.opened.run, batch, run_subtask, lambda: self.is_killed).execute()
                    return BatchResult(self.region, results)
                name = subtask_region(self.region, self.subtask)
                if name not in job_run.plan.regions:
                    raise SubtasksUnknown(
                        f"{name}: this run's subtasks do not include {self.subtask!r} any more: it has vanished from "
                        "the keys that are declared, or recorded. Clear the task group with its downstream tasks.",
                        code="subtask-vanished",
                        subtask=self.subtask,
                    )
                own = RegionTry(self, context, job_run, name)
                result = task_of(job_run.opened.run.regions[name]).run(partial(self._run_region, job, own), own)
                self._summary, self._note = result.summary, result.note
                return result.region
            except BuiltElsewhere as elsewhere:
                self._defer_while(elsewhere.build)
                raise

    def more_to_note(self) -> str | None:
        """What the region's mode adds to the note."""
        return self._note

    def _run_region(self, job: Job, own: RegionTry, before_claim: BeforeClaim | None = None) -> RegionResult:
        """The protocol of one region. Raises `BuiltElsewhere` where this task may wait in the triggerer."""
        from airflow_recovery.attempt.release import release_consumed
        from airflow_recovery.attempt.shared import SharedApplication
        from airflow_recovery.hooks.tables import tables_of
        from airflow_recovery.job.cached import cached_results
        from airflow_recovery.task.region_program import RegionProgram
        from airflow_recovery.task.spark_submission import keeping

        context, job_run, name = own.context, own.opened, own.name
        opened, region, planned = job_run.opened, job_run.plan.regions[name], job_run.opened.run.regions[name]
        self._claim = None
        if cached_results(region.region, job.vertices) and self._run_spark is None:
            check_cached_connection(job, region.region, self._connection)
        mode = task_of(planned)
        mode.check_connection(planned, job.vertices, self._connection)

        def make_application(identity: RunIdentity) -> SparkApplication:
            program = RegionProgram(
                job=job,
                ref=self.job,
                region=region,
                facts=job_run.facts,
                identity=identity,
                stores=opened.stores,
                log=log,
                journal=opened.run.journal,
                on_claim=self._on_claim,
                heartbeat_s=interval_s(opened.run.heartbeat_timeouts.timeout_s),
                render=partial(self._render_text, context),
            )
            alone = self._run_spark is None or planned.mode.needs_own_application
            own_server = None if alone else self._own_server(opened.settings, context)
            # The heartbeats of a shared result are this process's.
            kept = None if planned.persistent else keeping(opened)
            return self._application_of(program, context, own_server, kept)

        application = mode.application(make_application(job_run.identity), own)
        if planned.persistent:
            application = shared = SharedApplication(
                opened.run,
                name,
                make_application,
                timeout_s=opened.run.heartbeat_timeouts.timeout_s,
                silent=self._silent,
                waits_here=not self.deferrable,
            )
            build = shared.find_build() if self.deferrable else None
            if build is not None:
                raise BuiltElsewhere(build.text(), build)
        self._application = application
        restarts = self.restarts(opened.run, name)
        if before_claim is not None:
            application = GuardedApplication(application, restarts.check_not_in_vain, before_claim)
        task = RegionTask(
            opened.run,
            name,
            application,
            epoch=recompute_epoch(context),
            prepare_journal=job_run.prepare_journal,
            restarts=restarts,
            label=self.labeller(),
            unseen_code=opened.settings.unseen_code,
        )
        try:
            result = task.execute()
        except RegionFailed:
            self._remember_application(opened.run)
            raise
        if result.outcome.undeclared:
            log.warning("%s: %s.", name, undeclared_of(result.outcome))
        self.remember_lineage(opened.run, result)
        tables = tables_of(opened.stores)
        release_consumed(opened.run, name, opened.stores.results, opened.settings.retention, tables)
        return result

    def _render_text(self, context: Context, text: str) -> str:
        with self.reading_xcoms(context):
            return str(self.render_template(text, context))

    def _defer_while(self, build: BuildInProgress | None) -> None:
        """A shared result is made once; whoever else wants it waits in the triggerer, and has no attempt open."""
        if build is None:
            return
        from airflow_recovery.triggers.shared import SharedResultTrigger

        log.info("%s; waiting.", build.text())
        self.defer(trigger=SharedResultTrigger(build=to_json(build)), method_name="execute_after_wait")

    def _remember_application(self, run: Run) -> None:
        """Of an attempt that has failed: its last heartbeat says what Spark called it. Best effort."""
        with suppress(StoreError):
            beat = None if self._claim is None else beat_of(run.journal, self._claim)
            self.spark_application_id = None if beat is None else beat.application_id

    def _on_claim(self, attempt: ClaimedAttempt) -> None:
        self._claim = attempt.claim

    @cached_property
    def _connection(self) -> Connection:
        """Asked for once: each time is a request to the API server."""
        from airflow.sdk import BaseHook

        from airflow_recovery.task.spark_submission import connection_id

        return BaseHook.get_connection(connection_id(self))

    def _own_server(self, settings: RecoverySettings, context: Context) -> ServerChoice:
        from airflow_recovery.task.run_spark import OwnServer, StartServer

        assert self._run_spark is not None
        return OwnServer(self._run_spark, StartServer.of(self, context, self.group_id, settings))

    def _ask_cached(self, manifest: PartitionManifest) -> str | None:
        if self._run_spark is not None:
            return self._run_spark.ask_cached(manifest, user_of(self._connection))
        return cache_server(self._connection).ask(manifest)

    def _application_of(
        self,
        program: RegionProgram,
        context: Context,
        own_server: ServerChoice | None = None,
        kept: Keeping | None = None,
    ) -> SparkApplication:
        return region_application(
            program,
            self,
            self._connection,
            context,
            is_killed=lambda: self.is_killed,
            memory_policy=self.memory_policy,
            own_server=own_server,
            keeping=kept,
        )
