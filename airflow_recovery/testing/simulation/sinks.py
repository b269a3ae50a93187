"""Sinks and tables in a simulation: what people do where a region stops, and what must hold at green."""

from __future__ import annotations

from contextlib import suppress

from airflow_recovery.attempt.abandon import abandon, look_at_abandon
from airflow_recovery.attempt.confirm import confirm_dead
from airflow_recovery.errors import AppendedAlready, OutputAltered, RecoveryError, SinkInDoubt, SinkRefused
from airflow_recovery.model.committing import Replaces
from airflow_recovery.model.keys import RegionKey
from airflow_recovery.planning.scenario import RestartRegion
from airflow_recovery.sinks.committer import CommitToken, KnowsOwners
from airflow_recovery.testing.fake_table import TABLE, replaced_by
from airflow_recovery.testing.simulation import visitors
from airflow_recovery.testing.simulation.jobs import IDENTITY
from airflow_recovery.testing.simulation.settings import Violation
from airflow_recovery.testing.simulation.simulated_run import SimulatedRun
from airflow_recovery.testing.simulation.strands import current_runner

STOPPED = (AppendedAlready, OutputAltered, SinkInDoubt, SinkRefused)
"""What no retry cures: the task fails, and a person comes."""


def repair(run: SimulatedRun, task: str, error: RecoveryError) -> None:
    """What the message asks for: make sure that no old process lives; then confirm, or undo what was committed.

    Of a table: put its branch back.
    """
    if isinstance(error, OutputAltered):
        assert run.world.tables is not None
        run.note(f"USER puts the tables back to what counts, and clears {task}")
        run.world.tables.put_back(run.world.ledger)
        run.world.airflow.clear(task, downstream=True)
        return
    commit = run.world.job.regions[task].commit if task in run.world.job.regions else None
    if commit is not None and commit.sink == TABLE:
        run.begins("USER", lambda: _repair_table(run, task, str(error)))
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
        run.begins("USER", lambda: _restart(run, task))
        return
    run.note(f"USER removes from the sink what {task} has committed, and clears {task}")
    run.world.target.undo(task)
    run.world.ledger.sinks.undone(task)
    run.world.airflow.clear(task, downstream=True)


def _repair_table(run: SimulatedRun, task: str, why: str) -> None:
    """What the message asks for: adopt what has an old name, or remove the rows of it, or of a clash, or the own ones.

    A person looks whose rows they are, and that no process is at work on them.
    """
    world, own = run.world, RegionKey.of(IDENTITY, task)
    if task not in world.job.regions:
        return  # it was renamed since
    gone = [key for key in world.table.tokens if is_old_name(run, key, own)]
    for process in run.alive():
        if process in run.tries and run.tries[process].task_id in {task, *(key.region for key in gone)}:
            process.is_dead = True
    spec = world.job.regions[task].commit
    assert spec is not None
    if "somebody has written there since" in why:
        _restart(run, task)
        return
    prepared = next((key for key in _old_names(run, own) if "Give it up" in why), None)
    if prepared is not None:
        with suppress(RecoveryError):
            journal = world.journal("user")
            names = [*world.job.regions, prepared.region]
            abandoned = look_at_abandon(
                journal,
                journal.load(journal.list(names)),
                prepared.region,
                lambda spec: world.committer(world.main, spec),
            )
            abandon(journal, abandoned, "user", "its task has another name")
        world.airflow.clear(task, downstream=True)
        return
    committer = world.committer(world.main, spec)
    assert isinstance(committer, KnowsOwners)
    if gone and own not in world.table.tokens:
        current_runner().switch(f"adopts {gone[0].text}")
        with suppress(RecoveryError):
            committer.adopt(CommitToken(*gone[0], 0), CommitToken(*own, 0))
    elif replaced_by(spec) in (Replaces.ALL, Replaces.LATEST):
        for key in [key for key in world.table.tokens if key != own]:
            current_runner().switch(f"removes the rows of {key.text}")
            world.table.remove(key)
    else:
        current_runner().switch(f"removes the rows of {task}, and clears it: {why}")
        world.table.remove(own)
    world.airflow.clear(task, downstream=True)


def _old_names(run: SimulatedRun, own: RegionKey) -> list[RegionKey]:
    keys = (own._replace(region=name) for name in run.settings.job.regions)
    return [key for key in keys if is_old_name(run, key, own)]


def is_old_name(run: SimulatedRun, key: RegionKey, own: RegionKey) -> bool:
    """Whether ``key`` is an old name of ``own`` in a job whose tasks or DAG were renamed."""
    pairs = run.settings.job.renamed
    is_other_task = own.region in (pairs.get(key.region), {new: old for old, new in pairs.items()}.get(key.region))
    is_gone = key.dag_id not in run.world.dags and (key.dag_id, key.region) not in run.beside
    is_other_dag = is_gone and key.region == own.region
    same_run = key.run_key == own.run_key
    return same_run and (is_other_dag or (key.dag_id == own.dag_id and is_other_task))


def check_table(run: SimulatedRun) -> None:
    """At green, the table has the rows of each task once, under today's name alone, or those of a later date."""
    table, ledger = run.world.table, run.world.ledger
    for name, region in run.world.job.regions.items():
        current = ledger.regions[name].current
        if region.commit is None or region.commit.sink != TABLE or current not in ledger.regions[name].committed:
            continue
        own = RegionKey.of(IDENTITY, name)
        later = [key for key in table.tokens if key.run_key > own.run_key and key.region == name]
        if replaced_by(region.commit) is Replaces.LATEST and later:
            continue
        writers = [held.writer for held in table.of(own)]
        if writers != [ledger.regions[name].finish(current)["writer"]]:
            raise Violation(f"T: {name}@{current} is green, and the table has its rows {len(writers)} times")
        twice = [key for key, _ in table.rows if is_old_name(run, key, own)]
        if twice:
            raise Violation(f"T: {name}@{current} is green, and the table has its rows as those of {twice[0].text} too")


def _restart(run: SimulatedRun, task: str) -> None:
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
