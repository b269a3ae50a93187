"""One spark-submit an attempt, through the Spark provider's operator: start it, watch it, stop it, find it again.

The only file that touches private names of the provider's operator and hook. Each attempt is submitted by a copy of the
task's operator, so that what one attempt changes (name, settings, memory) is not there for the next.

**Drivers on this machine** (client mode) are kept by a process of their own (`airflow_recovery.driver.submit_keeper`):
they live on when their task is gone, and the next try follows them by their heartbeats.

**Drivers on a cluster** (deploy mode ``cluster``) live on when the task that submitted them is gone. The driver of a
declared job's region gives heartbeats and finishes its attempt by itself; the cluster manager is asked as well,
since it alone knows a driver that is still queued, or was killed. Of a user's own application only the cluster manager
can tell what becomes of it.

Why not `execute_resumable`'s own reconnection: it takes a job that has succeeded for the answer, whatever was cleared
since, and submits again in place of one that has failed. Here an attempt is submitted once, and the journal tells
whether another one is needed. The job's id is kept where the provider keeps it, under a key that names the claim's tag:
no other attempt, run or operator has it. A driver's pod is called by that tag (`airflow_recovery.task.driver_pod`).
"""

from __future__ import annotations

import copy
import inspect
import json
import logging
import os
import re
import shutil
import subprocess
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator

from airflow_recovery.airflow_compat import is_supervised
from airflow_recovery.attempt.application import ApplicationStatus
from airflow_recovery.doctor.spark import NO_PYTHON_IN_CLUSTER_MODE
from airflow_recovery.driver.exit_report import forget_failure_at, read_failure_at
from airflow_recovery.driver.heartbeat import interval_s
from airflow_recovery.driver.memory_policy import Memory, RaiseMemory
from airflow_recovery.driver.process import die_with_parent
from airflow_recovery.driver.start_advice import MAX_LINES, keep_output, relevant
from airflow_recovery.driver.submit import APPLICATION
from airflow_recovery.driver.submit_keeper import (
    Order,
    end_group,
    end_keeper_of,
    keeper_command,
    keeper_of,
    order_name,
)
from airflow_recovery.errors import ConfigurationError, StoreError
from airflow_recovery.hooks.settings import configured_driver_jvm, configured_orphaned_driver_timeout_s
from airflow_recovery.journal.layout import JournalLayout
from airflow_recovery.task.driver_jvm import driver_environment, jvm_variables, user_option
from airflow_recovery.task.driver_pod import NAME_SETTING, check_not_named, driver_pod_of
from airflow_recovery.task.outliving_job import OutlivingJob, key_of

if TYPE_CHECKING:
    from pathlib import Path

    from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
    from airflow.sdk import Connection, Context

    from airflow_recovery.attempt.application import ClaimedAttempt
    from airflow_recovery.errors import Failure
    from airflow_recovery.hooks.stores import Stores
    from airflow_recovery.journal.journal import Journal
    from airflow_recovery.journal.run_state import RunState
    from airflow_recovery.model.records import Claim, ExternalObject, Outcome, RunIdentity
    from airflow_recovery.store.object_store import ObjectStore
    from airflow_recovery.task.open_run import OpenRun

log = logging.getLogger(__name__)

CONNECT_SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"

_ASKS_FOR_SECRET = "spark.authenticate"

_NOT_KNOWN = frozenset({"UNKNOWN", "NOTFOUND", "NOT_FOUND"})
"""A master that recovers, a pod that was collected: no answer about the job."""

_SUBMITTED_TO_YARN = re.compile(r"Submitted application (application_\d+_\d+)")
_ONE_DRIVER = "spark.yarn.maxAppAttempts"
"""How often YARN starts the driver of an application in cluster mode, twice where nothing is said: the second one would
run the same attempt, and write where the first one has written, or still writes."""


