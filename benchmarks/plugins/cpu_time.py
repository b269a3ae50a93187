"""An Airflow plugin of the benchmarks: every successful try leaves the CPU time of its process and of its children.

Placed in the plugins folder of the benchmark's own Airflow. Runs in the task's process after the task's end, for all
operators alike, so that no ratio is changed by it.
"""

from __future__ import annotations

import json
import os
import resource
import sys
from typing import Any

from airflow.listeners import hookimpl
from airflow.plugins_manager import AirflowPlugin

from benchmarks import CPU_FILE_VARIABLE


@hookimpl
def on_task_instance_success(previous_state: Any, task_instance: Any) -> None:
    """One line of JSON a try. The children are spark-submit's JVM and its Python driver, where they have ended."""
    own, children = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    line = {
        "dag_id": task_instance.dag_id,
        "run_id": task_instance.run_id,
        "task_id": task_instance.task_id,
        "try_number": task_instance.try_number,
        "own_cpu_s": own.ru_utime + own.ru_stime,
        "children_cpu_s": children.ru_utime + children.ru_stime,
    }
    with open(os.environ[CPU_FILE_VARIABLE], "a", encoding="utf-8") as out:
        out.write(json.dumps(line) + "\n")


class CpuTimePlugin(AirflowPlugin):
    """Registers the listener above."""

    name = "benchmark_cpu_time"
    listeners: list[object] = [sys.modules[__name__]]  # noqa: RUF012
