"""Questions about runs. Each is a command, a REST route and, if it has a label, a button of the Recovery tab.

To add a question, write a function and a row in `QUESTIONS`. The signature of the function declares the rest. The
first parameter is what the function reads: a run, read once (`RunView`), a run that it reads itself (`AskedRun`), or
the runs of a DAG (`AskedDag`). The other parameters are the arguments, and the return type is the response class.

This module imports nothing heavy, because every `airflow` command loads it.
"""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cache
from importlib import import_module
from typing import Annotated, Any


class MayAsk(str, Enum):
    """Who may ask a question."""

    COMMAND_LINE = "command line"
    """Only users of the command line. There is no route: the answer may be too large, or needs files of the machine."""
    READERS = "readers"
    """Also users who may see the run (or the runs of the DAG) in Airflow."""


@dataclass(frozen=True)
class Given:
    """Describe an argument, in the ``Annotated`` of its parameter. ``choices``: all values that it can have."""

    help: str
    metavar: str | None = None
    choices: Sequence[str] = ()


@dataclass(frozen=True)
class Argument:
    """An argument of a question. ``kind``: `str`, `int`, `float` or `bool`. ``name``: without a last underscore."""

    parameter: str
    name: str
    kind: type
    given: Given
    default: Any
    is_required: bool


@dataclass(frozen=True)
class Shape:
    """What the signature of a question's function declares. ``reads``: `RunView`, `AskedRun` or `AskedDag`."""

    function: Callable[..., Any]
    reads: type
    arguments: tuple[Argument, ...]
    answer: Any


@dataclass(frozen=True)
class Question:
    """A question. ``function``: ``module:function``, which is imported when the question is asked.

    ``label``: the button of the tab; empty: no button. ``path``: the last part of the route, if it is not ``name``.
    """

    name: str
    help: str
    function: str
    label: str = ""
    who: MayAsk = MayAsk.READERS
    path: str = ""

    @property
    def shape(self) -> Shape:
        """What the signature of the function declares."""
        return _shape_of(self.function)

    def ask(self, asked: Any, arguments: dict[str, Any]) -> Any:
        """Call the function and return the response. Raises what the function raises."""
        return self.shape.function(asked, **arguments)


@cache
def _shape_of(reference: str) -> Shape:
    module, _, name = reference.partition(":")
    function = getattr(import_module(module), name)
    signature = inspect.signature(function, eval_str=True)
    asked, *others = signature.parameters.values()
    return Shape(function, asked.annotation, tuple(map(_argument, others)), signature.return_annotation)


def _argument(parameter: inspect.Parameter) -> Argument:
    assert typing.get_origin(parameter.annotation) is Annotated, parameter
    kind, given = typing.get_args(parameter.annotation)[:2]
    if isinstance(kind, types.UnionType):  # with `None`
        kind = typing.get_args(kind)[0]
    is_required = parameter.default is inspect.Parameter.empty
    default = None if is_required else parameter.default
    return Argument(parameter.name, parameter.name.rstrip("_"), kind, given, default, is_required)


QUESTIONS: dict[str, Question] = {}
"""By name."""


def register(question: Question) -> None:
    """Add a question, before the command line is parsed or the API server's application is made."""
    assert question.name not in QUESTIONS, question.name
    QUESTIONS[question.name] = question


for _each in (
    Question(
        "why",
        "what an attempt was made of, and what has changed since",
        "airflow_recovery.story.compared_components:compared_components",
        label="What it is made of…",
    ),
    Question(
        "channels",
        "what each channel of a run has committed and lost",
        "airflow_recovery.story.mode:channels_of_run",
    ),
    Question(
        "costs",
        "what the newest runs cost, and what recovery saved",
        "airflow_recovery.story.run_costs:costs_of_runs",
        path="advice",
    ),
    Question(
        "events",
        "the history of a run, event by event",
        "airflow_recovery.story.event_list:events_of_run",
        who=MayAsk.COMMAND_LINE,
    ),
    Question(
        "advise",
        "which results to write and which not, by past runs",
        "airflow_recovery.story.advised:advice_of_dag",
        who=MayAsk.COMMAND_LINE,
    ),
):
    register(_each)
