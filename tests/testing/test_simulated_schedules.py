"""Seeded schedules of the real protocol code: whatever happens in whatever order, the promises hold.

To see one again: `python -m airflow_recovery.testing.simulation --seed N --schedules 1 --topology ...`.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from airflow_recovery.model.determinism import Determinism
from airflow_recovery.model.failover_strategy import FailoverStrategy
from airflow_recovery.testing.simulation import (
    TOPOLOGIES,
    Settings,
    Trouble,
    declared_job,
    drill,
    job_of,
    simulate,
)
from airflow_recovery.testing.simulation.drill import main

DIAMOND = TOPOLOGIES["diamond"]
CRASHES = [Trouble.KILL, Trouble.SIGTERM]
ZOMBIES = [Trouble.HEARTBEAT, Trouble.PAUSE]
PEOPLE = [Trouble.CLEAR, Trouble.CLEAR_ALL, Trouble.RESTART, Trouble.MARK]
DATA = [Trouble.DELETE, Trouble.ALTER, Trouble.SWEEP]
RUN = [Trouble.DATABASE, Trouble.DEPLOY, Trouble.RECOMPUTE, Trouble.PURGE]


def test_an_undisturbed_run_makes_every_region_once():
    report = simulate(1, Settings(job_of(DIAMOND)))
    assert sorted(report.ran) == [("C", 1), ("D", 1), ("E", 1), ("P", 1)]


@pytest.mark.parametrize(("topology", "count"), [("every", 120), ("diamond", 60)])
def test_drawn_schedules_keep_the_promises(topology, count):
    """Everything drawn: the job, its modes, who is not deterministic, what happens, how the store answers.

    `make drill` draws for ten minutes.
    """
    tally = drill(iter(range(count)), topology=topology)
    assert tally.schedules == count
    assert tally.tries > count * 5


@pytest.mark.slow
def test_fault_1_to_7_a_crash_after_every_single_step():
    settings = Settings(job_of(DIAMOND))
    steps = simulate(5, settings).steps
    killed = [simulate(5, replace(settings, kills=frozenset({step}))) for step in range(2, steps)]
    # A crash costs the region in which it happens one attempt, and no other.
    assert max(len(each.ran) for each in killed) == 5


@pytest.mark.slow
def test_fault_8_a_second_crash_at_every_pair_of_steps():
    settings = Settings(job_of(TOPOLOGIES["pair"]))
    steps = simulate(5, settings).steps
    for first in range(2, steps, 3):
        for second in range(first + 1, steps + 20, 4):
            report = simulate(5, replace(settings, kills=frozenset({first, second})))
            assert len(report.ran) <= 4


@pytest.mark.parametrize("first", CRASHES + ZOMBIES)
@pytest.mark.parametrize("second", CRASHES + ZOMBIES)
def test_fault_7_8_11_a_second_crash_or_pause_while_recovering_from_the_first(first, second):
    troubles = {first: 2} if first is second else {first: 1, second: 1}
    for seed in range(6):
        simulate(seed, Settings(job_of(DIAMOND), troubles, store_faults=seed % 2 * 6, trouble=0.1))


@pytest.mark.parametrize("first", ZOMBIES + CRASHES[:1])
@pytest.mark.parametrize("second", PEOPLE + DATA)
def test_fault_13_14_16_17_people_and_outsiders_while_zombies_are_about(first, second):
    for seed in range(6):
        simulate(seed, Settings(job_of(DIAMOND), {first: 1, second: 2}, publishes=seed % 2 == 0))


@pytest.mark.parametrize("trouble", RUN)
def test_fault_60_61_67_the_run_itself_begins_again(trouble):
    for seed in range(12):
        simulate(seed, Settings(job_of(DIAMOND), {trouble: 1, Trouble.HEARTBEAT: 1}, store_faults=4))


@pytest.mark.parametrize("mode", list(Determinism))
def test_every_mode_with_rows_that_are_not_the_same_again(mode):
    job = job_of(DIAMOND, dict.fromkeys(DIAMOND, mode), unstable="PC")
    for seed in range(15):
        simulate(seed, Settings(job, {Trouble.DELETE: 1, Trouble.RESTART: 1}, page_keys=3))


@pytest.mark.slow
def test_the_strategy_full():
    job = job_of(DIAMOND, strategy=FailoverStrategy.FULL)
    for seed in range(20):
        simulate(seed, Settings(job, {Trouble.KILL: 1, Trouble.DELETE: 1}, trouble=0.1))


@pytest.mark.slow
def test_a_loss_costs_its_producer_one_more_attempt():
    for seed in range(30):
        most = {"P": 2, **dict.fromkeys(["C1", "C2", "C3", "C4"], 3)}
        simulate(seed, Settings(job_of(TOPOLOGIES["fan-out"]), {Trouble.DELETE: 1}, max_attempts=most))


@pytest.mark.slow
def test_fault_52_a_loss_costs_consumers_of_equal_rows_one_attempt_at_most():
    """They had not read it all when it was lost, or are what was lost; nobody runs again because of another."""
    fork = TOPOLOGIES["fork"]
    verified, most = job_of(fork, dict.fromkeys(fork, Determinism.VERIFY)), dict.fromkeys(fork, 2)

    def ran(settings: Settings) -> int:
        return sum(len(simulate(seed, settings).ran) for seed in range(30))

    kept = ran(Settings(verified, {Trouble.DELETE: 1}, max_attempts=most))
    assert kept < ran(Settings(job_of(fork), {Trouble.DELETE: 1}))


@pytest.mark.slow
def test_a_seed_replays_exactly():
    for seed in range(15):
        assert simulate(seed).trace == simulate(seed).trace


def test_the_command_line_tells_what_it_did(capsys):
    assert main(["--schedules", "5", "--topology", "pair"]) == 0
    assert "5 schedules without a violation" in capsys.readouterr().out
    assert main(["--seed", "3", "--trace", "--topology", "pair"]) == 0
    assert "P try 1: begins" in capsys.readouterr().out


@pytest.mark.slow
def test_a_declared_job_goes_through_it(monkeypatch):
    monkeypatch.syspath_prepend(Path(__file__).parents[1] / "integration" / "dags")
    job = declared_job("integration_jobs.diamond:diamond")
    assert drill(iter(range(10)), job=job).schedules == 10
    assert main(["--job", "integration_jobs.diamond:no_such_job"]) == 2
