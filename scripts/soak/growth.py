"""Memory and open files of Airflow's components over time, and whether they grow."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median
from typing import Any, NamedTuple

import psutil  # type: ignore[import-untyped]

from airflow_recovery.testing.local_airflow.processes import component_of
from airflow_recovery.testing.local_airflow.task_processes import TITLE

SAMPLED = ("api-server", "scheduler", "triggerer", "worker")
EVERY_S = 10.0
WARM_UP_S = 180.0
"""What a process takes in its first minutes is no growth."""
SHORTEST_S = 1200.0
"""How long one process must have been looked at, after its warm-up, for a word about growth."""
MOST_GROWTH = 0.25
"""Of its level: what a series may have gained over its longest stretch, bit by bit."""


class Sample(NamedTuple):
    """One look at one process with its helpers (of a worker its pool), tasks left out. ``at``: seconds of the soak."""

    component: str
    pid: int
    at: float
    megabytes: float
    files: int


@dataclass(frozen=True)
class Growth:
    """``slope`` is a unit an hour; ``longest_s`` the longest stretch of one process after its warm-up.

    ``steady``: what that process has gained in each quarter of its stretch, times four. A step, as where a triggerer
    meets its first trigger, is none.
    """

    component: str
    what: str
    level: float
    slope: float
    longest_s: float
    steady: float

    @property
    def verdict(self) -> str:
        """``flat``, ``GROWS``, or that nobody can say."""
        if self.longest_s < SHORTEST_S:
            return "too short to say"
        return "GROWS" if self.steady > MOST_GROWTH * max(self.level, 1.0) else "flat"


def growths(samples: Iterable[Sample]) -> list[Growth]:
    """For each component memory and open files: the slope that all of its processes have in common.

    Each process has a level of its own (components are killed and started again); the slope is that of least squares
    over all of them, without their first minutes.
    """
    series: dict[tuple[str, int], list[Sample]] = {}
    for sample in samples:
        series.setdefault((sample.component, sample.pid), []).append(sample)
    found = []
    for component in sorted({component for component, _ in series}):
        warm = []
        for (name, _), of_one in series.items():
            begun = min(sample.at for sample in of_one)
            kept = [sample for sample in of_one if sample.at >= begun + WARM_UP_S]
            if name == component and len(kept) > 1:
                warm.append(kept)
        for what, values in (
            ("memory, MB", [[(sample.at, sample.megabytes) for sample in one] for one in warm]),
            ("open files", [[(sample.at, float(sample.files)) for sample in one] for one in warm]),
        ):
            longest = max(values, key=_seconds, default=())
            level = _mean([value for one in values for _, value in one])
            slope = 3600 * _slope(values)
            found.append(Growth(component, what, level, slope, _seconds(longest), _steady(longest)))
    return found


def _seconds(one: Sequence[tuple[float, float]]) -> float:
    return one[-1][0] - one[0][0] if one else 0.0


def _steady(one: Sequence[tuple[float, float]]) -> float:
    quarter = len(one) // 4
    if not quarter:
        return 0.0
    levels = [median(value for _, value in one[n * quarter : (n + 1) * quarter]) for n in range(4)]
    return 4 * min(later - earlier for earlier, later in pairwise(levels))


def _slope(several: Sequence[Sequence[tuple[float, float]]]) -> float:
    above = below = 0.0
    for one in several:
        middle_at, middle = _mean([at for at, _ in one]), _mean([value for _, value in one])
        above += sum((at - middle_at) * (value - middle) for at, value in one)
        below += sum((at - middle_at) ** 2 for at, _ in one)
    return above / below if below else 0.0


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0


@dataclass
class Sampler:
    """Takes samples of ``processes`` (those of a `LocalAirflow`) in a thread of its own."""

    processes: Mapping[str, Any]
    begun_s: float = field(default_factory=time.monotonic)
    samples: list[Sample] = field(default_factory=list)

    @contextmanager
    def at_work(self) -> Iterator[Sampler]:
        """Until the end of the block."""
        ended = threading.Event()

        def work() -> None:
            while not ended.wait(EVERY_S):
                self.look()

        thread = threading.Thread(target=work, name="sampler")
        thread.start()
        try:
            yield self
        finally:
            ended.set()
            thread.join()

    def look(self) -> None:
        """Take one sample of each component that runs."""
        for name, process in list(self.processes.items()):
            if component_of(name) in SAMPLED and process.poll() is None:
                with suppress(psutil.Error):
                    family = _without_tasks(psutil.Process(process.pid))
                    size = files = 0
                    for member in family:
                        with suppress(psutil.Error):
                            size += member.memory_full_info().pss
                            files += member.num_fds()
                    at = time.monotonic() - self.begun_s
                    self.samples.append(Sample(name, process.pid, at, size / 1e6, files))


def _without_tasks(main: Any) -> list[Any]:
    family, waiting = [], [main]
    while waiting:
        process = waiting.pop()
        with suppress(psutil.Error):
            if not " ".join(process.cmdline()).startswith(TITLE):
                family.append(process)
                waiting += process.children()
    return family
