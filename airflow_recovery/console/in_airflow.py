"""The deployment as Airflow's configuration and connections describe it."""

from __future__ import annotations

import argparse
import logging
import os
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING

from airflow_recovery.attempt.rebuild import RebuildRequest, Rebuilt
from airflow_recovery.attempt.task_instances import (
    FINISHED_STATES,
    RUNNING_STATES,
    ClearRequest,
    ClearResult,
    Observation,
)
from airflow_recovery.console.deployment import Deployment
from airflow_recovery.console.user import user_name
from airflow_recovery.errors import ConfigurationError
from airflow_recovery.hooks.settings import RecoverySettings
from airflow_recovery.hooks.sinks import open_committers
from airflow_recovery.hooks.stores import Stores, open_stores
from airflow_recovery.hooks.tables import tables_of
from airflow_recovery.model.committing import CommitSpec
from airflow_recovery.model.retention import Retention
from airflow_recovery.results.tables import Tables
from airflow_recovery.sinks.committer import Committer
from airflow_recovery.store.object_store import ObjectStore

if TYPE_CHECKING:
    from airflow_recovery.doctor.checking import Check

log = logging.getLogger(__name__)

ENDED_RUN_STATES = ("success", "failed")


class AirflowDeployment:
    """``[recovery]`` of ``airflow.cfg``: the journal, the AWS connection, the connection to the API server, if any."""

    def __init__(self, settings: RecoverySettings) -> None:
        self._settings = settings
        self._stores: Stores = open_stores(settings)

    @property
    def name(self) -> str | None:
        """``[recovery] deployment``: this deployment's name, where it has one."""
        return self._settings.deployment

    @property
    def journal(self) -> ObjectStore:
        """The store that holds all journals."""
        return self._stores.journal

    @property
    def results(self) -> ObjectStore:
        """The store that holds the results of all runs."""
        return self._stores.results

    @property
    def retention(self) -> Retention:
        """``[recovery] retention``, for jobs that declare none."""
        return self._settings.retention

    @property
    def grace_s(self) -> float:
        """``[recovery] grace``, in seconds."""
        return self._settings.grace_s

    def open_location(self, location: str) -> ObjectStore:
        """The results of this deployment, or a user's own location, reached in the same way."""
        return self._stores.open_location(location)

    def may_open(self, location: str) -> bool:
        """Whether the deployment's credentials may be used at ``location``."""
        return self._stores.may_open(location)

    @cached_property
    def tables(self) -> Tables:
        """Opens a catalog with the Airflow connection of its name."""
        return tables_of(self._stores)

    def open_committer(self, spec: CommitSpec) -> Committer:
        """Opens the target with the Airflow connection that the sink names."""
        return open_committers(self._stores)(spec)

    def clear(
        self, dag_id: str, run_id: str, task_keys: Sequence[str], *, unless_running: Sequence[str] = ()
    ) -> tuple[str, ...] | None:
        """Through the endpoint in the API server; without ``[recovery] api_conn_id``, in the metadata database itself.

        `None` where that can't be reached from this host, or has no such run.
        """

        def by(observe: Callable[..., Observation], clear: Callable[..., ClearResult]) -> tuple[str, ...]:
            tries = observe(dag_id, run_id).tries
            begun = {key for key in task_keys if key in tries and tries[key].state in FINISHED_STATES | RUNNING_STATES}
            ended = {key for key in unless_running if key in tries and tries[key].state in FINISHED_STATES}
            consumers = {key: tries[key].ti_id for key in sorted(begun | ended)}
            cleared = clear(dag_id, run_id, ClearRequest(consumers=consumers, unblock=True)).cleared
            # What neither runs nor has ended begins with a pre-check of its own, and needs no clear.
            return (*cleared, *(key for key in task_keys if key in tries and key not in begun))

        if self._settings.api_conn_id:
            from airflow_recovery.hooks.recovery_api import RecoveryApiHook

            hook = RecoveryApiHook(self._settings.api_conn_id)
            return by(hook.observe, hook.clear)
        try:
            from airflow_recovery.airflow_compat import create_session
            from airflow_recovery.api_server import compare_and_clear
            from airflow_recovery.api_server.audit import audit_command

            with create_session() as session:

                def clear(dag_id: str, run_id: str, request: ClearRequest) -> ClearResult:
                    asked = {"consumers": list(request.consumers)}
                    audit_command(session, user_name(), "recovery_clear", dag_id, run_id, asked)
                    return compare_and_clear.clear(session, dag_id, run_id, request)

                return by(partial(compare_and_clear.observe, session), clear)
        except Exception as error:  # a host without a database; how to clear is said then
            log.debug("Tasks of %s / %s were not cleared in the metadata database: %s", dag_id, run_id, error)
            return None

    def is_live_run(self, dag_id: str, run_id: str) -> bool | None:
        """Through Airflow's API; without ``[recovery] api_conn_id``, from the metadata database itself.

        `None` where neither gives an answer, or knows of no such run: it may be another deployment's.
        """
        try:
            state = self._run_state(dag_id, run_id)
        except Exception as error:  # a host without a database or a connection; `gc` says that it was not told
            log.debug("Airflow was not asked for the state of %s / %s: %s", dag_id, run_id, error)
            return None
        return None if state is None else state not in ENDED_RUN_STATES

    def live_run(self, dag_id: str, run_key: str) -> str | None:
        """As `is_live_run` asks. A run that waits (for a sensor, an approval, a slot, a pool) has not ended."""
        try:
            return next((run_id for run_id, key in self._live_runs(dag_id) if key == run_key), None)
        except Exception as error:
            log.debug("Airflow was not asked for the runs of %s that have not ended: %s", dag_id, error)
            return None

    def _live_runs(self, dag_id: str) -> list[tuple[str, str]]:
        if self._settings.api_conn_id:
            from airflow_recovery.hooks.recovery_api import RecoveryApiHook

            return RecoveryApiHook(self._settings.api_conn_id).live_runs(dag_id)
        from airflow_recovery.airflow_compat import create_session
        from airflow_recovery.api_server.dag_runs import live_dag_runs

        with create_session() as session:
            return [(row.run_id, row.run_key) for row in live_dag_runs(session, dag_id)]

    def _run_state(self, dag_id: str, run_id: str) -> str | None:
        if self._settings.api_conn_id:
            from airflow_recovery.hooks.recovery_api import RecoveryApiHook

            return RecoveryApiHook(self._settings.api_conn_id).dag_run_state(dag_id, run_id)
        from sqlalchemy import select

        from airflow_recovery.airflow_compat import DagRun, create_session

        with create_session() as session:
            state = session.scalar(select(DagRun.state).where(DagRun.dag_id == dag_id, DagRun.run_id == run_id))
        return None if state is None else str(getattr(state, "value", state))

    def rebuild(self, dag_id: str, request: RebuildRequest) -> Rebuilt:
        """Through the endpoint in the API server; without ``[recovery] api_conn_id``, in the metadata database itself.

        Raises `ConfigurationError` for a request that Airflow refuses, and our own errors of the hook.
        """
        if self._settings.api_conn_id:
            from airflow_recovery.hooks.recovery_api import RecoveryApiHook

            return RecoveryApiHook(self._settings.api_conn_id).rebuild(dag_id, request)
        from airflow_recovery.airflow_compat import create_session
        from airflow_recovery.api_server.audit import audit_command
        from airflow_recovery.api_server.rebuild import run_of_key, set_finished

        try:
            with create_session() as session:
                if not request.dry_run:
                    run_id, asked = run_of_key(session, dag_id, request.run_key), {"tasks": list(request.notes)}
                    audit_command(session, user_name(), "recovery_rebuild", dag_id, run_id, asked)
                return set_finished(session, dag_id, request)
        except ValueError as error:
            raise ConfigurationError(str(error)) from error


def open_in_airflow(args: argparse.Namespace) -> Deployment:
    """The deployment of this ``airflow.cfg``. Raises `ConfigurationError` where no journal is set."""
    del args
    _use_connections()
    return AirflowDeployment(RecoverySettings.load())


def doctor_checks(args: argparse.Namespace, *, is_for_bundle: bool) -> Iterator[Check]:
    """The checks of ``doctor`` for this ``airflow.cfg``. For a bundle, nothing is written and no clear is tried."""
    from airflow_recovery.doctor.components import Component
    from airflow_recovery.task.doctor import AirflowChecks

    _use_connections()
    run_region = None
    if args.spark:
        from airflow_recovery.task.region_trial import region_check

        run_region = region_check(args.spark_timeout)
    component = Component(args.component)
    checks = AirflowChecks(
        component, args.conn, writes=not is_for_bundle, asks_api_server=not is_for_bundle, run_region=run_region
    )
    return checks.checks()


def _use_connections() -> None:
    """As Airflow's own `connections` command does: one in the metadata database counts, where there is a database.

    It is looked for last, so with the connections in the environment or a secrets backend no database is needed.
    """
    os.environ.setdefault("_AIRFLOW_PROCESS_CONTEXT", "server")
