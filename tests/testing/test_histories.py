"""Histories of the pure model of states.

EXPECTED VIOLATIONS: at 130f2a57 the product breaks the rule of issue 36 (H1, H2, H10). Once it is mended, and
`histories.look` and `histories.left_out` are as it decides then, the tests named `test_expected_violation` turn round:
`play` and `search` find none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest
from decided_jobs import BRANCH, JOIN, MIN_ONE, SOLO_BESIDE, decided

from airflow_recovery.planning.evaluation import Evaluation
from airflow_recovery.testing.simulation import TOPOLOGIES, SimulatedJob, Violation
from airflow_recovery.testing.simulation.drill import main
from airflow_recovery.testing.simulation.histories import History, Known, Look, Product, Question, look
from airflow_recovery.testing.simulation.history_search import drawn_job_of, play, search
from airflow_recovery.testing.simulation.jobs import FAILS, SKIPS, with_optional

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


AGAINST_THE_RULE: dict[str, tuple[SimulatedJob, list[Act], str]] = {
    f"H1, {rule}": (decided(PAIR, {"C": rule}, operators="PC"), [deploys("P", FAILS)], "C@1 is (kept|ran), and its")
    for rule in ("all_done", "always", "one_failed")
} | {
    "H1, by hand": (decided(PAIR, operators="PC"), [deploys("P", FAILS), calls_p_a_success], "C rests on P@1"),
    "H2": (decided(JOIN, {"J": MIN_ONE}, branches=BRANCH), [follows_y], "J@1 is ran, and its input X"),
    "H10": (decided(SOLO_BESIDE, skipping="P"), [finds_nothing], "the publish names P@1, and P is skipped"),
    "H10, by its code": (decided(SOLO_BESIDE, operators="P"), [deploys("P", SKIPS)], "the publish names P@1"),
}


@pytest.mark.parametrize("name", AGAINST_THE_RULE)
def test_expected_violation(name):
    job, acts, what = AGAINST_THE_RULE[name]
    with pytest.raises(Violation, match=what):
        play(0, Known(job), acts)


def test_expected_violation_of_histories_that_are_drawn():
    assert search(0, 1_000).against


def by_states(evaluation: Evaluation, states: Mapping[str, str | None]) -> frozenset[str]:
    """A publish that hands out no result of what was skipped, or has failed."""
    return frozenset(name for name, state in states.items() if state in {"skipped", "failed", "upstream_failed"})


def plain_job_of(seed: int) -> SimulatedJob:
    job = with_optional(drawn_job_of(seed), {})
    return replace(job, rules={}, branches={}, operators=frozenset())


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
    (seed,) = search(0, 1_000).against
    assert main(["--pure", "1", "--seed", str(seed)]) == 1
    assert f"--seed {seed} --pure 1" in capsys.readouterr().err
