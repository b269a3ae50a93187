"""One rule off at a time: what each is there for, and a case in which its absence is found.

None of this is in the product: while a control is on, one function that jobs run is another one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from airflow_recovery.journal.run_state import RegionState
from airflow_recovery.model import split_assignment as assignment
from airflow_recovery.splits import committed_batches
from airflow_recovery.splits.log import SplitBook
from reference.split_exploration.case import Case, Change, Fault

Patch = tuple[object, str, Any]


@dataclass(frozen=True)
class Control:
    """``name`` is the rule; ``patches`` switch it off; ``finds``: how the violation begins that must be found."""

    name: str
    case: Case
    finds: tuple[str, ...]
    patches: tuple[Patch, ...]

    @contextmanager
    def off(self) -> Iterator[None]:
        """While the rule is off."""
        kept = [(of, name, vars(of)[name]) for of, name, _ in self.patches]
        for of, name, value in self.patches:
            setattr(of, name, value)
        try:
            yield
        finally:
            for of, name, value in kept:
                setattr(of, name, value)


def _case(*kinds: Change | Fault, changes: int = 3, faults: int = 1, **more: Any) -> Case:
    """A case for walks, of these kinds."""
    return Case(
        splits=more.pop("splits", 5),
        changes=changes,
        faults=faults,
        of_changes=frozenset(kind for kind in kinds if isinstance(kind, Change)),
        of_faults=frozenset(kind for kind in kinds if isinstance(kind, Fault)) or frozenset({Fault.KILL}),
        subtasks=more.pop("subtasks", 3),
        is_fine=True,
        **more,
    )


def _says_nothing(*given: Any, **more: Any) -> None:
    return None


def _always(*given: Any, **more: Any) -> bool:
    return True


def _forgets(real: Callable[..., Any]) -> Callable[..., Any]:
    def advance(*given: Any, **more: Any) -> Any:
        found = real(*given, **more)
        return replace(found, assignment=replace(found.assignment, gone={}))

    return advance


def _forgets_earlier(real: Callable[..., Any]) -> Callable[..., Any]:
    def advance(*given: Any, **more: Any) -> Any:
        return real(*given, **{**more, "earlier": None})

    return advance


_NOT_ASKED: Patch = (SplitBook, "invalid_because", _says_nothing)

CONTROLS = (
    Control(
        "with fewer subtasks, what the others had goes to whoever asks",
        _case(Change.FEWER, changes=1, faults=0, fewest=2, subtasks=4),
        ("lost",),
        ((SplitBook, "rescaled", _says_nothing), _NOT_ASKED),
    ),
    Control(
        "and where that is not done, nobody takes it for done",
        _case(Change.FEWER, changes=1, faults=0, fewest=2, subtasks=4),
        ("no end",),
        ((SplitBook, "rescaled", _says_nothing),),
    ),
    Control(
        "a batch counts for as long as the log says that its splits are its attempt's",
        _case(Change.CODE, Fault.KILL, faults=2),
        ("stuck", "no end"),
        ((SplitBook, "has", _always),),
    ),
    Control(
        "a finish stands for as long as the log says that its splits are those",
        _case(Change.FEWER, Change.MORE, Change.CODE, Change.CLEAR, Fault.KILL, faults=2, changes=4),
        ("doubled", "lost"),
        (_NOT_ASKED,),
    ),
    Control(
        "an attempt that is over is given nothing more",
        _case(Change.CODE, Fault.FREEZE, faults=2),
        ("stuck", "doubled", "lost", "no end"),
        ((SplitBook, "is_over", lambda self, subtask, attempt: False),),
    ),
    Control(
        "what was reset is not adopted",
        _case(Change.RESTART, Fault.KILL, faults=2),
        ("doubled", "lost", "stuck", "no end"),
        ((RegionState, "invalid_up_to", property(lambda self: 0)),),
    ),
    Control(
        "a split that has vanished has its home when it is back (static)",
        _case(Change.VANISH, Change.APPEAR, changes=4, is_dynamic=False),
        ("doubled",),
        ((assignment, "advance", _forgets(assignment.advance)),),
    ),
    Control(
        "as many subtasks as once before have the homes that they had (static)",
        _case(Change.FEWER, Change.MORE, Change.VANISH, Change.APPEAR, changes=5, is_dynamic=False),
        ("doubled",),
        ((assignment, "advance", _forgets_earlier(assignment.advance)),),
    ),
    Control(
        "a batch goes as a whole where one of its splits is read no more",
        _case(Change.VANISH, changes=2, batch=2),
        ("stuck", "doubled"),
        ((committed_batches, "usable", lambda base, *given, **more: base),),
    ),
)
"""Each switches one rule off; the sentence is the rule."""
