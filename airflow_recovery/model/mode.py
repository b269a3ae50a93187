"""How a region runs: its mode. The core asks a mode; it never asks which mode it is.

A region's plan carries its mode as a value (`RegionPlan.mode`), and so do its claims and outcomes, each with what the
mode writes into that record. Batch is the mode that writes nothing: `BATCH`.

A room that would do something else in another mode has a class of questions with batch's answers, for example
`airflow_recovery.planning.mode.PlanningMode`. Another mode answers them in a module of its own package, whose name the
room chooses (``planning``), by a subclass whose one instance is ``MODE``. `answers_of` finds it.

A mode's package is an annex (`airflow_recovery.annexes`). It is imported when the first region of that mode is met, not
before: without the package everything else still works.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Any, ClassVar, Protocol, TypeVar

from airflow_recovery.annexes import ANNEXES, by
from airflow_recovery.errors import ConfigurationError


@dataclass(frozen=True)
class RegionMode:
    """What a mode writes into one kind of record. This base is batch's, which writes nothing.

    The fields of a subclass are keys of the record's JSON, beside the record's own. Every field has a default, so that
    `of` can answer for a record of another mode.
    """

    name: ClassVar[str] = "batch"
    needs_own_application: ClassVar[bool] = False
    """Whether its regions are submitted by themselves also where the other regions of their run share a Spark."""

    @classmethod
    def of(cls: type[M], record: HasMode) -> M:
        """What this mode wrote into ``record``; of a record of another mode, what stands for nothing."""
        return record.mode if isinstance(record.mode, cls) else cls()

    @property
    def attempts(self) -> tuple[int, ...]:
        """Of a claim: the attempts whose work it takes over. Of an outcome: those whose work it is made of."""
        return ()

    @property
    def batches_named(self) -> tuple[tuple[int, int], ...]:
        """Of a claim: (attempt, length) of each attempt whose committed batches it goes on from. Their number then."""
        return ()

    @property
    def batches_used(self) -> tuple[tuple[int, int], ...]:
        """Of a claim or an outcome: which committed batches it takes over or is made of, as (attempt, number)."""
        return ()


M = TypeVar("M", bound=RegionMode)
W = TypeVar("W", bound="AttemptWork")
A = TypeVar("A")

BATCH = RegionMode()


@dataclass(frozen=True)
class AttemptWork:
    """What an attempt has to do, as far as the region's mode knows it before the claim. Batch: all there is."""

    @classmethod
    def of(cls: type[W], work: AttemptWork) -> W:
        """``work``, of which is known that it is this mode's. Raises `TypeError`."""
        if not isinstance(work, cls):
            raise TypeError(f"expected a {cls.__name__}, found {work!r}")
        return work

    @property
    def in_claim(self) -> RegionMode:
        """What the claim of the attempt pins."""
        return BATCH

    @property
    def in_outcome(self) -> RegionMode:
        """What its outcome will say, as far as it is known before the attempt has run."""
        return BATCH

    @property
    def taken_over(self) -> str:
        """For people: what it takes over from earlier attempts; empty for nothing."""
        return ""


class HasMode(Protocol):
    """Any record that carries the mode of its region: a plan, a claim, an outcome, or a trace."""

    @property
    def mode(self) -> RegionMode:
        """What the region's mode writes into it."""
        ...


_MODE_OF_KEY = by("record_keys")


def value_class(record: type[Any], keys: Iterable[str]) -> type[RegionMode]:
    """The class of `RegionMode` that reads a record with these JSON keys. ``record``: the record's own class.

    Raises `ConfigurationError` where the package of the mode is not installed.
    """
    if _MODE_OF_KEY.keys().isdisjoint(keys):
        return RegionMode
    present = frozenset(keys)
    name = next(name for key, name in _MODE_OF_KEY.items() if key in present)
    in_record: type[RegionMode] = _module(name, "mode").IN_RECORDS[record]
    return in_record


def answers_of(mode: str, module: str, questions: type[A]) -> A:
    """How the mode of that name answers ``questions``: its ``MODE`` in ``module`` of its package.

    Of batch, and of a mode that has no such module: an instance of ``questions`` itself. Raises `ConfigurationError`
    where the package is not installed.
    """
    answering = None if mode == BATCH.name else _module(mode, module)
    if answering is None:
        return questions()
    answers: object = answering.MODE
    if not isinstance(answers, questions):
        raise TypeError(f"{ANNEXES[mode].package}.{module}.MODE: expected a {questions.__name__}, found {answers!r}")
    return answers


def all_answers(module: str, questions: type[A]) -> list[A]:
    """How each mode but batch answers whose package is on this machine.

    For questions about a whole run, which may have had regions of other modes before its code was changed.
    """
    return [
        answers_of(name, module, questions) for name, annex in ANNEXES.items() if find_spec(annex.package) is not None
    ]


def modes_of(records: Iterable[HasMode]) -> tuple[str, ...]:
    """The names of their modes, each once, in the order in which they come."""
    return tuple(dict.fromkeys(record.mode.name for record in records))


def modes_of_keys(keys: Iterable[str]) -> tuple[str, ...]:
    """The names of the modes that have written some of these JSON keys."""
    return tuple(dict.fromkeys(_MODE_OF_KEY[key] for key in keys if key in _MODE_OF_KEY))


def _module(mode: str, module: str) -> Any:
    package = ANNEXES[mode].package
    try:
        return import_module(f"{package}.{module}")
    except ModuleNotFoundError as error:
        if error.name == f"{package}.{module}":
            return None
        if error.name is not None and package.startswith(error.name):
            raise ConfigurationError(
                f"a region of this run has the mode {mode!r}: expected the package {package} on this machine, found "
                "none. Install the whole of airflow-recovery here",
                code="mode-package-missing",
                package=package,
            ) from error
        raise