@dataclass(frozen=True)
class Keeping:
    """How a driver on this machine is kept when its task has gone.

    ``left_alone_s``: for so many seconds without a next try that follows it. ``every_s``: between two heartbeats.
    ``gives_signs``: the keeper gives them, since the application gives none.
    """

    journal: Journal
    stores: Stores
    left_alone_s: float
    every_s: float
    gives_signs: bool = False

    def order(self, claim: Claim, holds: Iterable[str], rests_on: str | None = None) -> Order:
        """What the keeper of the attempt of ``claim`` is told. ``holds``: what its driver uses on this machine.

        ``rests_on``: what the heartbeats say that the application was started with.
        """
        identity = self.journal.identity
        return Order(
            task_pid=os.getpid(),
            holds=list(holds),
            left_alone_s=self.left_alone_s,
            identity=[identity.dag_id, identity.run_key, identity.group_id],
            region=claim.region,
            attempt=claim.attempt,
            data=self.journal.layout.data_of(claim),
            tag=claim.tag,
            every_s=self.every_s,
            journal=asdict(self.stores.journal_spec),
            results=asdict(self.stores.results_spec),
            gives_signs=self.gives_signs,
            rests_on=rests_on,
        )


def keeping(opened: OpenRun, *, gives_signs: bool = False) -> Keeping | None:
    """How drivers of this task are kept; `None` where they end with it.

    That is in ``dag.test()``, where recovery is off, and where no next try would follow a driver. Raises
    `ConfigurationError`.
    """
    timeout_s, left_alone_s = opened.run.heartbeat_timeouts.timeout_s, configured_orphaned_driver_timeout_s()
    if timeout_s <= 0 or left_alone_s <= 0 or not is_supervised():
        return None
    return Keeping(opened.run.journal, opened.stores, left_alone_s, interval_s(timeout_s), gives_signs)


