"""The methods by which the state of a user's own class outlives the process that made it (FLIP-383).

Two kinds of classes may have them: the enumerator of a source (`airflow_recovery.enumerated_by`), whose state is in the
record of the splits that it has yielded; and a source's coordinator (``coordinator=``), whose state is in the finish of
the attempt that it was made for. So a state is never older or newer than what it belongs to.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

MAX_STATE_BYTES = 1024 * 1024
"""The largest state, as JSON: it is written into the journal, and every later attempt reads it."""


@runtime_checkable
class SupportsBatchSnapshot(Protocol):
    """An enumerator or a coordinator that a new one can take over from. Both methods, or neither.

    The state is plain JSON: texts, numbers, booleans, `None`, lists, and dicts with texts as keys. It is no place for
    data or for secrets.
    """

    def snapshot_state(self) -> Any:
        """Return what a later instance must know of what this one has done.

        An enumerator is asked when it has yielded its splits, a coordinator when its attempt is about to finish.
        """
        ...

    def restore(self, state: Any) -> None:
        """Take over ``state``. Called before anything else, where there is a state.

        An enumerator is given what the one before it gave, and then yields only what comes after that. A coordinator is
        given what those of all other finished subtasks of its vertex gave, by the names of their regions.
        """
        ...


def takes_snapshots(of: object) -> bool:
    """Whether ``of``, a class or an instance, has `SupportsBatchSnapshot`."""
    return not missing_methods(of)


def missing_methods(of: object) -> list[str]:
    """The methods of `SupportsBatchSnapshot` that ``of``, a class or an instance, lacks."""
    return [name for name in ("snapshot_state", "restore") if not callable(getattr(of, name, None))]


def state_text(state: Any, where: str, error: Callable[..., Exception]) -> str:
    """``state`` as JSON. Raises ``error`` for one that JSON does not give back as it is, or that is too large."""
    try:
        text = json.dumps(state, allow_nan=False)
        is_plain = json.loads(text) == state
    except (TypeError, ValueError, RecursionError):
        text, is_plain = "", False
    if is_plain and len(text) <= MAX_STATE_BYTES:
        return text
    what = f"{len(text)} bytes" if is_plain else repr(state)[:200]
    raise error(
        f"{where}: expected snapshot_state() to give what JSON gives back unchanged, in at most {MAX_STATE_BYTES} "
        f"bytes, found {what}: return texts, numbers, booleans, None, lists and dicts with texts as keys, and only "
        "what a later one must know",
        code="state-unfit",
        where=where,
        found=what,
    )
