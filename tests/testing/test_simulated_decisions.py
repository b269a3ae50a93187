"""Schedules in which branches, trigger rules, people and code decide which tasks succeed, against a fresh run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from decided_jobs import BRANCH, JOIN, MIN_ONE, SOLO_BESIDE, decided
from simulated_controls import finds

from airflow_recovery.attempt import publish, region_task
from airflow_recovery.journal.run_state import RegionState
from airflow_recovery.planning.evaluation import Evaluation
from airflow_recovery.planning.reason import Reason, Why
from airflow_recovery.testing.simulation import TOPOLOGIES, Settings, Trouble, simulate
from airflow_recovery.testing.simulation.drill import main

PAIR, DIAMOND = TOPOLOGIES["pair"], TOPOLOGIES["diamond"]
BROKEN = {Trouble.BREAK: 1}
AGAINST_THE_RULE = {
    # name: settings, what is wrong, a seed that shows it
    "H1, all_done": (Settings(decided(PAIR, {"C": "all_done"}, operators="PC"), BROKEN), "C@1 is green, and failed", 2),
    "H1, always": (Settings(decided(PAIR, {"C": "always"}, operators="PC"), BROKEN), "C@1 is green, and failed", 0),
    "H1, one_failed": (
        Settings(decided(PAIR, {"C": "one_failed"}, operators="PC"), BROKEN),
        "C@1 is green, and failed",
        9,
    ),
    "H2": (
        Settings(decided(JOIN, {"J": MIN_ONE}, branches=BRANCH), {Trouble.BRANCH: 1}),
        "J@1 is green, and skipped",
        0,
    ),
    "H2, by hand": (Settings(decided(JOIN, {"J": "all_done"}), {Trouble.HAND: 1}), "J@1 is green, and ", 0),
    "H10": (Settings(decided(SOLO_BESIDE, skipping="P"), {Trouble.SKIP: 1}), "publish 2 names ", 2),
    "H10, by its code": (Settings(decided(SOLO_BESIDE, operators="PC"), {Trouble.SKIP: 1}), "publish 2 names ", 3),
}


@pytest.mark.parametrize("name", AGAINST_THE_RULE)
def test_fault_179_to_182_what_is_green_a_fresh_run_would_make(name):
    settings, _, seed = AGAINST_THE_RULE[name]
    for each in range(seed, seed + 20):
        simulate(each, settings)


@pytest.mark.parametrize("name", AGAINST_THE_RULE)
def test_fault_179_to_182_control_without_the_protections_it_would_not(name, monkeypatch):
    settings, what, seed = AGAINST_THE_RULE[name]
    monkeypatch.setattr(region_task, "absent_inputs", lambda run, region: ())
    monkeypatch.setattr(RegionState, "outdated_since", None)
    monkeypatch.setattr(publish, "left_out_by_states", lambda plan, states: frozenset())
    finds(settings, f"against the rule: {what}", 40, start=seed)


@pytest.mark.parametrize("first", [Trouble.BREAK, Trouble.SKIP, Trouble.DEPLOY])
@pytest.mark.parametrize("second", [Trouble.KILL, Trouble.HEARTBEAT, Trouble.DATABASE])
def test_by_the_default_rule_code_that_fails_or_skips_leaves_nothing_green_below_it(first, second):
    for seed in range(6):
        simulate(seed, Settings(decided(DIAMOND), {first: 2, second: 1}, store_faults=seed % 2 * 4))


def test_control_where_fingerprints_are_not_compared_code_that_fails_is_green(monkeypatch):
    settings = Settings(decided(PAIR), BROKEN)
    for seed in range(10):
        simulate(seed, settings)
    monkeypatch.setattr(Evaluation, "_evaluate_alone", without(Why.CODE_CHANGED))
    finds(settings, "is green, and failed in a fresh run")


def test_control_where_external_inputs_are_not_compared_a_task_that_skips_itself_is_green(monkeypatch):
    settings = Settings(decided(PAIR, skipping="P"), {Trouble.SKIP: 1})
    for seed in range(10):
        simulate(seed, settings)
    monkeypatch.setattr(Evaluation, "_evaluate_alone", without(Why.EXTERNAL_CHANGED))
    finds(settings, "P@1 is green, and skipped in a fresh run")


def without(cause: Why) -> Callable[..., Reason | None]:
    evaluate = Evaluation._evaluate_alone

    def evaluated(self: Evaluation, *given: Any) -> Reason | None:
        reason = evaluate(self, *given)
        return None if reason is not None and reason.why is cause else reason

    return evaluated


def test_a_seed_replays_exactly_and_the_command_line_has_it(capsys):
    settings = Settings(decided(DIAMOND), {Trouble.SKIP: 1, Trouble.HAND: 1})
    assert simulate(4, settings).trace == simulate(4, settings).trace
    assert main(["--decided", "--seed", "1", "--trace", "--topology", "pair"]) == 0
    assert "P try 1: begins" in capsys.readouterr().out
