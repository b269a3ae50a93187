"""What an attempt reads of other regions: single regions, and whole groups of them by one value each.

A claim of a subtask that reads 10,000 others names their group, a digest of the group's keys, the attempt of most of
them, and those that are read at another one. Which regions these are, only a plan with that group can tell.
"""

from __future__ import annotations

import hashlib
import json
import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby, repeat
from typing import Annotated, Any, overload

from airflow_recovery.errors import InputsUnknown
from airflow_recovery.model.codec import Form, Id, Key, Unlike, later, list_from_json, to_json
from airflow_recovery.model.groups import WIDE, RegionGroup

FindGroup = Callable[[str, str], "RegionGroup | None"]
"""The group of that name whose keys have that digest (`RegionGroup.keys_digest`); `None` where no plan has it."""


@dataclass(frozen=True)
class InputRef:
    """Attempt ``attempt`` of region ``region`` is what an attempt reads.

    ``digests``: (result, digest) for each result read whose rows were digested when they were written. Of a region that
    is read as one of a group there are none: the group has them (`InputGroupRef.digests`). ``token``: the writer of the
    finish that is read; empty where none is known. An attempt with this number and another writer is another one: a
    journal that has lost a part gives numbers a second time.
    """

    region: Id
    attempt: int
    digests: tuple[tuple[str, str], ...] = later(())
    token: str = later("", compare=False)


def _others_written(others: Sequence[tuple[int, int]]) -> Any:
    """A list of [index, attempt]; of many a text of runs, at most one character a region, after what its letters mean.

    Of more than 52 different attempts there is no such text, and the list stays.
    """
    attempts = sorted({attempt for _, attempt in others})
    if len(others) <= WIDE or len(attempts) > len(_LETTERS):
        return [list(pair) for pair in others]
    meaning = ""
    if attempts[0] < 1 or attempts[-1] > len(_LETTERS):
        meaning = f"{','.join(map(str, attempts))}:"
    else:
        attempts = list(range(1, len(_LETTERS) + 1))
    letters = dict(zip(attempts, _LETTERS, strict=False))
    runs, end = [], 0
    for _, same in groupby(enumerate(others), lambda item: (item[1][1], item[1][0] - item[0])):
        run = [pair for _, pair in same]
        runs += [(".", run[0][0] - end), (letters[run[0][1]], len(run))]
        end = run[-1][0] + 1
    return meaning + "".join(f"{letter}{'' if length == 1 else length}" for letter, length in runs if length)


def _others_read(value: Any) -> tuple[tuple[int, int], ...]:
    if type(value) is list and all(
        type(pair) is list and list(map(type, pair)) == [int, int] and min(pair) >= 0 for pair in value
    ):
        return tuple((index, attempt) for index, attempt in value)
    match = _RUNS.fullmatch(value) if type(value) is str else None
    if match is None:
        raise Unlike(f"expected pairs of index and attempt, or runs such as '.120b3', found {str(value)[:80]!r}")
    attempts = list(map(int, match["attempts"].split(","))) if match["attempts"] else range(1, len(_LETTERS) + 1)
    others: list[tuple[int, int]] = []
    at = 0
    for letter, length in _RUN.findall(match["runs"]):
        end = at + int(length or 1)
        if letter != ".":
            if _LETTERS.index(letter) >= len(attempts):
                raise Unlike(f"expected letters that stand for {len(attempts)} attempts, found {letter!r}")
            others += zip(range(at, end), repeat(attempts[_LETTERS.index(letter)]), strict=False)
        at = end
    return tuple(others)


_LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
"""Stand for the attempts from 1 on, or for those that are named before the runs."""
_RUN = re.compile(r"([.a-zA-Z])([1-9][0-9]{0,5})?")
_RUNS = re.compile(rf"(?:(?P<attempts>[0-9]{{1,9}}(?:,[0-9]{{1,9}})*):)?(?P<runs>(?:{_RUN.pattern})+)")


