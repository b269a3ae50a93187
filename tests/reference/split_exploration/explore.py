"""All worlds of a case, breadth first: the first violation is one of the shortest. And one way through a large case."""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass

from airflow_recovery.errors import RecoveryError
from reference.split_exploration.case import Case
from reference.split_exploration.steps import Step, Steps, Violation
from reference.split_exploration.world import World

MOST_STEPS = 5_000
"""Of one way: it would have come to its end long before."""


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
        told = [f"  {at:3}. {': '.join(each)}" for at, each in enumerate(self.steps, 1)]
        return "\n".join([f"{self.case.text()}: after {self.worlds:,} worlds", *told, f"  => {self.violation}"])


class TooManyWorlds(RecoveryError):
    """The case is larger than the limit that was given."""


def explore(case: Case, *, most_worlds: int | None = None) -> Exploration:
    """Every world that ``case`` can come to, or those up to the first violation. Raises `TooManyWorlds`."""
    steps = Steps(case)
    first = steps.first()
    parents: dict[int, tuple[int, Step] | None] = {hash(first): None}
    waiting = deque([first])
    ends = 0
    while waiting:
        world = waiting.popleft()
        key = hash(world)
        is_end = True
        step: Step = ()
        try:
            for step, after in steps.next(world):
                is_end = False
                if hash(after) not in parents:
                    parents[hash(after)] = (key, step)
                    waiting.append(after)
            if is_end:
                steps.check_end(world)
                ends += 1
        except Violation as violation:
            return Exploration(case, len(parents), ends, str(violation), _way(parents, key))
        if most_worlds is not None and len(parents) > most_worlds:
            raise TooManyWorlds(f"{case.text()}: expected at most {most_worlds:,} worlds: explore a smaller case")
    return Exploration(case, len(parents), ends)


def walk(case: Case, seed: int) -> Exploration:
    """One way through ``case``, drawn from ``seed``; to its end, or to a violation."""
    steps, draw = Steps(case), random.Random(seed)
    world, actor = steps.first(), ""
    way: list[Step] = []
    for count in range(MOST_STEPS):
        try:
            possible = [*steps.next(world)]
            if not possible:
                steps.check_end(world)
                return Exploration(case, count, 1)
        except Violation as violation:
            return Exploration(case, count, 0, f"seed {seed}: {violation}", tuple(way))
        # Most of the time something goes on, so that changes and faults come at every moment of a run.
        going_on = [each for each in possible if not _is_change(world, each[1])]
        others = [each for each in possible if _is_change(world, each[1])]
        chosen = others if others and (not going_on or draw.random() < 0.07) else going_on
        # One process often goes on for some steps, while others stand still: what they know becomes old.
        same = [other for other in chosen if other[0][-1] == actor] if draw.random() < 0.6 else []
        step, world = draw.choice(same or chosen)
        actor = step[-1]
        way.append(step)
    return Exploration(case, MOST_STEPS, 0, f"seed {seed}: no end after {MOST_STEPS} steps", tuple(way))


def found_by_walks(case: Case, walks: int = 1_000, few: int = 5) -> Exploration | None:
    """The shortest of the first ``few`` violations that are found by walks; `None`: none is in so many."""
    explorations: list[Exploration] = []
    for seed in range(walks):
        each = walk(case, seed)
        if each.violation is not None:
            explorations.append(each)
        if len(explorations) == few:
            break
    return min(explorations, key=lambda exploration: len(exploration.steps), default=None)


def _is_change(world: World, after: World) -> bool:
    return (after.changes, after.faults) != (world.changes, world.faults)


def _way(parents: dict[int, tuple[int, Step] | None], key: int) -> tuple[Step, ...]:
    way: list[Step] = []
    at = parents[key]
    while at is not None:
        key, step = at
        way.append(step)
        at = parents[key]
    return tuple(reversed(way))
