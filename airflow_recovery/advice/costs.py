"""What a set of cuts costs and saves, in expected seconds: a closed form, region by region (docs/advise.md#model)."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from airflow_recovery.planning.pipelined_regions import region_numbers

_MOST_FAILURES = 600.0
"""e to the power of more is no number. No pipeline ends that is expected to fail so often in one try."""


@dataclass(frozen=True)
class Step:
    """A vertex. ``seconds``: its own work in one run, all subtasks together, without writing or reading results.

    ``bytes``: of its result. ``failures_per_s``: in a second of its work. ``losses``: how often in a run its result is
    found gone, if it is written. ``is_cut``: it is written now. ``is_fixed``: that can't be changed. A sink's result is
    written in any case.
    """

    name: str
    inputs: tuple[str, ...]
    seconds: float
    bytes: int = 0
    failures_per_s: float = 0.0
    losses: float = 0.0
    is_sink: bool = False
    is_cut: bool = True
    is_fixed: bool = False
    subtasks: int = 1


@dataclass(frozen=True)
class Prices:
    """``region_s``: what a region costs beyond its work (a task, an application). ``bytes_per_s``: to write or read."""

    region_s: float = 0.0
    bytes_per_s: float = 1e8


@dataclass(frozen=True)
class Expected:
    """Expected seconds of a run, summed over its regions: ``run_s`` if nothing fails, and ``recovery_s`` on top."""

    run_s: float
    recovery_s: float

    @property
    def total_s(self) -> float:
        """Both."""
        return self.run_s + self.recovery_s


@dataclass(frozen=True)
class Stretch:
    """Work that begins again from its begin after each failure in it.

    ``expected_s``: until it is done. ``tries``: how often it is begun until then. Of one vertex that is Daly's
    (e^(λt) - 1) / λ; of several, the failures of each vertex come at its own rate.
    """

    expected_s: float
    tries: float = 1.0

    @classmethod
    def of(cls, seconds: float, failures_per_s: float) -> Stretch:
        """The work of one vertex."""
        failures = min(seconds * failures_per_s, _MOST_FAILURES)
        if failures < 1e-12:
            return cls(seconds)
        return cls(math.expm1(failures) / failures_per_s, math.exp(failures))

    def then(self, other: Stretch) -> Stretch:
        """This, then ``other``: a failure in ``other`` begins again here."""
        return Stretch(self.expected_s * other.tries + other.expected_s, self.tries * other.tries)


class Pipeline:
    """Steps in topological order, with what they cost.

    ``steps`` may come in any order. Raises `ValueError` on a cycle.
    """

    def __init__(self, steps: Iterable[Step], prices: Prices) -> None:
        self.by_name = {step.name: step for step in steps}
        self.prices = prices
        self.readers: dict[str, list[str]] = {name: [] for name in self.by_name}
        for step in self.by_name.values():
            for name in step.inputs:
                self.readers[name].append(step.name)
        self.steps: Sequence[Step] = [self.by_name[name] for name in self._topological()]

    @cached_property
    def free(self) -> tuple[str, ...]:
        """The steps whose result may be cut or glued: somebody reads it, and nothing forbids it."""
        return tuple(step.name for step in self.steps if self.readers[step.name] and not step.is_fixed)

    @cached_property
    def fixed(self) -> frozenset[str]:
        """The steps whose result is cut, whatever anybody wants."""
        return frozenset(name for name, step in self.by_name.items() if step.is_fixed and step.is_cut)

    @cached_property
    def as_it_is(self) -> frozenset[str]:
        """The cuts of now."""
        return frozenset(name for name in self.free if self.by_name[name].is_cut) | self.fixed

    def io_s(self, step: Step) -> float:
        """Seconds to write its result, or to read it once."""
        return step.bytes / self.prices.bytes_per_s

    def regions(self, cuts: Collection[str]) -> list[list[Step]]:
        """Which steps are one unit of restart, by the rule that plans regions (`planning.pipelined_regions`)."""
        at = {step.name: number for number, step in enumerate(self.steps)}
        glued: list[tuple[int, int]] = []
        loose: list[tuple[int, int]] = []
        for step in self.steps:
            for name in step.inputs:
                (loose if name in cuts else glued).append((at[name], at[step.name]))
        numbers = region_numbers(len(self.steps), glued, loose)
        regions: list[list[Step]] = [[] for _ in range(max(numbers, default=-1) + 1)]
        for step, number in zip(self.steps, numbers, strict=True):
            regions[number].append(step)
        return regions

    def expected(self, cuts: Collection[str]) -> Expected:
        """What a run with these cuts takes."""
        run_s = total_s = 0.0
        for region in self.regions(cuts):
            of_run, in_all = self.region_expected(region)
            run_s, total_s = run_s + of_run, total_s + in_all
        return Expected(run_s, max(0.0, total_s - run_s))

    def region_expected(self, region: Sequence[Step]) -> tuple[float, float]:
        """Seconds of these steps as one region: if nothing fails, and expected."""
        names = {step.name for step in region}
        body, run_s, losses = Stretch(0.0), 0.0, 0.0
        for step in region:
            is_read_elsewhere = any(reader not in names for reader in self.readers[step.name])
            reads_s = sum(self.io_s(self.by_name[name]) for name in step.inputs if name not in names)
            writes_s = self.io_s(step) if is_read_elsewhere or step.is_sink else 0.0
            seconds = step.seconds + reads_s + writes_s
            run_s += seconds
            losses += step.losses if is_read_elsewhere else 0.0
            body = body.then(self.stretch(step, seconds))
        subtasks = region[0].subtasks
        return run_s + subtasks * self.prices.region_s, self.region_s(body, losses, subtasks)

    def stretch(self, step: Step, seconds: float) -> Stretch:
        """The work of one of its subtasks, when all of them take ``seconds``."""
        return Stretch.of(seconds / step.subtasks, step.failures_per_s)

    def region_s(self, body: Stretch, losses: float, subtasks: int) -> float:
        """Expected seconds of a region with this work; it runs once more for each loss of a result of it."""
        return subtasks * Stretch(self.prices.region_s).then(body).expected_s * (1 + losses)

    def _topological(self) -> list[str]:
        waits = {name: len(step.inputs) for name, step in self.by_name.items()}
        order = [name for name, inputs in waits.items() if not inputs]
        for name in order:  # grows meanwhile
            for reader in self.readers[name]:
                waits[reader] -= 1
                if not waits[reader]:
                    order.append(reader)
        if len(order) < len(waits):
            raise ValueError(f"expected a graph without a cycle, found one among {sorted(waits.keys() - set(order))}")
        return order
