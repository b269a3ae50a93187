"""Schedules in which branches, trigger rules, people and code decide which tasks succeed, against a fresh run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from decided_jobs import BRANCH, JOIN, MIN_ONE, SOLO_BESIDE, decided
from simulated_controls import SAFE, finds
from simulation import DagJob, DagTrouble, dag_world, simulate
from simulation import DagSettings as Settings
from simulation.dag_job import FAILS, SKIPS
from simulation.dag_spark import DagSpark
from simulation.drill import main
from simulation.run_of_dag import RunOfDag

from airflow_recovery.attempt import absent_inputs, data_interval, declarations, first_attempt, publish, region_task
from airflow_recovery.attempt.run import DeclaredOperators, Run
from airflow_recovery.attempt.task_instances import ClearRequest, ClearResult
from airflow_recovery.journal.run_state import RegionState
from airflow_recovery.planning.evaluation import Evaluation
from airflow_recovery.planning.reason import Reason, Why
from airflow_recovery.testing.fake_airflow import FakeAirflow
from airflow_recovery.testing.simulation import TOPOLOGIES, Trouble

PAIR, DIAMOND = TOPOLOGIES["pair"], TOPOLOGIES["diamond"]
BROKEN = {DagTrouble.BREAK: 1}
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
        Settings(decided(JOIN, {"J": MIN_ONE}, branches=BRANCH), {DagTrouble.BRANCH: 1}),
        "J@1 is green, and skipped",
        0,
    ),
    "H2, by hand": (Settings(decided(JOIN, {"J": "all_done"}), {DagTrouble.HAND: 1}), "J@1 is green, and ", 0),
    "H10": (Settings(decided(SOLO_BESIDE, skipping="P"), {DagTrouble.SKIP: 1}), "publish 2 names ", 2),
    "H10, by its code": (Settings(decided(SOLO_BESIDE, operators="PC"), {DagTrouble.SKIP: 1}), "publish 2 names ", 22),
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
    without_declarations(monkeypatch)
    finds(settings, f"against the rule: {what}", 40, start=seed)


@pytest.mark.parametrize("first", [DagTrouble.BREAK, DagTrouble.SKIP, Trouble.DEPLOY])
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
    settings = Settings(decided(PAIR, skipping="P"), {DagTrouble.SKIP: 1})
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


@pytest.mark.parametrize("rule", ["all_done", "none_failed"])
def test_code_that_fails_without_an_optional_input_is_a_failure_and_no_loss_of_that_input(rule):
    for seed in range(8):
        simulate(seed, fails_without_p(rule))


@pytest.mark.parametrize("rule", ["all_done", "none_failed"])
def test_control_where_absent_inputs_are_forgotten_after_a_failure_the_task_is_skipped(rule, monkeypatch):
    evaluate = Run.evaluate
    # After a failure alone they are given by name.
    monkeypatch.setattr(Run, "evaluate", lambda self, *given, **absent: evaluate(self, *given))
    finds(fails_without_p(rule), "against the rule: the run ends as ", 40)


def fails_without_p(rule: str) -> Settings:
    """P skips itself, and C, which may run without it, fails."""
    job = decided(PAIR, {"C": rule}, optional={"C": ("P",)})
    return Settings(job.with_code("P", 1, SKIPS).with_code("C", 1, FAILS))


PULLS = replace(decided(PAIR, operators="PC"), pulls={"C": ("P",)})
OF_RUNS = {
    "XComs": (Settings(PULLS, {Trouble.CLEAR: 1}), "C@2 has other rows"),
    "XComs that are not stored": (Settings(replace(PULLS, unstored=frozenset("P"))), "C@2 has other rows"),
    "an interval": (
        Settings(replace(decided(PAIR), dated=frozenset("P")), {DagTrouble.AGAIN: 1}),
        "P@2 of a triggered run replaces another interval's",
    ),
    "a param": (Settings(replace(decided(PAIR), using=frozenset("C")), {DagTrouble.PARAM: 1}), "C@1 has other rows"),
}
"""What is rendered in the run: settings, and what is wrong without the protection."""


@pytest.mark.parametrize("name", OF_RUNS)
def test_what_a_run_renders_is_that_of_a_fresh_run(name):
    settings, _ = OF_RUNS[name]
    for seed in range(12):
        simulate(seed, settings)


@pytest.mark.parametrize("name", OF_RUNS)
def test_control_without_the_protection_what_a_run_renders_is_another_ones(name, monkeypatch):
    settings, what = OF_RUNS[name]
    monkeypatch.setattr(DagSpark, "leave_again", lambda self: None)
    if name == "XComs that are not stored":
        monkeypatch.setattr(DagSpark, "why_not_kept", lambda self, outcome: None)
    monkeypatch.setattr(data_interval, "of_another_interval", lambda now, finishes: None)
    if name == "a param":
        monkeypatch.setattr(Evaluation, "_evaluate_alone", without(Why.CODE_CHANGED))
    finds(settings, f"against the rule: {what}", 40)


CHAIN = TOPOLOGIES["chain"]
ALONE = Settings(decided(CHAIN, operators="PCE"), {DagTrouble.ALONE: 1})
UNEVEN = Settings(replace(ALONE.job, uneven=frozenset("PC")), {DagTrouble.ALONE: 1})
UNSTEADY = replace(UNEVEN, job=replace(ALONE.job, unsteady=frozenset("PC")))


def test_fault_240_what_a_try_succeeds_with_was_made_by_the_code_that_the_dag_declares():
    for seed in range(SAFE):
        simulate(seed, ALONE)


@pytest.mark.control
def test_fault_240_control_without_the_look_at_declarations_it_was_made_by_older_code(monkeypatch):
    without_declarations(monkeypatch)
    finds(ALONE, "succeeds with P@1 of 'P', and the DAG declares 'P v1'")


def without_declarations(monkeypatch):
    """Nobody looks whether an operator is declared otherwise than its attempt says."""
    for module in (region_task, publish):
        monkeypatch.setattr(module, "declared_otherwise", lambda run, state, regions: {})
    monkeypatch.setattr(first_attempt, "is_as_declared", lambda run, region, outcome: True)


@pytest.mark.parametrize("settings", [UNEVEN, UNSTEADY], ids=["on each worker", "at each reading"])
def test_fault_241_operators_that_are_declared_otherwise_each_time_end_as_in_a_fresh_run(settings):
    for seed in range(SAFE // 2):
        simulate(seed, settings)


@pytest.mark.control
def test_fault_241_control_without_the_look_at_answers_all_retries_are_used_up(monkeypatch):
    monkeypatch.setattr(declarations, "_was_answered_otherwise", lambda run, name, state, current: False)
    finds(UNEVEN, "against the rule: the run ends as {'P': 'success', 'C': 'failed'")


@pytest.mark.control
def test_fault_241_control_without_a_second_reading_all_retries_are_used_up(monkeypatch):
    monkeypatch.setattr(declarations, "_was_answered_otherwise", lambda run, name, state, current: False)
    simulate(0, UNSTEADY)
    monkeypatch.setattr(dag_world, "DeclaredOperators", lambda own, own_again: DeclaredOperators(own, own))
    finds(UNSTEADY, "against the rule: the run ends as {'P': 'success', 'C': 'failed'")


OVERLAP: dict[str, tuple[str, ...]] = {**JOIN, "K": ()}
OVERLAPPING = Settings(
    decided(OVERLAP, {"J": "always"}, optional={"J": ("X", "Y")}, branches=BRANCH),
    {DagTrouble.BRANCH: 1, DagTrouble.HAND: 1},
)


def test_fault_350_a_publish_names_no_result_of_a_region_that_may_yet_be_skipped():
    for seed in range(27, 27 + SAFE):
        simulate(seed, OVERLAPPING)


@pytest.mark.control
def test_fault_350_control_where_it_does_not_wait_it_names_what_is_skipped_then(monkeypatch):
    monkeypatch.setattr(publish, "not_over", lambda named, states: ())
    finds(OVERLAPPING, "names X@1, and X is skipped", 20, start=27)


MARKED_UPSTREAM: dict[str, tuple[str, ...]] = {"P": (), "C": ("P",), "E": ("P", "C")}
MARKED = Settings(
    decided(MARKED_UPSTREAM, {"E": "all_done"}, optional={"E": ("C",)}), {DagTrouble.HAND: 1, Trouble.DELETE: 1}
)


def test_fault_242_a_task_that_a_person_has_marked_as_failed_is_not_cleared():
    for seed in range(52, 52 + SAFE):
        simulate(seed, MARKED)


def test_fault_242_control_where_the_clear_does_not_know_of_the_mark_it_is(monkeypatch):
    real = FakeAirflow.compare_and_clear

    def unaware(self: FakeAirflow, request: ClearRequest, caller: str) -> ClearResult:
        self._marked_failed.clear()
        return real(self, request, caller)

    monkeypatch.setattr(FakeAirflow, "compare_and_clear", unaware)
    finds(MARKED, "against the rule", 20, start=52)


STALE_XCOMS: dict[str, tuple[DagJob, dict[str, tuple[str, ...]], Trouble | DagTrouble, str]] = {
    "a task starts before its input has ended": (
        decided({"A": (), "B": (), "C": ("A", "B")}, {"C": "one_success"}, optional={"C": ("A", "B")}, operators="AC"),
        {"C": ("A",)},
        Trouble.CLEAR,
        "C@2",
    ),
    "an input is skipped in this run": (
        decided(JOIN, {"J": MIN_ONE}, optional={"J": ("X", "Y")}, branches=BRANCH, operators="XYJ"),
        {"J": ("X", "Y")},
        DagTrouble.BRANCH,
        "J@2",
    ),
}


@pytest.mark.parametrize("name", STALE_XCOMS)
def test_fault_351_no_argument_holds_the_xcom_that_an_absent_input_has_left_in_an_earlier_try(name):
    job, pulls, trouble, _ = STALE_XCOMS[name]
    for seed in range(SAFE):
        simulate(seed, Settings(replace(job, pulls=pulls), {trouble: 1}))


@pytest.mark.control
@pytest.mark.parametrize("name", STALE_XCOMS)
def test_fault_351_control_as_airflow_renders_it_does(name, monkeypatch):
    monkeypatch.setattr(RunOfDag, "xcoms_counted", lambda dag_run, task: {})
    job, pulls, trouble, what = STALE_XCOMS[name]
    finds(Settings(replace(job, pulls=pulls), {trouble: 1}), f"{what} has other rows than in a fresh run", 200)


@pytest.mark.control
def test_fault_351_control_without_a_second_look_an_input_is_absent_and_its_xcom_is_not(monkeypatch):
    monkeypatch.setattr(absent_inputs, "check_rendered", lambda *given: None)
    job, pulls, trouble, what = STALE_XCOMS["a task starts before its input has ended"]
    finds(Settings(replace(job, pulls=pulls), {trouble: 1}), f"{what} has other rows than in a fresh run", 400)


def test_a_seed_replays_exactly_and_the_command_line_has_it(capsys):
    settings = Settings(decided(DIAMOND), {DagTrouble.SKIP: 1, DagTrouble.HAND: 1})
    assert simulate(4, settings).trace == simulate(4, settings).trace
    assert main(["--decided", "--seed", "1", "--trace", "--topology", "pair"]) == 0
    assert "P try 1: begins" in capsys.readouterr().out
