"""Tasks that start sooner: they are forked from the scheduler, and what that has imported costs none of them seconds.

The same works in a deployment whose workers fork their tasks (LocalExecutor, Celery's prefork pool), by lines as in
`local_settings` in its ``airflow_local_settings.py``.
"""

from __future__ import annotations

from collections.abc import Iterable

OF_TASKS = (
    "airflow_recovery.operators",
    "airflow_recovery.attempt.region_task",
    "airflow_recovery.hooks.clear_clients",
    "airflow_recovery.hooks.recovery_api",
    "airflow_recovery.task.region_program",
    "airflow.providers.amazon.aws.hooks.s3",
    "boto3",
)
"""What most tasks of this package import."""
OF_SESSIONS = ("pyspark.sql.connect.session",)
"""... and those that take a session from a Spark Connect server, or from a run's own Spark."""


def local_settings(modules: Iterable[str]) -> str:
    """The text of Airflow's local settings with which the scheduler imports ``modules``, and no other component does.

    As in `airflow_recovery.driver.connect_session.import_client`, the garbage collector leaves them alone.
    """
    imports = "".join(f"    import {module}\n" for module in modules)
    return f"""import gc
import sys

__all__ = []
if "scheduler" in sys.argv:
    gc.disable()
{imports}    gc.freeze()
    gc.enable()
"""
