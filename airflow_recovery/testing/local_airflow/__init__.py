"""A whole Airflow as real processes on this machine: API server, scheduler, DAG processor, triggerer.

For the demo, the tests and the benchmarks. `LocalAirflow` starts it, speaks its REST API, kills parts of it, and leaves
no process behind: everything it starts carries a marker in its environment, by which `stop` finds also what has left
its process group (task processes, Spark drivers), and a small reaper process does the same where this process dies.

Its metadata database is SQLite, or a PostgreSQL server of its own, which can be lost, or restored from a backup.
Its tasks run beside the scheduler, or on workers with machines of their own, which can be killed or cut off.

What it does not do: it is no way to run Airflow in production (one machine, passwords in a file, short intervals).
"""

from airflow_recovery.testing.free_port import free_port
from airflow_recovery.testing.local_airflow.airflow import LocalAirflow
from airflow_recovery.testing.local_airflow.error import LocalAirflowError
from airflow_recovery.testing.local_airflow.processes import COMPONENTS
from airflow_recovery.testing.local_airflow.reaper import MARKER, reap
from airflow_recovery.testing.local_airflow.settings import Login
from airflow_recovery.testing.local_airflow.task_processes import TaskProcesses

__all__ = ["COMPONENTS", "MARKER", "LocalAirflow", "LocalAirflowError", "Login", "TaskProcesses", "free_port", "reap"]
