"""The exploration by hand: larger cases than `make test` has time for, and the counterexamples of the controls."""

from __future__ import annotations

import argparse

from airflow_recovery.source.reconcile import Support
from airflow_recovery.testing.split_exploration.case import EVERY_FAULT, Case, Fault
from airflow_recovery.testing.split_exploration.controls import CONTROLS
from airflow_recovery.testing.split_exploration.explore import explore


def main(arguments: list[str] | None = None) -> int:
    """Explore one case, or print the controls' counterexamples; 1 where the shipped classes violate something."""
    parser = argparse.ArgumentParser(prog="python -m airflow_recovery.testing.split_exploration", description=__doc__)
    parser.add_argument("--splits", type=int, default=2)
    parser.add_argument("--faults", type=int, default=1)
    names = [each.name.lower().replace("_", "-") for each in Fault]
    parser.add_argument("--kind", action="append", choices=names, help="this kind of fault; may be repeated")
    supports = [each.name.lower().replace("_", "-") for each in Support]
    parser.add_argument("--support", choices=supports, default=supports[0], help="what survives of a coordinator")
    parser.add_argument("--window", type=int, default=1, help="messages an attempt waits for: with 2 they overtake")
    parser.add_argument("--every-order", action="store_true", help="also after the last fault was dealt with")
    parser.add_argument("--controls", action="store_true", help="switch off one rule at a time, and show what happens")
    given = parser.parse_args(arguments)
    if given.controls:
        for control in CONTROLS:
            print(f"without the rule that {control.name}:\n{explore(control.case).text()}\n", flush=True)
        return 0
    kinds = frozenset(Fault[each.upper().replace("-", "_")] for each in given.kind or ()) or EVERY_FAULT
    support = Support[given.support.upper().replace("-", "_")]
    case = Case(given.splits, given.faults, kinds, support, window=given.window, in_every_order=given.every_order)
    found = explore(case)
    print(found.text())
    return 0 if found.violation is None else 1
