"""Every order of a small dynamic assignment over the shipped classes; each rule switched off is found (fault 56)."""

from __future__ import annotations

import pytest

from airflow_recovery.source.reconcile import Support
from airflow_recovery.testing.split_exploration import CONTROLS, Case, Control, Fault, explore
from airflow_recovery.testing.split_exploration.case import EVERY_FAULT, LOSSES
from airflow_recovery.testing.split_exploration.command import main

CASES = (
    pytest.param(Case(2, 1, EVERY_FAULT), marks=pytest.mark.drill),
    Case(2, 1, frozenset({Fault.CRASH, Fault.KILL, Fault.RESET}), Support.BATCH_SNAPSHOT),
    pytest.param(Case(2, 1, frozenset({Fault.CRASH, Fault.KILL, Fault.RESET}), Support.NONE), marks=pytest.mark.drill),
    Case(2, 1, LOSSES, window=2),
    Case(1, 3, frozenset({Fault.LOSE_SEND})),
    Case(3, 0, in_every_order=True),
)


@pytest.mark.parametrize("case", CASES, ids=lambda each: each.text())
def test_fault_56_nothing_is_lost_or_doubled_no_snapshot_is_in_limbo_and_nothing_gets_stuck(case: Case):
    found = explore(case)
    assert found.violation is None, found.text()
    assert found.ends > 0
    assert found.worlds > 500


@pytest.mark.parametrize("control", CONTROLS, ids=lambda each: each.name)
def test_fault_56_control_without_one_rule_what_it_is_for_happens(control: Control):
    found = explore(control.case)
    assert found.violation is not None, f"nothing is found without the rule that {control.name}"
    assert found.violation.startswith(control.finds), found.text()
    assert len(found.steps) > 3
    print(found.text())


def test_by_hand_a_case_is_said_on_the_command_line(capsys: pytest.CaptureFixture[str]):
    assert main(["--splits", "1", "--faults", "1", "--kind", "lose-ack", "--kind", "kill"]) == 0
    assert "1 splits, 1 faults (kill, lose_ack), coordinator with stable keys" in capsys.readouterr().out