class SparkSubmission(OutlivingJob):
    """The application that ``operator`` declares, submitted as it is; subclasses say what an attempt changes.

    ``identity`` and ``results`` tell where a driver leaves what it says of its failure. ``connection`` is the
    operator's, where it has been read already: each read is a request to the API server. ``keeping``: how a driver on
    this machine is kept when this process is gone; without it, the driver is killed with this process.
    """

    def __init__(  # noqa: PLR0913 - what a driver is started with
        self,
        operator: SparkSubmitOperator,
        context: Context,
        identity: RunIdentity,
        results: ObjectStore,
        *,
        is_killed: Callable[[], bool] = lambda: False,
        memory_policy: RaiseMemory | None = None,
        connection: Connection | None = None,
        keeping: Keeping | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(operator, context, is_killed=is_killed, clock=clock)
        self._identity = identity
        self._results = results
        self._memory_policy = memory_policy
        self._connection = connection
        self._keeping = keeping
        self._claim: Claim | None = None
        self._used: tuple[str, ...] = ()
        """Files and folders on this machine that the driver needs for as long as it runs."""
        self._application_id: str | None = None

    @property
    def application_id(self) -> str | None:
        """What YARN calls the application that was submitted last, or found again."""
        return self._application_id

    def before_claim(self, state: RunState) -> None:
        """Raises `ConfigurationError` where Spark or the provider would refuse to submit in deploy mode ``cluster``."""
        del state
        if not self.is_on_cluster:
            return
        hook = _hook_of(self.operator)
        if str(hook._connection["master"]).startswith("spark://") and self._is_python:
            raise ConfigurationError(
                f"{self.operator.task_id}: expected deploy mode client for a master spark://, found "
                f"{NO_PYTHON_IN_CLUSTER_MODE}. Set deploy_mode='client', or take deploy-mode out of the extra of "
                f"connection {self.operator._conn_id!r}.",
                code="standalone-cluster-mode",
            )
        if not self._is_on_yarn:
            return
        if self.operator.durable and not hook._yarn_track_via_rm_api:
            raise ConfigurationError(
                f"{self.operator.task_id}: expected yarn_track_via_rm_api=True on YARN in deploy mode cluster, found "
                "False: a next try could not find the application again. Set it, and the resource manager's web "
                "address as yarn_resourcemanager_webapp_address in the extra of connection "
                f"{self.operator._conn_id!r}; or say durable=False, and the application outlives a killed task."
            )
        try:
            hook._validate_yarn_track_via_rm_api_config()
        except (ValueError, RuntimeError) as error:
            raise ConfigurationError(f"{self.operator.task_id}: {error}") from error

    def externals(self) -> tuple[ExternalObject, ...]:
        """Nothing is known of what it reads."""
        return ()

    def run(self, attempt: ClaimedAttempt) -> Outcome | None:
        """Submit it, and wait for its end. Raises Airflow's exception where it failed."""
        self.submit(self.new_job(attempt), attempt.claim.tag)
        return None

    def new_job(self, attempt: ClaimedAttempt) -> Any:
        """A copy of the operator for ``attempt``, with the memory that it is to have: for `submit`."""
        self._claim = attempt.claim
        job = copy.copy(self.operator)
        job._hook = None
        if self._is_on_yarn:
            job.conf = {_ONE_DRIVER: "1", **(job.conf or {})}
        raised = raised_memory(self.operator, self._memory_policy, attempt, is_local=self._is_local)
        for side, size in (("driver", raised.driver), ("executor", raised.executor)):
            if size is not None:
                log.info("An earlier attempt ran out of %s memory: this one gets %s.", side, size)
                setattr(job, f"_{side}_memory", size)
                job.conf = {**(job.conf or {}), f"spark.{side}.memory": size}
        return job

    def submit(self, job: SparkSubmitOperator, name: str) -> None:
        """Submit what the attributes of ``job`` say, and wait. Raises Airflow's exception where it failed.

        ``name`` is one that no other attempt of this task instance has. In cluster modes the provider's operator keeps
        the job's id in Airflow and connects to it again. Its keys outlive a clear and would hand the job of an old
        attempt to a new one: here they name the attempt.
        """
        _name_job(job, name)
        output: deque[str] = deque(maxlen=MAX_LINES)
        self._job, self._application_id = job, None
        try:
            with (
                nullcontext() if self.is_on_cluster else driver_environment(self._jvm_variables(job)) as folder,
                self.submitting(job),
            ):
                keeper = self._keeper(folder) if folder is not None else ()
                # The provider's operator makes its hook from the attributes, after it has added OpenLineage's settings.
                guarded = partial(_guarded_hook, job, name, output, partial(self._hear, output), keeper)
                setattr(job, "_get_hook", guarded)  # noqa: B010
                # Without the guard that Airflow puts around it: that one knows the task itself, and not its copy.
                inspect.unwrap(SparkSubmitOperator.execute)(job, self._context)
        except ValueError as error:
            # All that the provider's operator raises so is a setting that is missing, or that contradicts another one.
            raise ConfigurationError(f"{job.task_id}: {error}") from error
        except Exception as error:
            keep_output(error, output)
            if not self.is_on_cluster:
                self._end_kept()
            raise

    def stop(self) -> None:
        """Kill what `submit` waits for, or `status` has found: spark-submit, and the driver in cluster modes."""
        hook = self._job._hook if self._job is not None else None
        if self._job is None or hook is None:
            return
        self._end_kept()
        SparkSubmitOperator.on_kill(self._job)
        # Of a pod that is not tracked, the provider's deletes none but that of a spark-submit which runs here.
        if hook._kubernetes_driver_pod and hook._submit_sp is None and not hook._should_track_driver_via_k8s_api():
            hook._delete_driver_pod()

    def status(self, claim: Claim) -> ApplicationStatus:
        """What the cluster manager says; in client mode, whether the driver's keeper is on this machine."""
        if self.is_on_cluster:
            return super().status(claim)
        return ApplicationStatus.UNKNOWN if keeper_of(claim.tag) is None else ApplicationStatus.ACTIVE

    def stop_previous(self, claim: Claim) -> None:
        """End its job; in client mode the driver with its keeper, if these are on this machine."""
        super().stop_previous(claim)
        if not self.is_on_cluster:
            end_keeper_of(claim.tag)

    def _end_kept(self) -> None:
        """Kill the driver with its keeper, if it runs in this task's name. Without its group its Python would go on."""
        hook = self._job._hook if self._job is not None else None
        submitted = hook._submit_sp if hook is not None else None
        if self._keeping is not None and submitted is not None and submitted.poll() is None:
            end_group(submitted.pid)

    def _keeper(self, folder: Path) -> tuple[str, ...]:
        """What stands before the command of spark-submit; nothing if its driver ends with this process."""
        if self._keeping is None or self._claim is None:
            return ()
        order = folder / order_name(self._claim.tag)
        told = self.order(self._keeping, self._claim, (str(folder), *self._used))
        order.write_text(json.dumps(told._asdict()), encoding="utf-8")
        return tuple(keeper_command(str(order)))

    def order(self, keeping: Keeping, claim: Claim, holds: Iterable[str]) -> Order:
        """What the keeper of the attempt of ``claim`` is told."""
        return keeping.order(claim, holds)

    def _began(self) -> None:
        """spark-submit runs now, and the next try would find its keeper."""
        if not self.is_kept_here:
            return
        self._is_found_again = True
        if self.is_killed:
            self.leave()

    def _hear(self, output: deque[str], lines: Iterable[str]) -> Iterator[str]:
        """Passes on what spark-submit writes, keeps its end in ``output``, and notices what YARN calls the application.

        In client mode its log is this one. In cluster mode the resource manager's page leads to it.
        """
        self._began()
        for line in lines:
            output += relevant([line])
            yield line
            submitted = _SUBMITTED_TO_YARN.search(line)
            hook = None if self._job is None else self._job._hook
            if submitted is not None and hook is not None:
                self._application_id = submitted[1]
                if hook._should_track_yarn_application_via_rm_api():
                    log.info("State and logs: %s/cluster/app/%s", hook._get_yarn_rm_base_url(), submitted[1])

    @property
    def outlives_task(self) -> bool:
        """The driver lives on when this process is gone: on the cluster, or kept here."""
        return self.is_on_cluster or self.is_kept_here

    @property
    def is_kept_here(self) -> bool:
        """The driver runs on this machine, and has a keeper."""
        return self._keeping is not None and not self.is_on_cluster

    @property
    def can_be_asked(self) -> bool:
        """A cluster manager knows its driver."""
        return self.is_on_cluster

    @cached_property
    def is_on_cluster(self) -> bool:
        """The driver runs on the cluster, and not in a process of this machine."""
        mode = self.operator._deploy_mode
        if mode is None and self._connection is not None:
            mode = self._connection.extra_dejson.get("deploy-mode")
        elif mode is None:
            mode = _hook_of(self.operator)._connection["deploy_mode"]
        return bool(mode == "cluster")

    @cached_property
    def _is_on_yarn(self) -> bool:
        """In deploy mode ``cluster``, where YARN starts the driver."""
        if not self.is_on_cluster:
            return False
        if self._connection is not None:
            return "yarn" in f"{self._connection.conn_type}://{self._connection.host}"
        return bool(_hook_of(self.operator)._is_yarn_cluster_mode)

    @property
    def _is_python(self) -> bool:
        """A region's driver is; of another application its name tells, as it does spark-submit."""
        return str(self.operator.application or APPLICATION).endswith(".py")

    def failure_of(self, claim: Claim) -> Failure | None:
        """What a driver that outlived its task has left beside its results."""
        return read_failure_at(self._results, self._data_of(claim)) if self.outlives_task else None

    def forget_failure(self, claim: Claim) -> None:
        """Delete what `failure_of` reads: it is in the journal now. Raises nothing."""
        try:
            forget_failure_at(self._results, self._data_of(claim))
        except StoreError as error:
            log.warning("What the driver of %s@%d said is left behind: %s", claim.region, claim.attempt, error)

    def _jvm_variables(self, job: SparkSubmitOperator) -> dict[str, str]:
        of_connection = self._connection.extra_dejson.get("spark-binary") if self._connection is not None else None
        return _jvm_variables(job, job._spark_binary or of_connection or "spark-submit")

    @property
    def _is_local(self) -> bool:
        connection = self._connection
        if connection is None:
            return False
        return str(connection.host or "").startswith("local") or connection.conn_type == "local"

    def _data_of(self, claim: Claim) -> str:
        return JournalLayout(self._identity).data_of(claim)

    def _is_answer(self, status: str) -> bool:
        return status.upper() not in _NOT_KNOWN

    def _find_job(self, name: str) -> str | None:
        """The id that the cluster manager gave to the job of this name, in any try; `None` where it is not known."""
        key = key_of("spark_job_id", name)
        job = self._job
        if job is None or job._hook is None or job.external_id_key != key:
            job = copy.copy(self.operator)
            _name_job(job, name)
            job._hook = _hook_of(job)
        hook = job._hook
        kept, pod = self._context["task_state_store"].get(key), driver_pod_of(hook, name)
        if kept is None and pod is not None:
            kept = pod.where
        if not isinstance(kept, str):
            return None
        if hook._is_yarn_cluster_mode:
            hook._yarn_application_id = self._application_id = kept
        elif hook._is_kubernetes:
            hook._kubernetes_driver_pod = job._parse_k8s_external_id(kept)[1]
        else:
            hook._driver_id = kept
        self._job = job
        return kept


def raised_memory(
    operator: SparkSubmitOperator, policy: RaiseMemory | None, attempt: ClaimedAttempt, *, is_local: bool = False
) -> Memory:
    """What ``policy`` gives to ``attempt`` over what the operator declares; nothing without a policy."""
    if policy is None:
        return Memory(None, None)
    conf = operator.conf or {}
    return policy.raised(
        attempt.earlier_failures,
        driver=operator._driver_memory or conf.get("spark.driver.memory"),
        executor=operator._executor_memory or conf.get("spark.executor.memory"),
        is_local=is_local,
    )


def described(operator: SparkSubmitOperator) -> dict[str, str | None]:
    """What the application consists of: the values, by the names of the operator's arguments."""
    return {
        "application": operator.application,
        "py_files": operator.py_files,
        "jars": operator.jars,
        "files": operator.files,
        "archives": operator._archives,
        "packages": operator.packages,
        "java_class": operator._java_class,
        "driver_class_path": operator.driver_class_path,
        "properties_file": operator.properties_file,
    }


def connection_id(operator: SparkSubmitOperator) -> str:
    """The id of the connection that it submits with."""
    return operator._conn_id


def resolved_connection(conn_id: str) -> tuple[str, str, bool]:
    """Where a connection leads, as the provider's hook reads it: the master, the binary, whether in mode cluster."""
    hook = _hook_of(SparkSubmitOperator(task_id="connection", conn_id=conn_id))
    document = hook._connection
    return str(document["master"]), hook._get_spark_binary_path()[0], document["deploy_mode"] == "cluster"


def connect_server_command(
    operator: SparkSubmitOperator, conf: Mapping[str, str], name: str
) -> tuple[list[str], dict[str, str]]:
    """The command line of a Spark Connect server with ``conf`` and whatever else ``operator`` declares; its variables.

    Raises `ConfigurationError` in deploy mode ``cluster``: nobody would know where the server listens.
    """
    job = copy.copy(operator)
    job._hook = None
    job.name, job.conf, job._java_class, job.application_args = name, dict(conf), CONNECT_SERVER, None
    hook = _hook_of(job)
    if hook._connection["deploy_mode"] == "cluster":
        raise ConfigurationError(
            f"{operator.task_id}: expected the run's own Spark (spark='per-run') to be submitted in deploy mode "
            f"'client', found 'cluster' (connection {operator._conn_id!r}): a server on the cluster can't tell its "
            "address. Use another connection or deploy_mode, or leave spark= out"
        )
    if str(hook._connection["master"]).startswith("local"):
        # Spark makes that secret itself there. Without one, a driver's own ports serve whoever asks.
        hook._conf = {_ASKS_FOR_SECRET: "true", **(hook._conf or {})}
    return hook._build_spark_submit_command("spark-internal"), {
        **_jvm_variables(job, hook._connection["spark_binary"]),
        **{str(key): str(value) for key, value in (hook._env or {}).items()},
    }


def _jvm_variables(job: SparkSubmitOperator, submit: str) -> dict[str, str]:
    """What makes the JVM of ``job`` start sooner, where the user does not say how it starts."""
    mode, folder = configured_driver_jvm()
    environment = {**os.environ, **(job.env_vars or {})}
    if user_option(environment, job.conf or {}, job.properties_file) is not None:
        return {}
    return jvm_variables(mode, folder, submit, environment)


def _name_job(job: SparkSubmitOperator, name: str) -> None:
    job.external_id_key = key_of("spark_job_id", name)
    job._K8S_DRIVER_STATUS_KEY = key_of("k8s_driver_status", name)


def _hook_of(job: SparkSubmitOperator) -> SparkSubmitHook:
    """The provider's hook. Raises `ConfigurationError` where it lacks the provider for Kubernetes."""
    try:
        return SparkSubmitOperator._get_hook(job)
    except NameError as error:  # it leaves the name of what it could not import undefined
        raise ConfigurationError(
            f"connection {job._conn_id!r}: expected the provider for Kubernetes, to which its master leads, found that "
            f"it is not installed ({error}): pip install 'airflow-recovery[kubernetes]'"
        ) from error


def _guarded_hook(
    job: SparkSubmitOperator,
    name: str,
    output: deque[str],
    hear: Callable[[Iterable[str]], Iterator[str]],
    keeper: tuple[str, ...],
) -> SparkSubmitHook:
    """The provider's hook, whose spark-submit is run by ``keeper``, or dies with this process if there is none.

    Its output passes through ``hear``. The pod of its driver, where it runs in one, is called by ``name``; the end of
    its log comes to ``output``.
    """
    hook = _hook_of(job)
    if keeper:
        _run_by_keeper(hook, keeper)
    else:
        # Its JVM would otherwise run on after kill -9.
        setattr(hook, "submit", partial(hook.submit, preexec_fn=die_with_parent))  # noqa: B010
    # The provider's error ends with the last twenty lines, which may all be frames of one stack.
    process = hook._process_spark_submit_log
    setattr(hook, "_process_spark_submit_log", lambda lines: process(hear(lines)))  # noqa: B010
    pod = driver_pod_of(hook, name)
    if pod is not None:
        check_not_named(hook._conf)
        hook._conf = {**hook._conf, NAME_SETTING: pod.name}
        # It reads the name from spark-submit's log, where it looks for those of a namespace that is called spark.
        hook._kubernetes_driver_pod = pod.name
        setattr(hook, "_poll_k8s_driver_via_api", partial(pod.wait, hook._poll_k8s_driver_via_api, output))  # noqa: B010
    return hook


def _run_by_keeper(hook: SparkSubmitHook, keeper: tuple[str, ...]) -> None:
    """Let ``hook`` start ``keeper`` with the command of spark-submit, which is what its messages show."""
    build, mask = hook._build_spark_submit_command, hook._mask_cmd

    def kept(application: str) -> list[str]:
        command = build(application)
        # What can't be started fails here, as without a keeper.
        return [*keeper, *command] if shutil.which(command[0]) else command

    def masked(command: str | list[str]) -> str:
        return mask(command[len(keeper) :] if tuple(command[: len(keeper)]) == keeper else command)

    # Its standard input would be the task's, by which Airflow's supervisor sees whether the task has ended.
    submit = partial(hook.submit, start_new_session=True, stdin=subprocess.DEVNULL)
    for name, wrapped in (("_build_spark_submit_command", kept), ("_mask_cmd", masked), ("submit", submit)):
        setattr(hook, name, wrapped)
