"""A module as a fingerprint sees it: read from disk, parsed once, never imported.

`canonical` is one text for code that means the same: no comments, layout, positions or docstrings.
"""

from __future__ import annotations

import ast
import hashlib
import os
import re
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import decode_source, find_spec

from airflow_recovery.errors import FingerprintError
from airflow_recovery.job.package_files import FileIdentity, file_digest, hashed_files, identity_of
from airflow_recovery.job.references import ImportTarget, bound_names, imported_names

ADVICE = "declare version= on the vertex and change it with the code"
_IGNORED_FIELDS = frozenset(("ctx", "type_comment", "kind", "type_ignores"))
_VERSION_FILES = frozenset(("_version.py", "__version__.py"))
_GENERATED = re.compile(r"^#.*(generated|do not (edit|change))", re.IGNORECASE | re.MULTILINE)
_OF_A_VERSION = re.compile(r"_*((version|commit|revision|git|build)\w*|all__|TYPE_CHECKING)", re.IGNORECASE)
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_WITH_DOCSTRING = (ast.Module, *_SCOPES)


@dataclass(eq=False)
class ModuleCode:
    """One module. ``spec``: where it was found. ``path`` and ``text``: its source; empty if there is none to read.

    ``opaque``: the SHA-256 of a module that is no readable Python source, for example a compiled one. ``identity``: of
    its file when that was read; `None` for a module in an archive.
    """

    name: str
    spec: ModuleSpec
    path: str = ""
    text: str = ""
    opaque: str = ""
    identity: FileIdentity | None = None

    @property
    def is_package(self) -> bool:
        """Whether modules can lie below it."""
        return self.spec.submodule_search_locations is not None

    @cached_property
    def tree(self) -> ast.Module:
        """The syntax tree; empty without source."""
        return ast.parse(self.text, self.path)

    @cached_property
    def imports(self) -> Mapping[str, Sequence[ImportTarget]]:
        """What the import statements outside of functions bind each name to."""
        found: dict[str, list[ImportTarget]] = {}
        for statement in _outside_functions(self.tree):
            if isinstance(statement, (ast.Import, ast.ImportFrom)):
                for name, target in imported_names(statement).items():
                    found.setdefault(name, []).append(target)
        return found

    @cached_property
    def bound(self) -> frozenset[str]:
        """The names that the module's top level binds by other statements than imports."""
        return frozenset(
            name
            for statement in _outside_functions(self.tree)
            for name in (
                [statement.name]
                if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
                else bound_names(statement)
                if isinstance(statement, (ast.Name, ast.MatchAs, ast.MatchStar, ast.MatchMapping))
                else ()
            )
        )

    @cached_property
    def is_version(self) -> bool:
        """Whether a build has generated it to hold a version, and nothing else: every build changes it."""
        is_generated = os.path.basename(self.path) in _VERSION_FILES or bool(_GENERATED.search(self.text[:400]))
        kinds = (ast.Assign, ast.AnnAssign, ast.ImportFrom, ast.If)
        body = without_docstring(self.tree.body)
        return (
            is_generated
            and bool(body)
            and all(isinstance(statement, kinds) for statement in body)
            and not any(isinstance(node, (ast.Call, *_SCOPES)) for node in ast.walk(self.tree))
            and all(_OF_A_VERSION.fullmatch(name) for name in self.bound)
        )

    def absolute(self, target: ImportTarget) -> str:
        """Return the full name of the module that an import in this module means."""
        if not target.level:
            return target.module
        package = self.name.split(".")
        drop = target.level - (1 if self.is_package else 0)
        return ".".join([*package[: len(package) - drop], *([target.module] if target.module else [])])


def _outside_functions(tree: ast.Module) -> Iterator[ast.AST]:
    """All nodes that belong to the module's own scope."""
    below: list[ast.AST] = list(tree.body)
    while below:
        node = below.pop()
        yield node
        if not isinstance(node, (*_SCOPES, ast.Lambda)):
            below.extend(ast.iter_child_nodes(node))


