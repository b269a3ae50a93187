"""Sinks and tables in a simulation: what people do where a region stops, and what must hold at green."""

from __future__ import annotations

from airflow_recovery.attempt.abandon import abandon, look_at_abandon
from airflow_recovery.attempt.confirm import confirm_dead
from airflow_recovery.errors import AppendedAlready, OutputAltered, RecoveryError, SinkInDoubt, SinkRefused
from airflow_recovery.planning.scenario import RestartRegion
from airflow_recovery.testing.simulation import visitors
from airflow_recovery.testing.simulation.settings import Violation
from airflow_recovery.testing.simulation.simulated_run import SimulatedRun
from airflow_recovery.testing.simulation.strands import current_runner

STOPPED = (AppendedAlready, OutputAltered, SinkInDoubt, SinkRefused)
"""What no retry cures: the task fails, and a person comes."""


def repair(run: SimulatedRun, task: str, error: RecoveryError) -> None:
    """What the message asks for: make sure that no old process lives; then confirm, or undo what was committed.

    Of a result in a table: put its branch back.
    """
    if isinstance(error, OutputAltered):
        assert run.world.tables is not None
        run.note(f"USER puts the tables back to what counts, and clears {task}")
        run.world.tables.put_back(run.world.ledger)
        run.world.airflow.clear(task, downstream=True)
        return
    tries = {process for process, own in run.tries.items() if own.task_id == task}
    twins = {other.name for other in run.world.others if other.ledger is run.world.ledger}
    for process in run.alive():
        if process in tries or process.name in twins:
            run.note(f"USER makes sure that {process.name} is dead")
            process.is_dead = True
    if isinstance(error, SinkInDoubt):
        run.begins("USER", lambda: _confirm(run, task))
        return
    if (
        task,
        run.world.ledger.fingerprint_of(task, run.world.ledger.regions[task].latest_attempt),
    ) in run.world.refused:
        run.begins("USER", lambda: _abandon(run, task))
        return
    if isinstance(error, AppendedAlready) and "In doubt" in str(error):
        run.note(f"USER sees that the target of {task} is empty, and restarts {task}")
        run.world.target.undo(task)
        run.world.ledger.sinks.undone(task)
        run.begins("USER", lambda: restart(run, task))
        return
    run.note(f"USER removes from the sink what {task} has committed, and clears {task}")
    run.world.target.undo(task)
    run.world.ledger.sinks.undone(task)
    run.world.airflow.clear(task, downstream=True)


def restart(run: SimulatedRun, task: str) -> None:
    """As the command does."""
    visitors.restart(run, RestartRegion(task, "user"))
    run.world.airflow.clear(task, downstream=True)


def _abandon(run: SimulatedRun, task: str) -> None:
    """As the command does, where the next try would not by itself; and the code is mended, or the target."""
    journal = run.world.journal("user")
    if run.rng.random() < 0.3:
        current_runner().switch("mends the target")
        run.world.refused = {(name, code) for name, code in run.world.refused if name != task}
        run.world.airflow.clear(task, downstream=True)
        return
    try:
        state = journal.load(journal.list(run.world.job.regions))
        confirm_dead(journal, state, task, "user", "killed it myself")
        state = journal.load(journal.list(run.world.job.regions))
        abandoned = look_at_abandon(
            journal, state, task, lambda spec: run.world.target.committer(spec, current_runner().switch)
        )
        abandon(journal, abandoned, "user", "its rows are not wanted")
    except RecoveryError as error:
        current_runner().switch(f"is refused: {type(error).__name__}")
    run.note(f"USER deploys other code of {task} and clears all")
    run.deploy(task)


def _confirm(run: SimulatedRun, task: str) -> None:
    """As the command does."""
    journal = run.world.journal("user")
    try:
        state = journal.load(journal.list(run.world.job.regions))
        confirm_dead(journal, state, task, "user", "killed it myself")
    except RecoveryError as error:
        current_runner().switch(f"is refused: {type(error).__name__}")
    run.world.airflow.clear(task, downstream=True)


def check_sinks(run: SimulatedRun) -> None:
    """At green, each sink holds the rows of the attempt that counts, once, and of no other."""
    ledger = run.world.ledger
    for name in ledger.sinks.modes:
        current = ledger.regions[name].current
        # A zombie may have finished another one since, and its commit is then still to come.
        if current in ledger.regions[name].committed:
            bad = ledger.sinks.why_not_held(name, current)
            if bad is not None:
                raise Violation(bad)
        elif current and current == run.served[name]:
            raise Violation(f"I10: {name}@{current} is green, and nothing says that it was committed")
