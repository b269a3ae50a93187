"""`RecoveryDoctorOperator`, and the region that ``doctor --spark`` runs: as a task runs one, in folders of its own."""

from __future__ import annotations

import logging
import os
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseHook, BaseOperator
from airflow.sdk.exceptions import AirflowFailException

from airflow_recovery.attempt.application import SparkApplication
from airflow_recovery.attempt.job_plan import plan_job
from airflow_recovery.attempt.region_task import RegionTask
from airflow_recovery.attempt.run import Run, TaskIdentity
from airflow_recovery.attempt.task_instances import ClearRequest, ClearResult
from airflow_recovery.checks import check_arguments
from airflow_recovery.doctor.checking import TIMEOUT_S, Check, run_checks
from airflow_recovery.doctor.components import Component
from airflow_recovery.doctor.region import REGION, ROWS
from airflow_recovery.doctor.result import CheckResult, Status, is_wrong, ok, summary, wrong
from airflow_recovery.doctor.stores import FOLDER
from airflow_recovery.doctor.versions import REGION_JOB
from airflow_recovery.driver.region_spec import RunFacts
from airflow_recovery.errors import ClearNotConfigured, RecoveryError, StoreError
from airflow_recovery.hooks.settings import RecoverySettings
from airflow_recovery.hooks.stores import Stores, open_stores
from airflow_recovery.job.loading import load_job
from airflow_recovery.journal.journal import Journal
from airflow_recovery.model.records import Outcome, RunIdentity
from airflow_recovery.operators.region import SparkRegionOperator
from airflow_recovery.results.prober import ResultProber
from airflow_recovery.store.object_store import ObjectStore
from airflow_recovery.task.doctor import AirflowChecks
from airflow_recovery.task.region_program import RegionProgram
from airflow_recovery.task.spark_connection import region_application

if TYPE_CHECKING:
    from airflow.sdk import Context

log = logging.getLogger(__name__)

REGION_TIMEOUT_S = 300.0


class RecoveryDoctorOperator(BaseOperator):
    """``airflow recovery doctor`` as a task: on a worker, with a worker's settings and a task's ways to the API server.

    Each result is a line of its log. Fails, and is not retried, where anything is wrong.

    :param conn_id: the connection that the DAGs' regions run with.
    :param spark: also run one small region with it, in folders of its own below journal and results.
    :param timeout_s: how long one check may take; ``spark_timeout_s``: the region.

    Raises `JobDefinitionError` for an argument of another type.
    """

    template_fields: Sequence[str] = ("conn_id",)

    def __init__(
        self,
        *,
        conn_id: str = "spark_default",
        spark: bool = False,
        timeout_s: float = TIMEOUT_S,
        spark_timeout_s: float = REGION_TIMEOUT_S,
        **kwargs: Any,
    ) -> None:
        where = str(kwargs.get("task_id"))
        check_arguments(RecoveryDoctorOperator.__init__, locals(), where, templated=self.template_fields)
        super().__init__(**kwargs)
        self.conn_id = conn_id
        self.spark = spark
        self.timeout_s = timeout_s
        self.spark_timeout_s = spark_timeout_s

    def execute(self, context: Context) -> list[dict[str, str]]:
        """Run the checks; what they found, as `CheckResult.to_json`. Raises `AirflowFailException`."""
        region = region_check(self.spark_timeout_s) if self.spark else None
        checks = AirflowChecks(Component.WORKER, self.conn_id, context=context, run_region=region).checks()
        results = []
        for found in run_checks(checks, self.timeout_s):
            each = _masked(found)
            results.append(each)
            log.log(_LEVELS[each.status], "%s  %s", each.status.value.upper(), each.text())
        if is_wrong(results):
            told = "; ".join(each.text() for each in results if each.status is Status.WRONG)
            raise AirflowFailException(f"{summary(results)} {told}")
        log.info(summary(results))
        return [each.to_json() for each in results]


def _masked(result: CheckResult) -> CheckResult:
    """Without what Airflow knows as a secret: errors of stores and servers are told in their own words."""
    from airflow_recovery.airflow_compat import redact

    return replace(result, found=str(redact(result.found)), expected=str(redact(result.expected)))


_LEVELS = {Status.OK: logging.INFO, Status.NOT_CHECKED: logging.WARNING, Status.WRONG: logging.ERROR}


def region_check(timeout_s: float) -> Callable[[RecoverySettings, str], Check]:
    """Makes the check that runs one region with a connection."""

    def check(settings: RecoverySettings, conn_id: str) -> Check:
        trial = RegionTrial(settings, conn_id)
        return Check(f"a region on {conn_id}", trial.results, timeout_s=timeout_s, stop=trial.stop)

    return check


