"""Many schedules, one seed each: `python -m airflow_recovery.testing.simulation`."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from airflow_recovery.errors import RecoveryError
from airflow_recovery.testing.simulation.history_search import search
from airflow_recovery.testing.simulation.jobs import RANDOM, TOPOLOGIES, SimulatedJob, declared_job
from airflow_recovery.testing.simulation.schedule import Schedule
from airflow_recovery.testing.simulation.settings import Settings, Violation

EVERY = "every"
"""The topologies in turn, with every second one drawn."""
REPORT_EVERY_S = 30.0
TABLE_EVERY_4TH = 3
"""Of four seeds with ``--decided``, this one has runs that commit to one table."""
COMMAND = "python -m airflow_recovery.testing.simulation"


@dataclass
class Tally:
    """What a drill came to."""

    schedules: int = 0
    steps: int = 0
    tries: int = 0
    attempts: int = 0
    seconds: float = 0.0

    def text(self) -> str:
        """One line for people."""
        rate = self.schedules / self.seconds if self.seconds else 0.0
        return (
            f"{self.schedules} schedules without a violation: {self.tries} tries, {self.attempts} Spark applications, "
            f"{self.steps} steps in {self.seconds:.1f} s ({rate:.0f} a second)"
        )


def topology_of(seed: int, topology: str) -> str:
    """The topology that a seed stands for."""
    if topology != EVERY:
        return topology
    names = list(TOPOLOGIES)
    return RANDOM if seed % 2 else names[seed // 2 % len(names)]


def drill(
    seeds: Iterator[int],
    *,
    topology: str = EVERY,
    job: SimulatedJob | None = None,
    until_s: float | None = None,
    tell: Callable[[str], None] = lambda line: None,
    is_decided: bool = False,
) -> Tally:
    """One schedule a seed, until ``seeds`` end or `time.monotonic` says ``until_s``.

    ``is_decided``: those of `Settings.decided`.

    Raises `Violation` at the first that breaks a promise. Its message begins with ``seed N``, which replays it.
    """
    tally, start_s = Tally(), time.monotonic()
    next_s = start_s + REPORT_EVERY_S
    for seed in seeds:
        report = Schedule(seed, _settings(seed, topology, job, is_decided)).run()
        tally.schedules += 1
        tally.steps += report.steps
        tally.tries += report.tries
        tally.attempts += len(report.ran)
        now_s = time.monotonic()
        tally.seconds = now_s - start_s
        if now_s >= next_s:
            next_s = now_s + REPORT_EVERY_S
            tell(f"seed {seed}: {tally.text()}")
        if until_s is not None and now_s >= until_s:
            break
    return tally


def _settings(seed: int, topology: str, job: SimulatedJob | None, is_decided: bool) -> Settings:
    name = topology_of(seed, topology)
    if is_decided and seed % 4 == TABLE_EVERY_4TH:
        return Settings.sharing_a_table(seed, name)
    return Settings.decided(seed, name) if is_decided else Settings.drawn(seed, name, job)


def main(argv: Sequence[str] | None = None) -> int:
    """The command line. Returns 0, 1 for a violation, 2 for a job that can't be simulated."""
    parser = argparse.ArgumentParser(prog=COMMAND, description=__doc__)
    parser.add_argument("--seed", type=int, default=0, help="the first seed (default: 0)")
    parser.add_argument("--schedules", type=int, default=None, help="how many seeds (default: 1000, or for --minutes)")
    parser.add_argument("--minutes", type=float, default=None, help="stop after so long")
    parser.add_argument("--topology", choices=[*TOPOLOGIES, RANDOM, EVERY], default=EVERY)
    parser.add_argument("--job", metavar="MODULE:NAME", help="a job of your own, in place of a topology")
    parser.add_argument("--params", type=json.loads, default={}, metavar="JSON", help="the run's params, for --job")
    parser.add_argument(
        "--decided", action="store_true", help="branches, trigger rules, people and code decide which tasks succeed"
    )
    parser.add_argument("--pure", type=int, metavar="N", help="so many histories of the pure model of states instead")
    parser.add_argument("--trace", action="store_true", help="print every step of the first schedule")
    args = parser.parse_args(argv)
    if args.pure is not None:
        return _search(args.seed, args.pure)
    try:
        job = declared_job(args.job, params=args.params) if args.job else None
    except RecoveryError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    count = args.schedules if args.schedules is not None else (None if args.minutes else 1000)
    until_s = time.monotonic() + args.minutes * 60 if args.minutes else None
    try:
        if args.trace:
            settings = _settings(args.seed, args.topology, job, args.decided)
            print("\n".join([settings.text(), *Schedule(args.seed, settings).run().trace]))
            return 0
        seeds = _seeds(args.seed, count)
        tally = drill(seeds, topology=args.topology, job=job, until_s=until_s, tell=print, is_decided=args.decided)
    except Violation as violation:
        seed = str(violation).partition(":")[0].removeprefix("seed ")
        which = f"--topology {topology_of(int(seed), args.topology)}"
        if args.job:
            which = f"--job {args.job} --params {shlex.quote(json.dumps(args.params))}"
        which += " --decided" if args.decided else ""
        print(f"VIOLATION, {violation}\nAgain: {COMMAND} --seed {seed} --schedules 1 {which}", file=sys.stderr)
        return 1
    print(tally.text())
    return 0


def _search(first: int, count: int) -> int:
    found = search(first, count, tell=print)
    for seed, violation in found.against.items():
        print(f"VIOLATION, {violation}\nAgain: {COMMAND} --seed {seed} --pure 1", file=sys.stderr)
    print(found.text())
    return 1 if found.against else 0


def _seeds(first: int, count: int | None) -> Iterator[int]:
    seed = first
    while count is None or seed < first + count:
        yield seed
        seed += 1
