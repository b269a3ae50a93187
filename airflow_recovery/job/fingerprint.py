"""Fingerprints: what a vertex computes, so that it is kept exactly while that stays the same.

See docs/promises.md#promises.

A vertex's fingerprint holds its function's code and all code that this uses inside the user's packages, found by a
static walk that runs nothing. It does not see: code reached by name at run time (``importlib.import_module(x)``), data
files, other packages (only the names used from them), Spark itself. ``version=`` is for those.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
import json
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from functools import lru_cache
from types import FunctionType, ModuleType
from typing import Any, cast

from airflow_recovery.errors import FingerprintError
from airflow_recovery.job.declaration import Job
from airflow_recovery.job.mode import modes_in
from airflow_recovery.job.module_code import ADVICE, ModuleCode, canonical, find_module
from airflow_recovery.job.parallelism import FixedParallelism, RunTimeSubtasks
from airflow_recovery.job.references import (
    ImportTarget,
    Reference,
    default_values,
    names_bound_around,
    references,
)
from airflow_recovery.job.row_settings import IMAGES, row_settings
from airflow_recovery.model.codec import digest_of
from airflow_recovery.model.components import Component, components_of
from airflow_recovery.sinks.declaration import spec_of

_LENGTH = 32
_DECORATORS = ("source", "vertex", "sink")
_Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


@dataclass(frozen=True)
class CodeUnit:
    """One piece of code that a vertex uses: a function, a class or a constant, or (``name`` is empty) a whole module.

    ``module`` is empty for the vertex's own. ``lines``: their numbers in ``path``, and what stands there; none of what
    has no source of its own. ``used_by``: the module and the name of the piece that led here; `None` for the vertex's
    function itself.
    """

    module: str
    name: str
    digest: str
    path: str = ""
    lines: tuple[tuple[int, str], ...] = ()
    used_by: tuple[str, str] | None = None


def vertex_code(job: Job, vertex: str) -> list[list[str]]:
    """Return the code that a vertex uses, as ``[where, name, digest]``, for `vertex_fingerprint`."""
    return _used_by(job, vertex)[0]


def vertex_units(job: Job, vertex: str) -> list[CodeUnit]:
    """Return the same code, with where each piece stands and what led to it. Raises as `vertex_code`."""
    pieces, used = _used_by(job, vertex)
    return [used.unit(module, name, digest) for module, name, digest in pieces]


def _used_by(job: Job, vertex: str) -> tuple[list[list[str]], _CodeUsed]:
    declared, used = job.vertex_named(vertex), _CodeUsed(job.packages)
    try:
        return used.of(cast("FunctionType", declared.function), declared.coordinator), used
    except FingerprintError as error:
        if declared.version is None:
            raise FingerprintError(f"{declared.where}: {error}") from error
        return [], used


def function_code(
    function: Callable[..., Any], describe: Callable[[Any], Any], method_of: type | None = None
) -> list[list[str]]:
    """Return the code that a function outside of any job uses, in its own package. Raises `FingerprintError`.

    A value of a closure, or of a default, that is no plain one counts as what ``describe`` makes of it, or of what is
    in it. With ``method_of`` the code of that class is in it.
    """
    return _CodeUsed((), describe).of(cast("FunctionType", function), method_of)


def vertex_fingerprint(job: Job, vertex: str, params: Mapping[str, Any], *, code: list[list[str]] | None = None) -> str:
    """Return 32 hex digits that stand for what the vertex computes, given its rendered ``params``.

    In it: the function and what it uses (functions, classes, constants, in its own module and others of the user's
    packages), parameters, inputs, what its splits are declared as, ``commit="split"``, result type, the table that it
    is a snapshot of, versions, a fixed number of subtasks, settings of ``spark_conf`` that may change rows. Not in it:
    comments, docstrings and layout, the rest of the file, other vertices, the other settings, the keys of subtasks
    (`region_fingerprint`). ``code`` is `vertex_code`, if it is known already.
    Raises `FingerprintError` where source cannot be read and the vertex declares no version, and `JobDefinitionError`
    for an unknown vertex.
    """
    return _digest(vertex_document(job, vertex, params, code=vertex_code(job, vertex) if code is None else code))


def vertex_document(job: Job, vertex: str, params: Mapping[str, Any], *, code: list[list[str]]) -> dict[str, Any]:
    """Return what `vertex_fingerprint` is the digest of."""
    declared = job.vertex_named(vertex)
    parallelism = job.parallelism_of(vertex)
    added_by_modes = {key: value for mode in modes_in([declared]) for key, value in mode.fingerprint(declared).items()}
    return {
        **({"parallelism": parallelism.count} if isinstance(parallelism, FixedParallelism) else {}),
        "code": code,
        "inputs": [[edge.parameter, edge.vertex] for edge in declared.inputs],
        "job_version": job.version,
        "kind": declared.kind.value,
        "params": dict(params),
        "result": declared.result.value,
        "splits": declared.splits.identity if declared.splits else None,
        "version": declared.version,
        "vertex": declared.name,
        **({"commit": asdict(spec_of(declared.sink, declared.name))} if declared.sink else {}),
        **({"coordinator": declared.coordinator.__qualname__} if declared.coordinator else {}),
        **({"table": declared.table} if declared.table else {}),
        **({"settings": settings} if (settings := _settings(declared.spark_conf)) else {}),
        **added_by_modes,
    }


def vertex_components(
    job: Job, vertex: str, params: Mapping[str, Any], *, code: list[list[str]]
) -> tuple[Component, ...]:
    """Return what `vertex_fingerprint` holds, each part with a name. Images are shown, and do not decide."""
    document = vertex_document(job, vertex, params, code=code)
    parts: list[tuple[str, Any]] = [
        (f"code {module}:{name}" if module else f"code {name}", digest) for module, name, digest in document.pop("code")
    ]
    for key, word in (("params", "parameter"), ("settings", "setting")):
        parts += [(f"{word} {name}", value) for name, value in document.pop(key, {}).items()]
    parts += [(key.replace("_", " "), value) for key, value in document.items() if value not in (None, [])]
    images = ((name, image) for name, image in job.vertex_named(vertex).spark_conf.items() if name in IMAGES)
    shown = [Component(f"image {name}", image, seen="@sha256:" in image, decides=False) for name, image in images]
    return (*components_of(parts), *shown)


def _settings(spark_conf: Mapping[str, str]) -> dict[str, str]:
    """The settings that may change rows. Images are not among them: the vertex's code travels to the image."""
    return {name: value for name, value in row_settings(spark_conf).items() if name not in IMAGES}


