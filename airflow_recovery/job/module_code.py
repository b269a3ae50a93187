"""The source of a module as a fingerprint sees it: read from disk, parsed once, never imported.

`canonical` is one text for code that means the same: no comments, layout, positions or docstrings.
"""

from __future__ import annotations

import ast
import os
import sys
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import decode_source, find_spec

from airflow_recovery.errors import FingerprintError
from airflow_recovery.job.references import ImportTarget, bound_names, imported_names

ADVICE = "declare version= on the vertex and change it with the code"
_IGNORED_FIELDS = frozenset(("ctx", "type_comment", "kind", "type_ignores"))
_WITH_DOCSTRING = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass
class ModuleCode:
    """One parsed module.

    ``definitions`` maps every name that the module's top level binds to the statements that bind or alter it, and
    ``imports`` to what import statements bind it to. ``stars`` are the modules imported with a star.
    ``path`` and ``text``: where it was read, and what; empty where there is nothing to read.
    """

    name: str
    is_package: bool
    tree: ast.Module
    path: str = ""
    text: str = ""
    definitions: dict[str, list[ast.AST]] = field(default_factory=dict)
    imports: dict[str, list[ImportTarget]] = field(default_factory=dict)
    stars: list[ImportTarget] = field(default_factory=list)

    def absolute(self, target: ImportTarget) -> str:
        """Return the full name of the module that an import in this module means."""
        if not target.level:
            return target.module
        package = self.name.split(".")
        drop = target.level - (1 if self.is_package else 0)
        return ".".join([*package[: len(package) - drop], *([target.module] if target.module else [])])


def find_module(name: str) -> ModuleCode | None:
    """Return the code of a module, `None` where there is no such module. Raises `FingerprintError` without source."""
    spec = _find_spec(name)
    if spec is None:
        return None
    is_package = spec.submodule_search_locations is not None
    if spec.origin is None or spec.origin == "namespace":
        return ModuleCode(name, is_package, ast.Module([], []))
    try:
        stat = os.stat(spec.origin)
    except OSError:
        # Inside a zip on the driver's Python path.
        text = _source_of_loader(spec)
        if text is None:
            raise _unreadable(name, spec.origin) from None
        return _parse(name, spec.origin, is_package, text)
    if not spec.origin.endswith(".py"):
        raise _unreadable(name, spec.origin)
    return _read(name, spec.origin, is_package, stat.st_mtime_ns, stat.st_size)


def _unreadable(name: str, origin: str) -> FingerprintError:
    return FingerprintError(f"expected Python source for module {name!r}, found {origin!r}: {ADVICE}")


def _find_spec(name: str) -> ModuleSpec | None:
    loaded = sys.modules.get(name)
    spec = getattr(loaded, "__spec__", None)
    if isinstance(spec, ModuleSpec) and name != "__main__":
        return spec
    path = getattr(loaded, "__file__", None)
    if path is not None:
        is_package = os.path.basename(path) == "__init__.py"
        return ModuleSpec(name, None, origin=os.path.abspath(path), is_package=is_package)
    # `find_spec` on a dotted name would import the parents; this walks down without running anything.
    spec_below: ModuleSpec | None = None
    locations: Sequence[str] | None = None
    parts = name.split(".")
    for depth in range(1, len(parts) + 1):
        prefix = ".".join(parts[:depth])
        loaded_spec = getattr(sys.modules.get(prefix), "__spec__", None)
        if isinstance(loaded_spec, ModuleSpec):
            spec_below = loaded_spec
        else:
            spec_below = find_spec(prefix) if depth == 1 else PathFinder.find_spec(prefix, locations)
        if spec_below is None:
            return None
        locations = list(spec_below.submodule_search_locations or [])
    return spec_below


def _source_of_loader(spec: ModuleSpec) -> str | None:
    get_source = getattr(spec.loader, "get_source", None)
    if get_source is None:
        return None
    source = get_source(spec.name)
    return source if isinstance(source, str) else None


@lru_cache(maxsize=1024)
def _read(name: str, path: str, is_package: bool, mtime_ns: int, size: int) -> ModuleCode:
    try:
        with open(path, "rb") as file:
            text = decode_source(file.read())
    except (OSError, UnicodeDecodeError, SyntaxError) as error:
        raise FingerprintError(f"expected readable Python source in {path!r}, found {error}: {ADVICE}") from error
    return _parse(name, path, is_package, text)


def _parse(name: str, path: str, is_package: bool, text: str) -> ModuleCode:
    try:
        tree = ast.parse(text, path)
    except (SyntaxError, ValueError) as error:
        raise FingerprintError(f"expected valid Python in {path!r}, found {error}: {ADVICE}") from error
    code = ModuleCode(name, is_package, tree, path, text)
    _collect(code, tree.body, ())
    return code


def _collect(code: ModuleCode, statements: Iterable[ast.AST], conditions: tuple[ast.AST, ...]) -> None:
    """Note what each statement binds. What decides whether it runs (an ``if`` around it) belongs to it."""
    for statement in statements:
        if isinstance(statement, (ast.Import, ast.ImportFrom)):
            for name, target in imported_names(statement).items():
                code.imports.setdefault(name, []).append(target)
            if isinstance(statement, ast.ImportFrom) and any(alias.name == "*" for alias in statement.names):
                code.stars.append(ImportTarget(statement.module or "", statement.level))
            continue
        if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            code.definitions.setdefault(statement.name, []).extend((*conditions, statement))
            continue
        blocks = list(_blocks(statement))
        header = [child for child in ast.iter_child_nodes(statement) if not any(child in block for block in blocks)]
        if not blocks:
            for name in _bound_by(statement):
                code.definitions.setdefault(name, []).extend((*conditions, statement))
            continue
        for part in header:
            for name in bound_names(part):
                code.definitions.setdefault(name, []).extend((*conditions, *header))
        for block in blocks:
            _collect(code, block, (*conditions, *header))


def _blocks(statement: ast.AST) -> Iterator[list[ast.AST]]:
    for _, value in ast.iter_fields(statement):
        if isinstance(value, list) and value and isinstance(value[0], ast.stmt):
            yield value
        elif isinstance(value, list) and value and isinstance(value[0], (ast.ExceptHandler, ast.match_case)):
            for branch in value:
                yield [branch]


def _bound_by(statement: ast.AST) -> set[str]:
    names = bound_names(statement)
    # `TABLE["x"] = 1`, `TABLE.x = 1` and `TABLE.append(1)` alter what the name means.
    altered: list[ast.expr] = []
    if isinstance(statement, ast.Assign):
        altered = list(statement.targets)
    elif isinstance(statement, (ast.AugAssign, ast.AnnAssign)):
        altered = [statement.target]
    elif isinstance(statement, ast.Delete):
        altered = list(statement.targets)
    elif isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        altered = [statement.value.func]
    for target in altered:
        inner: ast.expr = target
        while isinstance(inner, (ast.Attribute, ast.Subscript)):
            inner = inner.value
        if inner is not target and isinstance(inner, ast.Name):
            names.add(inner.id)
    return names


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
                field = [part for part in field if not (isinstance(part, ast.Constant) and part.value == "")]
            if isinstance(field, list):
                field = [item for item in field if not any(item is left_out for left_out in without)]
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
        for item in value:
            _write(item, without, pieces)
            pieces.append(",")
        pieces.append("]")
    else:
        pieces.append(repr(value))


def _without_docstring(body: list[ast.stmt]) -> list[ast.stmt]:
    first = body[0] if body else None
    if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str):
        return body[1:]
    return body
