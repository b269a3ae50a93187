"""A declared job as an Airflow task group: one task a region, wired by the region graph, and a publish at the end."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

from airflow.sdk import TaskGroup, conf, task_group

from airflow_recovery.checks import check_arguments
from airflow_recovery.errors import JobDefinitionError
from airflow_recovery.hooks.settings import is_recovery_on
from airflow_recovery.job import Job
from airflow_recovery.job.chains import Chain, batch_label, batch_size, batches, chains, check_length, initializers
from airflow_recovery.job.loading import job_reference, load_job
from airflow_recovery.job.mode import planned_mode
from airflow_recovery.job.parallelism import FixedParallelism, LiteralKeys
from airflow_recovery.job.sources import Dates
from airflow_recovery.locations import is_table
from airflow_recovery.model.failover_strategy import FailoverStrategyLike, RecoveryModeLike, declared_strategy
from airflow_recovery.model.job_recovery import declared_job_recovery
from airflow_recovery.model.retention import Retention, checked_retention
from airflow_recovery.operators.publish import PUBLISH_TASK, RecoveryPublishOperator
from airflow_recovery.operators.region import SparkRegionOperator
from airflow_recovery.operators.start_spark import START_TASK, StartSparkOperator
from airflow_recovery.operators.stop_spark import STOP_TASK, StopSparkOperator
from airflow_recovery.operators.subtasks import RecoverySubtasksOperator
from airflow_recovery.sinks.declaration import CommittingSink, check_sinks_apart
from airflow_recovery.task.asset_events import ONCE, OnKeptAssets
from airflow_recovery.task.references import check_targets, outputs_of, sinks_of
from airflow_recovery.task.run_context import refuse_mapped_group
from airflow_recovery.task.spark_connection import PER_REGION, PER_RUN, SparkScope

if TYPE_CHECKING:
    from airflow.sdk import DAG, Asset, BaseOperator

    from airflow_recovery.job.mode import DeclaringMode
    from airflow_recovery.planning.regions import Region

log = logging.getLogger(__name__)

NOT_PASSED_THROUGH = ("application", "application_args", "java_class", "region", "task_id")
REGION_ARGUMENTS = ("deferrable", "start_timeout_s")
"""What is said of regions alone."""
PUBLISH_ATTRIBUTES = (
    "executor",
    "executor_config",
    "pool",
    "queue",
    "retries",
    "retry_delay",
    "retry_exponential_backoff",
    "max_retry_delay",
)
"""Where and how often a task of this group runs: the publish task needs the same workers as the regions."""


class SparkJobTaskGroup(TaskGroup):
    """Runs a job declared with `airflow_recovery.job`: one task is one recovery region is one Spark application.

    ::

        SparkJobTaskGroup(group_id="flights", job="jobs.flights:flights", conn_id="spark_default")

    Task ids are ``<group_id>.<region>``; the last task, ``<group_id>.publish``, publishes the results and carries
    ``outlets``. Every further argument goes to every region's operator: those of `SparkSubmitOperator` (``conf``,
    ``jars``, ``executor_memory``, ...) and Airflow's own (``pool``, ``retries``, ...); the publish task gets those that
    say where and how often a task runs. ``restart_strategy``, ``maximum_per_task_failures``,
    ``maximum_total_task_failures`` and ``memory_policy`` are described at `SubmittingOperator`: a region may fail three
    times, and has ten more of Airflow's ``retries`` than restarts, unless ``default_args`` or an argument say else.

    Parallel regions that are read subtask by subtask form a chain, which becomes one mapped task group: subtask i of
    the chain is map index i of each of its tasks, ``<group_id>.<region>``. Where the keys are decided at run time, a
    task ``<group_id>.<region>.subtasks`` decides and records them, before anything else of the group runs. Airflow maps
    a task at most ``[core] max_map_length`` (1024) times: of more subtasks each task instance runs a batch, one after
    the other, each as a region and a Spark application of its own (`airflow_recovery.task.subtask_batch`).

    Streaming regions, which a channel connects (``PIPELINED_APPROXIMATE``), run at the same time: no task waits for
    another one of them, and a region that reads a channel waits in the triggerer until it is open. The last task is
    then ``<group_id>.audit``, an `airflow_recovery.streaming.audit_operator.RecoveryAuditOperator`. Give such a group a
    pool of its own, with as many slots as it has regions times ``max_active_runs``; ``start_timeout_s`` bounds the
    wait.

    The job's module is imported while the DAG file is parsed: import pyspark inside the vertices, not at its top.
    Raises `JobDefinitionError` where the job is not what it must be; Airflow shows it as an import error of the DAG.

    :param group_id: the id of the group; part of the identity of the journal.
    :param job: ``package.module:name``, or the `Job` itself where that can be found out (`job_reference`).
    :param conn_id: a connection of type ``spark`` or ``spark_connect``; its type decides how regions run. Without it,
        that of ``default_args``, else ``spark_default``.
    :param spark: ``per-region``: each region is a Spark application of its own. ``per-run``: all regions of a run share
        one; a setup task starts it as a Spark Connect server, by spark-submit with the group's arguments on the worker,
        and a teardown task ends it. Regions with ``commit="split"`` and streaming regions are submitted by
        themselves all the same, and don't wait for it.
    :param outlets: assets that are updated when the results are published.
    :param on_kept_assets: as in `RecoveryPublishOperator`.
    :param retention: when intermediate results may be deleted; without it, as the job or the configuration says.
    :param failover_strategy: ``region``, ``full`` or ``individual``: which regions restart with a failed one; for a job
        with channels also ``approximate-single``, ``approximate-downstream`` or ``approximate-sink``; without it, as
        the job says.
    :param subtasks_per_task: how many subtasks one task instance runs; without it one, or as few as make them fit.
    :param job_recovery: FLIP-383's options by their names, such as ``{"job-event.store.write-buffer.size": "4 mb"}``;
        what it does not say, the job says, else the configuration.
    :param recovery_mode: ``TASK_LEVEL``, or ``JOB_LEVEL``, which restarts the whole job whatever the strategy says.
    """

    def __init__(  # noqa: C901, PLR0913 - a task group's options, checked one after the other
        self,
        group_id: str,
        *,
        job: str | Job,
        conn_id: str | None = None,
        spark: SparkScope = PER_REGION,
        outlets: Sequence[Asset] | None = None,
        on_kept_assets: OnKeptAssets = ONCE,
        retention: Retention | str | None = None,
        failover_strategy: FailoverStrategyLike | None = None,
        job_recovery: Mapping[str, object] | None = None,
        recovery_mode: RecoveryModeLike | None = None,
        subtasks_per_task: int | None = None,
        default_args: dict[str, Any] | None = None,
        tooltip: str = "",
        **operator_args: Any,
    ) -> None:
        where = f"SparkJobTaskGroup {group_id!r}"
        check_arguments(SparkJobTaskGroup.__init__, locals(), where)
        job = job_reference(job, where)
        refused = sorted(set(NOT_PASSED_THROUGH) & set(operator_args))
        if refused:
            raise JobDefinitionError(
                f"{where}: {', '.join(refused)} can't be given, since the job decides it.",
                code="option-of-the-job",
                where=where,
            )
        if conn_id is not None:
            operator_args["conn_id"] = conn_id
        defaults: Any = default_args or {}
        super().__init__(group_id=group_id, default_args=defaults, tooltip=tooltip or f"Spark job {job}")
        self.retention = checked_retention(retention, where)
        if subtasks_per_task is not None and subtasks_per_task < 1:
            raise JobDefinitionError(
                f"{where}: expected subtasks_per_task= as a number from 1, found {subtasks_per_task}",
                code="subtasks-per-task-unfit",
            )
        self.subtasks_per_task = subtasks_per_task
        refuse_mapped_group(self.parent_group, f"SparkJobTaskGroup {self.group_id!r}")
        options = declared_job_recovery(job_recovery, where)
        self.failover_strategy = declared_strategy(failover_strategy, recovery_mode, where)
        declared = load_job(job)
        self.job_recovery = options.over(declared.job_recovery)
        recovers = is_recovery_on(self.job_recovery)
        if not recovers:
            self._refuse_without_recovery(declared, spark)
        declared.check_strategy(self.failover_strategy or declared.failover_strategy)
        regions = declared.regions()
        self.sinks = [
            (f"{self.group_id}.{name}", vertex.sink) for name, vertex in declared.vertices.items() if vertex.sink
        ]
        dag = getattr(self, "dag", None)
        others = [] if dag is None else [each for each in sinks_of(dag) if each not in self.sinks]
        check_sinks_apart([*others, *self.sinks])
        self.tables = {
            f"{self.group_id}.{name}": vertex.table for name, vertex in declared.vertices.items() if vertex.table
        }
        self._check_tables(outputs_of(dag, str(self.group_id)), [*others, *self.sinks])
        self._warn_of_days(declared, dag)
        limit = getattr(getattr(self, "dag", None), "max_active_tasks", None)
        for mode in declared.modes:
            mode.check_dag(
                regions,
                declared.vertices,
                declared.graph(),
                f"SparkJobTaskGroup {self.group_id!r}",
                recovers=recovers,
                max_active_tasks=limit,
            )
        full_id = str(self.group_id)
        with self:
            for_all = {name: value for name, value in operator_args.items() if name in PUBLISH_ATTRIBUTES}
            deciding = {
                name: RecoverySubtasksOperator(task_id=name, job=job, group_id=full_id, initializer=name, **for_all)
                for name in initializers(declared)
            }
            operators: dict[str, SparkRegionOperator] = {}

            def add(region: str, subtask: Any = None) -> None:
                planned = regions.region(region)
                mapped: dict[str, Any] = (
                    {} if subtask is None else {"subtask": subtask, "map_index_template": "{{ task.subtask }}"}
                )
                operators[region] = SparkRegionOperator(
                    # The group of a chain gives its tasks no prefix: a region's task has one id, parallel or not.
                    task_id=region if subtask is None else f"{full_id}.{region}",
                    job=job,
                    region=region,
                    group_id=full_id,
                    spark=spark,
                    **{"doc_md": _doc_of(planned), "job_recovery": self.job_recovery, **mapped, **operator_args},
                )

            in_chains: set[str] = set()
            for chain in chains(declared):
                in_chains.update(chain.regions)
                where = f"Job {job}, region {chain.name}"
                _map_chain(chain, deciding, declared, add, self.subtasks_per_task, where=where)
            for region in regions.regions:
                if region.name not in in_chains:
                    add(region.name)
            last, last_operator = _last_task(declared.modes)
            if last in operators:
                raise JobDefinitionError(
                    f"Job {job}: a region is named {last!r}, which is the id of the group's last task. Rename "
                    "that vertex.",
                    code="region-named-as-last-task",
                    found=last,
                )
            publish = last_operator(
                task_id=last,
                job=job,
                group_id=full_id,
                outlets=list(outlets or ()),
                on_kept_assets=on_kept_assets,
                spark=spark,
                # For the server that keeps cached results; that of `default_args` comes by itself.
                **(for_all if conn_id is None else {**for_all, "conn_id": conn_id}),
            )
            for region in regions.regions:
                for producer in region.upstream:
                    operators[producer] >> operators[region.name]
                if not region.upstream:
                    # Every task needs to know the whole plan.
                    for operator in deciding.values():
                        operator >> operators[region.name]
                if not regions.consumers(region.name):
                    operators[region.name] >> publish
            if spark == PER_RUN:
                first = [operators[name] for name in _first_on_shared_spark(declared)]
                for_stop = for_all if conn_id is None else {**for_all, "conn_id": conn_id}
                self._add_spark(first, publish, operator_args, for_stop)

    def _warn_of_days(self, declared: Job, dag: DAG | None) -> None:
        """Warn if the schedule of ``dag`` has data intervals that begin within a day of a source with `dates`."""
        timetable: Any = getattr(dag, "timetable", None)
        if type(timetable).__name__ != "CronDataIntervalTimetable":
            return
        zone = str(getattr(timetable.timezone, "name", timetable.timezone))
        for vertex in declared.vertices.values():
            if isinstance(vertex.splits, Dates):
                overlap = vertex.splits.overlap_of_runs(timetable.expression, zone)
                if overlap:
                    log.warning("SparkJobTaskGroup %r: %s: %s", self.group_id, vertex.where, overlap)

    def _check_tables(
        self, others: Mapping[str, Mapping[str, str | None]], sinks: Sequence[tuple[str, CommittingSink]]
    ) -> None:
        """Raise `JobDefinitionError` if a table of the job, or a target of its sinks, is written by another task."""
        targets = {where: {"commit=": sink.place} for where, sink in sinks if is_table(sink.place)}
        for where, table in self.tables.items():
            check_targets(where, {"table=": table}, {**others, **targets})
        for where, sink in self.sinks:
            check_targets(where, {"commit=": sink.place if is_table(sink.place) else None}, others)

    def _add_spark(
        self,
        first: Sequence[BaseOperator],
        last: BaseOperator,
        arguments: Mapping[str, Any],
        for_all: Mapping[str, Any],
    ) -> None:
        """Setup before the ``first`` tasks that use it, and teardown behind the last task. Nothing where none does."""
        if not first:
            return
        names = {START_TASK, STOP_TASK} & {str(task.label) for task in self.iter_tasks()}
        if names:
            raise JobDefinitionError(
                f"SparkJobTaskGroup {self.group_id!r}: a region is named {names.pop()!r}, which is the id of a task "
                "of the run's own Spark. Rename that vertex, or leave spark='per-run' out."
            )
        own = {name: value for name, value in arguments.items() if name not in REGION_ARGUMENTS}
        group_id = str(self.group_id)
        start = StartSparkOperator(task_id=START_TASK, group_id=group_id, **{"job_recovery": self.job_recovery, **own})
        stop = StopSparkOperator(task_id=STOP_TASK, group_id=group_id, **for_all)
        start.is_setup = True
        start >> first
        last >> stop.as_teardown(setups=start)

    def _refuse_without_recovery(self, declared: Job, spark: SparkScope) -> None:
        if spark == PER_RUN:
            raise JobDefinitionError(
                f"SparkJobTaskGroup {self.group_id!r}: recovery is off, and the address of a run's own Spark stands in "
                "the journal: leave spark='per-run' out",
                code="per-run-without-recovery",
                where=self.group_id,
            )
        for name, vertex in declared.vertices.items():
            if vertex.result.is_cached:
                raise JobDefinitionError(
                    f"SparkJobTaskGroup {self.group_id!r}: recovery is off, and the result of {name!r} is cached by a "
                    "server that only recovery tells when to drop it: declare it with result=BLOCKING."
                )


def _first_on_shared_spark(job: Job) -> list[str]:
    """The regions that use a run's own Spark, and have none before them that does."""
    regions = job.regions()
    first: list[str] = []
    behind: set[str] = set()
    for region in regions.regions:
        if not behind.isdisjoint(region.upstream):
            behind.add(region.name)
        elif not planned_mode(job.modes, region, regions, job.vertices).needs_own_application:
            first.append(region.name)
            behind.add(region.name)
    return first


