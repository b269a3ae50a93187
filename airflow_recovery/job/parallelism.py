"""How many subtasks a vertex has, and what names them: fixed, literal keys, or decided when the run starts.

A subtask is named by a content key, and the journal knows it by that key alone: a list that is ordered differently, or
that has grown, keeps what is valid (faults 55 and 62). A fixed number has the keys ``"0"``, ``"1"``, ...
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from airflow_recovery.checks import is_template
from airflow_recovery.errors import JobDefinitionError
from airflow_recovery.job.sources import FilePattern, SplitSource
from airflow_recovery.job.templates import check_templates, uses_subtask
from airflow_recovery.locations import is_published

MAX_KEY_LENGTH = 250


@dataclass(frozen=True)
class FixedParallelism:
    """``parallelism=4``: the keys are ``"0"`` to ``"3"``. The number belongs to the vertex's fingerprint."""

    count: int

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys ``"0"``, ``"1"``, ..., one for each subtask index."""
        return tuple(str(index) for index in range(self.count))


@dataclass(frozen=True)
class LiteralKeys:
    """``parallelism=["2013-01", "2013-02"]``: one subtask for each key, in this order."""

    keys: tuple[str, ...]


@dataclass(frozen=True)
class TemplatedKeys:
    """``parallelism="{{ params.months | join(',') }}"``: one subtask for each part between commas, known in the run."""

    template: str


@dataclass(frozen=True)
class PerFile:
    """``parallelism=per_file``: one subtask for each file of ``source``, as the files are when the run starts."""

    source: str = ""


@dataclass(frozen=True)
class SameAs:
    """``parallelism=same_as("raw")``: the same subtasks as vertex ``vertex`` has; `resolve` finds which."""

    vertex: str


KnownSubtasks = FixedParallelism | LiteralKeys
RunTimeSubtasks = TemplatedKeys | PerFile
Parallelism = KnownSubtasks | RunTimeSubtasks
ParallelismLike = int | str | Sequence[str] | PerFile | SameAs

per_file = PerFile()
"""One subtask for each file that a source's ``splits=`` names when the run starts."""


def same_as(vertex: str) -> SameAs:
    """The same subtasks as another vertex has: ``@flights.vertex(parallelism=same_as("raw_flights"))``."""
    if not isinstance(vertex, str) or not vertex:
        raise JobDefinitionError(f"same_as(): expected the name of a vertex, found {vertex!r}", code="same-as-no-name")
    return SameAs(vertex)


def checked_parallelism(
    value: object, *, vertex: str, splits: SplitSource | None, where: str
) -> Parallelism | SameAs | None:
    """What was declared, as a value; `None` for a vertex that is not split. Raises `JobDefinitionError`."""
    declared: Parallelism | SameAs | None
    if value is None or (isinstance(value, int) and not isinstance(value, bool) and value == 1):
        declared = None
    elif isinstance(value, SameAs):
        declared = value
    elif isinstance(value, PerFile):
        if not isinstance(splits, FilePattern) or is_published(splits.pattern):
            raise JobDefinitionError(
                f"{where}: parallelism=per_file needs a source with splits=files('...') whose files keep their names; "
                "a vertex that reads such a source declares parallelism=same_as('<the source>')",
                code="per-file-without-files",
            )
        declared = PerFile(vertex)
    elif isinstance(value, int) and not isinstance(value, bool) and value > 1:
        declared = FixedParallelism(value)
    elif isinstance(value, str) and is_template(value):
        check_templates({"parallelism": value}, where=where)
        declared = TemplatedKeys(value)
    elif isinstance(value, Sequence) and not isinstance(value, (str, bytes)):
        declared = LiteralKeys(checked_keys(value, where=where))
    else:
        raise JobDefinitionError(
            f"{where}: expected parallelism= as a number from 1, a list of keys such as ['2013-01', '2013-02'], a "
            f"template that gives keys with commas between them, per_file, or same_as('vertex'), found {value!r}"
        )
    _check_pattern(declared, splits, where)
    return declared


