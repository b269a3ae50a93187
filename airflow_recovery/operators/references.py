"""Outputs and inputs of a drop-in operator, and the placeholders that stand for them in its arguments."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from airflow_recovery.errors import JobDefinitionError
from airflow_recovery.job.templates import is_template
from airflow_recovery.shuffle.location import comparable

_PLACEHOLDER = re.compile(r"\{(input|output):([^{}]*)\}")
_NAME = re.compile(r"[A-Za-z_][\w-]*")


@dataclass(frozen=True)
class OutputReference:
    """Output ``name`` of the operator ``task_id``, as another operator's input."""

    task_id: str
    name: str


def qualified(task_id: str, name: str) -> str:
    """The name of an operator's output among the results of the whole DAG."""
    return f"{task_id}.{name}"


def checked_outputs(task_id: str, outputs: Sequence[str] | Mapping[str, str | None]) -> dict[str, str | None]:
    """Outputs by name: the user's own fixed URI, or `None` for one that is managed. Raises `JobDefinitionError`."""
    if isinstance(outputs, str):
        raise JobDefinitionError(
            f"{task_id}: expected outputs to be a list or a mapping, found the string {outputs!r}."
        )
    found = dict(outputs) if isinstance(outputs, Mapping) else dict.fromkeys(outputs)
    if not found:
        raise JobDefinitionError(
            f"{task_id}: expected at least one output, found none. Without one nothing can be registered: use "
            "SparkSubmitOperator."
        )
    for name, uri in found.items():
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise JobDefinitionError(f"{task_id}: expected an output name like 'cleaned', found {name!r}.")
        if uri is not None:
            found[name] = checked_uri(task_id, f"output {name!r}", uri)
    return found


def check_targets(
    task_id: str, outputs: Mapping[str, str | None], others: Mapping[str, Mapping[str, str | None]]
) -> None:
    """Raise `JobDefinitionError` where two fixed outputs are the same place, or one lies inside the other.

    ``others`` are the outputs of the DAG's other operators, by task id. Templates are compared as they are written.
    """
    fixed = [(task_id, name, uri) for name, uri in outputs.items() if uri is not None]
    known = [(other, name, uri) for other, each in others.items() for name, uri in each.items() if uri is not None]
    for at, (_, name, uri) in enumerate(fixed):
        for other, other_name, other_uri in (*fixed[:at], *known):
            one, two = f"{comparable(uri).rstrip('/')}/", f"{comparable(other_uri).rstrip('/')}/"
            if one.startswith(two) or two.startswith(one):
                raise JobDefinitionError(
                    f"{task_id}: output {name!r} at {uri} overlaps with output {other_name!r} of {other} at "
                    f"{other_uri}: each would take what the other writes for an alteration, and one would overwrite "
                    "the other. Give them folders beside each other, or no URI: each attempt then gets its own."
                )


def checked_uri(task_id: str, what: str, uri: Any) -> str:
    """``uri`` without a slash at its end; as it is, where it is a template that is not rendered yet.

    Raises `JobDefinitionError` where its objects could not be listed.
    """
    if isinstance(uri, str) and is_template(uri):
        return uri
    if not isinstance(uri, str) or not uri.startswith(("s3://", "s3a://", "file:/", "/")):
        raise JobDefinitionError(
            f"{task_id}: {what}: expected s3://<bucket>/<prefix>, file:///<folder> or an absolute path, found {uri!r}. "
            "Its objects must be listable, since they belong to the trace."
        )
    return uri.rstrip("/")


def placeholders(arguments: Any) -> set[tuple[str, str]]:
    """All ``(input | output, name)`` that occur in ``arguments``; none where they are not plain strings yet."""
    return {
        (found[1], found[2])
        for argument in (arguments if isinstance(arguments, (list, tuple)) else ())
        for found in _PLACEHOLDER.finditer(str(argument))
    }


def filled(arguments: Sequence[Any] | None, locations: Mapping[tuple[str, str], str]) -> list[str]:
    """``arguments`` with every placeholder replaced. Raises `JobDefinitionError` for one that stands for nothing."""

    def locate(found: re.Match[str]) -> str:
        key = (found[1], found[2])
        if key not in locations:
            known = ", ".join(sorted(f"{{{kind}:{name}}}" for kind, name in locations))
            raise JobDefinitionError(f"argument {found.string!r}: {found[0]} is not declared; there are {known}.")
        return locations[key]

    return [_PLACEHOLDER.sub(locate, str(each)) for each in arguments or ()]
