"""The loop: the same run again and again, and each time a process is killed at another point, or at two of them."""

from __future__ import annotations

import json
import random
import shlex
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import count

from airflow_recovery.testing.crash_kit.course import Course, conduct
from airflow_recovery.testing.crash_kit.forked import forked
from airflow_recovery.testing.crash_kit.job_setup import Engine, JobSetup
from airflow_recovery.testing.crash_kit.points import CrashPoint, Harm, Passed
from airflow_recovery.testing.crash_kit.warmth import warm_up
from airflow_recovery.testing.simulation.settings import Violation

COMMAND = "python -m airflow_recovery.testing.crash_kit"


@dataclass
class Tally:
    """What a loop came to: runs, crashes that happened in them, and seconds."""

    runs: int = 0
    crashes: int = 0
    seconds: float = 0.0

    def text(self) -> str:
        """One line for people: how many runs and crashes there were, and how fast."""
        rate = self.runs / self.seconds if self.seconds else 0.0
        return (
            f"{self.runs} runs with {self.crashes} crashes without a violation in {self.seconds:.1f} s "
            f"({rate:.1f} a second)"
        )


class CrashLoop:
    """Crashes in the runs of one set-up. Every run must come to what the undisturbed run came to:

    - each invariant holds (`airflow_recovery.verify`), and the published rows are the same;
    - each region has finished as often as undisturbed: no finished region ran again;
    - no more drivers were started than undisturbed, but one for each crash of a try of that very region.
    """

    def __init__(self, setup: JobSetup, tally: Tally | None = None) -> None:
        warm_up()
        self._setup = setup
        self._numbers = count(1)
        self.tally = tally or Tally()

    @cached_property
    def undisturbed(self) -> Course:
        """The run in which no process is killed, against which all others are compared."""
        return self._conduct({})

    def points(self) -> list[Passed]:
        """Every point of the undisturbed run, in order."""
        return list(self.undisturbed.passed)

    def singles(self) -> Iterator[tuple[CrashPoint]]:
        """One crash at every point (fault 7)."""
        for point in self.points():
            yield (point.point,)

    def pairs(self, seed: int = 0) -> Iterator[tuple[CrashPoint, CrashPoint]]:
        """Two crashes: the second at every point that is passed after the first (fault 8).

        Of points between which nothing is changed, one: they leave the same behind (`Passed`). ``seed`` decides the
        order of the first ones.
        """
        firsts = distinct(self.points())
        random.Random(seed).shuffle(firsts)
        for first in firsts:
            course = self.crash(first)
            for second in distinct(_after(course.passed, first)):
                yield first, second

    def drawn_pairs(self, seed: int) -> Iterator[tuple[CrashPoint, CrashPoint]]:
        """Draw pairs of crash points by ``seed``, without an end."""
        rng = random.Random(seed)
        firsts = distinct(self.points())
        known: dict[CrashPoint, list[CrashPoint]] = {}
        while True:
            first = rng.choice(firsts)
            if first not in known:
                known[first] = distinct(_after(self.crash(first).passed, first))
            if known[first]:
                yield first, rng.choice(known[first])

    def crash(self, *points: CrashPoint, harm: Harm = Harm.KILL) -> Course:
        """One run with crashes at these points. Raises `Violation` naming them, and how to have them again."""
        undisturbed = self.undisturbed
        armed = dict.fromkeys(points, harm)
        course = self._conduct(armed)
        self._check(armed, course, undisturbed)
        return course

    def crash_all(
        self,
        crashes: Iterable[tuple[CrashPoint, ...]],
        *,
        harm: Harm = Harm.KILL,
        limit_s: float | None = None,
        tell: Callable[[str], None] = lambda line: None,
    ) -> None:
        """One run for each of ``crashes``, for ``limit_s`` seconds at most. Raises `Violation`."""
        started_s = time.monotonic()
        for points in crashes:
            self.crash(*points, harm=harm)
            if self.tally.runs % 100 == 0:
                tell(f"  {self.tally.text()}")
            if limit_s is not None and time.monotonic() >= started_s + limit_s:
                return

    def _conduct(self, armed: Mapping[CrashPoint, Harm]) -> Course:
        setup = self._setup.for_run(f"run-{next(self._numbers)}")
        started_s = time.monotonic()
        try:
            course = forked(lambda: conduct(setup, armed))
        except Violation as violation:
            raise Violation(f"{violation}\n{self._again(armed)}") from None
        self.tally.runs += 1
        self.tally.seconds += time.monotonic() - started_s
        shutil.rmtree(setup.folder, ignore_errors=True)
        return course

    def _check(self, armed: Mapping[CrashPoint, Harm], course: Course, undisturbed: Course) -> None:
        passed = {passing.point for passing in course.passed}
        hit = [point for point in armed if point in passed]
        self.tally.crashes += len(hit)
        wrong = []
        if not hit:
            wrong.append("expected the run to come to this point, found that it never did: is the job deterministic?")
        if course.rows != undisturbed.rows:
            wrong.append(f"I13: expected the published rows {undisturbed.rows}, found {course.rows}")
        for region, times in course.finished.items():
            if times != undisturbed.finished.get(region, 0):
                expected = undisturbed.finished.get(region, 0)
                wrong.append(f"I7: expected {region} to finish {expected} times, found {times}")
        for region, times in course.started.items():
            most = undisturbed.started.get(region, 0) + sum(harm.task == region for harm in hit)
            if times > most:
                wrong.append(f"waste: expected at most {most} drivers of {region}, found {times}")
        if wrong:
            what = "; ".join(wrong)
            raise Violation("\n  ".join([what, *course.events]) + f"\n{self._again(armed)}")

    def _again(self, armed: Mapping[CrashPoint, Harm]) -> str:
        """The command that has this run once more."""
        setup = self._setup
        words = [setup.reference, "--scenario", setup.scenario.name.lower()]
        if setup.engine is Engine.SPARK:
            words.append("--spark")
        if setup.params:
            words += ["--params", json.dumps(dict(setup.params))]
        for point in armed:
            words += ["--crash", point.text]
        if Harm.FREEZE in armed.values():
            words.append("--freeze")
        return f"Again: {COMMAND} {shlex.join(words)}"


def distinct(passed: Iterable[Passed]) -> list[CrashPoint]:
    """One point of each state: the last one, which is named after what comes next."""
    return list({passing.state: passing.point for passing in passed}.values())


def _after(passed: Iterable[Passed], first: CrashPoint) -> list[Passed]:
    """The points that a run has passed after its first crash."""
    passeds = list(passed)
    at = next(index for index, passing in enumerate(passeds) if passing.point == first)
    # A point in a driver is two, of which only one was struck.
    return [
        passed
        for passed in passeds[at + 1 :]
        if not (
            passed.point.victim is not first.victim
            and (passed.point.task, passed.point.try_number, passed.point.when, passed.point.step, passed.point.count)
            == (first.task, first.try_number, first.when, first.step, first.count)
        )
    ]