@dataclass(frozen=True)
class GroupAttempts:
    """An attempt of each region of a group, by index: ``attempt``, but for ``others``, (index, attempt) by index."""

    count: int
    attempt: int
    others: Annotated[tuple[tuple[int, int], ...], Key("except"), Form(_others_written, _others_read)] = later(())

    def __post_init__(self) -> None:
        indexes = [index for index, _ in self.others]
        if indexes != sorted(set(indexes)) or (indexes and indexes[-1] >= self.count):
            raise ValueError(f"expected indexes below {self.count} in their order, each once, found {indexes[:20]}")

    @classmethod
    def of(cls, attempts: Sequence[int]) -> GroupAttempts:
        """As few exceptions as there can be. 0 may stand for a region that has no attempt."""
        most = Counter(attempts).most_common(1)[0][0] if attempts else 0
        return cls(len(attempts), most, tuple((at, number) for at, number in enumerate(attempts) if number != most))

    def __getitem__(self, index: int) -> int:
        at = bisect_left(self.others, (index, 0))
        return self.others[at][1] if at < len(self.others) and self.others[at][0] == index else self.attempt

    def __iter__(self) -> Iterator[int]:
        others = dict(self.others)
        return (others.get(index, self.attempt) for index in range(self.count))

    def differences(self, other: GroupAttempts) -> list[int]:
        """The indexes at which another one of the same group has another attempt. As cheap as there are exceptions."""
        if self.attempt != other.attempt:
            return [index for index, pair in enumerate(zip(self, other, strict=True)) if pair[0] != pair[1]]
        if self.others == other.others:
            return []
        return sorted({index for index, _ in set(self.others) ^ set(other.others)})


@dataclass(frozen=True)
class InputGroupRef:
    """All regions of the group ``group`` are read, each at its attempt in ``attempts``.

    ``keys`` is the group's `RegionGroup.keys_digest` when this was written. ``digests``: (result, `combined_digest` of
    all regions) for each result read that was digested in all of them. ``tokens``: the `combined_digest` of the tokens
    of all regions (`InputRef.token`); empty where one is not known.
    """

    group: Id
    keys: str
    attempts: GroupAttempts
    digests: tuple[tuple[str, str], ...] = later(())
    tokens: str = later("", compare=False)


def combined_digest(digests: Iterable[tuple[str, str]]) -> str:
    """One digest, 64 hex digits, of (region, digest of its rows, or token) of all regions of a group, in any order.

    A sum modulo 2**256 of a hash of each pair, so that one region's can be exchanged without the others'.
    """
    total = sum(int(hashlib.sha256(json.dumps(pair).encode()).hexdigest(), 16) for pair in digests)
    return f"{total % (1 << 256):064x}"


class Inputs(Sequence[InputRef]):
    """Input references of which some stand for whole groups. Immutable; equal to any sequence of equal references.

    ``known``: groups as plans have them, by name. Where a group that is named here is missing, or has other keys, its
    regions are not known: then `is_known` is False, and whoever asks for single references gets `InputsUnknown`, never
    fewer of them. A record whose references are all single has a tuple of `InputRef` in place of this.
    """

    def __init__(
        self, parts: Iterable[InputRef | InputGroupRef], known: Mapping[str, RegionGroup] | None = None
    ) -> None:
        self.parts = tuple(parts)
        self._known = known or {}

    @classmethod
    def of(cls, refs: Sequence[InputRef]) -> Inputs:
        """``refs`` with the answers that this class gives; the same object where it is one."""
        return refs if isinstance(refs, cls) else cls(refs)

    def with_groups(self, find: FindGroup) -> Inputs:
        """The same with the groups that ``find`` has."""
        groups = {ref.group: find(ref.group, ref.keys) for ref in self.groups.values()}
        return Inputs(self.parts, {name: group for name, group in groups.items() if group is not None})

    @cached_property
    def groups(self) -> Mapping[str, InputGroupRef]:
        """The references to groups, by the group's name."""
        return {part.group: part for part in self.parts if isinstance(part, InputGroupRef)}

    @cached_property
    def singles(self) -> Mapping[str, InputRef]:
        """The references to single regions, by the region's name."""
        return {part.region: part for part in self.parts if isinstance(part, InputRef)}

    @property
    def is_known(self) -> bool:
        """Whether the single references can be told."""
        return all(self._find(ref) is not None for ref in self.groups.values())

    def attempt_of(self, region: str) -> int | None:
        """The attempt of ``region`` that is read; `None` where it is not read. Raises `InputsUnknown`."""
        single = self.singles.get(region)
        if single is not None:
            return single.attempt
        for ref in self.groups.values():
            index = self.group(ref).index_of.get(region)
            if index is not None:
                return ref.attempts[index]
        return None

    def unseen(self, seen: set[InputGroupRef]) -> Iterator[InputRef]:
        """The references but those to groups in ``seen``, which takes up the others: readers of a group name it alike.

        Raises `InputsUnknown`.
        """
        new = Inputs([part for part in self.parts if part not in seen], self._known)
        seen |= set(new.groups.values())
        return iter(new)

    def texts(self) -> tuple[str, ...]:
        """For people: what is read, ``region@attempt``, and a group in a few words."""
        return tuple(
            f"{part.region}@{part.attempt}" if isinstance(part, InputRef) else _text(part) for part in self.parts
        )

    def __len__(self) -> int:
        return sum(1 if isinstance(part, InputRef) else part.attempts.count for part in self.parts)

    def __iter__(self) -> Iterator[InputRef]:
        # All groups first: a caller must not see some of the references, and only then an error.
        known = {ref.group: self.group(ref) for ref in self.groups.values()}
        for part in self.parts:
            if isinstance(part, InputRef):
                yield part
            else:
                yield from map(InputRef, known[part.group].names, part.attempts)

    @overload
    def __getitem__(self, at: int) -> InputRef: ...
    @overload
    def __getitem__(self, at: slice) -> tuple[InputRef, ...]: ...
    def __getitem__(self, at: int | slice) -> InputRef | tuple[InputRef, ...]:
        return tuple(self)[at]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, (Inputs, tuple)):
            return NotImplemented
        others = Inputs.of(other)
        return self.parts == others.parts or (
            self.is_known and others.is_known and len(self) == len(others) and tuple(self) == tuple(others)
        )

    def __hash__(self) -> int:
        return hash(len(self))

    def __repr__(self) -> str:
        return f"Inputs({self.parts!r})"

    def _find(self, ref: InputGroupRef) -> RegionGroup | None:
        group = self._known.get(ref.group)
        is_it = group is not None and (group.keys_digest, len(group)) == (ref.keys, ref.attempts.count)
        return group if is_it else None

    def group(self, ref: InputGroupRef) -> RegionGroup:
        """The group that ``ref``, one of `groups`, stands for. Raises `InputsUnknown`."""
        group = self._find(ref)
        if group is None:
            raise InputsUnknown(
                f"expected a recorded plan that has the group {ref.group!r} with the keys {ref.keys}, found none: what "
                f"was read of {ref.attempts.count} regions is not known, so nothing may be deleted. Restore the plan's "
                "object in the journal (a bucket with versions has it).",
                code="group-not-recorded",
                group=ref.group,
            )
        return group


