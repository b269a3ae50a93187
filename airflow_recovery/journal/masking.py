"""What people wrote, or a program said, goes into the journal with its secrets masked (fault 84).

Only free text is touched, the fields that a class names in ``free_text``: a name or a digest in which a short secret
happened to occur would not be itself any more.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar

Mask = Callable[[str], str]
"""The text with every secret that this process knows replaced. The journal itself knows none: it is handed in."""

R = TypeVar("R")


def masked(value: R, mask: Mask) -> R:
    """``value``, a record or an event, with its free text masked, at any depth."""
    same_type: R = _masked(value, mask)
    return same_type


def _masked(value: Any, mask: Mask) -> Any:
    if isinstance(value, tuple) and value and _texts_of(type(value[0])):  # not through 100,000 objects of a manifest
        return tuple(_masked(item, mask) for item in value)
    if not is_dataclass(value) or isinstance(value, type):
        return value
    texts = _texts_of(type(value))
    changes = {}
    for field_ in fields(value):
        before = getattr(value, field_.name)
        after = _text(before, mask) if field_.name in texts else _masked(before, mask)
        if after is not before and after != before:
            changes[field_.name] = after
    return replace(value, **changes) if changes else value


def _texts_of(kind: type[Any]) -> frozenset[str]:
    """The fields of a class that are free text, as the class says."""
    texts: frozenset[str] = getattr(kind, "free_text", frozenset())
    return texts


def _text(value: Any, mask: Mask) -> Any:
    if isinstance(value, str):
        return mask(value)
    if isinstance(value, tuple):
        return tuple(_text(item, mask) for item in value)
    return value
