"""Histories of the pure model of states, against the rule (docs/protocol.md#what-green-means)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest
from decided_jobs import BRANCH, JOIN, MIN_ONE, SOLO_BESIDE, decided
from simulation import DagJob
from simulation.dag_job import FAILS, SKIPS, with_optional
from simulation.drill import main
from simulation.histories import History
from simulation.history_decisions import (
    Kept,
    Known,
    Look,
    Product,
    Question,
    keeps_rows,
    look,
)
from simulation.history_search import drawn_job_of, play, search

from airflow_recovery.model.committing import CommitMode
from airflow_recovery.planning.evaluation import Evaluation
from airflow_recovery.sinks.committer import FoundRows, Rows
from airflow_recovery.testing.simulation import TOPOLOGIES, Violation

PAIR = TOPOLOGIES["pair"]
Act = Callable[[History], None]


def deploys(region: str, end: str = "", *, is_rollback: bool = False) -> Act:
    def act(history: History) -> None:
        history.deploy(region, end, is_rollback=is_rollback)
        history.clear_all()

    return act


def finds_nothing(history: History) -> None:
    history.relist("P", ())
    history.clear_all()


def follows_y(history: History) -> None:
    history.decides["branch"] = frozenset("Y")
    history.clear_all()


def calls_p_a_success(history: History) -> None:
    history.mark("P", "success")


AGAINST_THE_RULE: dict[str, tuple[DagJob, list[Act], str]] = {
    f"H1, {rule}": (decided(PAIR, {"C": rule}, operators="PC"), [deploys("P", FAILS)], "C@1 is (kept|ran), and its")
    for rule in ("all_done", "always", "one_failed")
} | {
    "H1, by hand": (decided(PAIR, operators="PC"), [deploys("P", FAILS), calls_p_a_success], "C rests on P@1"),
    "H2": (decided(JOIN, {"J": MIN_ONE}, branches=BRANCH), [follows_y], "J@1 is ran, and its input X"),
    "H10": (decided(SOLO_BESIDE, skipping="P"), [finds_nothing], "the publish names P@1, and P is skipped"),
    "H10, by its code": (decided(SOLO_BESIDE, operators="P"), [deploys("P", SKIPS)], "the publish names P@1"),
}


def asks_nobody(question: Question) -> Look:
    """No try asks Airflow for the states of its inputs' tasks."""
    return look(replace(question, trigger_rule="all_success"))


def marks_c_as_failed_and_loses_p(history: History) -> None:
    history.mark("C", "failed")
    history.deploy("P")
    history.clear("P")


def marks_what_is_above_as_skipped(history: History) -> None:
    history.mark("C", "failed")
    history.mark("P", "skipped")


def test_a_person_who_marks_what_is_above_lets_airflow_clear_a_task_that_was_marked_as_failed():
    job = decided(PAIR, {"C": "always"}, optional={"C": ("P",)})
    play(0, Known(job), [marks_what_is_above_as_skipped])


@pytest.mark.parametrize("seed", [116_137, 1_029_336, 2_000_568, 3_000_677])
def test_seeds_of_long_searches_at_which_the_model_was_wrong_are_not_against_the_rule(seed):
    play(seed, Known(drawn_job_of(seed)))


def test_fault_242_a_task_that_was_marked_as_failed_runs_again_only_if_a_person_clears_it():
    for seed in range(20):
        known = Known(decided(PAIR, operators="PC"))
        play(seed, known, [marks_c_as_failed_and_loses_p])


@pytest.mark.control
def test_fault_242_control_where_recovery_clears_it_it_does():
    known = Known(decided(PAIR, operators="PC"), Product(respects_marks=False))
    with pytest.raises(Violation, match="C is ran, and a person has marked it as failed"):
        play(0, known, [marks_c_as_failed_and_loses_p])


def says_nothing(question: Question) -> Look:
    """No claim says which finish was outdated."""
    found = look(question)
    return replace(found, claimed={**found.claimed, "outdated": None})


def never_kept(question: Question) -> Look:
    """No try writes down that it has found an outdated finish valid."""
    return replace(look(question), kept={})


def names_what_is_there(evaluation: Evaluation, states: Mapping[str, str | None]) -> frozenset[str]:
    """A publish names what an earlier try has made, if it is there."""
    skipped = (name for name, state in states.items() if state == "skipped")
    return frozenset(name for name in skipped if evaluation.why_must_run(name) is not None)


