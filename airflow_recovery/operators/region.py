"""One region of a declared job, as one Airflow task and one Spark application."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow_recovery.attempt.drivers import BOUND
from airflow_recovery.attempt.heartbeat_watch import beat_of
from airflow_recovery.attempt.region_task import Decision, RegionResult, RegionTask
from airflow_recovery.checks import check_arguments
from airflow_recovery.driver.heartbeat import interval_s
from airflow_recovery.driver.region_spec import RegionSpec
from airflow_recovery.driver.submit import APPLICATION, QUIET_CONF, s3a_conf, submit_environment
from airflow_recovery.errors import (
    ChannelFailed,
    ConfigurationError,
    JobDefinitionError,
    RegionFailed,
    StoreError,
    SubtasksUnknown,
    kind_of,
)
from airflow_recovery.hooks.clear_clients import open_door
from airflow_recovery.hooks.masking import mask_secrets
from airflow_recovery.job import Job
from airflow_recovery.job.chains import subtask_region
from airflow_recovery.job.loading import job_reference
from airflow_recovery.model.build_in_progress import Making, SharedMadeElsewhere
from airflow_recovery.model.codec import from_json, to_json
from airflow_recovery.operators.submitting import SubmittingOperator
from airflow_recovery.splits.mode import SplitPlan
from airflow_recovery.streaming.start_gate import ChannelNotOpen
from airflow_recovery.task.applications import ConnectApplication, SubmittedApplication
from airflow_recovery.task.cached import CONNECT, cache_server, check_cached_connection, connect_url, user_of
from airflow_recovery.task.cluster_drivers import ClusterDrivers
from airflow_recovery.task.run_context import is_last_try, recompute_epoch, refuse_mapped, run_facts
from airflow_recovery.task.split_connection import check_split_connection
from airflow_recovery.task.stages import StageRunner, ledger_summary, log_ledger, tell_that_it_gave_up, told_ledger
from airflow_recovery.task.subtask_batch import BatchResult, GuardedRunner, SubtaskBatch, batch_of
from airflow_recovery.task.supervision import die_with_supervisor

if TYPE_CHECKING:
    from airflow.sdk import Connection, Context

    from airflow_recovery.attempt.run import Run
    from airflow_recovery.attempt.runner import ClaimedAttempt
    from airflow_recovery.attempt.shared import SharedRunner
    from airflow_recovery.hooks.stores import Stores
    from airflow_recovery.model.manifest import PartitionManifest
    from airflow_recovery.model.records import Claim, RunIdentity
    from airflow_recovery.streaming.run_channels import ChannelReport
    from airflow_recovery.task.job_run import OpenJobRun
    from airflow_recovery.task.region_runner import SparkApplication
    from airflow_recovery.task.subtask_batch import BeforeClaim

log = logging.getLogger(__name__)

SUBMIT = ("spark", "k8s", "local", "mesos", "yarn")
"""Connection types that the provider's hook submits to: a connection given as a URI has the master's scheme as type."""

OF_THE_TRY = ("is_killed", "_lineage", "spark_application_id")
"""What a subtask of a batch changes for the whole try."""

_PROVIDERS_DEFAULT_NAME = "arrow-spark"


class SparkRegionOperator(SubmittingOperator):
    """Runs one recovery region of a job, or keeps it, or wakes the producers of what it misses.

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
    :param start_timeout_s: of a stage that reads a channel: it fails where its producer has not opened it for so many
        seconds. Without it, it waits as long as the producer may come.
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
        **kwargs: Any,
    ) -> None:
        check_arguments(SparkRegionOperator.__init__, locals(), str(kwargs.get("task_id")))
        super().__init__(**kwargs)
        if start_timeout_s is not None and not start_timeout_s > 0:
            raise JobDefinitionError(
                f"{self.task_id}: expected start_timeout_s above 0 seconds, found {start_timeout_s!r}"
            )
        self.subtask = subtask
        self.job = job_reference(job, self.task_id)
        self.region = region
        self.group_id = group_id
        self.deferrable = deferrable
        self.start_timeout_s = start_timeout_s
        self._silent: Making | None = None
        self._start_deadline: float | None = None
        self._ledger: tuple[ChannelReport, ...] = ()
        self._told: str | None = None
        self._claim: Claim | None = None
        self._application: SparkApplication | SharedRunner | None = None

    def on_kill(self) -> None:
        """Kill the Spark application, within Airflow's five seconds; of a batch, no other is started."""
        self.is_killed = True
        if self._application is not None:
            self._application.stop()

    def execute_after_wait(self, context: Context, event: dict[str, Any]) -> dict[str, Any]:
        """After the trigger: the whole try, from its beginning."""
        self._silent = None if event["silent"] is None else from_json(Making, event["silent"])
        return self.execute(context)

    def execute_after_start(self, context: Context, event: dict[str, Any]) -> dict[str, Any]:
        """After the trigger of the start gate: the whole try, from its beginning."""
        self._start_deadline = event["deadline"]
        return self.execute(context)

    def execute(self, context: Context) -> dict[str, Any]:  # type: ignore[override]
        """As `SubmittingOperator.execute`; of a stage, with the ``ledger`` of the channels at its ends."""
        summary = super().execute(context)
        return {**summary, "ledger": ledger_summary(self._ledger)} if self._ledger else summary

    def execute_region(self, context: Context) -> RegionResult | BatchResult:
        """One try: plan the job, open the run, and go through the protocol. Raises our own errors."""
        from airflow_recovery.job.loading import load_job
        from airflow_recovery.task.job_run import open_job_run

        if self.subtask is None:
            refuse_mapped(context)
        die_with_supervisor()
        job = load_job(self.job)
        if not self.recovers:
            return self._run_plainly(job, context)
        ask_cached = self._ask_cached
        with open_job_run(context, job, self.job, self.group_id, self.get_dag(), log, ask_cached) as found:
            os.environ.update(found.opened.stores.driver_env())
            batch = batch_of(found.plan.record, self.region, self.subtask, context["ti"].map_index)
            try:
                if batch is not None:
                    run_subtask = partial(self._run_subtask, job, context, found)
                    results = SubtaskBatch(found.opened.run, batch, run_subtask, lambda: self.is_killed).execute()
                    return BatchResult(self.region, results)
                name = subtask_region(self.region, self.subtask)
                if name not in found.plan.regions:
                    raise SubtasksUnknown(
                        f"{name}: this run's subtasks do not include {self.subtask!r} any more: it has vanished from "
                        "the keys that are declared, or recorded. Clear the task group with its downstream tasks."
                    )
                if found.plan.regions[name].region.is_stage:
                    return self._run_stage(job, context, found, name)
                return self._run_region(job, context, found, name)
            except SharedMadeElsewhere as found_elsewhere:
                self._defer_while(found_elsewhere.making)
                raise

    def _run_plainly(self, job: Job, context: Context) -> RegionResult | BatchResult:
        """Recovery is off: the region, or each subtask of the batch, runs, and that is all."""
        from airflow_recovery.task.dag_operators import batch_size_of
        from airflow_recovery.task.plain import PlainRun, plain_plan, run_plain_region
        from airflow_recovery.task.region_runner import RegionRunner

        facts, run = run_facts(context), PlainRun(context, self.group_id)
        os.environ.update(run.stores.driver_env())
        plan = plain_plan(job, self.job, facts, run).in_batches(batch_size_of(self.get_dag(), self.group_id))

        def run_one(name: str) -> RegionResult:
            def make_runner(stores: Stores, identity: RunIdentity) -> RegionRunner:
                self._application = application = self._make_application(job, context, stores)
                region = plan.regions[name]
                return RegionRunner(
                    job=job,
                    ref=self.job,
                    region=region,
                    facts=facts,
                    identity=identity,
                    stores=stores,
                    application=application,
                    log=log,
                )

            return run_plain_region(run, plan, name, make_runner)

        batch = batch_of(plan.record, self.region, self.subtask, context["ti"].map_index)
        if batch is None:
            return run_one(subtask_region(self.region, self.subtask))
        results = {}
        for name in batch:
            with self._as_declared():
                results[name] = run_one(name)
        return BatchResult(self.region, results)

    def _run_subtask(
        self, job: Job, context: Context, found: OpenJobRun, name: str, before_claim: BeforeClaim
    ) -> RegionResult:
        with self._as_declared():
            return self._run_region(job, context, found, name, before_claim)

    @contextmanager
    def _as_declared(self) -> Iterator[None]:
        """One subtask of a batch. A submission changes this operator (name, conf, memory): the next begins anew."""
        declared = {key: value for key, value in vars(self).items() if key not in OF_THE_TRY}
        try:
            yield
        finally:
            vars(self).update(declared)

    def _run_stage(self, job: Job, context: Context, found: OpenJobRun, name: str) -> RegionResult:
        """A region at a channel: behind the start gate, and heard at its channels whatever becomes of it."""
        run, results = found.opened.run, found.opened.stores.results
        if self._connection.conn_type == CONNECT:
            raise ConfigurationError(
                f"{name}: expected a connection of type spark (spark-submit), since it is a stage of a stream, which "
                f"is an application of its own; found {self._conn_id!r} of type {CONNECT}. Give the task group "
                "another conn_id; regions over Connect can be a job of their own, behind the audit."
            )
        try:
            while True:
                try:
                    result = self._run_region(job, context, found, name)
                    break
                except ChannelNotOpen as waiting:
                    self._wait_for_start(context, found, waiting)
        except Exception as error:
            if kind_of(error).is_final or is_last_try(context):
                tell_that_it_gave_up(run, name, results, error)
            raise
        if result.decision is Decision.RAN:
            self._ledger = told_ledger(run, name, results)
            if self._ledger:
                self._told = log_ledger(self._ledger, log)
        return result

    def more_to_note(self) -> str | None:
        """Of a stage: what was committed and lost at its channels."""
        return self._told

    def _wait_for_start(self, context: Context, found: OpenJobRun, waiting: ChannelNotOpen) -> None:
        """In the triggerer, or here. Returns when the gate is worth another look. Raises `ChannelFailed`: too late."""
        from airflow_recovery.triggers.channel import POLL_INTERVAL_S, ChannelOpenTrigger

        channel = waiting.channel
        if self.start_timeout_s is not None and self._start_deadline is None:
            self._start_deadline = time.time() + self.start_timeout_s
        if self._start_deadline is not None and time.time() >= self._start_deadline:
            raise ChannelFailed(
                f"{self.region}: {waiting}. Expected it open within start_timeout_s={self.start_timeout_s} s. Look "
                "whether its producer has a slot; then clear this task, or give it more time."
            )
        log.info("%s; waiting.", waiting)
        if not self.deferrable:
            time.sleep(POLL_INTERVAL_S)
            return
        identity = found.identity
        self.defer(
            trigger=ChannelOpenTrigger(
                dag_id=identity.dag_id,
                run_key=identity.run_key,
                group_id=identity.group_id,
                run_id=context["dag_run"].run_id,
                result=channel.identity.edge,
                generation=channel.generation,
                producer=channel.producer,
                producer_task=found.opened.run.task_keys[channel.producer],
                deadline=self._start_deadline,
            ),
            method_name="execute_after_start",
        )

    def _run_region(
        self, job: Job, context: Context, found: OpenJobRun, name: str, before_claim: BeforeClaim | None = None
    ) -> RegionResult:
        """The protocol of one region. Raises `SharedMadeElsewhere` where this task may wait in the triggerer."""
        from airflow_recovery.attempt.release import release_consumed
        from airflow_recovery.attempt.shared import SharedRunner
        from airflow_recovery.job.cached import cached_results
        from airflow_recovery.task.region_runner import RegionRunner

        opened, region = found.opened, found.plan.regions[name]
        if cached_results(region.region, job.vertices):
            check_cached_connection(job, region.region, self._connection)
        source = SplitPlan.of(opened.run.regions[name]).split_source
        if source:
            check_split_connection(job.vertices[source], self._connection)
        application = self._make_application(job, context, opened.stores)
        make_runner = partial(
            RegionRunner,
            job=job,
            ref=self.job,
            region=region,
            facts=found.facts,
            stores=opened.stores,
            application=application,
            log=log,
            journal=opened.run.journal,
            on_claim=self._on_claim,
            prepare=application.prepare if isinstance(application, ConnectApplication) else _nothing,
            heartbeat_s=interval_s(opened.run.patience.timeout_s),
        )
        runner: SharedRunner | RegionRunner | GuardedRunner | StageRunner = make_runner(identity=found.identity)
        self._application = application
        if region.region.is_stage:
            runner = StageRunner(
                runner,
                opened.run,
                name,
                opened.stores.results,
                pool=self.pool,
                pool_slots=lambda: open_door(context, opened.settings.api_conn_id).pool_slots(self.pool),
                slots_each=self.pool_slots,
            )
        if opened.run.regions[name].persistent:
            self._application = runner = SharedRunner(
                opened.run,
                name,
                lambda identity: make_runner(identity=identity),
                timeout_s=opened.run.patience.timeout_s,
                silent=self._silent,
                waits_here=not self.deferrable,
                drivers=application.drivers,
            )
            making = runner.find_maker() if self.deferrable else None
            if making is not None:
                raise SharedMadeElsewhere(making.text(), making)
        restarts = self.restarts(opened.run, name)
        if before_claim is not None:
            runner = GuardedRunner(runner, restarts.check_not_in_vain, before_claim)
        task = RegionTask(
            opened.run,
            name,
            runner,
            epoch=recompute_epoch(context),
            prepare_journal=found.prepare_journal,
            restarts=restarts,
            label=self.labeller(),
            drivers=BOUND if opened.run.regions[name].persistent else application.drivers,
        )
        try:
            result = task.execute()
        except RegionFailed:
            self._remember_application(opened.run)
            raise
        self.remember_lineage(opened.run, result)
        release_consumed(opened.run, name, opened.stores.results, opened.settings.retention)
        return result

    def _defer_while(self, making: Making | None) -> None:
        """A shared result is made once; whoever else wants it waits in the triggerer, and has no attempt open."""
        if making is None:
            return
        from airflow_recovery.triggers.shared import SharedResultTrigger

        log.info("%s; waiting.", making.text())
        self.defer(trigger=SharedResultTrigger(making=to_json(making)), method_name="execute_after_wait")

    def _remember_application(self, run: Run) -> None:
        """Of an attempt that has failed: its last sign of life says what Spark called it. Best effort."""
        with suppress(StoreError):
            beat = None if self._claim is None else beat_of(run.journal, self._claim)
            self.spark_application_id = None if beat is None else beat.application_id

    def _on_claim(self, attempt: ClaimedAttempt) -> None:
        self._claim = attempt.claim
        if self.memory_policy is None:
            return
        connection = self._connection
        is_local = str(connection.host or "").startswith("local") or connection.conn_type == "local"
        self.raise_memory(attempt, is_local=is_local, is_fixed=connection.conn_type == CONNECT)

    @cached_property
    def _connection(self) -> Connection:
        """Asked for once: each time is a request to the API server."""
        from airflow.sdk import BaseHook

        return BaseHook.get_connection(self._conn_id)

    def _ask_cached(self, manifest: PartitionManifest) -> str | None:
        return cache_server(self._connection).ask(manifest)

    def _make_application(self, job: Job, context: Context, stores: Stores) -> SparkApplication:
        connection = self._connection
        if connection.conn_type == CONNECT:
            return ConnectApplication(
                connect_url(connection),
                user_id=user_of(connection),
                packages=job.packages,
                conf={str(key): str(value) for key, value in (self.conf or {}).items()},
                journal=stores.journal,
                results=stores.results,
                log=log,
                mask=mask_secrets,
            )
        if connection.conn_type in SUBMIT:
            deploy_mode = self._deploy_mode or connection.extra_dejson.get("deploy-mode")
            submit = partial(self._submit, job, context, is_cluster=deploy_mode == "cluster")
            if deploy_mode != "cluster":
                return SubmittedApplication(submit, self.kill_attempt)
            return SubmittedApplication(
                submit,
                self.kill_attempt,
                drivers=ClusterDrivers(self, context, stores.results),
                kill_orphan=lambda claim: self.kill_driver(context, claim.tag),
            )
        raise ConfigurationError(
            f"Connection {self._conn_id!r}: expected type spark (spark-submit) or {CONNECT}, found "
            f"{connection.conn_type!r}. Give the task group a conn_id of one of these types."
        )

    def _submit(self, job: Job, context: Context, spec: RegionSpec, path: Path, *, is_cluster: bool) -> None:
        from airflow_recovery.driver.code_archive import build_archive

        os.environ.update(submit_environment(os.environ))
        conf = dict(QUIET_CONF)
        # Spark itself never touches the journal, but sources may be where it is while results are on a disk.
        conf |= s3a_conf(spec.results, os.environ) or s3a_conf(spec.journal, os.environ)
        conf |= self.conf or {}
        conf |= job.region_spark_conf(self.region)
        self.conf = conf
        self.application = APPLICATION
        self.application_args = [str(path)]
        self.py_files = _joined(self.py_files, str(build_archive(self.job, job.packages)))
        if is_cluster:
            self.files = _joined(self.files, str(path))
        if self.name == _PROVIDERS_DEFAULT_NAME:
            self.name = f"{spec.identity.dag_id}.{spec.region}@{spec.attempt}"
        self.submit_attempt(context, spec.tag)


def _nothing() -> None:
    """What there is to prepare for an application that this process does not start."""


def _joined(given: str | None, ours: str) -> str:
    return ours if not given else f"{given},{ours}"
