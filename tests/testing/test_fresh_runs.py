"""What a run without a history comes to: Airflow's trigger rules, branches, and the oracle that uses them."""

from __future__ import annotations

from typing import Any

import pytest
from decided_jobs import BRANCH, JOIN, MIN_ONE, decided
from simulation import job_of
from simulation.dag_job import FAILS, SKIPS
from simulation.fresh_run import FreshRun, fresh_run

from airflow_recovery.testing.fake_airflow import RUNS, TRIGGER_RULES, FakeAirflow, by_trigger_rule
from airflow_recovery.testing.simulation import TOPOLOGIES
from airflow_recovery.testing.simulation.jobs import rows

OK, SKIPPED, FAILED, BLOCKED, LATER = "success", "skipped", "failed", "upstream_failed", None
PAIR = TOPOLOGIES["pair"]


@pytest.mark.parametrize(
    ("above", "expected"),
    [
        # all_success, all_done, none_failed, none_failed_min_one_success, one_success, one_failed, always
        ([OK, OK], [RUNS, RUNS, RUNS, RUNS, RUNS, SKIPPED, RUNS]),
        ([OK, SKIPPED], [SKIPPED, RUNS, RUNS, RUNS, RUNS, SKIPPED, RUNS]),
        ([SKIPPED, SKIPPED], [SKIPPED, RUNS, RUNS, SKIPPED, SKIPPED, SKIPPED, RUNS]),
        ([OK, FAILED], [BLOCKED, RUNS, BLOCKED, BLOCKED, RUNS, RUNS, RUNS]),
        ([SKIPPED, BLOCKED], [BLOCKED, RUNS, BLOCKED, BLOCKED, BLOCKED, RUNS, RUNS]),
        ([FAILED, FAILED], [BLOCKED, RUNS, BLOCKED, BLOCKED, BLOCKED, RUNS, RUNS]),
        ([OK, LATER], [LATER, LATER, LATER, LATER, RUNS, LATER, RUNS]),
        ([SKIPPED, LATER], [SKIPPED, LATER, LATER, LATER, LATER, LATER, RUNS]),
        ([FAILED, LATER], [BLOCKED, LATER, BLOCKED, BLOCKED, LATER, RUNS, RUNS]),
        ([OK, "removed"], [RUNS, RUNS, RUNS, RUNS, RUNS, SKIPPED, RUNS]),
        ([], [RUNS] * 7),
    ],
)
def test_the_trigger_rules_are_airflows(above: list[Any], expected: list[Any]):
    rules = ["all_success", "all_done", "none_failed", MIN_ONE, "one_success", "one_failed", "always"]
    assert set(rules) == TRIGGER_RULES
    assert [by_trigger_rule(rule, above) for rule in rules] == expected


def test_a_rule_that_is_not_simulated_is_refused():
    with pytest.raises(ValueError, match="none_skipped"):
        FakeAirflow({"a": ()}, rules={"a": "none_skipped"})


def run_branch(airflow: FakeAirflow, followed: str) -> None:
    assert airflow.end_branch(airflow.start("branch"), [followed])


def test_a_task_that_a_branch_leaves_out_is_skipped_again_if_it_is_cleared():
    airflow = FakeAirflow({"branch": (), "X": ("branch",), "Y": ("branch",)})
    run_branch(airflow, "X")
    assert (airflow.ready(), airflow.state("Y")) == (["X"], "skipped")
    airflow.clear("Y")
    assert (airflow.ready(), airflow.state("Y")) == (["X"], "skipped")
    airflow.clear("branch", downstream=True)
    run_branch(airflow, "Y")
    assert (airflow.ready(), airflow.state("X")) == (["Y"], "skipped")


def test_a_branch_leaves_alone_what_has_succeeded():
    airflow = FakeAirflow({"branch": (), "X": ("branch",)})
    run_branch(airflow, "X")
    airflow.end(airflow.start("X"), "success")
    airflow.clear("branch")
    run_branch(airflow, "Y")
    assert airflow.has_ended
    assert airflow.state("X") == "success"


def states(run: FreshRun, *names: str) -> list[str]:
    return [run.states[name] for name in names]


def test_without_any_trouble_it_is_the_undisturbed_run():
    job = job_of(TOPOLOGIES["ladder"])
    made = {name: frozenset({(row,)}) for (name, _), row in job.undisturbed().items()}
    assert fresh_run(job, {}).made == made


@pytest.mark.parametrize("rule", ["all_done", "always", "one_failed"])
def test_a_producer_that_has_failed_gives_no_input(rule):
    run = fresh_run(decided(PAIR, {"C": rule}).with_code("P", 1, FAILS), {})
    assert states(run, "P", "C") == ["failed", "failed"]


@pytest.mark.parametrize("rule", ["all_done", "always", "one_failed"])
def test_an_optional_input_may_be_absent(rule):
    job = decided(PAIR, {"C": rule}, optional={"C": ("P",)}).with_code("P", 1, FAILS)
    assert fresh_run(job, {}).made == {"C": {(rows("C", "C", "code of C", []),)}}


def test_what_is_skipped_skips_who_reads_it_and_what_is_marked_stays_so():
    job = decided(PAIR)
    assert states(fresh_run(job.with_code("P", 1, SKIPS), {}), "P", "C") == ["skipped", "skipped"]
    assert states(fresh_run(job, {}, {"P": "failed"}), "P", "C") == ["failed", "upstream_failed"]
    empty = decided(PAIR, skipping="P").with_listing("P", ())
    assert states(fresh_run(empty, {}), "P", "C") == ["skipped", "skipped"]


def test_a_join_has_what_the_branch_follows():
    follows_y = {"branch": frozenset("Y")}
    required = fresh_run(decided(JOIN, {"J": MIN_ONE}, branches=BRANCH), follows_y)
    assert states(required, "X", "Y", "J") == ["skipped", "success", "skipped"]
    optional = fresh_run(decided(JOIN, {"J": MIN_ONE}, branches=BRANCH, optional={"J": ("X", "Y")}), follows_y)
    assert optional.made["J"] == {(rows("J", "J", "code of J", [rows("Y", "Y", "code of Y", [])]),)}


def test_what_the_order_of_ends_decides_is_not_certain():
    job = decided(JOIN, branches=BRANCH).with_code("Y", 1, FAILS)
    assert fresh_run(job, {"branch": frozenset("XY")}).is_certain
    assert not fresh_run(job, {"branch": frozenset("Y")}).is_certain
    assert not fresh_run(decided(PAIR, {"C": "always"}), {}).is_certain


@pytest.mark.parametrize(("join", "below"), [("skipped", "success"), ("upstream_failed", "upstream_failed")])
def test_how_a_run_has_ended_says_which_of_a_skip_and_a_failure_came_first(join: str, below: str):
    """Seed 202973 of `--decided`: the task below runs if the skip came first."""
    upstream = {**JOIN, "E": ("J",)}
    job = decided(upstream, {"E": "none_failed"}, optional={"E": ("J",)}, branches=BRANCH).with_code("Y", 1, FAILS)
    fresh = fresh_run(job, {"branch": frozenset("Y")}, {}, {"J": join})
    assert states(fresh, "X", "Y", "J", "E") == ["skipped", "failed", join, below]
