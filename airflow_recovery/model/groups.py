"""Groups of regions: all subtasks of a region, and what they read, held once for all of them.

A job of 10,000 subtasks that each read 10,000 others has 20,000 regions and 100 million inputs, but two groups and one
edge between them. A plan is kept as its groups. A single `RegionPlan` is made when somebody asks for it.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import cached_property
from itertools import accumulate, chain
from json.encoder import encode_basestring_ascii
from typing import Annotated, Any, TypeVar, overload

from airflow_recovery.model.altered import altered
from airflow_recovery.model.codec import (
    ROW,
    Form,
    Id,
    Unlike,
    canonical_json,
    digest_of,
    later,
    list_from_json,
    needed,
    to_json,
)
from airflow_recovery.model.region_plan import RegionPlan, SubtaskPlan

T = TypeVar("T")

WIDE = 64
"""A group of more regions than that is written as a group. In records of narrower ones every region is written out."""


class DistributionPattern(str, Enum):
    """Which regions of a producing group a region of the consuming group reads (Flink's ``DistributionPattern``)."""

    POINTWISE = "POINTWISE"
    """The one with its own key: both groups have the same keys in the same order."""

    ALL_TO_ALL = "ALL_TO_ALL"
    """All of them. So too where the producer is a single region."""


@dataclass(frozen=True)
class GroupEdge:
    """One end of an edge between two groups: the group at the other end, and who is connected with whom."""

    group: Id
    pattern: DistributionPattern


def subtask_region(region: str, key: str | None) -> str:
    """The name of one subtask of a region in the journal: ``by_month[2013-01]``; the region's own without a key.

    Injective, since no region's name has a bracket.
    """
    return region if key is None else f"{region}[{key}]"


def region_fingerprint(
    vertex_fingerprints: Iterable[tuple[str, str]], results: Iterable[str], key: str | None = None
) -> str:
    """The fingerprint of a region, 32 hex digits: of its vertices, of the results it registers, and of its subtask."""
    content = {
        **({} if key is None else {"subtask": key}),
        "vertices": [list(pair) for pair in vertex_fingerprints],
        "results": list(results),
    }
    return digest_of(content)[:32]


@dataclass(frozen=True)
class RegionGroup:
    """The subtasks of a region in the order of their indexes, or a region without subtasks: a group of one."""

    template: RegionPlan
    """What is alike in all of them: vertices, results, reads, determinism, mode, commit, ... Its name is the group's.

    Of a region without subtasks this is the region itself. Else it has no inputs, no subtask and no fingerprint, and
    of ``vertex_fingerprints`` those that are alike in all subtasks."""
    inputs: tuple[Annotated[GroupEdge, ROW], ...]
    """The groups that it reads, each once, in the order in which a region has its inputs."""
    keys: tuple[str, ...] | None = needed(None)
    """The content keys of the subtasks, by index. `None`: a region without subtasks."""
    batch_size: int = later(1)
    """How many subtasks one task instance runs; the last batch may have fewer."""
    own_fingerprints: tuple[tuple[str, tuple[str, ...]], ...] = later(())
    """(vertex, fingerprint by index) of the vertices whose parameters name the subtask."""

    def __post_init__(self) -> None:
        keys = self.keys
        if keys is not None and (not keys or len(set(keys)) < len(keys) or self.batch_size < 1):
            raise ValueError(
                f"{self.template.name!r}: expected keys, each once, and batches of at least 1, found {len(keys)} keys, "
                f"{len(set(keys))} of them different, and batches of {self.batch_size}"
            )
        for vertex, fingerprints in self.own_fingerprints:
            if len(fingerprints) != len(self):
                raise ValueError(f"{vertex!r}: expected {len(self)} fingerprints, found {len(fingerprints)}")

    def __len__(self) -> int:
        return 1 if self.keys is None else len(self.keys)

    @property
    def name(self) -> str:
        """The region's name, without a key."""
        return self.template.name

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The names of its regions, by index."""
        if self.keys is None:
            return (self.template.name,)
        return tuple(subtask_region(self.template.name, key) for key in self.keys)

    def name_at(self, index: int) -> str:
        """The name of the region at ``index``, without those of the others."""
        return self.template.name if self.keys is None else subtask_region(self.template.name, self.keys[index])

    @cached_property
    def index_of(self) -> Mapping[str, int]:
        """The index of each of its regions, by the region's name."""
        return {name: index for index, name in enumerate(self.names)}

    @cached_property
    def keys_digest(self) -> str:
        """16 hex digits that stand for the names of its regions in their order."""
        return digest_of([self.template.name, self.keys])[:16]

    @property
    def is_wide(self) -> bool:
        """Whether records name it as a group."""
        return len(self) > WIDE

    def vertex_fingerprints(self, index: int) -> tuple[tuple[str, str], ...]:
        """(vertex, fingerprint) of the region at ``index``, in the order of its vertices."""
        if not self.own_fingerprints:
            return self.template.vertex_fingerprints
        known = dict(self.template.vertex_fingerprints)
        known |= {vertex: fingerprints[index] for vertex, fingerprints in self.own_fingerprints}
        return tuple((vertex, known[vertex]) for vertex in self.template.vertices if vertex in known)

    def fingerprint(self, index: int) -> str | None:
        """The fingerprint of the region at ``index``, computed from the group's parts."""
        if self.keys is None:
            return self.template.fingerprint
        if self.own_fingerprints:
            return region_fingerprint(self.vertex_fingerprints(index), self.template.results, self.keys[index])
        hashed, rest = self._fingerprint_parts
        hasher = hashed.copy()
        hasher.update(f"{encode_basestring_ascii(self.keys[index])}{rest}".encode())
        return hasher.hexdigest()[:32]

    @cached_property
    def _fingerprint_parts(self) -> tuple[hashlib._Hash, str]:
        """What `region_fingerprint` digests before the key, hashed, and what comes after it: alike in all subtasks."""
        results = canonical_json({"results": list(self.template.results)})
        vertices = canonical_json({"vertices": [list(pair) for pair in self.template.vertex_fingerprints]})
        return hashlib.sha256(f'{results[:-1]},"subtask":'.encode()), f",{vertices[1:]}"

    def subtask(self, index: int) -> tuple[str, int] | None:
        """Of which region the one at ``index`` is a subtask, and which; `None` for a region without subtasks."""
        if self.keys is not None:
            return self.template.name, index
        return None if self.template.subtask is None else (self.template.subtask.of, self.template.subtask.index)

    def map_index(self, index: int) -> int:
        """The map index in Airflow of the task of the region at ``index``; -1 where the task is not mapped."""
        if self.keys is not None:
            return index // self.batch_size
        return -1 if self.template.subtask is None else self.template.subtask.map_index

    def region(self, index: int, inputs: Sequence[str]) -> RegionPlan:
        """The region at ``index``, which reads the regions ``inputs``."""
        if self.keys is None:
            return self.template if self.template.inputs == inputs else replace(self.template, inputs=inputs)
        batch = index // self.batch_size if self.batch_size > 1 else None
        return altered(
            self.template,
            name=self.name_at(index),
            inputs=inputs,
            fingerprint=self.fingerprint(index),
            vertex_fingerprints=self.vertex_fingerprints(index),
            subtask=SubtaskPlan(self.template.name, index, self.keys[index], batch),
        )


class _Made(Sequence[T]):
    """An immutable sequence whose items are made when they are asked for. Equal to any sequence of equal items."""

    def __init__(self, length: int, make: Callable[[int], T]) -> None:
        self._length = length
        self._make = make

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, at: int) -> T: ...
    @overload
    def __getitem__(self, at: slice) -> tuple[T, ...]: ...
    def __getitem__(self, at: int | slice) -> T | tuple[T, ...]:
        if isinstance(at, slice):
            return tuple(map(self._make, range(*at.indices(self._length))))
        if not -self._length <= at < self._length:
            raise IndexError(at)
        return self._make(at % self._length)

    def __iter__(self) -> Iterator[T]:
        return map(self._make, range(self._length))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence) or isinstance(other, str):
            return NotImplemented
        return len(self) == len(other) and all(mine == its for mine, its in zip(self, other, strict=True))

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return f"<{self._length} items, the first {self[0]!r}>" if self._length else "()"


