"""Declaring where a sink commits: a frozen dataclass, which is written into plans and outcomes as class and fields."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, fields, is_dataclass
from importlib import import_module
from typing import Any, ClassVar, TypeVar

from airflow_recovery.errors import ConfigurationError, JobDefinitionError
from airflow_recovery.locations import DELTA
from airflow_recovery.model.codec import canonical_json
from airflow_recovery.model.committing import CommitKind, CommitMode, CommitSpec, Replaces
from airflow_recovery.sinks.committer import Committer, SinkResources

S = TypeVar("S")


@dataclass(frozen=True, kw_only=True)
class CommittingSink:
    """Base of what a vertex declares with ``commit=``. A subclass is a frozen dataclass at the top of a module.

    Its fields are JSON values; they are written into the journal, so they must not hold secrets. ``mode``: what a
    second commit of the same run does: ``"append"`` refuses it, ``"replace"`` puts its rows in place of all that the
    sink's class says, rows of others among them.
    ``kind``: whether the target keeps tokens or can only be asked. Raises `JobDefinitionError` for another mode.
    """

    mode: CommitMode | str = CommitMode.APPEND
    kind: ClassVar[CommitKind]
    reads_rows: ClassVar[bool] = True
    """Whether its commit reads the prepared rows, which must be Parquet files then."""

    def __post_init__(self) -> None:
        try:
            object.__setattr__(self, "mode", CommitMode(self.mode))
        except ValueError:
            raise JobDefinitionError(
                f"{type(self).__name__}: expected mode= as 'append' or 'replace', found {self.mode!r}: 'append' "
                "adds the rows of one attempt, 'replace' puts them in place of all rows of the table, or of this run's "
                "if there is a run_column=",
                code="mode-unfit",
            ) from None

    def table_uri(self) -> str | None:
        """The location of the Delta or Iceberg table that it commits to (`TableLocation`); `None`: another target."""
        return None

    @property
    def replaces(self) -> Replaces:
        """Which rows of the target a commit deletes."""
        if self.mode is CommitMode.APPEND:
            return Replaces.NOTHING
        if getattr(self, "run_column", None) is not None:
            return Replaces.RUN
        return Replaces.LATEST if getattr(self, "keeps", None) is not None else Replaces.ALL

    @property
    def place(self) -> str | None:
        """The table as the declaration writes it, in one spelling; `None` if the declaration does not tell."""
        return None

    def open(self, resources: SinkResources) -> Committer:
        """A committer for the target. Connects to nothing yet; called in the task's process for each commit."""
        raise NotImplementedError


def spec_of(sink: CommittingSink, result: str) -> CommitSpec:
    """``sink`` as plans and outcomes have it: the class by name and the fields as JSON. ``result``: what it commits."""
    kind = type(sink)
    config: dict[str, Any] = {
        field_.name: getattr(sink, field_.name)
        for field_ in fields(sink)
        if not (field_.metadata.get("later") and getattr(sink, field_.name) == field_.default)
    }
    text = canonical_json(config)
    return CommitSpec(result, kind.kind, CommitMode(sink.mode), f"{kind.__module__}:{kind.__qualname__}", text)


def check_replaced_rows(sink: Any, where: str) -> None:
    """Check ``run_column`` and ``keeps`` of a table's sink. Raises `JobDefinitionError` for values that don't fit."""
    if sink.keeps not in (None, "latest"):
        raise JobDefinitionError(f"{where}: expected keeps= as 'latest' or None, found {sink.keeps!r}: write 'latest'")
    if sink.keeps is not None and (sink.mode is not CommitMode.REPLACE or sink.run_column is not None):
        found = f"mode={sink.mode.value!r}" if sink.run_column is None else f"run_column={sink.run_column!r}"
        raise JobDefinitionError(
            f"{where}: expected keeps='latest' with mode='replace' and without run_column=, found {found}: a commit "
            "then replaces all rows of the table, unless they are those of a later date. Leave one of them out"
        )


def check_run_column(sink: Any, where: str) -> None:
    """Raise `JobDefinitionError` for a ``run_column`` that a lake table's predicate can't name as it is."""
    column = sink.run_column
    if column is not None and not (isinstance(column, str) and re.fullmatch(r"[a-z_][a-z0-9_]*", column)):
        raise JobDefinitionError(
            f"{where}: expected run_column= as a name of lower-case letters, digits and underscores, found {column!r}: "
            "name such a column of the table"
        )