def find_module(name: str) -> ModuleCode | None:
    """Return the code of a module; `None` if there is no such module. Raises `FingerprintError` if nothing is readable.

    The module is not imported. A module that is already loaded is found where it was loaded from.
    """
    spec = find_module_spec(name)
    if spec is None:
        return None
    if spec.origin is None or spec.origin == "namespace":
        return ModuleCode(name, spec)
    if not os.path.isabs(spec.origin):
        return None  # built into Python
    try:
        identity = identity_of(os.stat(spec.origin))
    except OSError:
        # Inside a zip on the driver's Python path.
        text = _source_of_loader(spec)
        if text is None:
            raise FingerprintError(
                f"expected Python source for module {name!r}, found {spec.origin!r}: {ADVICE}"
            ) from None
        return _parsed(ModuleCode(name, spec, spec.origin, text), text.encode())
    return _read(name, spec.origin, spec.submodule_search_locations is not None, identity)


def find_module_spec(name: str) -> ModuleSpec | None:
    """Return where a module is found, without importing it; `None` if it is not found."""
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
            try:
                spec_below = find_spec(prefix) if depth == 1 else PathFinder.find_spec(prefix, locations)
            except ValueError:
                return None  # loaded without a file
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


@lru_cache(maxsize=16_384)
def _read(name: str, path: str, is_package: bool, identity: FileIdentity) -> ModuleCode:
    spec = find_module_spec(name)
    assert spec is not None
    try:
        if not path.endswith(".py"):
            return ModuleCode(name, spec, path, opaque=file_digest(path), identity=identity)
        with open(path, "rb") as file:
            content = file.read()
        hashed_files.keep(path, content)
    except OSError as error:
        raise FingerprintError(f"expected readable Python source in {path!r}, found {error}: {ADVICE}") from error
    try:
        text = decode_source(content)
    except (UnicodeDecodeError, SyntaxError):
        text = "("
    return _parsed(ModuleCode(name, spec, path, text, identity=identity), content)


def _parsed(code: ModuleCode, content: bytes) -> ModuleCode:
    """``code`` itself, or by its content if it is no Python of this version: importing it fails, and nothing else."""
    try:
        code.tree  # noqa: B018 - parsed now
    except (SyntaxError, ValueError, RecursionError):
        return replace(code, text="", opaque=hashlib.sha256(content).hexdigest())
    return code


def canonical(node: ast.AST, *, without: Collection[ast.AST] = (), docstrings: bool = False) -> str:
    """Return the normal form of a syntax tree. ``without`` are nodes in lists to leave out, such as decorators.

    Docstrings are left out, unless ``docstrings`` is set.

    Not `ast.unparse` or `ast.dump`: their texts differ between minor versions (f-string quotes, empty fields), and an
    upgrade of a worker's Python would run everything again. An empty or absent field is left out here, so a field that
    a later Python adds changes nothing.
    """
    pieces: list[str] = []
    _write(node, frozenset(map(id, without)), docstrings, pieces)
    return "".join(pieces)


def _write(value: object, without: frozenset[int], docstrings: bool, pieces: list[str]) -> None:
    if isinstance(value, ast.AST):
        pieces.append(f"{type(value).__name__}(")
        for name, field in ast.iter_fields(value):
            if name == "body" and not docstrings and isinstance(value, _WITH_DOCSTRING):
                field = without_docstring(field)
            if isinstance(value, ast.JoinedStr) and name == "values":
                # Python 3.12 leaves empty texts between the parts of an f-string.
                field = [part for part in field if not (isinstance(part, ast.Constant) and part.value == "")]
            if isinstance(field, list):
                field = [item for item in field if id(item) not in without]
            # A constant's own value may be None or empty, and must show.
            if isinstance(value, ast.Constant) and name == "value":
                pieces.append(f"{type(field).__name__} {field!r}" if field is not Ellipsis else "...")
            elif field is not None and field != [] and name not in _IGNORED_FIELDS:
                pieces.append(f"{name}=")
                _write(field, without, docstrings, pieces)
                pieces.append(",")
        pieces.append(")")
    elif isinstance(value, list):
        pieces.append("[")
        for item in value:
            _write(item, without, docstrings, pieces)
            pieces.append(",")
        pieces.append("]")
    else:
        pieces.append(repr(value))


def without_docstring(body: list[ast.stmt]) -> list[ast.stmt]:
    """Return the statements of a body behind its docstring."""
    first = body[0] if body else None
    if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str):
        return body[1:]
    return body
