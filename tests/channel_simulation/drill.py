"""Many schedules: every fault at every step, at every pair of steps, and drawn ones from the command line."""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from channel_simulation.schedule import Report, simulate
from channel_simulation.settings import Fault, Settings, Violation


@dataclass
class Tally:
    """What a number of schedules came to."""

    schedules: int = 0
    steps: int = 0
    lost: int = 0
    lost_races: int = 0
    attempts: int = 0
    ended: Counter[str] = field(default_factory=Counter)

    def add(self, report: Report) -> None:
        """Count one more."""
        self.schedules += 1
        self.steps += report.steps
        self.lost += report.lost
        self.lost_races += report.lost_races
        self.attempts += sum(report.attempts.values())
        self.ended[report.ended] += 1

    def text(self) -> str:
        """One line."""
        ended = ", ".join(f"{count} {name}" for name, count in sorted(self.ended.items()))
        return (
            f"{self.schedules} schedules, {self.steps} steps, {self.attempts} attempts, {self.lost_races} lost races, "
            f"{self.lost} records lost and counted; {ended}"
        )


def every_single(settings: Settings, *, seed: int = 1, faults: Iterable[Fault] = Fault) -> Tally:
    """Each fault at each step of an undisturbed schedule. Raises `Violation`."""
    tally = Tally()
    steps = simulate(seed, settings).steps
    for fault in faults:
        for step in range(steps):
            tally.add(simulate(seed, replace(settings, faults={step: fault})))
    return tally


def every_pair(settings: Settings, *, seed: int = 1, stride: int = 1, faults: Sequence[Fault] = tuple(Fault)) -> Tally:
    """Pairs of faults: the second at each step after the first, of the schedule that the first has made.

    The pairs of faults take turns; ``stride`` leaves steps out. Raises `Violation`.
    """
    tally = Tally()
    turn = 0
    for first in range(0, simulate(seed, settings).steps, stride):
        length = simulate(seed, replace(settings, faults={first: faults[turn % len(faults)]})).steps
        for second in range(first + 1, length, stride):
            turn += 1
            fault, other_fault = faults[turn % len(faults)], faults[turn // len(faults) % len(faults)]
            tally.add(simulate(seed, replace(settings, faults={first: fault, second: other_fault})))
    return tally


def every_pair_of_records(settings: Settings, *, seed: int = 1, faults: Sequence[Fault] = tuple(Fault)) -> Tally:
    """Each pair of ``faults`` at each two records, of the schedule that the first fault has made. Raises `Violation`.

    A record is what others see: between two of them a process can do nothing that matters to anybody else.
    """
    tally = Tally()
    for fault in faults:
        for first in simulate(seed, settings).records:
            made = simulate(seed, replace(settings, faults={first: fault})).records
            for second in [record for record in made if record > first]:
                for other_fault in faults:
                    tally.add(simulate(seed, replace(settings, faults={first: fault, second: other_fault})))
    return tally


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line. Returns its exit code: 1 where a promise was broken."""
    parser = argparse.ArgumentParser(prog="python -m channel_simulation", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="the first seed (1)")
    parser.add_argument("--schedules", type=int, metavar="N", help="so many seeds (with no --minutes: 1000)")
    parser.add_argument("--minutes", type=float, metavar="M", help="as many as fit into this time")
    options = parser.parse_args(arguments)
    tally = Tally()
    seed = options.seed
    until = None if options.minutes is None else time.monotonic() + 60 * options.minutes
    most = options.schedules if options.schedules is not None else None if until is not None else 1000
    while (most is None or tally.schedules < most) and (until is None or time.monotonic() < until):
        try:
            tally.add(simulate(seed, Settings.drawn(seed)))
        except Violation as violation:
            print(f"{violation}\n\nagain: --seed {seed} --schedules 1")
            return 1
        seed += 1
    print(f"{tally.text()}; every promise held")
    return 0
