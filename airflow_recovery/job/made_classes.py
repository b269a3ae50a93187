"""Whether the ``class`` statement of a class tells all of its attributes, or something else has given it some."""

from __future__ import annotations

import ast
import inspect
from abc import ABCMeta
from enum import Enum
from types import FunctionType
from typing import Any

from airflow_recovery.job.references import bindings

_OF_NAMED_TUPLES = frozenset(("_asdict", "_field_defaults", "_fields", "_make", "_replace"))
_PLAIN = (type(None), bool, int, float, complex, str, bytes)


def has_its_attributes(value: type, statement: ast.ClassDef) -> bool:
    """Return whether the attributes of a class are those that its statement binds, as far as that can be seen.

    A value that the statement writes out must be unchanged, and a method must be the function in the statement. A
    computed value passes, because the code that computes it is part of the fingerprint.
    """
    bound: dict[str, list[ast.AST]] = {}
    for name, node in bindings(statement):
        is_private = name.startswith("__") and not name.endswith("__")
        bound.setdefault(f"_{statement.name.lstrip('_')}{name}" if is_private else name, []).append(node)
    is_known = type(value) in (type, ABCMeta) or issubclass(value, Enum)
    return all(
        _is_as_written(value, item, bound[name]) if name in bound else not (is_known and _is_data(item))
        for name, item in own_attributes(value)
    )


def own_attributes(value: type) -> list[tuple[str, Any]]:
    """Return the attributes of a class that its author chooses: not the inherited ones, and no special names."""
    if issubclass(value, Enum):
        return [(name, member.value) for name, member in value.__members__.items()]
    left_out = _OF_NAMED_TUPLES if issubclass(value, tuple) else ()
    return [
        (name, item)
        for name, item in vars(value).items()
        if not (name.startswith("__") and name.endswith("__")) and name not in left_out and name != "_abc_impl"
    ]


def _is_as_written(value: type, item: Any, nodes: list[ast.AST]) -> bool:
    node = nodes[0]
    if len(nodes) > 1:
        return not _is_data(item) or all(isinstance(each, ast.FunctionDef) for each in nodes)
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and not node.decorator_list:
        inner = inspect.unwrap(item) if callable(item) else None
        return isinstance(inner, FunctionType) and inner.__qualname__ == f"{value.__qualname__}.{node.name}"
    if isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None and _is_plain(item):
        try:
            written = ast.literal_eval(node.value)
        except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
            return True  # computed
        return type(written) is type(item) and bool(written == item)
    return True


def _is_data(item: Any) -> bool:
    return isinstance(item, FunctionType) or _is_plain(item)


def _is_plain(item: Any) -> bool:
    if type(item) in (tuple, list, set, frozenset):
        return all(map(_is_plain, item))
    if type(item) is dict:
        return all(_is_plain(key) and _is_plain(each) for key, each in item.items())
    return type(item) in _PLAIN
