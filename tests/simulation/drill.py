"""Many schedules or histories, one seed each: `PYTHONPATH=tests:. python -m simulation`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from airflow_recovery.testing.simulation.drill import add_seed_options, run_command, topology_of
from simulation.dag_schedule import DagSchedule
from simulation.dag_settings import DagSettings
from simulation.history_search import search

COMMAND = "PYTHONPATH=tests:. python -m simulation"
TABLE_EVERY_4TH = 3
"""Of four seeds with ``--decided``, this one has runs that commit to one table."""


def settings_of(seed: int, topology: str) -> DagSettings:
    """What the schedule of a seed is about."""
    name = topology_of(seed, topology)
    return DagSettings.sharing_a_table(seed, name) if seed % 4 == TABLE_EVERY_4TH else DagSettings.decided(seed, name)


def main(argv: Sequence[str] | None = None) -> int:
    """The command line. Returns 0, or 1 for a violation."""
    parser = argparse.ArgumentParser(prog=COMMAND, description=__doc__)
    add_seed_options(parser)
    kind = parser.add_mutually_exclusive_group(required=True)
    kind.add_argument(
        "--decided", action="store_true", help="branches, trigger rules, people and code decide which tasks succeed"
    )
    kind.add_argument("--pure", type=int, metavar="N", help="so many histories of the pure model of states")
    args = parser.parse_args(argv)
    if args.pure is not None:
        return _search(args.seed, args.pure)
    return run_command(
        args,
        lambda seed: DagSchedule(seed, settings_of(seed, args.topology)),
        f"{COMMAND} --decided",
        lambda seed: f" --topology {topology_of(seed, args.topology)}",
    )


def _search(first: int, count: int) -> int:
    found = search(first, count, tell=print)
    for seed, violation in found.against.items():
        print(f"VIOLATION, {violation}\nAgain: {COMMAND} --seed {seed} --pure 1", file=sys.stderr)
    print(found.text())
    return 1 if found.against else 0
