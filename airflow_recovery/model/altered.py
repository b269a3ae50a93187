"""Values that differ from others in a few fields, of which a large run needs very many."""

from __future__ import annotations

from typing import TypeVar

T = TypeVar("T")


def altered(value: T, **fields: object) -> T:
    """``value``, of a frozen dataclass, with these fields: `dataclasses.replace` in one step for all of them.

    It is for classes that check nothing. What the value has found out of itself (`functools.cached_property`) is taken
    over, so no field may be given that this rests on.
    """
    other = object.__new__(type(value))
    other.__dict__.update(value.__dict__, **fields)
    return other