class RegionTrial:
    """One region of `airflow_recovery.doctor.region`, run by the protocol of tasks; then its traces are removed."""

    def __init__(self, settings: RecoverySettings, conn_id: str, *, token: str | None = None) -> None:
        token = token or uuid.uuid4().hex
        below = f"{FOLDER}/{token}"
        self._conn_id = conn_id
        self._below = f"{below}/"
        self._real_stores = open_stores(settings)
        self._stores = open_stores(
            replace(settings, journal=f"{settings.journal}/{below}", results=f"{settings.results}/{below}")
        )
        self._request_timeout = float(settings.request_timeout)
        self._identity = RunIdentity("doctor", token, "doctor")
        self._application: SparkApplication | None = None

    def results(self) -> Iterator[CheckResult]:
        """Run it, look at its rows, and remove what it wrote."""
        check = f"a region on {self._conn_id}"
        try:
            outcome = self._run()
            rows = [each.rows for each in outcome.outputs]
            if rows == [ROWS]:
                told = f"{ROWS} rows in {outcome.spark_seconds or 0:.1f} s of Spark, read back from the journal"
                yield ok(check, told)
            else:
                yield wrong(check, expected=f"{ROWS} rows", found=rows, next_step="Look into the driver's log.")
        except RecoveryError as error:
            yield wrong(
                check,
                expected="a small region to run as a DAG's would",
                found=error,
                next_step="The first cause in it is what tonight's regions would end with.",
            )
        finally:
            yield from self._removed()

    def stop(self) -> None:
        """Kill the application."""
        if self._application is not None:
            self._application.stop()

    def _run(self) -> Outcome:
        job = load_job(REGION_JOB)
        facts = RunFacts(None, None, None, {}, {})
        plan = plan_job(job, REGION_JOB, facts)
        operator = SparkRegionOperator(
            task_id="doctor", job=REGION_JOB, region=REGION, group_id="doctor", conn_id=self._conn_id
        )
        journal = Journal(
            self._stores.journal, self._identity, writer=uuid.uuid4().hex, deadline_s=self._request_timeout
        )
        run = Run(
            plan=plan.record,
            journal=journal,
            task_instances=_Nobody(),
            available=ResultProber(self._stores.open_location),
            task_keys=plan.task_keys("doctor"),
            task=TaskIdentity(self._identity.run_key, 1, str(uuid.uuid4())),
            now=lambda: datetime.now(timezone.utc).isoformat(),
            log=log,
        )
        with _environment_of(self._stores):
            # No task: what a cluster's job is called is kept for as long as this runs.
            context: Any = {"task_state_store": _Kept()}
            program = RegionProgram(
                job=job,
                ref=REGION_JOB,
                region=plan.regions[REGION],
                facts=facts,
                identity=self._identity,
                stores=self._stores,
                log=log,
            )
            connection = BaseHook.get_connection(self._conn_id)
            self._application = region_application(program, operator, connection, context)
            return RegionTask(run, REGION, self._application).execute().outcome

    def _removed(self) -> Iterator[CheckResult]:
        left = []
        for store in (self._real_stores.journal, self._real_stores.results):
            with suppress(StoreError):
                _delete_all(store, self._below)
            try:
                left += [f"{store.base_uri}/{each.key}" for each in store.list(self._below)]
            except StoreError as error:
                left.append(f"{store.base_uri} ({error})")
        if left:
            told = f"{len(left)} objects of it stay, which nobody reads: {left[0]}, ..."
            yield ok("what the region has written", f"{told} Who may delete there can remove them")


def _delete_all(store: ObjectStore, below: str) -> None:
    store.delete([each.key for each in store.list(below)])


@contextmanager
def _environment_of(stores: Stores) -> Iterator[None]:
    """The credentials for drivers in this process's environment, as a task has them; afterwards as it was."""
    before = dict(os.environ)
    os.environ.update(stores.driver_env())
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


class _Nobody:
    """An Airflow with this one task: nobody else reads its run, and nothing is cleared."""

    def observe(self) -> None:
        """There is nothing to observe."""

    def clear(self, request: ClearRequest) -> ClearResult:
        """Never asked for. Raises `ClearNotConfigured`."""
        raise ClearNotConfigured(f"The check of one region clears nothing, it was asked for {request}.")

    def states(self, keys: Collection[str]) -> Mapping[str, str | None]:
        """No other task."""
        return dict.fromkeys(keys)

    def live_check(self) -> None:
        """This process has it."""


class _Kept(dict[str, Any]):
    """In place of a task's state store."""

    def set(self, key: str, value: Any, **more: Any) -> None:
        """Keep it."""
        self[key] = value