def check_sinks_apart(sinks: Iterable[tuple[str, CommittingSink]]) -> None:
    """Raise `JobDefinitionError` if two sinks of one DAG, as (where, sink), would delete each other's rows.

    Tables are compared as they are written. What one server or catalog has under two names is found before the claim.
    """
    seen: dict[str, tuple[str, CommittingSink]] = {}
    for where, sink in sinks:
        if sink.place is None:
            continue
        outer = next((place for place in seen if _is_inside(place, sink.place) or _is_inside(sink.place, place)), None)
        if outer is not None:
            raise JobDefinitionError(
                f"{where}: commits to {sink.place}, and {seen[outer][0]} to {outer}: one table lies in the folder of "
                "the other, and a vacuum of that deletes its files. Give them folders beside each other",
                code="sink-in-folder-of-table",
            )
        other_where, other = seen.setdefault(sink.place, (where, sink))
        if other is sink and other_where == where:
            continue
        clearing = (Replaces.ALL, Replaces.LATEST)
        if sink.replaces in clearing or other.replaces in clearing:
            raise JobDefinitionError(
                f"{where}: commits to {sink.place}, as {other_where} does, and one of them replaces all rows there: "
                "each would delete the rows of the other. Declare run_column='<a text column of the table>' with "
                "mode='replace' in both, or give each a table of its own",
                code="sinks-replace-each-other",
                where=where,
                other=other_where,
            )


def _is_inside(place: str, other: str) -> bool:
    """Whether one Delta table lies in the folder of the ``other`` one."""
    return place.startswith(f"{other}/") and other.startswith(DELTA)


def sink_of(spec: CommitSpec) -> CommittingSink:
    """Inverse of `spec_of`. Raises `ConfigurationError` where the class is gone or has other fields."""
    kind = imported(spec.sink)
    if not (isinstance(kind, type) and issubclass(kind, CommittingSink)):
        raise ConfigurationError(f"Expected a committing sink named {spec.sink}, found {kind!r}.", code="sink-unknown")
    try:
        return kind(**json.loads(spec.config))
    except (TypeError, ValueError) as error:
        raise ConfigurationError(
            f"Expected a {spec.sink} that can be made of {spec.config}, as an attempt was prepared for, found: "
            f"{error}. Bring the version of the code back that prepared it, and clear the task.",
            code="sink-config-unfit",
        ) from error


def imported(reference: str) -> Any:
    """The object that ``module:name`` names. Raises `ConfigurationError` where this worker can't import it."""
    module, _, name = reference.partition(":")
    try:
        target: Any = import_module(module)
        for part in name.split("."):
            target = getattr(target, part)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigurationError(
            f"Expected {reference!r} as module:name on this worker's Python path, found: {error}.",
            code="function-not-importable",
        ) from error
    return target


def checked_sink(sink: object, where: str, *, is_parallel: bool) -> CommittingSink | None:
    """``sink``, the value of ``commit=``, once checked. ``where`` names the vertex. Raises `JobDefinitionError`."""
    if sink is None:
        return None
    if not isinstance(sink, CommittingSink) or not is_dataclass(sink):
        raise JobDefinitionError(
            f"{where}: expected commit= as a sink such as PostgresTable(conn_id=..., table=...), found {sink!r}",
            code="commit-no-sink",
        )
    if is_parallel and sink.mode is CommitMode.REPLACE:
        raise JobDefinitionError(
            f"{where}: expected mode='append' of a sink with parallelism=, found 'replace': each subtask commits by "
            "itself, and would put its rows in place of the others'. Put a vertex without parallelism= before the sink",
            code="replace-by-subtasks",
        )
    return sink


def check_one_sink(vertices: Iterable[tuple[str, CommittingSink | None]]) -> None:
    """Raise `JobDefinitionError` where two of a region's vertices, given as (where, sink), commit."""
    committing = [where for where, sink in vertices if sink is not None]
    if len(committing) > 1:
        raise JobDefinitionError(
            f"{committing[1]}: shares its region with {committing[0]}, and both have commit=: two targets can't be "
            "committed at once. Declare what both read with result=BLOCKING, so that each has a region of its own",
            code="two-sinks-in-a-region",
        )
