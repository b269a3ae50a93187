"""The real protocol code under a seeded scheduler: hundreds of orders of requests and faults, and what must hold.

To see one again: `Simulation(TOPOLOGY, seed, faults).run()`; the failure prints seed, faults and the steps.
"""

from __future__ import annotations

import random
from types import SimpleNamespace

import pytest
from fakes import CHAIN, DIAMOND, FORK, PAIR, TRIDENT, InlineThread, MemoryStore
from simulation import Simulation, Violation

from airflow_recovery.execution import attempt, region_task
from airflow_recovery.failover.judgement import Judgement
from airflow_recovery.journal import journal
from airflow_recovery.journal.run_state import RegionState
from airflow_recovery.journal.write_once import write_once
from airflow_recovery.topology.determinism import Determinism

SEEDS = 80
KINDS = ("heartbeat", "delete", "clear", "restart")


@pytest.fixture(autouse=True)
def one_thread_a_process(monkeypatch):
    """The helpers' threads run inline, so that the seed alone decides the order."""
    monkeypatch.setattr(attempt, "threading", SimpleNamespace(Thread=InlineThread))
    monkeypatch.setattr(journal, "get_many", lambda store, keys: {key: store.get(key) for key in keys})


def faults_of(seed: int) -> dict[str, int]:
    rng = random.Random(seed * 7919)
    faults = dict.fromkeys(KINDS, 0)
    for _ in range(rng.randint(1, 4)):
        faults[rng.choice(KINDS)] += 1
    return faults


def modes_of(seed: int, topology: dict[str, tuple[str, ...]]) -> tuple[dict[str, Determinism], frozenset[str]]:
    """A mode for every region, and those that write other rows each time."""
    rng = random.Random(seed * 104729)
    return {name: rng.choice(list(Determinism)) for name in topology}, frozenset(
        name for name in topology if rng.random() < 0.4
    )


@pytest.mark.parametrize("topology", [PAIR, CHAIN, FORK, DIAMOND], ids=["pair", "chain", "fork", "diamond"])
def test_whatever_happens_in_whatever_order_green_is_true(topology):
    for seed in range(SEEDS):
        Simulation(topology, seed, faults_of(seed)).run()


@pytest.mark.parametrize("topology", [CHAIN, DIAMOND], ids=["chain", "diamond"])
def test_listings_whose_pages_are_no_snapshot(topology):
    for seed in range(SEEDS // 2):
        Simulation(topology, seed, faults_of(seed), page_keys=2).run()


@pytest.mark.parametrize("topology", [PAIR, DIAMOND], ids=["pair", "diamond"])
def test_fault_21_22_24_a_store_that_loses_replies_and_times_out(topology):
    for seed in range(SEEDS // 2):
        Simulation(topology, seed, faults_of(seed), store_faults=8).run()


def test_fault_21_control_where_every_412_is_a_lost_race_a_won_claim_is_left_open(monkeypatch):
    """Without the look at the writer's id, a process takes its own landed write for another's."""
    monkeypatch.setattr(
        journal,
        "write_once",
        lambda *args, is_mine, **settings: write_once(*args, is_mine=lambda found: False, **settings),
    )
    tries = [Simulation(PAIR, seed, {}, store_faults=8) for seed in range(SEEDS)]
    for each in tries:
        found = violation_of(each)
        # The history lacks what was taken for another's too.
        assert not found or "the history is not the journal's" in found
    assert any("reports failure: WriteLost" in line for each in tries for line in each.trace)


def test_a_loss_makes_the_producer_run_once_more_whoever_notices():
    for seed in range(SEEDS):
        Simulation(FORK, seed, {"delete": 1}, max_attempts={"P": 2, "C": 3, "D": 3}).run()


@pytest.mark.parametrize("topology", [PAIR, CHAIN, FORK, DIAMOND], ids=["pair", "chain", "fork", "diamond"])
def test_whatever_is_declared_deterministic_green_is_true(topology):
    """Every region has a mode of its own, and writes the same rows again or not."""
    for seed in range(SEEDS):
        modes, unstable = modes_of(seed, topology)
        Simulation(topology, seed, faults_of(seed), modes=modes, unstable=unstable).run()


def test_fault_52_a_loss_costs_consumers_of_equal_rows_one_attempt_at_most():
    """They had not read it all when it was lost, or are what was lost; nobody runs again because of another."""
    verified, most = dict.fromkeys(FORK, Determinism.VERIFY), dict.fromkeys(FORK, 2)
    for seed in range(SEEDS):
        Simulation(FORK, seed, {"delete": 1}, max_attempts=most, modes=verified).run()
    finds("waste", FORK, {"delete": 1}, max_attempts=most)


def test_fault_51_control_where_verify_takes_any_digest_for_equal_green_is_false(monkeypatch):
    monkeypatch.setattr(Judgement, "_why_superseded", lambda self, consumer, pin: None)
    finds("false green", PAIR, {"restart": 1}, modes={"P": Determinism.VERIFY}, unstable=frozenset("P"))


def test_a_seed_gives_the_same_steps_every_time():
    def steps(seed: int) -> list[str]:
        simulation = Simulation(DIAMOND, seed, faults_of(seed))
        simulation.run()
        return simulation.trace

    assert steps(11) == steps(11)


def violation_of(simulation: Simulation) -> str:
    try:
        simulation.run()
    except Violation as found:
        return str(found)
    return ""


def finds(violation: str, topology: dict[str, tuple[str, ...]], faults: dict[str, int], **settings: object) -> None:
    """With a protection off, one of the seeds shows the violation."""
    # The rarest of them shows at seed 206; the seeds before it would only take time.
    seeds = (*range(200, 300), *range(200))
    tried = (Simulation(topology, seed, faults, **settings) for seed in seeds)  # type: ignore[arg-type]
    assert any(violation in violation_of(each) for each in tried), f"no seed shows: {violation}"


def test_control_without_settle_green_is_false(monkeypatch):
    monkeypatch.setattr(region_task, "settle", lambda run, region, attempt: None)
    finds("false green", PAIR, {"restart": 1})


def test_control_without_comparing_tries_the_producer_runs_more_than_once():
    finds("waste", TRIDENT, {"delete": 1}, max_attempts={"P": 2}, compares=False)


def test_control_without_the_fence_an_attempt_finishes_after_its_successors_claim(monkeypatch):
    monkeypatch.setattr(RegionState, "open_attempt", property(lambda self: None))
    finds("after its successor was claimed", PAIR, {"heartbeat": 1})


def test_control_without_conditional_writes_an_attempt_has_two_outcomes(monkeypatch):
    monkeypatch.setattr(MemoryStore, "put_if_absent", MemoryStore.put)
    finds("two outcomes", PAIR, {"heartbeat": 1})
