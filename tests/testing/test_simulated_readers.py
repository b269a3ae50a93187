"""Seeded schedules in which sensors of other DAGs wait for results, and people withdraw them."""

from __future__ import annotations

import pytest
from decided_jobs import decided
from simulated_controls import finds
from simulation import DagSchedule, DagTrouble, readers, simulate
from simulation import DagSettings as Settings

from airflow_recovery.journal import published
from airflow_recovery.testing.simulation import TOPOLOGIES, Trouble

PAIR = decided(TOPOLOGIES["pair"])
DEPLOYED = Settings(PAIR, {DagTrouble.READER: 2, Trouble.DEPLOY: 1})
WITHDRAWN = Settings(PAIR, {DagTrouble.READER: 2, DagTrouble.WITHDRAW: 1})


@pytest.mark.parametrize("settings", [DEPLOYED, WITHDRAWN], ids=["deploys", "withdrawals"])
def test_a_reader_is_given_what_stays_published(settings):
    given = 0
    for seed in range(20):
        schedule = DagSchedule(seed, settings)
        schedule.run()
        given += len(schedule.given)
    assert given


@pytest.mark.parametrize("trouble", [Trouble.KILL, Trouble.DELETE, DagTrouble.BREAK, Trouble.DATABASE])
def test_a_reader_is_given_what_stays_published_whatever_else_happens(trouble):
    for seed in range(8):
        simulate(seed, Settings(PAIR, {DagTrouble.READER: 2, DagTrouble.WITHDRAW: 1, trouble: 1}))


def test_control_where_the_sensor_does_not_ask_for_the_run_it_is_given_what_is_replaced(monkeypatch):
    monkeypatch.setattr(readers, "run_state", lambda run: "success")
    finds(DEPLOYED, "a reader was given C@1, and the run at work has published C@2", 60)


def test_control_where_withdrawals_are_passed_over_a_reader_is_given_what_was_withdrawn(monkeypatch):
    monkeypatch.setattr(published, "_check_given", lambda *given: None)
    finds(WITHDRAWN, "which was withdrawn", 60)
