"""A plan: what happens to every region and vertex of a run, why, and on what evidence. Values only.

`airflow_recovery.planning.plan_making` makes one. Reasons point at each other by region, so that a chain of ten
thousand regions is ten thousand short entries.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import Annotated, Any

from airflow_recovery.errors import UnknownRegion
from airflow_recovery.model.codec import ROW, Form, Id, Key, Unlike, flat, from_json, later, to_json
from airflow_recovery.model.inputs import InputRef
from airflow_recovery.planning.graph import did_you_mean
from airflow_recovery.planning.mode import BEGINS, PlannedMode, planned_class
from airflow_recovery.planning.reason import Evidence, Why
from airflow_recovery.planning.scenario import REBUILD, REQUEST, Request

PLAN_FORMAT = 1


class Action(str, Enum):
    """What happens to a region."""

    RUN = "run"
    """It runs again, whatever else turns out."""

    WAIT = "wait"
    """Undecided until its inputs are made again: it runs where their rows differ, and is kept where they do not."""

    REFUSED = "refused: budget ended"
    """It must run, and its next try only says that its restart budget has ended, until somebody clears its task."""

    BLOCKED = "blocked"
    """It must run, or waits, and is behind a refused one: it can't begin before that has run."""

    COMMIT = "commit"
    """It has finished, and is committed to its sink; no Spark is started for that."""

    KEEP = "keep"
    """Its result is valid, and no Spark is started."""

    RELEASE = "release"
    """Kept, and nobody in the run will ask for its data again: the release policy may let it go."""


NOT_KEPT = (Action.RUN, Action.WAIT, Action.REFUSED, Action.BLOCKED)
"""The actions that have a reason."""

CLEARED = (Action.RUN, Action.BLOCKED)
"""The actions of regions whose tasks are cleared when the plan is applied."""


@dataclass(frozen=True)
class SubtasksOf:
    """All subtasks of the region ``group``, named once where they are more than `airflow_recovery.model.groups.WIDE`.

    They are the regions of the plan whose `PlannedRegion.subtask` names the group.
    """

    group: Id


def _written(parts: Sequence[str | SubtasksOf]) -> list[Any]:
    return [part if isinstance(part, str) else to_json(part) for part in parts]


def _read(value: Any) -> tuple[str | SubtasksOf, ...]:
    if type(value) is not list:
        raise Unlike(f"expected a list of names of regions, found {value!r}")
    return tuple(part if type(part) is str else from_json(SubtasksOf, part) for part in value)


RegionNames = Annotated[tuple["str | SubtasksOf", ...], Form(_written, _read)]
"""Regions in topological order."""


@dataclass(frozen=True)
class PlannedRegion:
    """One region in a plan.

    ``attempt`` is the one that counts now (0: none). ``latest_attempt`` and ``reset_watermark`` are the highest attempt
    claimed and the highest one reset: what the plan rests on. ``why`` is `None` for what is kept; ``detail`` says more
    in words. ``cause`` names the region whose own reason lies behind this one. ``after`` are inputs that run, or wait,
    first; of a group, those of its subtasks that do. ``subtask`` is (region, index) for one subtask of a parallel
    region. ``restart``: how a region that runs begins or restarts, in words, where its mode has more than one way.
    """

    name: str
    vertices: tuple[str, ...]
    inputs: RegionNames
    action: Action
    attempt: int
    latest_attempt: int
    reset_watermark: int
    why: Why | None
    detail: str
    cause: str | None = None
    after: RegionNames = ()
    evidence: tuple[Annotated[Evidence, ROW], ...] = ()
    subtask: tuple[str, int] | None = None
    restart: Annotated[str | None, Key("stage")] = later(None)

    @property
    def told(self) -> str:
        """The reason in one line, without what lies behind it."""
        if self.why is None:
            return self.detail
        # That a channel starts over says how its ends do.
        is_told = self.restart in (None, BEGINS) or self.why is Why.CHANNEL_RESTARTED
        how = "" if is_told else f"; {self.restart}"
        return self.why.value + (f" ({self.detail})" if self.detail else "") + how


@dataclass(frozen=True)
class Plan:
    """What happens, region by region in topological order. ``resets`` are what applying it writes, if it can be.

    ``mode``: what a mode says besides.
    """

    job: str
    regions: tuple[PlannedRegion, ...]
    request: Annotated[Request, REQUEST] = REBUILD
    resets: tuple[Annotated[InputRef, ROW], ...] | None = ()
    mode: PlannedMode = flat(PlannedMode(), planned_class)

    def names(self, *actions: Action) -> tuple[str, ...]:
        """The regions with one of these actions, in topological order."""
        return tuple(region.name for region in self.regions if region.action in actions)

    @property
    def running(self) -> tuple[str, ...]:
        """The regions that run."""
        return self.names(Action.RUN)

    def vertices(self) -> Iterator[tuple[str, PlannedRegion]]:
        """Every execution vertex with what happens to it: a region is run or kept as a whole."""
        for region in self.regions:
            for vertex in region.vertices:
                yield vertex, region

    def of(self, region: str) -> PlannedRegion:
        """One region. Raises `UnknownRegion`."""
        if region not in self._by_name:
            raise UnknownRegion(
                f"{region!r} is not in this plan{did_you_mean(region, self._by_name)}.", code="region-not-in-plan"
            )
        return self._by_name[region]

    def chain(self, region: str) -> tuple[PlannedRegion, ...]:
        """From ``region`` down to the root cause, each with its own reason."""
        regions = [self.of(region)]
        seen = {region}
        while (cause := regions[-1].cause) is not None and cause not in seen:
            seen.add(cause)
            regions.append(self.of(cause))
        return tuple(regions)

    @cached_property
    def _by_name(self) -> dict[str, PlannedRegion]:
        return {region.name: region for region in self.regions}

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values; `from_json` is the inverse."""
        return {"format": PLAN_FORMAT, **to_json(self)}

    @classmethod
    def from_json(cls, value: Any) -> Plan:
        """Inverse of `to_json`. Raises `ValueError` on anything else."""
        if not isinstance(value, dict) or value.get("format") != PLAN_FORMAT:
            raise ValueError(f"expected a plan of format {PLAN_FORMAT}, found another document")
        return from_json(cls, value)
