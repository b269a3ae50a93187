"""A deterministic simulation of recovery: the real planner, journal and protocol over a fake Airflow, Spark and store.

A seed decides who makes the next request, and what happens in between: processes die, freeze and go on as zombies,
users clear and restart, an outsider deletes, the sweeper sweeps, replies are lost. Each schedule goes on until the run
has reached its end, and a checker that shares no code with the product holds the invariants of docs/promises.md against
every change of the stores, and the final output against that of an undisturbed run::

    from airflow_recovery.testing.simulation import Settings, declared_job, simulate

    for seed in range(1000):
        simulate(seed, Settings.drawn(seed, job=declared_job("my_jobs.flights:job")))

A failure names its seed, and the seed replays it exactly. One schedule runs at a time in an interpreter.
*Not simulated*: see docs/testing.md. Jobs in DAGs that decide which tasks succeed are simulated in a checkout alone
(tests/simulation), by subclasses of what is here.
"""

from airflow_recovery.testing.simulation.drill import Tally, drill
from airflow_recovery.testing.simulation.jobs import TOPOLOGIES, SimulatedJob, declared_job, job_of
from airflow_recovery.testing.simulation.schedule import Schedule, simulate
from airflow_recovery.testing.simulation.settings import Report, Settings, Trouble, Violation

__all__ = [
    "TOPOLOGIES",
    "Report",
    "Schedule",
    "Settings",
    "SimulatedJob",
    "Tally",
    "Trouble",
    "Violation",
    "declared_job",
    "drill",
    "job_of",
    "simulate",
]
