"""The table of all dates and DAGs: what people do if a task that commits to it stops, and what must hold at green."""

from __future__ import annotations

from contextlib import suppress

from airflow_recovery.attempt.abandon import abandon, look_at_abandon
from airflow_recovery.errors import RecoveryError
from airflow_recovery.model.committing import Replaces
from airflow_recovery.model.keys import RegionKey
from airflow_recovery.sinks.committer import CommitToken, KnowsOwners
from airflow_recovery.testing.simulation.jobs import IDENTITY
from airflow_recovery.testing.simulation.settings import Violation
from airflow_recovery.testing.simulation.sinks import restart
from airflow_recovery.testing.simulation.strands import current_runner
from simulation.dag_simulated_run import DagSimulatedRun
from simulation.fake_table import TABLE, replaced_by


def repair_table(run: DagSimulatedRun, task: str, why: str) -> None:
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
        restart(run, task)
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


def _old_names(run: DagSimulatedRun, own: RegionKey) -> list[RegionKey]:
    keys = (own._replace(region=name) for name in run.settings.job.regions)
    return [key for key in keys if is_old_name(run, key, own)]


def is_old_name(run: DagSimulatedRun, key: RegionKey, own: RegionKey) -> bool:
    """Whether ``key`` is an old name of ``own`` in a job whose tasks or DAG were renamed."""
    pairs = run.settings.job.renamed
    is_other_task = own.region in (pairs.get(key.region), {new: old for old, new in pairs.items()}.get(key.region))
    is_gone = key.dag_id not in run.world.dags and (key.dag_id, key.region) not in run.beside
    is_other_dag = is_gone and key.region == own.region
    same_run = key.run_key == own.run_key
    return same_run and (is_other_dag or (key.dag_id == own.dag_id and is_other_task))


def check_table(run: DagSimulatedRun) -> None:
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
