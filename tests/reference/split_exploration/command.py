"""The exploration by hand: larger cases than `make test` has time for, and the counterexamples of the controls."""

from __future__ import annotations

import argparse

from airflow_recovery.model.split_matching import Vanished
from reference.split_exploration.case import EVERY_CHANGE, EVERY_FAULT, Case, Change, Fault
from reference.split_exploration.controls import CONTROLS
from reference.split_exploration.explore import explore, found_by_walks, walk


def main(arguments: list[str] | None = None) -> int:
    """Explore one case, walk through it, or print the controls' counterexamples; 1 where something is violated."""
    parser = argparse.ArgumentParser(prog="python -m reference.split_exploration", description=__doc__)
    parser.add_argument("--splits", type=int, default=2)
    parser.add_argument("--subtasks", type=int, default=2)
    parser.add_argument("--fewest", type=int, default=1, help="how many subtasks are left where there are fewer")
    parser.add_argument("--changes", type=int, default=1, help="how many changes by users, or of the listing")
    parser.add_argument("--faults", type=int, default=0)
    parser.add_argument("--change", action="append", choices=_names(Change), help="of this kind; may be repeated")
    parser.add_argument("--fault", action="append", choices=_names(Fault), help="of this kind; may be repeated")
    parser.add_argument("--vanished", choices=[each.value for each in Vanished], default="drop")
    parser.add_argument("--static", action="store_true", help="each split has its home; else the subtasks pull them")
    parser.add_argument("--batch", type=int, default=1, help="splits that are read and committed together")
    parser.add_argument("--walks", type=int, help="so many ways through the case, one a seed, and not all of them")
    parser.add_argument("--seed", type=int, default=0, help="the first of the walks")
    parser.add_argument("--controls", action="store_true", help="switch off one rule at a time, and show what happens")
    given = parser.parse_args(arguments)
    if given.controls:
        for control in CONTROLS:
            with control.off():
                found = found_by_walks(control.case)
            told = found.text() if found is not None else "nothing is found"
            print(f"without the rule that {control.name}:\n{told}\n", flush=True)
        return 0
    case = Case(
        given.splits,
        given.changes,
        given.faults,
        frozenset(Change[_name(each)] for each in given.change or ()) or EVERY_CHANGE,
        frozenset(Fault[_name(each)] for each in given.fault or ()) or EVERY_FAULT,
        is_dynamic=not given.static,
        vanished=Vanished(given.vanished),
        subtasks=given.subtasks,
        fewest=given.fewest,
        batch=given.batch,
        is_fine=given.walks is not None,
    )
    if given.walks is None:
        found = explore(case)
        print(found.text())
        return 0 if found.violation is None else 1
    for seed in range(given.seed, given.seed + given.walks):
        found = walk(case, seed)
        if found.violation is not None:
            print(found.text())
            return 1
    print(f"{case.text()}: {given.walks} walks, all good")
    return 0


def _names(kinds: type[Change] | type[Fault]) -> list[str]:
    return [kind.name.lower() for kind in kinds]


def _name(given: str) -> str:
    return given.upper()
