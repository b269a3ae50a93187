# ruff: noqa: F401, I001 - what is imported is not used here, and Kubernetes' client comes first
"""Imports once what tasks need, in the process from which they are forked: a scheduler, or a worker of Celery's."""

from __future__ import annotations

import gc
import os

from airflow_recovery.hooks.settings import SECTION, Preload, configured_preload
from airflow_recovery.store.schemes import scheme_for


def preload() -> None:
    """Import what ``[recovery] preload`` says, for this process and those that it forks. Makes no connection.

    The processes forked from then on leave what this one had out of their garbage collection, so that they share it.
    Raises as `configured_preload`.
    """
    from airflow.sdk import conf

    wanted = configured_preload()
    if wanted is Preload.NONE:
        return
    _import_tasks()
    scheme = scheme_for(conf.get(SECTION, "journal", fallback=""))
    if scheme is not None:
        scheme.preload()
    if wanted is Preload.CONNECT:
        from airflow_recovery.driver.connect_session import import_client

        import_client()
    _freeze_before_forks()


def _freeze_before_forks() -> None:
    """Before each fork of this process, take all it has out of garbage collection, here and in the fork.

    A collector writes to each object it looks at, so a fork copies what it shared. Airflow freezes a Celery worker's
    objects for the pool it starts with, and no longer when a process of the pool that died is forked again. They stay
    frozen here, since a copy that this process makes leaves each fork with one of its own. LocalExecutor thaws them.
    """
    here = os.getpid()
    os.register_at_fork(before=lambda: gc.freeze() if os.getpid() == here else None)


def _import_tasks() -> None:
    """What most tasks of this package import beyond their operator's own module, with what that imports itself."""
    import airflow_recovery.hooks.kubernetes_client  # before the Spark provider

    import airflow.providers.amazon.aws.utils.connection_wrapper
    import airflow.providers.apache.spark.operators.spark_submit

    import airflow_recovery.attempt.region_task
    import airflow_recovery.attempt.release
    import airflow_recovery.hooks.clear_clients
    import airflow_recovery.hooks.recovery_api
    import airflow_recovery.task.drop_in
    import airflow_recovery.task.job_run
    import airflow_recovery.task.region_program
    import airflow_recovery.task.region_session
    import airflow_recovery.task.spark_submission
    import airflow_recovery.task.subtask_batch