def initializer_fingerprint(spec: RunTimeSubtasks, decides: Iterable[str]) -> str:
    """Return the fingerprint of what decides a run's subtasks: the rendered keys, or the pattern of the files."""
    return _digest({"subtasks": type(spec).__name__, "decides": list(decides)})


def _digest(value: object) -> str:
    return digest_of(value)[:_LENGTH]


class _CodeUsed:
    """Collects the code that one function uses: a list of ``[where, name, digest]``, each found once."""

    def __init__(self, packages: Iterable[str], describe: Callable[[Any], Any] | None = None) -> None:
        self._describe = describe
        self._packages = set(packages)
        self._own_module = ""
        self._namespace: Mapping[str, Any] = {}
        self._found: dict[tuple[str, str], str] = {}
        self._queue: list[tuple[ModuleCode, str, tuple[str, str] | None]] = []
        self._functions: set[int] = set()
        self._followed: set[tuple[str, tuple[str, ...]]] = set()
        self._nodes: dict[tuple[str, str], tuple[ModuleCode, list[ast.AST]]] = {}
        self._led_from: dict[tuple[str, str], tuple[str, str] | None] = {}
        self._following: tuple[str, str] | None = None

    def of(self, function: FunctionType, used_class: type | None = None) -> list[list[str]]:
        inner, _ = _unwrapped(function)
        self._own_module = _module_name(inner.__module__)
        self._namespace = inner.__globals__
        self._packages.add(self._own_module.partition(".")[0])
        self._add_function(function, label="")
        if used_class is not None:
            self._follow_module(used_class.__module__, tuple(used_class.__qualname__.split(".")))
        while self._queue:
            module, name, self._following = self._queue.pop()
            self._add_unit(module, name)
        return [[module, name, digest] for (module, name), digest in sorted(self._found.items())]

    def unit(self, module: str, name: str, digest: str) -> CodeUnit:
        """One of what `of` has found."""
        key = (module, name)
        code, nodes = self._nodes.get(key, (None, []))
        numbers = sorted({number for node in nodes for number in _line_numbers(node)})
        text = code.text.splitlines() if code is not None else []
        lines = tuple((number, text[number - 1]) for number in numbers if number <= len(text))
        return CodeUnit(module, name, digest, code.path if code else "", lines, self._led_from.get(key))

    # --- live functions: where closures are --------------------------------------------------------------------------

    def _add_function(self, function: FunctionType, *, label: str) -> None:
        if id(function) in self._functions:
            return
        inner, wrappers = _unwrapped(function)
        self._functions.update(map(id, (inner, *wrappers)))
        label = f"{label}{inner.__name__}()"
        module, node = _definition(inner, inner.__module__)
        self._add_live(module, node, inner, label)
        own = [one for one in getattr(node, "decorator_list", []) if not _declares_a_vertex(one, self._namespace)]
        if len(wrappers) <= len(own) and not (wrappers and _name_what_is_bound_around(own, module, node, inner)):
            return  # What stands above the function tells all that is wrapped around it.
        for wrapper in wrappers:
            # `functools.wraps` gives it the names of what it wraps.
            defined_in = str(wrapper.__globals__["__name__"]) if inspect.isfunction(wrapper) else ""
            if self._is_users(defined_in):
                label = f"{label}.{wrapper.__code__.co_name}()"
                self._add_live(*_definition(wrapper, defined_in), wrapper, label)

    def _add_live(self, module: ModuleCode, node: _Definition, function: FunctionType, label: str) -> None:
        """The code of a function, and the values that it holds."""
        self._add_code(module, label, [node])
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            try:
                value = cell.cell_contents
            except ValueError:
                raise FingerprintError(
                    f"expected a value for closure variable {name!r}, found none yet: {ADVICE}"
                ) from None
            self._add_value(module, f"{label}.{name}", value)
        for name, value in _bound_defaults(module, node, function).items():
            self._add_value(module, f"{label}.{name}", value)

    def _add_value(self, module: ModuleCode, label: str, value: Any) -> None:
        """What a closure variable or a default holds."""
        if inspect.isfunction(value):
            inner, _ = _unwrapped(value)
            if self._is_users(_module_name(inner.__module__)):
                self._add_function(value, label=label + ".")
            else:
                self._found[self._label(module), label] = f"{inner.__module__}.{inner.__qualname__}"
        elif isinstance(value, (ModuleType, type)):
            name = value.__name__ if isinstance(value, ModuleType) else f"{value.__module__}:{value.__qualname__}"
            self._found[self._label(module), label] = name
            owner, _, attribute = name.partition(":")
            self._follow_module(owner, tuple(attribute.split(".")) if attribute else ())
        else:
            try:
                self._found[self._label(module), label] = self._text(value)
            except (TypeError, ValueError, RecursionError):
                raise FingerprintError(
                    f"expected the value of {label!r} as a function, class, module or plain value, found a "
                    f"{type(value).__name__}: hand it in with params=, move it to the top of the module, or {ADVICE}"
                ) from None

    def _text(self, value: Any) -> str:
        try:
            return json.dumps(value, sort_keys=True, allow_nan=False, default=self._describe)
        except (TypeError, ValueError):
            if self._describe is None:
                raise
            return json.dumps(self._describe(value), sort_keys=True, allow_nan=False)

    # --- names: where everything else is -----------------------------------------------------------------------------

    def _add_unit(self, module: ModuleCode, name: str) -> None:
        """One name of a module's top level; the empty name is the whole module."""
        if (self._label(module), name) not in self._found:
            self._add_code(module, name, module.definitions[name] if name else [module.tree])

    def _add_code(self, module: ModuleCode, name: str, nodes: list[ast.AST]) -> None:
        declarations: list[ast.AST] = []
        if module.name == self._own_module:
            declarations = [decorator for node in nodes for decorator in _declaring_decorators(node, self._namespace)]
        digest = hashlib.sha256()
        for node in nodes:
            digest.update(canonical(node, without=declarations).encode("utf-8", "surrogatepass"))
        # Known before its references are followed, so that code in a ring ends.
        key = (self._label(module), name)
        self._found[key] = ""
        self._led_from[key] = self._following
        self._nodes[key] = module, [node for node in nodes if node not in declarations]
        following, self._following = self._following, key
        outside: set[str] = set()
        for use in references(nodes, without=declarations):
            self._follow(module, use, outside)
        for star in module.stars:
            self._follow_target(module, star, (), outside)
        for text in sorted(outside):
            digest.update(f"\n{text}".encode())
        self._found[key] = digest.hexdigest()
        self._following = following

    def _follow(self, module: ModuleCode, use: Reference, outside: set[str]) -> None:
        name, *rest = use.path
        if use.imported is not None:
            self._follow_target(module, use.imported, tuple(rest), outside)
            return
        if name in module.definitions:
            self._queue.append((module, name, self._following))
        for target in module.imports.get(name, ()):
            self._follow_target(module, target, tuple(rest), outside)

    def _follow_target(
        self, module: ModuleCode, target: ImportTarget, rest: tuple[str, ...], outside: set[str]
    ) -> None:
        path = rest if target.attribute is None else (target.attribute, *rest)
        absolute = module.absolute(target)
        if absolute == module.name and path:
            # `from . import helpers` in a package's own __init__ means the submodule.
            absolute, path = f"{absolute}.{path[0]}", path[1:]
        if not self._follow_module(absolute, path):
            outside.add(f"{absolute}:{'.'.join(path)}")

    def _follow_module(self, name: str, path: tuple[str, ...]) -> bool:
        """Follow a use of ``path`` in a module; whether that module is the user's own and there."""
        module = find_module(name) if self._is_users(name) else None
        if module is None:
            return False
        if (name, path) in self._followed:
            return True
        self._followed.add((name, path))
        if not path:
            self._queue.append((module, "", self._following))
            return True
        head = path[0]
        outside: set[str] = set()
        if head in module.definitions or head in module.imports:
            self._follow(module, Reference(path), outside)
            self._found.update({(self._label(module), f"{'.'.join(path)} ->"): name for name in sorted(outside)})
        elif not (module.is_package and self._follow_module(f"{name}.{head}", path[1:])):
            # Made in a way that this walk does not see (a star import, `__getattr__`, `globals()`).
            self._queue.append((module, "", self._following))
        return True

    def _is_users(self, module: str) -> bool:
        return module.partition(".")[0] in self._packages

    def _label(self, module: ModuleCode) -> str:
        # The vertex's own module goes without a name: Airflow, a driver and `__main__` give one file different ones.
        return "" if module.name == self._own_module else module.name


