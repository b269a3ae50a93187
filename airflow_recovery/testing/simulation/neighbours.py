"""Other DAG runs at work at the same time, by the real code: of other dates, of the very key, of another deployment."""

from __future__ import annotations

from contextlib import suppress
from functools import partial

from airflow_recovery.errors import ConfigurationError, DriverLeft, RecoveryError
from airflow_recovery.journal.owner import OWNER_KEY, check_results
from airflow_recovery.testing.simulation.dag_run import DagRun
from airflow_recovery.testing.simulation.ledger import OUTSIDER
from airflow_recovery.testing.simulation.settings import Violation
from airflow_recovery.testing.simulation.simulated_run import SimulatedRun
from airflow_recovery.testing.simulation.strands import Terminated, current_runner

MOST_TRIES = 25
"""Of one process of another run: after that it has failed, as runs do."""


def begins(run: SimulatedRun, other: DagRun) -> None:
    """A process that does the tasks of ``other``, one after the other. What an earlier one was at is given up."""
    for task in other.airflow.upstream:
        if other.airflow.state(task) == "running":
            other.airflow.lose_heartbeat(task)
    other.has_ended = False
    run.begins(other.name, partial(_works, run, other))


def comes_back(run: SimulatedRun, other: DagRun) -> None:
    """Somebody clears ``other``, which looks at all that it has once more."""
    other.airflow.clear_all()
    begins(run, other)


def _works(run: SimulatedRun, other: DagRun) -> None:
    current = current_runner().current
    assert current is not None
    for _ in range(MOST_TRIES):
        ready = other.airflow.ready()
        if not ready:
            break
        own = other.airflow.start(run.rng.choice(ready))
        try:
            run.world.execute(own, current.process, other)
        except (RecoveryError, Terminated, DriverLeft) as error:
            current_runner().switch(f"{own.task_id} fails: {type(error).__name__}: {error}"[:200])
            other.airflow.end(own, "failed")
        else:
            other.airflow.end(own, "success")
    other.has_ended = True
    ledger = other.ledger
    if (
        not other.airflow.is_green
        or ledger is run.world.ledger
        or any(region.floor for region in ledger.regions.values())
    ):
        return
    bad = ledger.why_incoherent(ledger.current())
    if bad is not None:
        raise Violation(f"I13: false green of the {other.name}: {bad}")


def ends_other_deployment(run: SimulatedRun) -> None:
    """What the message asks for, where the other deployment was the first: it is gone, and with it what it has written.

    An administrator makes sure of that before he deletes the object that says whose the place is, and looks whether it
    still says so: a task may tell of it late.
    """
    with suppress(ConfigurationError):
        check_results(run.world.journal_store, run.world.results)
        return
    for process in run.alive():
        process.is_dead |= any(process.name == other.name for other in run.world.others)
    for process in list(run.world.cluster.processes):
        process.is_dead |= process.name.startswith(("driver of ", "job of "))
    run.note("ADMINISTRATOR ends the other deployment, and gives the place of results to this one")
    run.hand = OUTSIDER
    run.world.results.delete([info.key for info in run.world.results.list()])
    run.hand = None
    assert OWNER_KEY not in run.world.results
