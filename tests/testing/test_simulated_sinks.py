"""Sinks of every kind in seeded schedules: each holds the rows of the attempt that counts, once.

See docs/protocol.md#commits.
"""

from __future__ import annotations

import itertools

import pytest
from simulated_controls import SAFE, finds

from airflow_recovery.attempt import region_task
from airflow_recovery.model.committing import CommitKind, CommitMode
from airflow_recovery.sinks.committer import FoundRows, Rows
from airflow_recovery.testing.fake_sink import FakeTarget
from airflow_recovery.testing.simulation import TOPOLOGIES, Settings, Trouble, job_of, simulate
from airflow_recovery.testing.simulation.jobs import with_sinks

KINDS = list(itertools.product(CommitKind, CommitMode))
TROUBLES = {
    "kills": {Trouble.KILL: 2, Trouble.SIGTERM: 1},
    "zombies": {Trouble.HEARTBEAT: 2, Trouble.PAUSE: 1},
    "people": {Trouble.RESTART: 1, Trouble.CLEAR: 1, Trouble.HEARTBEAT: 1},
    "outsiders": {Trouble.DELETE: 2, Trouble.KILL: 1},
    "everything anew": {Trouble.DATABASE: 1, Trouble.RECOMPUTE: 1, Trouble.HEARTBEAT: 1},
    "other code": {Trouble.DEPLOY: 1, Trouble.KILL: 1},
}


@pytest.mark.slow
@pytest.mark.parametrize("name", TROUBLES)
@pytest.mark.parametrize(("kind", "mode"), KINDS)
def test_fault_12_sinks_hold_what_counts_and_hold_it_once(kind, mode, name):
    job = with_sinks(job_of(TOPOLOGIES["fork"]), {"C": (kind, mode), "D": (kind, mode)})
    for seed in range(12):
        simulate(seed, Settings(job, TROUBLES[name], publishes=seed % 2 == 0, store_faults=seed % 3 * 2))


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "mode"), KINDS)
def test_fault_12_killed_after_every_single_step(kind, mode):
    settings = Settings(with_sinks(job_of(TOPOLOGIES["pair"]), {"C": (kind, mode)}))
    for step in range(2, simulate(5, settings).steps):
        report = simulate(5, Settings(settings.job, kills=frozenset({step})))
        # A crash costs the region in which it happens one attempt, and a finished one none.
        assert len(report.ran) <= 3


@pytest.mark.slow
@pytest.mark.parametrize("troubles", [{}, {Trouble.KILL: 1}, {Trouble.HEARTBEAT: 1, Trouble.DELETE: 1}])
@pytest.mark.parametrize(("kind", "mode"), KINDS)
def test_fault_210_211_a_target_that_is_emptied_or_overwritten(kind, mode, troubles):
    job = with_sinks(job_of(TOPOLOGIES["fork"]), {"C": (kind, mode), "D": (kind, mode)})
    for seed in range(12):
        simulate(seed, Settings(job, {Trouble.EMPTY: 2, **troubles}, publishes=seed % 2 == 0))


@pytest.mark.parametrize(("kind", "mode"), KINDS)
def test_fault_210_control_where_the_target_is_not_asked_for_the_rows_green_is_false(kind, mode, monkeypatch):
    settings = Settings(with_sinks(job_of(TOPOLOGIES["pair"]), {"C": (kind, mode)}), {Trouble.EMPTY: 1})
    for seed in range(SAFE):
        simulate(seed, settings)
    monkeypatch.setattr(region_task, "keep_rows", lambda *given: "")
    finds(settings, "is green, and its sink holds nothing")


def test_fault_211_control_where_rows_of_others_are_taken_for_none_they_are_overwritten(monkeypatch):
    job = with_sinks(job_of(TOPOLOGIES["pair"]), {"C": (CommitKind.TOKEN, CommitMode.REPLACE)})
    rows = FakeTarget.rows

    def removed(self, token):
        return FoundRows(Rows.REMOVED) if token.region in self.overwritten else rows(self, token)

    monkeypatch.setattr(FakeTarget, "rows", removed)
    finds(Settings(job, {Trouble.EMPTY: 1}), "was committed again over the rows of somebody else")


@pytest.mark.parametrize("mode", list(CommitMode))
def test_a_token_sink_of_a_run_that_is_purged_and_made_again(mode):
    job = with_sinks(job_of(TOPOLOGIES["pair"]), {"C": (CommitKind.TOKEN, mode)})
    for seed in range(20):
        simulate(seed, Settings(job, {Trouble.PURGE: 1, Trouble.HEARTBEAT: 1}))