def _line_numbers(node: ast.AST) -> range:
    first = getattr(node, "lineno", None)
    if isinstance(node, ast.Module):
        first, last = 1, max([getattr(statement, "end_lineno", 0) or 0 for statement in node.body], default=0)
    else:
        last = getattr(node, "end_lineno", None)
    return range(first, last + 1) if first and last else range(0)


def _module_name(name: str) -> str:
    if name == "__main__":
        spec = getattr(sys.modules[name], "__spec__", None)
        return spec.name if spec is not None else name
    return name


def _unwrapped(function: Callable[..., Any]) -> tuple[FunctionType, list[Any]]:
    """The function inside all of its wrappers, and these, the outermost first. Raises `FingerprintError`."""
    inner, wrappers = inspect.unwrap(function), []
    while function is not inner:
        wrappers.append(function)
        function = function.__wrapped__  # type: ignore[attr-defined]
    if not inspect.isfunction(inner):
        raise FingerprintError(f"expected a function that is written in Python, found {inner!r}: {ADVICE}")
    return inner, wrappers


def _bound_defaults(module: ModuleCode, node: _Definition, function: FunctionType) -> dict[str, Any]:
    """The default values that no code at a module's top level tells: those made of what a function around binds."""
    positional = function.__code__.co_varnames[: function.__code__.co_argcount]
    values = dict(zip(reversed(positional), reversed(function.__defaults__ or ()), strict=False))
    values |= function.__kwdefaults__ or {}
    return {
        name: values[name]
        for name, expression in default_values(node).items()
        if name in values and _name_what_is_bound_around([expression], module, node, function)
    }


