"""The components of a fingerprint: each thing that a result depends on, with a name that a user understands.

A fingerprint alone can only be compared. Its components also show what has changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Literal

from airflow_recovery.model.codec import canonical_json, digest_of, later


class UnseenCode(str, Enum):
    """What happens to a valid result if code that it depends on can't be seen: a change of it goes unnoticed."""

    KEEP = "keep"
    """It is kept."""
    RUN_ON_CLEAR = "run-on-clear"
    """The task runs once after a person clears it. It keeps the result in retries and in backfills."""
    RUN = "run"
    """The task runs once after each clear, including those of recovery and of backfills."""


UnseenCodeLike = UnseenCode | Literal["keep", "run-on-clear", "run"]

_FINGERPRINT_LENGTH = 32
_MOST_VALUE_CHARS = 256


@dataclass(frozen=True)
class Component:
    """One thing that a result depends on.

    ``name`` is unique within a fingerprint, and readable: ``application s3a://code/clean.py``. ``value`` is a readable
    value, or a digest of the content. ``seen`` is false if the content behind the name can't be read. Then ``value``
    is all that is known of it, for example its URI. ``decides`` is false for a component that is only shown: it is
    not in the fingerprint.
    """

    name: str
    value: str
    seen: bool = later(True)
    decides: bool = later(True)


@dataclass(frozen=True)
class ComponentChange:
    """A component whose value differs. A component that only one side has is `None` on the other."""

    name: str
    before: Component | None
    after: Component | None

    @property
    def decides(self) -> bool:
        """Whether this change gives another fingerprint."""
        return any(side is not None and side.decides for side in (self.before, self.after))


def fingerprint_of(components: Iterable[Component]) -> str:
    """Return the fingerprint of the components that decide: 32 hex digits. Their order counts.

    ``seen`` is not part of it: the same value read by another way is the same result.
    """
    decisive = [[component.name, component.value] for component in components if component.decides]
    return digest_of({"components": decisive})[:_FINGERPRINT_LENGTH]


def bundle_version(version: str) -> tuple[Component, ...]:
    """Return the component of the DAG bundle's version; none if ``version`` is empty."""
    return (Component("bundle version", version),) if version else ()


def components_of(document: Iterable[tuple[str, Any]]) -> tuple[Component, ...]:
    """Return a component for each name and JSON value. A value whose JSON is long is stored as its digest."""
    return tuple(Component(name, value_of(value)) for name, value in document)


def value_of(value: Any) -> str:
    """Return a JSON value as the value of a component: short JSON as it is, longer JSON as its SHA-256."""
    text = canonical_json(value)
    return text if len(text) <= _MOST_VALUE_CHARS else f"sha256:{digest_of(value)}"


def changes(before: Sequence[Component], after: Sequence[Component]) -> tuple[ComponentChange, ...]:
    """Return the components whose values differ, in the order of ``after``, then those that only ``before`` has."""
    old, new = {one.name: one for one in before}, {one.name: one for one in after}
    return tuple(
        ComponentChange(name, old.get(name), new.get(name))
        for name in dict.fromkeys([*new, *old])
        if (old[name].value if name in old else None) != (new[name].value if name in new else None)
    )


def unseen_in(components: Iterable[Component]) -> tuple[Component, ...]:
    """Return the components that decide, and whose content can't be read."""
    return tuple(component for component in components if component.decides and not component.seen)
