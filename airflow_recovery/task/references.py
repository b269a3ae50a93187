"""Outputs and inputs of a drop-in operator, and the placeholders that stand for them in its arguments."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow_recovery.checks import check_arguments, check_location, shown
from airflow_recovery.errors import JobDefinitionError
from airflow_recovery.model.determinism import Determinism
from airflow_recovery.model.location import comparable
from airflow_recovery.results.prober import OnAltered
from airflow_recovery.sinks.declaration import spec_of

if TYPE_CHECKING:
    from airflow_recovery.model.committing import CommitSpec
    from airflow_recovery.results.stored_rows import ReadLimits
    from airflow_recovery.sinks.declaration import CommittingSink

_PLACEHOLDER = re.compile(r"\{(input|output):([^{}]*)\}")
_NAME = re.compile(r"[A-Za-z_][\w-]*")


@dataclass(frozen=True)
class OutputReference:
    """Output ``name`` of the operator ``task_id``, as another operator's input."""

    task_id: str
    name: str

    def __post_init__(self) -> None:
        check_arguments(OutputReference.__init__, vars(self), "OutputReference")


@dataclass(frozen=True)
class DropIn:
    """What a drop-in operator declares besides its spark-submit.

    ``outputs`` by name: the user's own URI, or `None` for one that is managed. ``inputs`` by name: another operator's
    output, or a URI. ``declared_outputs``: before Airflow has rendered them, in the operator's own task alone.
    ``read_limits``: how much of what it has written is read to compare rows; `None`: no rows are compared.
    """

    task_id: str
    outputs: Mapping[str, str | None]
    inputs: Mapping[str, OutputReference | str]
    declared_outputs: Mapping[str, str | None]
    commit: CommittingSink | None = None
    on_altered: OnAltered = OnAltered.STOP
    determinism: Determinism = Determinism.VERIFY
    read_limits: ReadLimits | None = None
    allow_duplicates: bool = False
    recovers: bool = True

    @property
    def references(self) -> dict[str, OutputReference]:
        """The inputs that are outputs of other operators, by name."""
        return {name: given for name, given in self.inputs.items() if isinstance(given, OutputReference)}

    @property
    def commit_spec(self) -> CommitSpec | None:
        """What a finish is prepared for, as plans hold it."""
        if self.commit is None:
            return None
        (name,) = self.outputs
        return spec_of(self.commit, qualified(self.task_id, name))


def qualified(task_id: str, name: str) -> str:
    """The name of an operator's output among the results of the whole DAG."""
    return f"{task_id}.{name}"


def checked_outputs(task_id: str, outputs: Sequence[str] | Mapping[str, str | None]) -> dict[str, str | None]:
    """Outputs by name: the user's own fixed URI, or `None` for one that is managed. Raises `JobDefinitionError`."""
    if not isinstance(outputs, (list, tuple, Mapping)):
        raise JobDefinitionError(
            f"{task_id}: expected outputs= as a list of names or a mapping from names to URIs, found {shown(outputs)}: "
            "write outputs=['cleaned']"
        )
    if unfit := [output for output in outputs if not isinstance(output, str) or not _NAME.fullmatch(output)]:
        raise JobDefinitionError(
            f"{task_id}: expected an output name like 'cleaned', found {shown(unfit[0])}: rename it"
        )
    checked = dict(outputs) if isinstance(outputs, Mapping) else dict.fromkeys(outputs)
    if not checked:
        raise JobDefinitionError(
            f"{task_id}: expected at least one output, found none. Without one nothing can be registered: use "
            "SparkSubmitOperator."
        )
    for name, uri in checked.items():
        if uri is not None:
            checked[name] = check_location(uri, f"{task_id}: output {name!r}")
    return checked


def checked_inputs(task_id: str, inputs: object) -> dict[str, OutputReference | str]:
    """Inputs by name: another operator's output, or a URI. Raises `JobDefinitionError`."""
    if inputs is None:
        return {}
    if not isinstance(inputs, Mapping) or not all(isinstance(name, str) and name for name in inputs):
        raise JobDefinitionError(
            f"{task_id}: expected inputs= as a mapping from names to URIs or to outputs of other operators, found "
            f"{shown(inputs)}: write inputs={{'flights': 's3://lake/flights/'}} or inputs={{'cleaned': "
            "clean.result('cleaned')}"
        )
    return {
        name: given
        if isinstance(given, OutputReference)
        else check_location(given, f"{task_id}: input {name!r}", to_read=True)
        for name, given in inputs.items()
    }


def check_targets(
    task_id: str, outputs: Mapping[str, str | None], others: Mapping[str, Mapping[str, str | None]]
) -> None:
    """Raise `JobDefinitionError` where two fixed outputs are the same place, or one lies inside the other.

    ``others`` are the outputs of the DAG's other operators, by task id. Templates are compared as they are written.
    """
    fixed = [(task_id, name, uri) for name, uri in outputs.items() if isinstance(uri, str)]
    known = [
        (other, name, uri)
        for other, declared in others.items()
        for name, uri in declared.items()
        if isinstance(uri, str)
    ]
    for at, (_, name, uri) in enumerate(fixed):
        for other, other_name, other_uri in (*fixed[:at], *known):
            one, two = f"{comparable(uri).rstrip('/')}/", f"{comparable(other_uri).rstrip('/')}/"
            if one.startswith(two) or two.startswith(one):
                raise JobDefinitionError(
                    f"{task_id}: output {name!r} at {uri} overlaps with output {other_name!r} of {other} at "
                    f"{other_uri}: each would take what the other writes for an alteration, and one would overwrite "
                    "the other. Give them folders beside each other, or no URI: each attempt then gets its own."
                )


def placeholders(arguments: Any) -> set[tuple[str, str]]:
    """All ``(input | output, name)`` that occur in ``arguments``; none where they are not plain strings yet."""
    return {
        (match[1], match[2])
        for argument in (arguments if isinstance(arguments, (list, tuple)) else ())
        for match in _PLACEHOLDER.finditer(str(argument))
    }


def filled(arguments: Sequence[Any] | None, locations: Mapping[tuple[str, str], str]) -> list[str]:
    """``arguments`` with every placeholder replaced. Raises `JobDefinitionError` for one that stands for nothing."""

    def locate(match: re.Match[str]) -> str:
        key = (match[1], match[2])
        if key not in locations:
            known = ", ".join(sorted(f"{{{kind}:{name}}}" for kind, name in locations))
            raise JobDefinitionError(f"argument {match.string!r}: {match[0]} is not declared; there are {known}.")
        return locations[key]

    return [_PLACEHOLDER.sub(locate, str(argument)) for argument in arguments or ()]
