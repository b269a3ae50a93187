"""The region that ``doctor --spark`` runs: as a task runs one, in folders of its own, removed afterwards."""

from __future__ import annotations

import logging
import os
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import datetime, timezone
from typing import Any

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk import BaseHook

from airflow_recovery.attempt.application import SparkApplication
from airflow_recovery.attempt.job_plan import plan_job
from airflow_recovery.attempt.region_task import RegionTask
from airflow_recovery.attempt.run import Run, TaskIdentity
from airflow_recovery.attempt.task_instances import NullTaskInstances
from airflow_recovery.doctor.checking import Check
from airflow_recovery.doctor.region import REGION, ROWS
from airflow_recovery.doctor.result import CheckResult, ok, wrong
from airflow_recovery.doctor.stores import FOLDER
from airflow_recovery.doctor.versions import REGION_JOB
from airflow_recovery.driver.region_spec import RunFacts
from airflow_recovery.errors import RecoveryError, StoreError
from airflow_recovery.hooks.settings import RecoverySettings
from airflow_recovery.hooks.stores import Stores, open_stores
from airflow_recovery.job.loading import load_job
from airflow_recovery.journal.journal import Journal
from airflow_recovery.model.records import Outcome, RunIdentity
from airflow_recovery.results.prober import ResultProber
from airflow_recovery.task.region_program import RegionProgram
from airflow_recovery.task.spark_connection import region_application

log = logging.getLogger(__name__)


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
            rows = [output.rows for output in outcome.outputs]
            if rows == [ROWS]:
                text = f"{ROWS} rows in {outcome.spark_seconds or 0:.1f} s of Spark, read back from the journal"
                yield ok(check, text)
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
        """Stop the Spark application, where one runs; called when the check takes too long."""
        if self._application is not None:
            self._application.stop()

    def _run(self) -> Outcome:
        job = load_job(REGION_JOB)
        facts = RunFacts(None, None, None, {}, {})
        plan = plan_job(job, REGION_JOB, facts)
        # No other try will look for its application.
        operator = SparkSubmitOperator(task_id="doctor", conn_id=self._conn_id, durable=False)
        journal = Journal(
            self._stores.journal, self._identity, writer=uuid.uuid4().hex, deadline_s=self._request_timeout
        )
        run = Run(
            plan=plan.record,
            journal=journal,
            task_instances=NullTaskInstances(),
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
                store.delete([info.key for info in store.list(self._below)])
            try:
                left += [f"{store.base_uri}/{info.key}" for info in store.list(self._below)]
            except StoreError as error:
                left.append(f"{store.base_uri} ({error})")
        if left:
            text = f"{len(left)} objects of it stay, which nobody reads: {left[0]}, ..."
            yield ok("what the region has written", f"{text} Who may delete there can remove them")


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


class _Kept(dict[str, Any]):
    """A dictionary in place of a task's state store: no task runs."""

    def set(self, key: str, value: Any, **more: Any) -> None:
        """As Airflow's ``set``; what ``more`` asks for, such as a retention, does not matter here."""
        self[key] = value