class MadeByName(Mapping[str, T]):
    """A mapping by the ``names`` of regions whose values are made when they are asked for."""

    def __init__(self, names: Collection[str], make: Callable[[str], T]) -> None:
        self._names = names
        self._make = make

    def __getitem__(self, name: str) -> T:
        if name not in self._names:
            raise KeyError(name)
        return self._make(name)

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


class _Names(Collection[str]):
    """The names of the regions of some groups, in their order. One is looked up without the others."""

    def __init__(self, regions: GroupedRegions) -> None:
        self._regions = regions

    def __contains__(self, name: object) -> bool:
        try:
            self._regions.place(str(name))
        except KeyError:
            return False
        return True

    def __iter__(self) -> Iterator[str]:
        return chain.from_iterable(group.names for group in self._regions.groups)

    def __len__(self) -> int:
        return len(self._regions)


class GroupedRegions(_Made[RegionPlan]):
    """The regions of some groups, group by group, as a plan has them. ``groups`` are in topological order.

    A region is made when it is first asked for, and kept. Raises `ValueError` for groups that are no plan: one stands
    twice, reads a group that does not stand before it, or is read pointwise by a group with other keys.
    """

    def __init__(self, groups: Iterable[RegionGroup]) -> None:
        self.groups = tuple(groups)
        self.by_group: dict[str, RegionGroup] = {}
        for group in self.groups:
            _check_group(group, self.by_group)
            self.by_group[group.name] = group
        self._ends = list(accumulate(map(len, self.groups)))
        self._regions: dict[str, RegionPlan] = {}
        self._inputs: dict[str, tuple[str, ...]] = {}
        super().__init__(self._ends[-1] if self._ends else 0, self._region)

    @classmethod
    def of(cls, regions: Sequence[RegionPlan]) -> GroupedRegions:
        """``regions``, each as a group of one where it is no grouped plan's."""
        if isinstance(regions, cls):
            return regions
        pattern = DistributionPattern.ALL_TO_ALL
        return cls(
            RegionGroup(region, tuple(GroupEdge(producer, pattern) for producer in region.inputs)) for region in regions
        )

    @cached_property
    def position(self) -> Mapping[str, int]:
        """Where each region stands, by its name."""
        return {name: at for at, name in enumerate(_Names(self))}

    @cached_property
    def by_name(self) -> Mapping[str, RegionPlan]:
        """The regions by name."""
        return MadeByName(_Names(self), lambda name: self._made(*self.place(name)))

    @cached_property
    def readers(self) -> Mapping[str, Sequence[str]]:
        """The names of the regions that read something of each region, in topological order."""
        return MadeByName(_Names(self), self._readers_of)

    @cached_property
    def reading(self) -> Mapping[str, Sequence[tuple[RegionGroup, DistributionPattern]]]:
        """The groups that read something of each group, in topological order, and by which pattern."""
        readers: dict[str, list[tuple[RegionGroup, DistributionPattern]]] = {name: [] for name in self.by_group}
        for group in self.groups:
            for edge in group.inputs:
                readers[edge.group].append((group, edge.pattern))
        return readers

    @cached_property
    def subtasks(self) -> Mapping[str, Sequence[RegionPlan]]:
        """The regions of each group of subtasks, by the group's name."""
        return {group.name: self._members(group) for group in self.groups if group.keys is not None}

    def group_of(self, region: str) -> RegionGroup:
        """The group that has the region of that name. Raises `KeyError`."""
        return self.place(region)[0]

    def place(self, region: str) -> tuple[RegionGroup, int]:
        """The group that has the region of that name, and the region's index in it. Raises `KeyError`."""
        group = self.by_group.get(region)
        if group is not None and group.keys is None:
            return group, 0
        # A region's name has no bracket, a subtask's has its key in brackets behind it (`subtask_region`).
        group = self.by_group[region.partition("[")[0]]
        return group, group.index_of[region]

    def _members(self, group: RegionGroup) -> Sequence[RegionPlan]:
        start = self.position[group.names[0]] if group.names else 0
        return _Made(len(group), lambda index: self[start + index])

    def __iter__(self) -> Iterator[RegionPlan]:
        return (self._made(group, index) for group in self.groups for index in range(len(group)))

    def _region(self, at: int) -> RegionPlan:
        number = bisect_right(self._ends, at)
        group = self.groups[number]
        return self._made(group, at - (self._ends[number] - len(group)))

    def _made(self, group: RegionGroup, index: int) -> RegionPlan:
        name = group.name_at(index)
        region = self._regions.get(name)
        if region is None:
            edges = [(self.by_group[edge.group], edge.pattern) for edge in group.inputs]
            region = group.region(index, self._connected(group, index, edges, self._inputs))
            self._regions[name] = region
        return region

    @cached_property
    def _all_readers(self) -> dict[str, tuple[str, ...]]:
        return {}

    def _readers_of(self, region: str) -> Sequence[str]:
        group, index = self.place(region)
        return self._connected(group, index, self.reading[group.name], self._all_readers)

    def _connected(
        self,
        group: RegionGroup,
        index: int,
        edges: Sequence[tuple[RegionGroup, DistributionPattern]],
        shared: dict[str, tuple[str, ...]],
    ) -> Sequence[str]:
        """The names at the other ends of ``edges``. Where all regions of ``group`` have the same, they share them."""
        ends = [
            other.names if pattern is DistributionPattern.ALL_TO_ALL else (other.name_at(index),)
            for other, pattern in edges
        ]
        if len(ends) < 2:
            return ends[0] if ends else ()
        if all(pattern is DistributionPattern.ALL_TO_ALL for _, pattern in edges):
            if group.name not in shared:
                shared[group.name] = tuple(chain.from_iterable(ends))
            return shared[group.name]
        return tuple(chain.from_iterable(ends)) if sum(map(len, ends)) <= WIDE else _chained(ends)