def _last_task(modes: Sequence[DeclaringMode]) -> tuple[str, type[RecoveryPublishOperator]]:
    """Id and operator of the group's last task: a mode may have its own, which is imported for its jobs alone."""
    module = next((mode.last_task for mode in modes if mode.last_task is not None), None)
    if module is None:
        return PUBLISH_TASK, RecoveryPublishOperator
    last_task: tuple[str, type[RecoveryPublishOperator]] = import_module(module).LAST_TASK
    return last_task


def _map_chain(
    chain: Chain,
    deciding: Mapping[str, RecoverySubtasksOperator],
    declared: Job,
    add: Callable[[str, Any], None],
    subtasks_per_task: int | None,
    *,
    where: str,
) -> None:
    """Subtask i of all regions of a chain, or its batch i, is map index i of one mapped task group."""
    parallelism = chain.parallelism
    if isinstance(parallelism, (FixedParallelism, LiteralKeys)):
        keys, limit = parallelism.keys, conf.getint("core", "max_map_length")
        size = batch_size(len(keys), limit=limit, declared=subtasks_per_task)
        check_length(len(keys), size, limit, where)
        mapped: Any = [batch_label(batch) for batch in batches(keys, size)]
    else:
        mapped = next(deciding[name].output for name, spec in initializers(declared).items() if spec is parallelism)

    def add_all(subtask: Any) -> None:
        for region in chain.regions:
            add(region, subtask)

    # Of the group's own id nothing depends: Airflow gives it a suffix where a task has it.
    task_group(group_id=f"{chain.name.replace('.', '-')}-chain", prefix_group_id=False)(add_all).expand(subtask=mapped)


def _doc_of(region: Region) -> str:
    parts = {
        "Vertices": region.vertices,
        "Reads the channel": tuple(region_input.result for region_input in region.channels_in),
        "Feeds the channel": region.channels_out,
        "Results": region.results,
    }
    return " ".join(f"{what}: {', '.join(names)}." for what, names in parts.items() if names)
