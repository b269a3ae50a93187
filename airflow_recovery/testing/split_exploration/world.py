"""The world around coordinator and gateways: what has been written for good, what is in flight, and who lives."""

from __future__ import annotations

from collections import Counter, OrderedDict
from dataclasses import dataclass, field
from enum import Enum
from functools import cache
from typing import Any, TypeAlias

from airflow_recovery.source.split import Split
from airflow_recovery.source.split_coordinator import SplitCoordinator
from airflow_recovery.source.split_events import Action, Event
from airflow_recovery.source.split_log import CoordinatorState, Message
from airflow_recovery.source.subtask_gateway import Ack, SubtaskGateway

Attempt: TypeAlias = tuple[int, int]
"""Subtask and attempt."""

Call: TypeAlias = tuple[int, int, int]
"""Subtask, attempt and number of a message that was sent."""


@cache
def split_of(unit: int, cut: int) -> Split:
    """The split that covers ``unit`` of the input. An enumerator whose keys are not stable cuts it anew each life."""
    return Split.of(f"{unit}", cut)


@cache
def unit_of(key: str, units: int, cuts: int) -> int:
    """What the split with this key covers."""
    return next(unit for unit in range(units) for cut in range(cuts) if split_of(unit, cut).key == key)


@dataclass
class Enumerator:
    """Tells of one unit after the other; ``cut`` is how this life of it cuts them."""

    units: int
    cut: int
    told: int = 0

    def snapshot_state(self) -> Any:
        """How far it has come."""
        return self.told

    def restore(self, state: Any) -> None:
        """Go on there."""
        self.told = state


@dataclass
class Process:
    """An attempt that runs, and what it was given to read. It asks for more whenever it has committed a part."""

    gateway: SubtaskGateway
    unread: list[tuple[str, ...]] = field(default_factory=list)


@dataclass
class World:
    """One state of everything. The first group is in a store, and outlives whatever dies."""

    claims: dict[Attempt, tuple[tuple[str, ...], ...]] = field(default_factory=dict)
    parts: dict[Attempt, list[tuple[str, ...]]] = field(default_factory=dict)
    outcomes: dict[Attempt, tuple[str, ...] | None] = field(default_factory=dict)
    """The splits of a finish; `None` for a fence."""
    resets: dict[int, int] = field(default_factory=dict)
    snapshot: CoordinatorState | None = None

    coordinator: SplitCoordinator | None = None
    lives: int = 0
    todo: list[Action] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    """What the coordinator has not heard of yet."""

    processes: dict[Attempt, Process] = field(default_factory=dict)
    sends: list[Message] = field(default_factory=list)
    acks: list[Ack] = field(default_factory=list)
    failed: list[Call] = field(default_factory=list)
    """Calls whose failure is not handled yet."""
    unsettled: dict[Attempt, set[int]] = field(default_factory=dict)
    """Numbers that were sent and have not arrived, by the world's own account."""

    faults: int = 0

    @property
    def enumerator(self) -> Enumerator | None:
        """The coordinator's."""
        found = self.coordinator._enumerator if self.coordinator is not None else None
        return found if isinstance(found, Enumerator) else None

    def newest(self, subtask: int) -> int:
        """Its highest attempt."""
        return max((n for each, n in self.claims if each == subtask), default=0)

    def current(self, subtask: int) -> Attempt | None:
        """The finish that counts."""
        mark = self.resets.get(subtask, 0)
        own = [(n, splits) for (each, n), splits in self.outcomes.items() if each == subtask and n > mark]
        found = [n for n, splits in own if splits is not None]
        return (subtask, max(found)) if found else None


_ATOMS = frozenset({int, str, bool, type(None), float, bytes, tuple, frozenset})


def copied(value: Any) -> Any:
    """A deep copy, of what changes: tuples and frozen dataclasses are shared."""
    kind = type(value)
    if kind in _ATOMS:
        return value
    if kind is dict:
        return {key: copied(each) for key, each in value.items()}
    if kind is list:
        return [copied(each) for each in value]
    if kind is set or kind is OrderedDict:
        return value.copy()
    if kind not in _IS_SHARED:
        parameters = getattr(kind, "__dataclass_params__", None)
        _IS_SHARED[kind] = isinstance(value, Enum) or (parameters is not None and parameters.frozen)
    if _IS_SHARED[kind]:
        return value
    copy = object.__new__(kind)
    vars(copy).update({name: each if type(each) in _ATOMS else copied(each) for name, each in vars(value).items()})
    return copy


_IS_SHARED: dict[type, bool] = {}


def digest(world: World) -> int:
    """Equal for equal states. What is in flight has no order."""
    found = []
    for name, value in vars(world).items():
        each = _frozen(value)
        found.append(frozenset(Counter(each).items()) if name in _UNORDERED else each)
    return hash(tuple(found))


_UNORDERED = frozenset({"sends", "acks", "failed"})


def _frozen(value: Any) -> Any:
    """A hashable form with one value for equal states, but for the order of what is ordered."""
    kind = type(value)
    if kind in _ATOMS:
        return value
    if kind is OrderedDict:
        return tuple(value)
    if kind is list:
        return tuple([each if type(each) in _ATOMS else _frozen(each) for each in value])
    if kind is dict:
        found = [(key, each if type(each) in _ATOMS else _frozen(each)) for key, each in value.items()]
        return tuple(sorted(found, key=_by_key) if len(found) > 1 else found)
    if kind is set:
        return frozenset(value)
    if kind is Split:
        return value.uri, value.etag
    if isinstance(value, Enum):
        return value.value
    return (kind.__name__, *[each if type(each) in _ATOMS else _frozen(each) for each in vars(value).values()])


def _by_key(item: tuple[Any, Any]) -> Any:
    return item[0]