def are_written_as_groups(regions: Sequence[RegionPlan]) -> bool:
    """Whether a plan of these regions is written group by group: where one of the groups is wide."""
    return isinstance(regions, GroupedRegions) and any(group.is_wide for group in regions.groups)


def _written(regions: Sequence[RegionPlan]) -> list[Any]:
    if isinstance(regions, GroupedRegions) and are_written_as_groups(regions):
        return list(map(to_json, regions.groups))
    return list(map(to_json, regions))


def _read(value: Any) -> Sequence[RegionPlan]:
    is_grouped = type(value) is list and any(type(item) is dict and "template" in item for item in value)
    items = list_from_json(value, lambda item: RegionGroup if is_grouped else RegionPlan)
    try:
        return GroupedRegions(items) if is_grouped else items
    except ValueError as error:
        raise Unlike(str(error)) from error


Regions = Annotated[Sequence[RegionPlan], Form(_written, _read)]
"""The regions of a plan: a tuple where each was written out, else `GroupedRegions`."""


def _chained(parts: Sequence[Sequence[str]]) -> Sequence[str]:
    """``parts`` one after the other, without a copy: thousands of regions may have the same long part."""
    ends = list(accumulate(map(len, parts)))

    def name(at: int) -> str:
        number = bisect_right(ends, at)
        return parts[number][at - (ends[number] - len(parts[number]))]

    return _Made(ends[-1], name)


def _check_group(group: RegionGroup, before: Mapping[str, RegionGroup]) -> None:
    if group.name in before:
        raise ValueError(f"expected groups in topological order, each once, found {group.name!r} a second time")
    for edge in group.inputs:
        producer = before.get(edge.group)
        if producer is None:
            raise ValueError(
                f"expected groups in topological order, found {group.name!r}, which reads {edge.group!r} before it"
            )
        if edge.pattern is DistributionPattern.POINTWISE and producer.keys != group.keys:
            raise ValueError(f"expected equal keys of {group.name!r} and {edge.group!r}, which it reads pointwise")