def checked_keys(values: Iterable[Any], *, where: str) -> tuple[str, ...]:
    """Keys that can name subtasks: at least one, unique, short texts. Raises `JobDefinitionError`."""
    keys = tuple(values)
    for key in keys:
        if not isinstance(key, str) or not key or key != key.strip() or len(key) > MAX_KEY_LENGTH:
            raise JobDefinitionError(
                f"{where}: expected every key of parallelism= as a text of 1 to {MAX_KEY_LENGTH} characters without "
                f"spaces around it, found {key!r}"
            )
        if not key.isprintable():
            raise JobDefinitionError(f"{where}: expected printable keys, found {key!r}")
    if not keys:
        raise JobDefinitionError(
            f"{where}: expected at least one key, found none: a vertex without subtasks would make nothing; skip the "
            "run instead, or give one key"
        )
    twice = sorted(key for key, times in Counter(keys).items() if times > 1)
    if twice:
        raise JobDefinitionError(f"{where}: expected unique keys, found {twice[0]!r} more than once: remove one")
    return keys


def templated_keys(rendered: str, *, where: str) -> tuple[str, ...]:
    """The keys of a rendered template: what stands between its commas. Raises `JobDefinitionError`."""
    if rendered.lstrip().startswith("["):
        raise JobDefinitionError(
            f"{where}: expected keys with commas between them, found {rendered!r}: write "
            "\"{{ params.keys | join(',') }}\" for a list"
        )
    return checked_keys([key for piece in rendered.split(",") if (key := piece.strip())], where=where)


def in_recorded_order(recorded: Sequence[str], today: Sequence[str]) -> tuple[str, ...]:
    """Today's keys: those that were recorded in the recorded order, then the new ones (FLIP-383; fault 62)."""
    now, before = set(today), set(recorded)
    return (*(key for key in recorded if key in now), *(key for key in today if key not in before))


def resolve(declared: Mapping[str, Parallelism | SameAs | None], where: Mapping[str, str]) -> dict[str, Parallelism]:
    """The subtasks of each vertex that has some; equal ones are one object, in the order of the first declaration.

    Lists of the same keys are equal in any order. Raises `JobDefinitionError` for a `same_as` that leads nowhere.
    """
    resolved: dict[str, Parallelism] = {}
    canonical: dict[object, Parallelism] = {}
    for name in declared:
        parallelism, seen = declared[name], [name]
        while isinstance(parallelism, SameAs):
            if parallelism.vertex not in declared or parallelism.vertex in seen:
                what = "itself" if parallelism.vertex in seen else "a vertex that does not exist"
                raise JobDefinitionError(
                    f"{where[name]}: parallelism=same_as({parallelism.vertex!r}) leads to {what}",
                    code="same-as-leads-nowhere",
                )
            seen.append(parallelism.vertex)
            parallelism = declared[parallelism.vertex]
        if parallelism is not None:
            identity = frozenset(parallelism.keys) if isinstance(parallelism, LiteralKeys) else parallelism
            resolved[name] = canonical.setdefault(identity, parallelism)
        elif len(seen) > 1:
            raise JobDefinitionError(
                f"{where[name]}: parallelism=same_as({seen[-1]!r}), which declares none itself",
                code="same-as-declares-none",
            )
    return resolved


def _check_pattern(parallelism: Parallelism | SameAs | None, splits: SplitSource | None, where: str) -> None:
    if splits is None:
        return
    by_template = uses_subtask(splits.declared)
    if by_template and (parallelism is None or isinstance(parallelism, PerFile)):
        why = "the vertex has no parallelism=" if parallelism is None else "per_file makes the subtasks of the files"
        raise JobDefinitionError(
            f"{where}: splits= names the subtask, and {why}: take {{{{ subtask }}}} out of it",
            code="splits-name-subtask",
            where=where,
        )
    if isinstance(parallelism, (LiteralKeys, TemplatedKeys, SameAs)) and not by_template:
        raise JobDefinitionError(
            f"{where}: which splits belong to which subtask? Put {{{{ subtask }}}} into splits=, for example into the "
            "pattern of the files: it stands for the subtask's key. Or use a number, or per_file",
            code="splits-without-subtask",
            where=where,
        )
