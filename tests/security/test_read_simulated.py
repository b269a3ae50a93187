"""Thousands of orders of events in which somebody forges the cache of outcomes: no schedule is green on old code."""

from __future__ import annotations

import pytest
from simulation import DagSettings, DagTrouble, job_of, simulate

from airflow_recovery.journal import record_cache
from airflow_recovery.testing.simulation import TOPOLOGIES, Trouble, Violation

TROUBLES = {Trouble.DEPLOY: 1, DagTrouble.FORGE: 3, Trouble.KILL: 1}
FORGED = DagSettings(job_of(TOPOLOGIES["chain"]), TROUBLES)
MOST = 300


@pytest.fixture(autouse=True)
def one_outcome_is_worth_a_snapshot(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_cache, "WORTH_A_SNAPSHOT", 1)


def is_violated(seed: int) -> bool:
    try:
        simulate(seed, FORGED)
    except Violation:
        return True
    return False


def test_fault_380_no_forged_cache_makes_a_run_green_on_old_code() -> None:
    for seed in range(MOST):
        simulate(seed, FORGED)


@pytest.mark.control
def test_fault_380_control_believed_a_forged_cache_makes_a_run_green_on_old_code(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(record_cache, "is_etag_of", lambda etag, body: True)
    assert any(is_violated(seed) for seed in range(MOST))
