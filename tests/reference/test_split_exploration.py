"""No split is lost or doubled, whatever changes between attempts; each rule that is switched off is found."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_recovery.model.split_matching import Vanished
from reference.split_exploration import CONTROLS, Case, Change, Control, Fault, explore, walk
from reference.split_exploration.command import main
from reference.split_exploration.explore import found_by_walks

CODE, NUMBER = frozenset({Change.CODE}), frozenset({Change.FEWER, Change.MORE})
LISTING = frozenset({Change.VANISH, Change.APPEAR, Change.OVERWRITE})

EVERY_WAY = (
    Case(2, 1, 0),
    Case(2, 1, 0, is_dynamic=False),
    Case(2, 2, 0, NUMBER),
    Case(1, 2, 1, CODE, subtasks=1, is_fine=True),
    Case(2, 1, 1, NUMBER, frozenset({Fault.KILL})),
    Case(2, 1, 1, LISTING, frozenset({Fault.KILL}), is_dynamic=False),
    pytest.param(Case(2, 0, 1), marks=pytest.mark.drill),
    pytest.param(Case(1, 1, 1, CODE), marks=pytest.mark.drill),
    pytest.param(Case(2, 3, 0, NUMBER | CODE), marks=pytest.mark.drill),
    pytest.param(Case(3, 2, 0, LISTING, is_dynamic=False), marks=pytest.mark.drill),
    pytest.param(Case(2, 2, 0, LISTING, vanished=Vanished.KEEP), marks=pytest.mark.drill),
)

LARGE: dict[str, Any] = {"splits": 6, "changes": 7, "faults": 4, "subtasks": 4, "fewest": 2, "is_fine": True}
SOME_WAYS = (
    Case(**LARGE),
    Case(**LARGE, is_dynamic=False),
    Case(**LARGE, batch=2),
    Case(**LARGE, vanished=Vanished.KEEP),
    Case(**LARGE, vanished=Vanished.KEEP, is_dynamic=False),
    Case(**LARGE, vanished=Vanished.FAIL),
    Case(**LARGE, vanished=Vanished.FAIL, is_dynamic=False),
)


@pytest.mark.slow
@pytest.mark.parametrize("case", EVERY_WAY, ids=lambda each: each.text())
def test_fault_91_in_every_way_through_a_small_case_each_split_is_read_once(case: Case):
    found = explore(case)
    assert found.violation is None, found.text()
    assert found.ends > 0
    assert found.worlds > 500


@pytest.mark.slow
@pytest.mark.parametrize("seeds", [pytest.param(15, id="few"), pytest.param(2_000, id="many", marks=pytest.mark.drill)])
@pytest.mark.parametrize("case", SOME_WAYS, ids=lambda each: each.text())
def test_fault_91_in_some_ways_through_a_large_case_each_split_is_read_once(case: Case, seeds: int):
    for seed in range(seeds):
        found = walk(case, seed)
        assert found.violation is None, found.text()


@pytest.mark.parametrize("control", CONTROLS, ids=lambda each: each.name)
def test_fault_91_control_without_one_rule_what_it_is_for_happens(control: Control):
    with control.off():
        found = found_by_walks(control.case, few=1)
    assert found is not None, f"nothing is found without the rule that {control.name}"
    assert found.violation is not None
    assert found.violation.partition(": ")[2].startswith(control.finds), found.text()
    assert len(found.steps) > 3
    again = walk(control.case, int(found.violation.partition(":")[0].removeprefix("seed ")))
    assert again.violation is None, again.text()  # the same way, with the rule on


@pytest.mark.slow
def test_by_hand_a_case_is_said_on_the_command_line(capsys: pytest.CaptureFixture[str]):
    assert main(["--splits", "1", "--faults", "1", "--fault", "kill", "--change", "code"]) == 0
    assert "dynamic, drop: 1 splits, 2 subtasks, 1 changes (code), 1 faults (kill)" in capsys.readouterr().out
    assert main(["--splits", "4", "--changes", "3", "--static", "--walks", "3"]) == 0
    assert "3 walks, all good" in capsys.readouterr().out
