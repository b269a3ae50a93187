"""One region of a declared job, as one Airflow task and one Spark application."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow_recovery.errors import ConfigurationError, SharedMadeElsewhere, SubtasksUnknown
from airflow_recovery.execution.drivers import BOUND
from airflow_recovery.execution.region_task import RegionResult, RegionTask
from airflow_recovery.job.chains import subtask_region
from airflow_recovery.operators.applications import ConnectApplication, SubmittedApplication
from airflow_recovery.operators.cached import CONNECT, cache_server, check_cached_connection, connect_url, user_of
from airflow_recovery.operators.cluster_drivers import ClusterDrivers
from airflow_recovery.operators.run_context import recompute_epoch, refuse_mapped, run_facts
from airflow_recovery.operators.split_connection import check_split_connection
from airflow_recovery.operators.submitting import SubmittingOperator
from airflow_recovery.operators.subtask_batch import BatchResult, GuardedRunner, SubtaskBatch, batch_of
from airflow_recovery.operators.supervision import die_with_supervisor
from airflow_recovery.runtime.heartbeat import interval_s
from airflow_recovery.runtime.spec import RegionSpec
from airflow_recovery.runtime.submit import APPLICATION, QUIET_CONF, s3a_conf, submit_environment

if TYPE_CHECKING:
    from airflow.sdk import Connection, Context

    from airflow_recovery.execution.runner import ClaimedAttempt
    from airflow_recovery.execution.shared import SharedRunner
    from airflow_recovery.hooks.stores import Stores
    from airflow_recovery.job import Job
    from airflow_recovery.journal.records import Making, RunIdentity
    from airflow_recovery.operators.job_run import OpenJobRun
    from airflow_recovery.operators.region_runner import SparkApplication
    from airflow_recovery.operators.subtask_batch import BeforeClaim
    from airflow_recovery.shuffle.manifest import PartitionManifest

log = logging.getLogger(__name__)

SUBMIT = ("spark", "k8s", "local", "mesos", "yarn")
"""Connection types that the provider's hook submits to: a connection given as a URI has the master's scheme as type."""

_PROVIDERS_DEFAULT_NAME = "arrow-spark"


class SparkRegionOperator(SubmittingOperator):
    """Runs one recovery region of a job, or keeps it, or wakes the producers of what it misses.

    Made by `SparkJobTaskGroup`; takes every argument of `SparkSubmitOperator` except those that name the application.
    The connection's type decides how the region runs: ``spark`` by spark-submit (any deploy mode of the provider's
    operator), ``spark_connect`` over a warm server. Over Connect, ``conf`` is set in the attempt's session as far as a
    running server lets it be set; the other arguments of spark-submit have no meaning there.

    Every try begins with the same pre-check (PROTOCOL 5.1). What a try did is its return value: the decision, the
    attempt, why, and the Spark seconds saved; recovery itself reads only the journal.

    :param job: ``package.module:name`` of the job, importable on this worker.
    :param region: the region's name.
    :param group_id: the full id of the task group, which is a part of the journal's identity.
    :param deferrable: wait in the triggerer while another run makes a shared result (``BLOCKING_PERSISTENT``) that this
        region needs; else in the worker.
    :param subtask: in a mapped task group, the key of the subtask that each task instance is, or the label of its batch
        of subtasks; Airflow fills it in.
    """

    template_fields: Sequence[str] = (*SubmittingOperator.template_fields, "subtask")

    def __init__(
        self, *, job: str, region: str, group_id: str, subtask: Any = None, deferrable: bool = True, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.subtask = subtask
        self.job = job
        self.region = region
        self.group_id = group_id
        self.deferrable = deferrable
        self._silent: Making | None = None
        self._application: SparkApplication | SharedRunner | None = None

    def on_kill(self) -> None:
        """Kill the Spark application, within Airflow's five seconds; of a batch, no other is started."""
        self.is_killed = True
        if self._application is not None:
            self._application.stop()

    def execute_after_wait(self, context: Context, event: dict[str, Any]) -> dict[str, Any]:
        """After the trigger: the whole try, from its beginning."""
        from airflow_recovery.triggers.shared import making_from_json

        self._silent = None if event["silent"] is None else making_from_json(event["silent"])
        return self.execute(context)

    def execute_region(self, context: Context) -> RegionResult | BatchResult:
        """One try: plan the job, open the run, and go through the protocol. Raises our own errors."""
        from airflow_recovery.job.loading import load_job
        from airflow_recovery.operators.job_run import open_job_run

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
                return self._run_region(job, context, found, name)
            except SharedMadeElsewhere as found_elsewhere:
                self._defer_while(found_elsewhere.making)
                raise

    def _run_plainly(self, job: Job, context: Context) -> RegionResult | BatchResult:
        """Recovery is off: the region, or each subtask of the batch, runs, and that is all."""
        from airflow_recovery.operators.dag_operators import batch_size_of
        from airflow_recovery.operators.plain import PlainRun, plain_plan, run_plain_region
        from airflow_recovery.operators.region_runner import RegionRunner

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
        declared = {key: value for key, value in vars(self).items() if key != "is_killed"}
        try:
            yield
        finally:
            vars(self).update(declared)

    def _run_region(
        self, job: Job, context: Context, found: OpenJobRun, name: str, before_claim: BeforeClaim | None = None
    ) -> RegionResult:
        """The protocol of one region. Raises `SharedMadeElsewhere` where this task may wait in the triggerer."""
        from airflow_recovery.execution.release import release_consumed
        from airflow_recovery.execution.shared import SharedRunner
        from airflow_recovery.job.cached import cached_results
        from airflow_recovery.operators.region_runner import RegionRunner

        opened, region = found.opened, found.plan.regions[name]
        if cached_results(region.region, job.vertices):
            check_cached_connection(job, region.region, self._connection)
        source = opened.run.regions[name].split_source
        if source is not None:
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
            on_claim=self._on_claim,
            prepare=application.prepare if isinstance(application, ConnectApplication) else _nothing,
            heartbeat_s=interval_s(opened.run.patience.timeout_s),
        )
        runner: SharedRunner | RegionRunner | GuardedRunner = make_runner(identity=found.identity)
        self._application = application
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
        result = RegionTask(
            opened.run,
            name,
            runner,
            epoch=recompute_epoch(context),
            prepare_journal=found.prepare_journal,
            restarts=restarts,
            label=self.labeller(),
            drivers=BOUND if opened.run.regions[name].persistent else application.drivers,
        ).execute()
        release_consumed(opened.run, name, opened.stores.results, opened.settings.retention)
        return result

    def _defer_while(self, making: Making | None) -> None:
        """A shared result is made once; whoever else wants it waits in the triggerer, and has no attempt open."""
        if making is None:
            return
        from airflow_recovery.triggers.shared import SharedResultTrigger

        log.info("%s; waiting.", making.text())
        self.defer(trigger=SharedResultTrigger(making=asdict(making)), method_name="execute_after_wait")

    def _on_claim(self, attempt: ClaimedAttempt) -> None:
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
        from airflow_recovery.runtime.shipping import build_archive

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
