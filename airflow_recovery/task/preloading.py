# ruff: noqa: F401, I001 - what is imported is not used here, and Kubernetes' client comes first
"""Imports once what tasks need, in the process from which they are forked: a scheduler, or a worker of Celery's."""

from __future__ import annotations

from airflow_recovery.hooks.settings import SECTION, Preload, configured_preload


def preload() -> None:
    """Import what ``[recovery] preload`` says, for this process and those that it forks. Makes no connection.

    Raises as `configured_preload`.
    """
    from airflow.sdk import conf

    wanted = configured_preload()
    if wanted is Preload.NONE:
        return
    _import_tasks()
    if conf.get(SECTION, "journal", fallback="").startswith("s3"):
        from airflow_recovery.store.s3_clients import read_service

        read_service()
    if wanted is Preload.CONNECT:
        from airflow_recovery.driver.connect_session import import_client

        import_client()


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