WITHOUT = Product(
    lambda question: says_nothing(replace(question, trigger_rule="all_success")),
    names_what_is_there,
    is_declared_otherwise=lambda made_by, today: False,
)


@pytest.mark.parametrize("name", AGAINST_THE_RULE)
def test_fault_179_to_182_a_history_leaves_nothing_that_a_fresh_run_would_not_make(name):
    job, acts, _ = AGAINST_THE_RULE[name]
    for seed in range(20):
        play(seed, Known(job), acts)


@pytest.mark.parametrize("name", AGAINST_THE_RULE)
def test_fault_179_to_182_control_without_the_protections_it_does(name):
    job, acts, what = AGAINST_THE_RULE[name]
    with pytest.raises(Violation, match=what):
        play(0, Known(job, WITHOUT), acts)


def test_no_history_that_is_drawn_is_against_the_rule():
    assert search(0, 1_000).against == {}


def takes_rows_of_others_for_none(found: FoundRows, mode: CommitMode, is_gone: bool) -> Kept:
    return Kept.AGAIN if found.rows is Rows.OVERWRITTEN else keeps_rows(found, mode, is_gone)


WITHOUT_ONE = {
    "nobody asks Airflow": Product(look=asks_nobody),
    "a claim says nothing": Product(look=says_nothing),
    "nobody is kept": Product(look=never_kept),
    "a publish names what is there": Product(left_out=names_what_is_there),
    "a kept task pushes no XComs": Product(leaves=lambda are_stored: Kept.AS_IT_IS),
    "XComs that can't be pushed again are passed over": Product(
        leaves=lambda are_stored: Kept.AGAIN if are_stored else Kept.AS_IT_IS
    ),
    "a triggered run may have any interval": Product(refuses=lambda now, finishes: None),
    "a kept sink is not asked for its rows": Product(keeps_rows=lambda found, mode, is_gone: Kept.AS_IT_IS),
    "rows of others are taken for none": Product(keeps_rows=takes_rows_of_others_for_none),
    "what was prepared is taken to be there": Product(
        keeps_rows=lambda found, mode, is_gone: keeps_rows(found, mode, False)
    ),
    "nobody looks what the DAG declares": Product(is_declared_otherwise=lambda made_by, today: False),
    "arguments hold XComs of what is absent": Product(xcom_counts=lambda state: True),
    "a publish does not wait": Product(not_over=lambda named, states: ()),
    "an input is known by its number": Product(has_tokens=False),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", WITHOUT_ONE)
def test_control_without_one_of_them_it_is_found_within_2000(name):
    assert search(0, 2_000, WITHOUT_ONE[name]).against


def by_states(evaluation: Evaluation, states: Mapping[str, str | None]) -> frozenset[str]:
    """A publish that hands out no result of what was skipped, or has failed."""
    return frozenset(name for name, state in states.items() if state in {"skipped", "failed", "upstream_failed"})


def plain_job_of(seed: int) -> DagJob:
    job = with_optional(drawn_job_of(seed), {})
    return replace(job, rules={}, branches={}, operators=frozenset(), pulls={})


@pytest.mark.slow
def test_declared_jobs_without_trigger_rules_and_branches_keep_to_the_rule():
    found = search(0, 1_000, Product(look, by_states), job_of_seed=plain_job_of)
    assert (found.histories, found.against) == (1_000, {})


def blind_to_files(question: Question) -> Look:
    return Look(Evaluation(question.plan, question.state, available=question.available))


def blind_to_code(question: Question) -> Look:
    regions = tuple(replace(region, fingerprint=None) for region in question.plan.regions)
    return look(replace(question, plan=replace(question.plan, regions=regions)))


@pytest.mark.parametrize("blind", [blind_to_files, blind_to_code])
def test_control_where_a_try_is_blind_results_are_not_those_of_a_fresh_run(blind):
    found = search(0, 1_000, Product(blind, by_states), job_of_seed=plain_job_of)
    assert found.against


def test_a_seed_replays_exactly_and_the_command_line_has_it(capsys):
    known = Known(plain_job_of(7), Product(look, by_states))
    assert play(7, known).told == play(7, Known(plain_job_of(7), Product(look, by_states))).told
    assert main(["--pure", "1", "--seed", "7"]) == 0
    assert "1 histories, none against the rule" in capsys.readouterr().out
