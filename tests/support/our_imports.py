"""What a module may import, read from its source."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache


@cache
def imports_of(source: str, package: str) -> tuple[str, ...]:
    """Every module that the source may import, at any depth, inside functions and under TYPE_CHECKING too."""
    return tuple(_imports(source, package))


def _imports(source: str, package: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parents = package.split(".")
            base = ".".join(parents[: len(parents) - node.level + 1]) if node.level else ""
            module = ".".join(part for part in (base, node.module) if part)
            yield module
            yield from (f"{module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Call) and name_called(node) in ("import_module", "__import__"):
            yield from (
                argument.value
                for argument in node.args
                if isinstance(argument, ast.Constant) and isinstance(argument.value, str)
            )


def name_called(node: ast.Call) -> str | None:
    """The last part of what is called: ``c`` of ``a.b.c()``."""
    return getattr(node.func, "attr", None) or getattr(node.func, "id", None)