def _name_what_is_bound_around(
    expressions: Iterable[ast.AST], module: ModuleCode, node: _Definition, function: FunctionType
) -> bool:
    """Whether they use a name that a function has bound inside which ``function`` was made. Most are at the top."""
    if "<locals>" not in function.__qualname__:
        return False
    names = {use.path[0] for use in references(expressions)}
    return bool(names) and not names.isdisjoint(names_bound_around(module.tree)[node])


def _definition(function: FunctionType, defined_in: str) -> tuple[ModuleCode, _Definition]:
    """Where the function is written. Raises `FingerprintError` where its source is not found."""
    module_name = _module_name(defined_in)
    module = find_module(module_name)
    if module is None:
        raise FingerprintError(f"expected source for module {module_name!r}, found none: {ADVICE}")
    node = _node_of(module, function)
    if node is None:
        raise FingerprintError(
            f"expected the source of {function.__qualname__!r} in module {module_name!r}, found none: {ADVICE}"
        )
    return module, node


def _node_of(module: ModuleCode, function: FunctionType) -> _Definition | None:
    """The definition that the function was made from: by its first line, else (the file was edited) by its name."""
    line = function.__code__.co_firstlineno
    if function.__name__ == "<lambda>":
        lambdas = [node for node in ast.walk(module.tree) if isinstance(node, ast.Lambda) and node.lineno == line]
        return lambdas[0] if len(lambdas) == 1 else None
    same_name = _functions_of(module.tree).get(function.__code__.co_name, [])
    for node in same_name:
        if min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)]) == line:
            return node
    return same_name[0] if len(same_name) == 1 else None


