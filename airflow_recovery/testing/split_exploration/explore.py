"""Breadth first over all worlds of a case: the first violation that is found is one of the shortest."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from airflow_recovery.errors import RecoveryError
from airflow_recovery.testing.split_exploration.case import Case
from airflow_recovery.testing.split_exploration.steps import Step, Steps, Violation
from airflow_recovery.testing.split_exploration.world import copied, digest


@dataclass(frozen=True)
class Exploration:
    """How many worlds there are, and how many of them are ends. ``violation`` and the way to it, if one was found."""

    case: Case
    worlds: int
    ends: int
    violation: str | None = None
    steps: tuple[Step, ...] = ()

    def text(self) -> str:
        """For people: the verdict, and the counterexample."""
        if self.violation is None:
            return f"{self.case.text()}: {self.worlds:,} worlds, {self.ends:,} ends, all good"
        told = [f"  {at:2}. {_told(each)}" for at, each in enumerate(self.steps, 1)]
        return "\n".join([f"{self.case.text()}: after {self.worlds:,} worlds", *told, f"  => {self.violation}"])


class TooManyWorlds(RecoveryError):
    """The case is larger than the limit that was given."""


def explore(case: Case, *, most_worlds: int | None = None) -> Exploration:
    """Every world that ``case`` can come to, or those up to the first violation. Raises `TooManyWorlds`."""
    steps = Steps(case)
    first = steps.first()
    parents: dict[int, tuple[int, Step] | None] = {digest(first): None}
    waiting = deque([(digest(first), first)])
    ends = 0

    def found(violation: Exception, key: int, *last: Step) -> Exploration:
        way = [*last]
        at = parents[key]
        while at is not None:
            way.append(at[1])
            at = parents[at[0]]
        said = str(violation) if isinstance(violation, Violation) else f"{type(violation).__name__}: {violation}"
        return Exploration(case, len(parents), ends, said, tuple(reversed(way)))

    while waiting:
        key, world = waiting.popleft()
        possible = steps.possible(world)
        if not possible:
            ends += 1
            try:
                steps.check_end(world)
            except Violation as violation:
                return found(violation, key)
        faulty = steps.faulty(world)
        for at, step in enumerate([*possible, *faulty]):
            after = copied(world)
            try:
                steps.take(after, step, is_fault=at >= len(possible))
            except (Violation, RecoveryError) as violation:
                return found(violation, key, step)
            reached = digest(after)
            if reached not in parents:
                parents[reached] = (key, step)
                waiting.append((reached, after))
                if most_worlds is not None and len(parents) > most_worlds:
                    raise TooManyWorlds(f"{case.text()}: more than {most_worlds:,} worlds")
    return Exploration(case, len(parents), ends)


def _told(step: Step) -> str:
    return " ".join([step[0].replace("_", " "), *map(str, step[1:])])
