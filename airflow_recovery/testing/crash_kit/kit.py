"""A whole crash test of one job: every point by itself, zombies, and pairs of points."""

from __future__ import annotations

import random
import tempfile
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

from airflow_recovery.testing.crash_kit.job_setup import Engine, JobSetup, Scenario
from airflow_recovery.testing.crash_kit.loop import CrashLoop, Tally, distinct
from airflow_recovery.testing.crash_kit.points import Harm, Victim

EXAMPLE = "airflow_recovery.testing.crash_kit.example:diamond"

PAIRS = "two crashes"

T = TypeVar("T")


def crash_test(  # noqa: PLR0913 - options of a drill, each with its default
    job: str = EXAMPLE,
    *,
    engine: Engine = Engine.PLAIN,
    root: str | None = None,
    params: Mapping[str, Any] | None = None,
    scenarios: Sequence[Scenario] | None = None,
    singles: int | None = None,
    frozen: int | None = None,
    pairs: int | None = 20,
    seed: int = 0,
    pairs_s: float | None = None,
    tell: Callable[[str], None] = lambda line: None,
) -> Tally:
    """Kill real processes of ``job`` (``package.module:name``) at named points; nobody may be able to tell afterwards.

    In each scenario: one crash at each point (fault 7), one freeze at each point of a task that wakes when all is green
    (faults 11 and 14), and pairs of crashes (fault 8). ``singles``, ``frozen`` and ``pairs`` are how many of each,
    drawn by ``seed``; `None` is all of them. Pairs end after ``pairs_s`` seconds in any case. Sinks that commit do so
    to a target that stands for theirs.

    ``root`` is the URI below which the runs get a place, which is left there (default: a temporary folder).
    A store on S3 has its credentials and endpoint from the environment.

    `Engine.PLAIN` tests the job's topology and the store within a second a run; `Engine.SPARK` calls the job's own
    functions, which have to be deterministic, and takes some seconds a region. Processes are forked from this one: it
    should have no other threads at work.

    Raises `Violation`, whose message names the crash, and `RecoveryError` for a job that can't be run.
    """
    tally = Tally()
    with temporary_setup(job, engine, root, params or {}) as setup:
        for scenario in setup.scenarios if scenarios is None else scenarios:
            loop = CrashLoop(setup.for_scenario(scenario), tally)
            points = loop.points()
            tell(f"{scenario.value}: {len(points)} points, {len(distinct(points))} of them distinct")
            tasks = [(point,) for point in distinct(points) if point.victim is Victim.TASK]
            rounds = (
                ("one crash", _some(list(loop.singles()), singles, seed), Harm.KILL),
                ("one freeze", _some(tasks, frozen, seed), Harm.FREEZE),
                (PAIRS, loop.pairs(seed) if pairs is None else islice(loop.drawn_pairs(seed), pairs), Harm.KILL),
            )
            for what, crashes, harm in rounds:
                # The others end by themselves.
                limit_s = pairs_s if what == PAIRS else None
                loop.crash_all(crashes, harm=harm, limit_s=limit_s, tell=tell)
                tell(f"  {what}: {tally.text()}")
    return tally


def _some(all_of_them: list[T], number: int | None, seed: int) -> list[T]:
    """So many, drawn by ``seed``, in their order."""
    if number is None or number >= len(all_of_them):
        return all_of_them
    chosen = random.Random(seed).sample(range(len(all_of_them)), number)
    return [all_of_them[at] for at in sorted(chosen)]


@contextmanager
def temporary_setup(job: str, engine: Engine, root: str | None, params: Mapping[str, Any]) -> Iterator[JobSetup]:
    """A set-up with a temporary folder for its logs, and for all of it without a ``root``."""
    with tempfile.TemporaryDirectory(prefix="airflow-recovery-crashes-") as name:
        place = f"{(root or f'file://{name}').rstrip('/')}/crash-test-{uuid.uuid4().hex}"
        yield JobSetup(job, place, Path(name) / "logs", engine, params=dict(params))
