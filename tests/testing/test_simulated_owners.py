"""Seeded schedules in which dates and DAGs commit to one table, and tasks are renamed (docs/protocol.md#owners).

At green, the table has the rows of each task once, under today's name alone; with ``keeps="latest"`` those of the
latest date. At no moment does a commit delete rows of somebody else.
"""

from __future__ import annotations

from typing import Any

import pytest
from simulated_controls import SAFE, finds
from simulation import DagSettings as Settings
from simulation import DagTrouble, fake_table, job_of, simulate
from simulation.dag_job import with_table
from simulation.fake_table import FakeTable, table_commit

from airflow_recovery.attempt import region_task
from airflow_recovery.errors import SinkSuperseded
from airflow_recovery.model.committing import Replaces
from airflow_recovery.sinks.committer import CommitToken
from airflow_recovery.sinks.owners import check_owners
from airflow_recovery.testing.simulation import TOPOLOGIES, Trouble
from airflow_recovery.testing.simulation.drill import topology_of

PAIR, CHAIN = job_of(TOPOLOGIES["pair"]), job_of(TOPOLOGIES["chain"])
DATES, DAGS, NAMES = {Trouble.NEIGHBOUR: 3}, {DagTrouble.OTHER_DAG: 2}, {DagTrouble.RENAME: 2}


@pytest.mark.parametrize("replaces", Replaces)
@pytest.mark.parametrize("troubles", [DATES, DAGS, NAMES], ids=["dates", "DAGs", "names"])
def test_each_owner_has_its_rows_once(replaces, troubles):
    job = with_table(PAIR, "C", replaces, renamed=troubles is NAMES)
    for seed in range(8):
        simulate(seed, Settings(job, troubles, publishes=seed % 2 == 0))


@pytest.mark.slow
def test_each_owner_has_its_rows_once_whatever_else_happens():
    for seed in range(150):
        simulate(seed, Settings.sharing_a_table(seed, topology_of(seed, "every")))


def without_looking(*given: Any) -> None:
    """No commit and no task asks who has rows in the table."""


def whatever_the_date(*given: Any) -> None:
    """A commit goes over the rows of a later date."""
    try:
        check_owners(*given)
    except SinkSuperseded:
        return


@pytest.mark.slow
@pytest.mark.parametrize("replaces", [Replaces.ALL, Replaces.LATEST])
def test_control_where_nobody_looks_whose_rows_there_are_a_commit_deletes_those_of_others(replaces, monkeypatch):
    settings = Settings(with_table(PAIR, "C", replaces), {**DATES, **DAGS})
    for seed in range(SAFE):
        simulate(seed, settings)
    monkeypatch.setattr(fake_table, "check_owners", without_looking)
    finds(settings, "T: C@", 200)


@pytest.mark.slow
def test_control_where_dates_are_not_compared_an_older_one_goes_over_a_newer_one(monkeypatch):
    settings = Settings(with_table(PAIR, "C", Replaces.LATEST), DATES)
    for seed in range(SAFE):
        simulate(seed, settings)
    monkeypatch.setattr(fake_table, "check_owners", whatever_the_date)
    finds(settings, "replaces rows of a later date", 200)


@pytest.mark.slow
@pytest.mark.parametrize("replaces", [Replaces.NOTHING, Replaces.RUN])
def test_control_where_a_task_does_not_look_for_its_old_name_its_rows_are_there_twice(replaces, monkeypatch):
    settings = Settings(with_table(CHAIN, "E", replaces, renamed=True), NAMES)
    for seed in range(SAFE):
        simulate(seed, settings)
    monkeypatch.setattr(region_task, "check_owner", without_looking)
    finds(settings, "and the table has its rows as those of", 200)


def test_the_table_says_what_no_commit_may_delete():
    wrong: list[str] = []
    table = FakeTable(wrong)
    first, second = (CommitToken(dag_id, "2026-01-01", "job", "C", 1, "w") for dag_id in ("one", "two"))
    for token in (first, second):
        table.put(token, Replaces.RUN)
    assert wrong == []
    assert [len(table.of(token.key)) for token in (first, second)] == [1, 1]
    table.put(first, Replaces.ALL)
    assert wrong == ["T: C@1 of one / 2026-01-01 deletes rows of job.C of two / 2026-01-01, attempt 1 of process w"]


def test_a_table_commit_names_what_it_replaces():
    assert [fake_table.replaced_by(table_commit("C", replaces)) for replaces in Replaces] == list(Replaces)


@pytest.mark.parametrize("troubles", [{DagTrouble.OTHER_DAG: 1}, {DagTrouble.RENAME: 1}])
def test_a_seed_replays_exactly(troubles):
    settings = Settings(with_table(PAIR, "C", Replaces.RUN, renamed=True), troubles)
    assert simulate(5, settings).trace == simulate(5, settings).trace


def test_a_person_leaves_a_task_alone_that_was_renamed_before_the_repair() -> None:
    """Seed 4619 of `--decided`: the simulation itself failed here."""
    simulate(4619, Settings.sharing_a_table(4619))
