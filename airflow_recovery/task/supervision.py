"""The task process and the supervisor that started it."""

from __future__ import annotations

from airflow_recovery.driver.process import die_with_parent


def die_with_supervisor() -> None:
    """A task whose supervisor is killed would run on, and a second try beside it: end with the supervisor.

    Not in ``dag.test()``, which runs the task in the user's own process: that one ends when its user says so.
    """
    from airflow.sdk.execution_time import task_runner
    from airflow.sdk.execution_time.comms import CommsDecoder

    if isinstance(getattr(task_runner, "SUPERVISOR_COMMS", None), CommsDecoder):
        die_with_parent()
