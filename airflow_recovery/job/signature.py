"""What the parameters of a vertex function ask for. Their names decide: an input, a parameter, or a reserved one."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from airflow_recovery.errors import JobDefinitionError
from airflow_recovery.job.vertex import VertexInput
from airflow_recovery.planning.graph import did_you_mean

RESERVED = ("spark", "splits", "context")


@dataclass(frozen=True)
class Signature:
    """The inputs of a function in the order of its parameters, and which reserved parameters it has.

    ``defaulted`` names the parameters with a default among the inputs: where no such vertex exists, the default holds.
    """

    inputs: tuple[VertexInput, ...]
    defaulted: frozenset[str]
    wants_spark: bool
    wants_splits: bool
    wants_context: bool


def read_signature(
    function: Callable[..., Any], *, params: Mapping[str, Any], renamed: Mapping[str, str], where: str
) -> Signature:
    """Read a function's parameters. ``renamed`` maps a parameter to the vertex it reads, where the names differ.

    Raises `JobDefinitionError`, beginning with ``where``, for parameters that cannot be told apart.
    """
    parameters = inspect.signature(function).parameters
    for name, parameter in parameters.items():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
            raise JobDefinitionError(
                f"{where}: expected parameters with names of their own, found {parameter}: name every input and every "
                "parameter, since the names say what they receive"
            )
        if name in params and name in renamed:
            raise JobDefinitionError(f"{where}: {name!r} is in params= and in inputs=: leave it in one of them")
    for option, names in (("params", params), ("inputs", renamed)):
        for name in names:
            if name in RESERVED:
                raise JobDefinitionError(f"{where}: {name!r} in {option}= is reserved: rename it")
            if name not in parameters:
                raise JobDefinitionError(
                    f"{where}: {option}= names {name!r}, and the function has no such parameter"
                    f"{did_you_mean(name, parameters)}: add it to the function or remove it from {option}="
                )
    inputs = tuple(
        VertexInput(name, renamed.get(name, name)) for name in parameters if name not in (*RESERVED, *params)
    )
    defaulted = frozenset(
        edge.parameter
        for edge in inputs
        if edge.parameter not in renamed and parameters[edge.parameter].default is not inspect.Parameter.empty
    )
    return Signature(inputs, defaulted, "spark" in parameters, "splits" in parameters, "context" in parameters)
