"""One text for code that means the same: no comments, layout, positions or docstrings; equal on every Python 3.10+."""

from __future__ import annotations

import ast
from collections.abc import Collection

_IGNORED_FIELDS = frozenset(("ctx", "type_comment", "kind", "type_ignores"))
_WITH_DOCSTRING = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def canonical(node: ast.AST, *, without: Collection[ast.AST] = ()) -> str:
    """Return the normal form of a syntax tree. ``without`` are nodes in lists to leave out (decorators).

    Not `ast.unparse` or `ast.dump`: their texts differ between minor versions (f-string quotes, empty fields), and an
    upgrade of a worker's Python would run everything again. An empty or absent field is left out here, so a field that
    a later Python adds changes nothing.
    """
    pieces: list[str] = []
    _write(node, without, pieces)
    return "".join(pieces)


def _write(value: object, without: Collection[ast.AST], pieces: list[str]) -> None:
    if isinstance(value, ast.AST):
        pieces.append(f"{type(value).__name__}(")
        for name, field in ast.iter_fields(value):
            if name == "body" and isinstance(value, _WITH_DOCSTRING):
                field = _without_docstring(field)
            if isinstance(value, ast.JoinedStr) and name == "values":
                # Python 3.12 leaves empty texts between the parts of an f-string.
                field = [each for each in field if not (isinstance(each, ast.Constant) and each.value == "")]
            if isinstance(field, list):
                field = [each for each in field if not any(each is left_out for left_out in without)]
            # A constant's own value may be None or empty, and must show.
            if isinstance(value, ast.Constant) and name == "value":
                pieces.append(f"{type(field).__name__} {field!r}" if field is not Ellipsis else "...")
            elif field is not None and field != [] and name not in _IGNORED_FIELDS:
                pieces.append(f"{name}=")
                _write(field, without, pieces)
                pieces.append(",")
        pieces.append(")")
    elif isinstance(value, list):
        pieces.append("[")
        for each in value:
            _write(each, without, pieces)
            pieces.append(",")
        pieces.append("]")
    else:
        pieces.append(repr(value))


def _without_docstring(body: list[ast.stmt]) -> list[ast.stmt]:
    first = body[0] if body else None
    if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str):
        return body[1:]
    return body
