"""What a class of the user's own has, so that what it knows outlives the process that made it (FLIP-383).

Two kinds may have it: the enumerator of a source (`airflow_recovery.enumerated_by`), whose state stands in the record
of the splits that it has told of; and a source's coordinator (``coordinator=``), whose state stands in the finish of
the attempt that it was made for. So no state is older or newer than what it is the state of.
"""

from __future__ import annotations

import json
from typing import Any, Protocol, runtime_checkable

MAX_STATE_BYTES = 1024 * 1024
"""Of one state, as JSON: it stands in the journal, and whoever comes later reads it."""


@runtime_checkable
class SupportsBatchSnapshot(Protocol):
    """An enumerator or a coordinator that a new one can take over from. Both methods, or neither.

    The state is plain JSON: texts, numbers, booleans, `None`, lists, and dicts with texts as keys. It is no place for
    data or for secrets.
    """

    def snapshot_state(self) -> Any:
        """What a later one must know of what this one has done.

        Of an enumerator: asked when it has yielded its splits. Of a coordinator: when its attempt is about to finish.
        """
        ...

    def restore(self, state: Any) -> None:
        """Know what ``state`` says. Called before anything else, where there is a state.

        An enumerator is given what the one before it gave, and then yields only what comes after that. A coordinator is
        given what those of all other finished subtasks of its vertex gave, by the names of their regions.
        """
        ...


def takes_snapshots(of: object) -> bool:
    """Whether ``of``, a class or an instance, has `SupportsBatchSnapshot`."""
    return not missing_methods(of)


def missing_methods(of: object) -> list[str]:
    """Those of `SupportsBatchSnapshot` that ``of`` has not."""
    return [name for name in ("snapshot_state", "restore") if not callable(getattr(of, name, None))]


def state_text(state: Any, where: str, error: type[Exception]) -> str:
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
        "what a later one must know"
    )
