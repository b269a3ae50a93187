"""The simulation of runs whose DAG decides which tasks succeed, and a pure model of their states.

Users simulate their jobs by `airflow_recovery.testing.simulation`. This package does the same to jobs in DAGs with
trigger rules, branches, operators with arguments, sensors of other DAGs, and tasks that are renamed::

    dag_job              a job, with what its DAG has besides
    dag_settings         what a schedule is about, and what can happen
    dag_schedule         one schedule, which a seed decides
    fresh_run            the rule: what a run without a history makes
    histories            the pure model: whole acts in place of processes and requests
"""

from simulation.dag_job import DagJob, job_of
from simulation.dag_schedule import DagSchedule, simulate
from simulation.dag_settings import DagSettings, DagTrouble

__all__ = ["DagJob", "DagSchedule", "DagSettings", "DagTrouble", "job_of", "simulate"]
