"""Many histories of the pure model, one seed each: `PYTHONPATH=tests:. python -m simulation --pure N`."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from itertools import count

from airflow_recovery.model.committing import CommitKind, CommitMode
from airflow_recovery.testing.simulation.jobs import RANDOM, TOPOLOGIES, with_sinks
from airflow_recovery.testing.simulation.settings import Violation
from simulation.dag_job import FAILS, SKIPS, DagJob, drawn_decided_job, with_drawn_arguments
from simulation.histories import History
from simulation.history_decisions import TODAY, Known, Product

HISTORIES_A_JOB = 50
"""So many seeds in a row have the same job, whose decisions are then known for most states."""
MOST_ACTS = 5
REPORT_EVERY_S = 30.0


def drawn_job_of(seed: int) -> DagJob:
    """The job of the history with that seed: a named topology, or every second time one that is drawn."""
    number = seed // HISTORIES_A_JOB
    names = list(TOPOLOGIES)
    name = RANDOM if number % 2 else names[number // 2 % len(names)]
    rng = random.Random(f"job of histories {number}")
    job = with_drawn_arguments(drawn_decided_job(name, rng), rng)
    kinds = {name: (CommitKind.TOKEN, rng.choice(list(CommitMode))) for name in job.finals if rng.random() < 0.4}
    job = with_sinks(job, kinds) if rng.random() < 0.7 else job
    # Of those only their own tasks can see other code.
    return replace(job, unsteady=job.operators) if rng.random() < 0.5 else job


def play(seed: int, known: Known, acts: Iterable[Callable[[History], object]] | None = None) -> History:
    """The history with that seed, or of these ``acts``; then all is cleared. Raises `Violation` with its steps."""
    rng = random.Random(seed)
    history = History(known, rng)
    try:
        history.settle()
        for act in acts if acts is not None else (_act for _ in range(rng.randint(1, MOST_ACTS))):
            act(history)
            # Now and then something more happens before all tasks have ended.
            history.settle(rng.randint(0, 3)) if rng.random() < 0.2 else history.settle()
        history.clear_all()
        history.settle()
        history.check_end()
    except Violation as violation:
        told = "\n  ".join(history.told)
        raise Violation(f"seed {seed}: {violation}\n{_text(known.job)}\n  {told}") from None
    return history


@dataclass
class Found:
    """What a search came to. ``against``: the histories that break the rule, by seed."""

    histories: int
    against: dict[int, str]
    seconds: float

    def text(self) -> str:
        """One line for people."""
        rate = self.histories / self.seconds if self.seconds else 0.0
        found = f"{len(self.against)} against the rule" if self.against else "none against the rule"
        return f"{self.histories} histories, {found}, in {self.seconds:.1f} s ({rate:.0f} a second)"


def search(
    first: int,
    histories: int,
    product: Product = TODAY,
    *,
    most: int = 1,
    job_of_seed: Callable[[int], DagJob] = drawn_job_of,
    tell: Callable[[str], None] = lambda line: None,
) -> Found:
    """The histories of so many seeds from ``first`` on, until ``most`` break the rule."""
    against: dict[int, str] = {}
    start_s = time.monotonic()
    next_s = start_s + REPORT_EVERY_S
    known, seed = Known(job_of_seed(first), product), first
    for seed in range(first, first + histories):
        if seed % HISTORIES_A_JOB == 0:
            known = Known(job_of_seed(seed), product)
            now_s = time.monotonic()
            if now_s >= next_s:
                next_s = now_s + REPORT_EVERY_S
                tell(Found(seed - first, against, now_s - start_s).text())
        try:
            play(seed, known)
        except Violation as violation:
            against[seed] = str(violation)
            if len(against) == most:
                break
    return Found(seed - first + 1, against, time.monotonic() - start_s)


def _act(history: History) -> None:
    rng = history.rng
    kinds = _DECIDING if rng.random() < 0.5 else _OTHERS
    rng.choice(kinds)(history)


def _deploys(history: History) -> None:
    region = history.rng.choice(history.names)
    history.deploy(region, history.rng.choice(["", FAILS, FAILS, SKIPS]))
    _clears(history, region)


def _rolls_back(history: History) -> None:
    changed = [name for name in history.names if history.has_other_code(name)]
    if changed:
        region = history.rng.choice(changed)
        history.deploy(region, is_rollback=True)
        _clears(history, region)


def _finds_others(history: History) -> None:
    reading = sorted(history.job.reading)
    if reading:
        region = history.rng.choice(reading)
        listed = history.job.listing_of(region)
        new = next(name for number in count() if (name := f"new {number}") not in listed)
        history.relist(region, history.rng.choice([(), listed[1:], ("0", "1", "2"), (*listed, new)]))
        _clears(history, region)


def _decides_otherwise(history: History) -> None:
    if history.decides:
        branch = history.rng.choice(list(history.decides))
        below = history.known.job.branches[branch]
        choices = [frozenset({name}) for name in below] + [frozenset(below), frozenset[str]()]
        history.decides[branch] = history.rng.choice([each for each in choices if each != history.decides[branch]])
        history.told.append(f"{branch} follows {', '.join(sorted(history.decides[branch])) or 'none'} from now on")
        _clears(history, branch)


def _clears(history: History, task: str) -> None:
    """After something has changed about ``task``."""
    draw = history.rng.random()
    if draw < 0.6:
        history.clear_all()
    elif draw < 0.8:
        history.clear(task, below=True)
    elif draw < 0.9:
        history.clear(task)
    else:
        _clears_any(history)


def _clears_any(history: History) -> None:
    history.clear(history.rng.choice(list(history.states)), below=history.rng.random() < 0.5)


def _marks(history: History) -> None:
    # What a branch, a skip or a failure above it holds up is nobody's to call a success.
    failed = [name for name in history.names if history.states[name] == "failed"]
    if failed and history.rng.random() < 0.7:
        history.mark(history.rng.choice(failed), "success")
    else:
        history.mark(history.rng.choice(history.names), history.rng.choice(["failed", "skipped"]))
    if history.rng.random() < 0.5:
        _clears_any(history)


def _loses(history: History) -> None:
    region = history.rng.choice(history.names)
    history.lose(region)
    _clears(history, region)


def _sets_the_param(history: History) -> None:
    history.set_param(history.rng.choice([value for value in range(3) if value != history.in_run.param]))
    if history.rng.random() < 0.7:
        _clears_any(history)


def _is_triggered(history: History) -> None:
    history.again(by_timetable=not history.in_run.by_timetable)


def _forgets(history: History) -> None:
    names = history.names if history.rng.random() < 0.3 else [history.rng.choice(history.names)]
    newer_than = history.rng.choice([None, 0, 1, 2])
    for name in names:
        history.forget(name, newer_than=newer_than)
    if history.rng.random() < 0.5:
        history.deploy(names[0])
        history.clear_all()
    else:
        _clears_any(history)


def _meddles(history: History) -> None:
    sinks = [name for name in history.names if history.job.regions[name].commit is not None]
    if sinks:
        region = history.rng.choice(sinks)
        history.meddle(region, history.rng.choice(["empties", "overwrites", "thins out", "drops", "restores"]))
        if history.rng.random() < 0.3:
            history.lose(region)
        history.clear(region)


_DECIDING = (_deploys, _rolls_back, _finds_others, _decides_otherwise)
_OTHERS = (
    _clears_any,
    _marks,
    _marks,
    _loses,
    History.clear_all,
    History.again,
    _sets_the_param,
    _is_triggered,
    _forgets,
    _meddles,
    _meddles,
)


def _text(job: DagJob) -> str:
    regions = (
        f"{name}({', '.join(region.inputs)})"
        + (f" {job.rules[name]}" if name in job.rules else "")
        + (f" without {', '.join(job.optional[name])}?" if name in job.optional else "")
        + (" reads from outside" if name in job.reading else "")
        + (" by an operator" if name in job.operators else "")
        + (" other at each reading" if name in job.unsteady else "")
        + (" skips itself without files" if name in job.skipping else "")
        + (f" pulls {', '.join(job.pulls[name])}" if name in job.pulls else "")
        + (" with XComs that can't be stored" if name in job.unstored else "")
        + (" by date" if name in job.dated else "")
        + (" by param" if name in job.using else "")
        + (f" sink, {region.commit.mode.value}" if region.commit is not None else "")
        for name, region in job.regions.items()
    )
    branches = (f"{branch} -> {' | '.join(below)}" for branch, below in job.branches.items())
    return "; ".join([", ".join(regions), *branches])