@lru_cache(maxsize=64)
def _functions_of(tree: ast.Module) -> dict[str, list[ast.FunctionDef | ast.AsyncFunctionDef]]:
    """All functions of a module by name: one walk for all its vertices, since every task fingerprints all of them."""
    by_name: dict[str, list[ast.FunctionDef | ast.AsyncFunctionDef]] = {}
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            by_name.setdefault(node.name, []).append(node)
    return by_name


def _declaring_decorators(node: ast.AST, namespace: Mapping[str, Any]) -> list[ast.AST]:
    """Decorators such as ``@flights.vertex(...)``: what they say is in the fingerprint by itself."""
    return [
        decorator
        for function in ast.walk(node)
        if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef))
        for decorator in function.decorator_list
        if _declares_a_vertex(decorator, namespace)
    ]


def _declares_a_vertex(decorator: ast.expr, namespace: Mapping[str, Any]) -> bool:
    called = decorator.func if isinstance(decorator, ast.Call) else decorator
    if not (isinstance(called, ast.Attribute) and called.attr in _DECORATORS and isinstance(called.value, ast.Name)):
        return False
    name = called.value.id
    # A name that the module does not hold is a local one, of a function that declares a job; its form has to do.
    return name not in namespace or isinstance(namespace[name], Job)
