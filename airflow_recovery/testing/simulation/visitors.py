"""People and sweepers at work: requests of their own, with anybody else's in between. All of it is the real code."""

from __future__ import annotations

from collections.abc import Iterable

from airflow_recovery.attempt.apply_plan import apply_plan
from airflow_recovery.errors import JournalError, RecoveryError, StoreError
from airflow_recovery.model.retention import Retention
from airflow_recovery.planning.plan_making import plan
from airflow_recovery.planning.scenario import Request
from airflow_recovery.results.sweep import Sweeper
from airflow_recovery.results.swept_run import SweepOptions
from airflow_recovery.testing.simulation.memory import ProcessStore
from airflow_recovery.testing.simulation.settings import Trouble
from airflow_recovery.testing.simulation.simulated_run import SimulatedRun
from airflow_recovery.testing.simulation.strands import current_runner

HOUR_S = 3600.0
DAY_S = 24 * HOUR_S
MOST_WAITED = 30
"""Steps of a purge's beginning, after which the run has come back at the latest."""


def restart(run: SimulatedRun, request: Request) -> None:
    """As the CLI does: plan, apply, clear. The user is told "done" when all of it is."""
    world = run.world
    journal, results = world.journal("user"), ProcessStore(world.results)
    names = list(world.job.regions)
    try:
        state = journal.load(journal.list(names))
        restart_plan = plan(world.main.today.shared_plan, state, world.prober(results), request)
        applied = apply_plan(journal, restart_plan, "user")
    except RecoveryError as error:
        current_runner().switch(f"is refused: {type(error).__name__}")
        return
    # A clear of the region alone, as in Airflow's own UI, is as good: `final_check` finds who else has to run.
    reset_regions = {reset.region for reset in applied.resets}
    clear = [name for name in applied.clear if name in reset_regions] if run.rng.random() < 0.5 else applied.clear
    current_runner().switch(f"clears {', '.join(clear)}")
    clear_for_restart(run, clear)
    clear_for_restart(run, [name for name in applied.at_work if world.airflow.state(name) != "running"])
    for reset in applied.resets:
        run.was_promised(reset.region, reset.attempt)


def clear_for_restart(run: SimulatedRun, regions: Iterable[str]) -> None:
    """In whatever try they are, running too."""
    for name in regions:
        run.world.airflow.clear(name)


def sweep(run: SimulatedRun, retention: Retention) -> None:
    """One sweep, which lets go of everything that may go. Where clocks jump, it also purges what looks old to it."""
    jumps = {Trouble.JUMP, Trouble.STORE_JUMP} & run.settings.troubles.keys()
    _sweep(run, SweepOptions(retention, grace_s=0.0, purge_older_than_s=DAY_S if jumps else None))


def purge(run: SimulatedRun) -> None:
    """Long after everybody has left but, perhaps, frozen processes. Then a backfill makes the run again."""
    options = SweepOptions(Retention.keep(), grace_s=HOUR_S, purge_older_than_s=DAY_S)
    for pause_s in (2 * DAY_S, 2 * HOUR_S):
        run.world.clock.sleep(pause_s)
        if not _sweep(run, options):
            return
    current_runner().switch("the run is made again")
    run.begin_again()


def purge_and_return(run: SimulatedRun) -> None:
    """As `purge`; but a backfill makes the run again at any moment of it."""
    options = SweepOptions(Retention.keep(), grace_s=HOUR_S, purge_older_than_s=DAY_S)
    run.world.clock.sleep(2 * DAY_S)
    run.begins("USER", lambda: _makes_it_again(run, run.rng.randrange(MOST_WAITED)))
    if _sweep(run, options):
        run.world.clock.sleep(2 * HOUR_S)
        _sweep(run, options)


def _makes_it_again(run: SimulatedRun, steps: int) -> None:
    for _ in range(steps):
        current_runner().switch("waits before the run is made again")
    run.begin_again()


def _sweep(run: SimulatedRun, options: SweepOptions) -> bool:
    world = run.world
    try:
        tables = world.tables.client if world.tables is not None else None
        journals = world.by_version(ProcessStore(world.journal_store))
        Sweeper(journals, ProcessStore(world.results), options, tables=tables).sweep()
    except (StoreError, JournalError):
        return False
    return True
