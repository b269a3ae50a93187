"""Values that are bound to a function (closures, defaults, arguments), as JSON that is equal in all processes.

Types and order count: ``{1: x}`` and ``{"1": x}`` differ, and so do ``{"a": 1, "b": 2}`` and ``{"b": 2, "a": 1}``. The
order of a set does not count, since it depends on the process.
"""

from __future__ import annotations

import copyreg
import hashlib
import json
import re
from collections.abc import Callable
from enum import Enum
from pathlib import PurePath
from types import BuiltinFunctionType, CodeType, FunctionType, GeneratorType, MethodType, ModuleType
from typing import Any

_MOST_PATH = 1024
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")


class Unstable(TypeError):
    """A value holds something (a lock, a connection) that no other process can have as well."""


class BoundValues:
    """Describes values. ``code_of`` describes a function, a class or a module by its code.

    ``lenient``: describe a value that can't be pickled by its attributes or its text. Otherwise raise `Unstable`.
    """

    def __init__(self, code_of: Callable[[Any], Any], *, lenient: bool = False) -> None:
        self._code_of = code_of
        self._lenient = lenient
        self._above: list[int] = []
        self._known: dict[int, tuple[Any, str]] = {}
        """By its id what was described, which keeps the id its own, and the digest of its description."""
        self.paths: set[str] = set()
        """The texts and paths in what was described that may be paths of files, from the root on."""

    def digest(self, value: Any) -> str:
        """Return the SHA-256 of what `describe` returns."""
        return _digest(self.describe(value))

    def describe(self, value: Any) -> Any:
        """Return JSON for the value. Raises `Unstable`."""
        if isinstance(value, (str, PurePath)) and is_path(str(value)):
            self.paths.add(str(value))
        if value is None or type(value) in (bool, int, str):
            return value
        if type(value) in (float, complex):
            return [type(value).__name__, repr(value)]
        if type(value) in (bytes, bytearray):
            return [type(value).__name__, hashlib.sha256(value).hexdigest()]
        if isinstance(value, (FunctionType, type, ModuleType)):
            return self._code_of(value)
        if isinstance(value, BuiltinFunctionType) and isinstance(value.__self__, ModuleType | None):
            return ["builtin", value.__module__, value.__qualname__]
        if id(value) in self._above:
            return ["above", len(self._above) - self._above.index(id(value))]
        if id(value) not in self._known:
            self._above.append(id(value))
            try:
                # A value that is held in many places is looked at once.
                self._known[id(value)] = value, _digest(self._composed(value))
            finally:
                self._above.pop()
        return ["composed", self._known[id(value)][1]]

    def _composed(self, value: Any) -> list[Any]:
        if type(value) in (list, tuple):
            return [type(value).__name__, *map(self.describe, value)]
        if type(value) is dict:
            return ["dict", *([self.describe(key), self.describe(item)] for key, item in value.items())]
        if type(value) in (set, frozenset):
            return [type(value).__name__, *sorted(map(self.describe, value), key=_text)]
        if isinstance(value, Enum):
            return ["enum", self._code_of(type(value)), value.name]
        if self._lenient and (parts := _parts_of(value)) is not None:
            return [type(value).__name__, *map(self.describe, parts)]
        if isinstance(value, MethodType):
            return ["method", self.describe(value.__func__), self.describe(value.__self__)]
        return self._object(value)

    def _object(self, value: Any) -> list[Any]:
        """Any other object, by what pickle would make it of."""
        kind = type(value)
        if kind is object and not self._lenient:
            raise Unstable("an object() is equal to nothing but itself")
        try:
            reduce = copyreg.dispatch_table.get(kind)
            reduced = reduce(value) if reduce is not None else value.__reduce_ex__(4)
        except Exception as error:
            if not self._lenient:
                raise Unstable(f"{kind.__module__}.{kind.__qualname__}: {error}") from error
            return self._attributes(value)
        if isinstance(reduced, str):
            return ["global", kind.__module__, reduced]
        parts: list[Any] = [*reduced, None, None, None]
        state, items, pairs = parts[2:5]
        return [
            "object",
            self.describe(parts[0]),
            self.describe(parts[1]),
            self._state(state),
            None if items is None else [self.describe(item) for item in items],
            None if pairs is None else [[self.describe(key), self.describe(item)] for key, item in pairs],
        ]

    def _attributes(self, value: Any) -> list[Any]:
        attributes = getattr(value, "__dict__", None)
        if attributes:
            return ["attributes", self._code_of(type(value)), self._state(attributes)]
        return ["text", self._code_of(type(value)), _ADDRESS.sub("", str(value))]

    def _state(self, state: Any) -> Any:
        """The order in which attributes were set does not count."""
        if type(state) is dict and all(type(key) is str for key in state):
            return ["state", *([key, self.describe(state[key])] for key in sorted(state))]
        return self.describe(state)


def is_path(text: str) -> bool:
    """Whether a text may be the path of a file of this machine, from the root on."""
    return text.startswith(("/", "file:/")) and "\n" not in text and len(text) <= _MOST_PATH


def _parts_of(value: Any) -> list[Any] | None:
    """What can be seen of some of Python's own objects that can't be pickled, or only by their name."""
    if hasattr(value, "cache_parameters") and hasattr(value, "__wrapped__"):  # functools.lru_cache
        return [value.__wrapped__, value.cache_parameters()]
    if isinstance(value, CodeType):
        consts = [each for each in value.co_consts if each is not Ellipsis]
        return [value.co_code, list(value.co_names), list(value.co_varnames), consts]
    if isinstance(value, GeneratorType):
        return [value.gi_code, dict(value.gi_frame.f_locals) if value.gi_frame is not None else None]
    if isinstance(value, memoryview):
        return [value.format, value.tobytes()]
    if isinstance(value, property):
        return [value.fget, value.fset, value.fdel]
    if isinstance(value, (staticmethod, classmethod)):
        return [value.__func__]
    return None


def _digest(described: Any) -> str:
    return hashlib.sha256(_text(described).encode("utf-8", "surrogatepass")).hexdigest()


def _text(described: Any) -> str:
    return json.dumps(described)
