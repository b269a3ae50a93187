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
from airflow_recovery.testing.simulation.jobs import RANDOM, TOPOLOGIES, SimulatedJob, declared_job
from airflow_recovery.testing.simulation.schedule import Schedule
from airflow_recovery.testing.simulation.settings import Settings, Violation

EVERY = "every"
"""The topologies in turn, with every second one drawn."""
REPORT_EVERY_S = 30.0
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
) -> Tally:
    """One schedule a seed, until ``seeds`` end or `time.monotonic` says ``until_s``.

    Raises `Violation` at the first that breaks a promise. Its message begins with ``seed N``, which replays it.
    """
    return run_all(seeds, lambda seed: Schedule(seed, _settings(seed, topology, job)), until_s, tell)


def run_all(
    seeds: Iterator[int],
    schedule_of: Callable[[int], Schedule],
    until_s: float | None,
    tell: Callable[[str], None],
) -> Tally:
    """As `drill`, of the schedules that ``schedule_of`` makes."""
    tally, start_s = Tally(), time.monotonic()
    next_s = start_s + REPORT_EVERY_S
    for seed in seeds:
        report = schedule_of(seed).run()
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


def _settings(seed: int, topology: str, job: SimulatedJob | None) -> Settings:
    return Settings.drawn(seed, topology_of(seed, topology), job)


def add_seed_options(parser: argparse.ArgumentParser) -> None:
    """What `run_command` needs."""
    parser.add_argument("--seed", type=int, default=0, help="the first seed (default: 0)")
    parser.add_argument("--schedules", type=int, default=None, help="how many seeds (default: 1000, or for --minutes)")
    parser.add_argument("--minutes", type=float, default=None, help="stop after so long")
    parser.add_argument("--topology", choices=[*TOPOLOGIES, RANDOM, EVERY], default=EVERY)
    parser.add_argument("--trace", action="store_true", help="print every step of the first schedule")


def main(argv: Sequence[str] | None = None) -> int:
    """The command line. Returns 0, 1 for a violation, 2 for a job that can't be simulated."""
    parser = argparse.ArgumentParser(prog=COMMAND, description=__doc__)
    add_seed_options(parser)
    parser.add_argument("--job", metavar="MODULE:NAME", help="a job of your own, in place of a topology")
    parser.add_argument("--params", type=json.loads, default={}, metavar="JSON", help="the run's params, for --job")
    args = parser.parse_args(argv)
    try:
        job = declared_job(args.job, params=args.params) if args.job else None
    except RecoveryError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    of_job = f" --job {args.job} --params {shlex.quote(json.dumps(args.params))}"
    return run_command(
        args,
        lambda seed: Schedule(seed, _settings(seed, args.topology, job)),
        COMMAND,
        lambda seed: of_job if job is not None else f" --topology {topology_of(seed, args.topology)}",
    )


def run_command(
    args: argparse.Namespace,
    schedule_of: Callable[[int], Schedule],
    command: str,
    options_of: Callable[[int], str],
) -> int:
    """Run the schedules that the options of `add_seed_options` ask for. Returns 0, or 1 for a violation.

    ``options_of``: the options with which ``command`` makes the schedule of a seed again.
    """
    count = args.schedules if args.schedules is not None else (None if args.minutes else 1000)
    until_s = time.monotonic() + args.minutes * 60 if args.minutes else None
    try:
        if args.trace:
            schedule = schedule_of(args.seed)
            print("\n".join([schedule.settings.text(), *schedule.run().trace]))
            return 0
        tally = run_all(_seeds(args.seed, count), schedule_of, until_s, print)
    except Violation as violation:
        seed = str(violation).partition(":")[0].removeprefix("seed ")
        again = f"{command} --seed {seed} --schedules 1{options_of(int(seed))}"
        print(f"VIOLATION, {violation}\nAgain: {again}", file=sys.stderr)
        return 1
    print(tally.text())
    return 0


def _seeds(first: int, count: int | None) -> Iterator[int]:
    seed = first
    while count is None or seed < first + count:
        yield seed
        seed += 1