def grouped(refs: Sequence[InputRef], groups: Iterable[RegionGroup]) -> Sequence[InputRef]:
    """The same references; where those to all regions of one of ``groups`` are among them, as one of the group."""
    by_region = {ref.region: ref for ref in refs}
    parts: dict[str, InputRef | InputGroupRef] = {**by_region}
    known: dict[str, RegionGroup] = {}
    for group in groups:
        members = [by_region[name] for name in group.names if name in by_region]
        if len(members) == len(group):
            known[group.name] = group
            # In the place of the first of them, so that the order stays.
            parts[group.names[0]] = _group_ref(group, members)
            for name in group.names[1:]:
                del parts[name]
    return Inputs(parts.values(), known) if known else tuple(refs)


def _group_ref(group: RegionGroup, members: Sequence[InputRef]) -> InputGroupRef:
    digests: dict[str, list[tuple[str, str]]] = {}
    for ref in members:
        for result, digest in ref.digests:
            digests.setdefault(result, []).append((ref.region, digest))
    combined = ((result, combined_digest(pairs)) for result, pairs in digests.items() if len(pairs) == len(members))
    attempts = GroupAttempts.of([ref.attempt for ref in members])
    tokens = combined_digest((ref.region, ref.token) for ref in members) if all(ref.token for ref in members) else ""
    return InputGroupRef(group.name, group.keys_digest, attempts, tuple(combined), tokens)


def _text(ref: InputGroupRef) -> str:
    others = f", {len(ref.attempts.others)} of them at others" if ref.attempts.others else ""
    return f"{ref.attempts.count} subtasks of {ref.group}@{ref.attempts.attempt}{others}"


def _written(refs: Sequence[InputRef]) -> list[Any]:
    return [to_json(part) for part in (refs.parts if isinstance(refs, Inputs) else refs)]


def _read(value: Any) -> Sequence[InputRef]:
    parts = list_from_json(value, lambda part: InputGroupRef if type(part) is dict and "group" in part else InputRef)
    return Inputs(parts) if any(type(part) is InputGroupRef for part in parts) else parts


InputRefs = Annotated[Sequence[InputRef], Form(_written, _read)]
"""The inputs of a record: a tuple where each stands by itself, else `Inputs`."""
