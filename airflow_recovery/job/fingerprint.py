"""Fingerprints: what a vertex computes, so that it is kept exactly while that stays the same.

See docs/promises.md#promises.

A vertex's fingerprint holds everything in its modules that could change its rows (`airflow_recovery.job.code_closure`),
and the values that are bound to its function. It does not see other packages (only the names used from them), Spark
itself, the environment and files outside of the package. ``version=`` is for those.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import sys
import sysconfig
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from enum import Enum
from functools import lru_cache
from pathlib import PurePath
from types import CellType, CodeType, FunctionType, ModuleType
from typing import Any

from airflow_recovery.errors import FingerprintError
from airflow_recovery.job.bound_values import BoundValues, Unstable
from airflow_recovery.job.code_closure import CodeModules, CodeUnit, package_of
from airflow_recovery.job.declaration import Job
from airflow_recovery.job.made_classes import has_its_attributes
from airflow_recovery.job.mode import modes_in
from airflow_recovery.job.module_code import ADVICE, ModuleCode, find_module_spec
from airflow_recovery.job.package_files import FileIdentity
from airflow_recovery.job.parallelism import FixedParallelism, RunTimeSubtasks
from airflow_recovery.job.references import bindings, default_values, names_bound_around, references
from airflow_recovery.job.row_settings import IMAGES, row_settings
from airflow_recovery.job.vertex import Vertex
from airflow_recovery.model.codec import digest_of
from airflow_recovery.model.components import Component, components_of
from airflow_recovery.sinks.declaration import CommittingSink, spec_of

_LENGTH = 32
_NOT_USERS = frozenset({"airflow", "airflow_recovery", "pyspark"})
_STANDARD_LIBRARY = sysconfig.get_path("stdlib")
_Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


@dataclass
class FilesFound:
    """``read``: files of code, and what each was when it was read. ``named``: texts in values that may be paths."""

    read: dict[str, FileIdentity] = field(default_factory=dict)
    named: set[str] = field(default_factory=set)


class JobCode:
    """The code of a job's vertices. Each module is looked up once for all of them: take a new one for each look."""

    def __init__(self, job: Job) -> None:
        self._job = job
        declared: dict[str, set[tuple[str, int]]] = {}
        own: dict[str, Mapping[str, Any]] = {}
        for vertex in job.vertices.values():
            inner = inspect.unwrap(vertex.function)
            if inspect.isfunction(inner):
                module = _module_name(inner.__module__)
                declared.setdefault(module, set()).add((inner.__name__, inner.__code__.co_firstlineno))
                own[module] = inner.__globals__
        self._modules = CodeModules(declared, own)

    def units(self, vertex: str) -> list[CodeUnit]:
        """Return the components of a vertex's code. Raises `FingerprintError` as `vertex_fingerprint`."""
        declared = self._job.vertex_named(vertex)
        is_versioned = declared.version is not None
        ignored = (*self._job.ignore_changes_in, *declared.ignore_changes_in)
        try:
            own = _module_name(inspect.unwrap(declared.function).__module__ or "")
            code = _FunctionCode(self._modules, own, self._job.packages, ignored, is_versioned=is_versioned)
            code.add_own(declared.function)
            for used in _also_runs(declared):
                code.add_used(used)
            return code.units()
        except FingerprintError as error:
            if is_versioned:
                return []
            raise FingerprintError(
                f"{declared.where}: {error}", code=error.code, **{**error.fields, "where": declared.where}
            ) from error

    def of(self, vertex: str) -> list[list[str]]:
        """Return the same as ``[module, name, digest]``, for `vertex_fingerprint`. Raises as `units`."""
        return _pieces(self.units(vertex))


def _also_runs(vertex: Vertex) -> list[Any]:
    """What recovery runs for a vertex beside its function: classes, or functions by their names as ``module:name``.

    The enumerator of splits is not among them: the splits that it yields are compared one by one.
    """
    return [*([vertex.coordinator] if vertex.coordinator is not None else []), *_runs_in(vertex.sink)]


def _runs_in(sink: CommittingSink | None) -> list[Any]:
    return [] if sink is None else [type(sink), *([sink.apply] if hasattr(sink, "apply") else [])]


def vertex_code(job: Job, vertex: str) -> list[list[str]]:
    """Return the components of a vertex's code as ``[module, name, digest]``, for `vertex_fingerprint`."""
    return JobCode(job).of(vertex)


def vertex_units(job: Job, vertex: str) -> list[CodeUnit]:
    """Return the same components, with their places and what led to them. Raises as `vertex_code`."""
    return JobCode(job).units(vertex)


def function_code(
    function: Callable[..., Any], method_of: type | None = None, found: FilesFound | None = None
) -> list[list[str]]:
    """Return the components of the code of a function outside of any job, as ``[module, name, digest]``.

    ``found`` gets the files of it. A bound value that can't be pickled counts by its attributes or its text,
    and a function without source by its module. With ``method_of`` the code of that class is in it.
    """
    own = _module_name(inspect.unwrap(function).__module__ or "")
    code = _FunctionCode(_modules_beside(), own, lenient=True)
    code.add_own(function)
    if method_of is not None:
        code.add_used(method_of)
    return code.pieces(found)


def class_code(used: type, found: FilesFound | None = None) -> list[list[str]]:
    """Return the components of the code of a class and of what it inherits, as ``[module, name, digest]``.

    Classes of Airflow, of this package, of Spark and of Python count by no code; `[]` if there are no others.
    """
    users = [each for each in used.__mro__ if _is_users(each.__module__)]
    if not users:
        return []
    code = _FunctionCode(_modules_beside(), _module_name(users[0].__module__), lenient=True)
    for each in users:
        code.add_used(each)
    return code.pieces(found)


def _is_users(module: str) -> bool:
    top = module.partition(".")[0]
    return top not in _NOT_USERS and top not in sys.stdlib_module_names


def sink_code(sink: CommittingSink, found: FilesFound | None = None) -> list[list[str]]:
    """Return the components of the user's code that a sink runs when it commits: its class, or `ProbedSink.apply`."""
    code = _FunctionCode(_modules_beside(), "", lenient=True)
    for used in _runs_in(sink):
        code.add_used(used)
    pieces = code.pieces(found)
    return pieces if len(pieces) > 1 else []  # nothing but the order of no code


def value_digest(value: Any, found: FilesFound | None = None) -> str:
    """Return a digest of a value with its types, its order and the code of functions in it: equal in all processes."""
    code = _FunctionCode(_modules_beside(), "", lenient=True)
    return digest_of([code.digest(value), *code.pieces(found)])


def _pieces(units: Iterable[CodeUnit]) -> list[list[str]]:
    return [[unit.module, unit.name, unit.digest] for unit in units]


def vertex_fingerprint(
    job: Job, vertex: str, params: Mapping[str, Any], *, code: list[list[str]] | str | None = None
) -> str:
    """Return 32 hex digits that stand for what the vertex computes, given its rendered ``params``.

    In it: the function, the code of its module and of all modules that this imports from the user's packages, their
    files, values that are bound to the function, parameters, inputs, what its splits are declared as,
    ``commit="split"``, result type, the table that it is a snapshot of, versions, a fixed number of subtasks, settings
    of ``spark_conf`` that may change rows. Not in it: comments, docstrings and layout, other vertices, what
    `airflow_recovery.job.code_closure` leaves out, the other settings, the keys of subtasks (`region_fingerprint`).
    ``code`` is `vertex_code`, or its digest, if it is known already.
    Raises `FingerprintError` where source cannot be read and the vertex declares no version, and `JobDefinitionError`
    for an unknown vertex.
    """
    return _digest(vertex_document(job, vertex, params, code=vertex_code(job, vertex) if code is None else code))


def vertex_document(job: Job, vertex: str, params: Mapping[str, Any], *, code: list[list[str]] | str) -> dict[str, Any]:
    """Return what `vertex_fingerprint` is the digest of."""
    declared = job.vertex_named(vertex)
    parallelism = job.parallelism_of(vertex)
    added_by_modes = {key: value for mode in modes_in([declared]) for key, value in mode.fingerprint(declared).items()}
    return {
        **({"parallelism": parallelism.count} if isinstance(parallelism, FixedParallelism) else {}),
        "code": code if isinstance(code, str) else digest_of(code),
        "inputs": [[edge.parameter, edge.vertex] for edge in declared.inputs],
        "job_version": job.version,
        "kind": declared.kind.value,
        "params": dict(params),
        "result": declared.result.name,
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
    del document["code"]
    parts: list[tuple[str, Any]] = [
        (f"code {module}:{name}" if module else f"code {name}", digest) for module, name, digest in code
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


class _FunctionCode:
    """The code of one function, and the values that are bound to it."""

    def __init__(
        self,
        modules: CodeModules,
        own: str,
        packages: Iterable[str] = (),
        ignored: Iterable[str] = (),
        *,
        lenient: bool = False,
        is_versioned: bool = False,
    ) -> None:
        """``own``: the function's module. ``is_versioned``: leave out bound values that can't be compared."""
        self._own = own
        self._closure = modules.closure({*packages, *([package_of(own)] if own else [])}, own, ignored)
        self._modules = modules
        self._lenient = lenient
        self._is_versioned = is_versioned
        self._values: dict[str, str] = {}
        self._functions: dict[int, str] = {}
        self._classes: dict[tuple[type, bool], list[Any]] = {}
        self._bound = BoundValues(self._code_of, lenient=lenient)

    def add_own(self, function: Callable[..., Any]) -> None:
        """Add the function itself. Raises `FingerprintError` without source."""
        try:
            inner, _ = _unwrapped(function)
            self._add_function(inner.__name__, function, label=f"{inner.__name__}()")
        except FingerprintError:
            if not self._lenient:
                raise
            self._closure.add_whole(self._own)
            self._values[f"{getattr(function, '__name__', type(function).__name__)}()"] = self.digest(
                _compiled(function)
            )

    def add_used(self, used: Any) -> None:
        """Add a function or a class, or one by its name as ``module:name``, with the package that holds it."""
        module = used.partition(":")[0] if isinstance(used, str) else used.__module__
        if module.partition(".")[0] != "airflow_recovery":
            # Whether a decorator is one of ours is known of a module that is loaded, and the commit loads it anyway.
            with suppress(Exception):
                importlib.import_module(module)
            self._closure.add_package(module)
        if isinstance(used, str):
            self._closure.add_names(module, used.partition(":")[2].split("."))
        elif isinstance(used, type):
            self._class(used, is_value=False)
        else:
            self._code_of(used)

    def digest(self, value: Any) -> str:
        """Return the digest of a value. Raises `Unstable` unless lenient."""
        return self._bound.digest(value)

    def units(self) -> list[CodeUnit]:
        """Return all components: the code by modules, then the values."""
        values = [CodeUnit("", label, digest) for label, digest in sorted(self._values.items())]
        return [*self._closure.units(), *values]

    def pieces(self, found: FilesFound | None = None) -> list[list[str]]:
        """Return all components as ``[module, name, digest]``. ``found`` gets the files of it."""
        units = self.units()
        if found is not None:
            found.read.update(unit.file for unit in units if unit.file is not None)
            found.named |= self._bound.paths
        return _pieces(units)

    def _add_function(self, name: str, function: Callable[..., Any], label: str = "") -> None:
        """``name``: of the values that are bound to it. ``label``: of the function's own component."""
        inner, wrappers = _unwrapped(function)
        for each in (inner, *wrappers):
            self._functions[id(each)] = name
        module, node = _definition(self._modules, inner, inner.__module__)
        self._closure.add_function(module, node, label)
        self._add_bound(f"{name}()", module, node, inner)
        decorators = getattr(node, "decorator_list", ())
        ours = self._modules.pieces(module).of_function.get(node)
        own = [each for each in decorators if ours is None or each not in ours.without]
        if len(wrappers) <= len(own) and not (wrappers and _name_what_is_bound_around(own, module, node)):
            return  # What stands above the function tells all that is wrapped around it.
        for at, wrapper in enumerate(wrappers):
            # `functools.wraps` gives it the names of what it wraps.
            defined_in = str(wrapper.__globals__["__name__"]) if inspect.isfunction(wrapper) else ""
            if self._closure.is_users(_module_name(defined_in)):
                where, node = _definition(self._modules, wrapper, defined_in)
                self._closure.add_function(where, node)
                self._add_bound(f"{name}().{wrapper.__code__.co_name}() {at}", where, node, wrapper)

    def _add_bound(self, label: str, module: ModuleCode, node: _Definition, function: FunctionType) -> None:
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            try:
                value = cell.cell_contents
            except ValueError:
                if self._is_versioned:
                    continue
                raise FingerprintError(
                    f"expected a value for closure variable {name!r}, found none yet: {ADVICE}",
                    code="closure-without-value",
                    found=name,
                ) from None
            if name == "__class__" and isinstance(value, type):  # of a method that calls super()
                self._class(value, is_value=False)
                continue
            self._add_value(f"{label}.{name}", value)
        for name, value in _bound_defaults(module, node, function).items():
            self._add_value(f"{label}.{name}", value)

    def _add_value(self, label: str, value: Any) -> None:
        """What a closure variable or a default holds."""
        try:
            self._values[label] = self._bound.digest(value)
        except (Unstable, RecursionError) as error:
            if not self._is_versioned:
                raise FingerprintError(
                    f"expected the value of {label!r} as a function, class, module or a value that can be pickled, "
                    f"found a {type(value).__name__} ({error}): hand it in with params=, move it to the top of the "
                    f"module, or {ADVICE}",
                    code="value-unreadable",
                    label=label,
                ) from None

    def _code_of(self, value: Any) -> Any:
        """A function, a class or a module as a value: its name. Its code is added to the closure."""
        if isinstance(value, ModuleType):
            self._closure.add_whole(_module_name(value.__name__))
            return ["module", self._closure.label(_module_name(value.__name__))]
        if isinstance(value, type):
            return self._class(value)
        known = self._functions.get(id(value))
        if known is not None:
            return ["function", known]
        module = _module_name(inspect.unwrap(value).__module__ or "")
        if not self._is_users(module):
            return ["function", module, value.__qualname__]
        name = f"{value.__qualname__.replace('.<locals>', '')} {len(self._functions)}"
        try:
            self._add_function(name, value)
        except FingerprintError:
            if not self._lenient:
                raise
            return ["function", name, self._bound.describe(_compiled(value))]
        return ["function", self._closure.label(module), name, self._ordinal(value)]

    def _class(self, value: type, *, is_value: bool = True) -> list[Any]:
        """A class by its name. If a call has made it or a class above it, these count by their attributes as well.

        ``is_value``: it is bound as a value, so that also what its code does not tell counts (`_is_told`).
        """
        if (value, is_value) in self._classes:
            return self._classes[value, is_value]
        module = _module_name(value.__module__)
        self._is_users(module)
        self._closure.add_names(module, value.__qualname__.partition(".<locals>")[0].split("."))
        described = ["class", self._closure.label(module), value.__qualname__]
        self._classes[value, is_value] = described
        made = [[each.__name__, _attributes_of(each)] for each in value.__mro__ if not self._is_told(each, is_value)]
        if made:
            described.append(BoundValues(self._code_of_attribute, lenient=True).digest(made))
        return described

    def _is_told(self, value: type, is_value: bool) -> bool:
        """Whether its code tells all of a class: the one ``class`` statement of its name, which nothing has changed.

        A name may be bound a second time, by a call or in another branch. A decorator, a metaclass or a later
        assignment may give the class other attributes than its statement has. That counts of a value alone: a class
        that runs may count its own calls.
        """
        module = _module_name(value.__module__)
        code = self._modules.find(module) if self._is_users(module) else None
        if code is None:
            found: Any = sys.modules.get(value.__module__)
            for name in value.__qualname__.split("."):
                found = getattr(found, name, None)
            return found is value
        if code.opaque:
            return True
        statement = _statement_of(code, value.__qualname__)
        if statement is None or not is_value:
            return statement is not None
        return (
            not self._is_users(type(value).__module__)
            and all(self._keeps_class(code, each) for each in statement.decorator_list)
            and has_its_attributes(value, statement)
        )

    def _keeps_class(self, code: ModuleCode, decorator: ast.expr) -> bool:
        """Whether a decorator is one of another package, which gives a class no attributes but what its code tells."""
        top = decorator.func if isinstance(decorator, ast.Call) else decorator
        while isinstance(top, ast.Attribute):
            top = top.value
        targets = code.imports.get(top.id, ()) if isinstance(top, ast.Name) and top.id not in code.bound else ()
        return bool(targets) and not any(self._is_users(code.absolute(target)) for target in targets)

    def _code_of_attribute(self, value: Any) -> Any:
        try:
            return self._code_of(value)
        except FingerprintError:  # a call has made it, so it has no source
            return ["function", BoundValues(self._code_of_attribute, lenient=True).describe(_compiled(value))]

    def _is_users(self, module: str) -> bool:
        """Whether the code of a bound value counts. Outside of a job it is any code that was not installed."""
        if self._lenient and not is_installed(module):
            self._closure.add_package(module)
        return self._closure.is_users(module)

    def _ordinal(self, function: Callable[..., Any]) -> Any:
        """Which of several functions of one name, such as lambdas, it is."""
        inner, _ = _unwrapped(function)
        module, node = _definition(self._modules, inner, inner.__module__)
        piece = self._modules.pieces(module).of_function.get(node)
        alike = [each for part in (piece.nodes if piece else ()) for each in ast.walk(part) if type(each) is type(node)]
        shared = [each for each in alike if isinstance(each, ast.Lambda) and each.lineno == node.lineno]
        return [alike.index(node) if node in alike else -1, *(_compiled(inner)[0].hex() if len(shared) > 1 else "")]


_OF_EVERY_CLASS = frozenset(
    (
        *("__dict__", "__doc__", "__firstlineno__", "__module__", "__qualname__", "__static_attributes__"),
        *("__weakref__", "_abc_impl"),
    )
)


def _module_name(name: str) -> str:
    if name == "__main__":
        spec = getattr(sys.modules[name], "__spec__", None)
        return spec.name if spec is not None else name
    return name


def is_installed(module: str) -> bool:
    """Whether a module belongs to Python, to this package or to what pip has installed."""
    path = getattr(sys.modules.get(module), "__file__", None)
    if path is None or module.partition(".")[0] == "airflow_recovery":
        return module != "__main__"
    return _is_place_of_installed(path)


def _is_place_of_installed(path: str) -> bool:
    folders = set(PurePath(path).parts)
    return not folders.isdisjoint(("site-packages", "dist-packages")) or path.startswith(_STANDARD_LIBRARY)


def _modules_beside() -> CodeModules:
    """The modules that a function outside of any job can import, and that were not installed: all are the user's."""
    known: dict[str, bool] = {}

    def is_users(module: str) -> bool:
        top = module.partition(".")[0]
        if top not in known:
            known[top] = _is_users(top) and _lies_beside(top)
        return known[top]

    return CodeModules({}, {}, is_users=is_users)


def _lies_beside(top: str) -> bool:
    spec = find_module_spec(top)
    if spec is None:
        return False
    origin = [spec.origin] if spec.origin is not None and PurePath(spec.origin).is_absolute() else []
    places = [*origin, *(spec.submodule_search_locations or ())]
    return bool(places) and not any(_is_place_of_installed(str(place)) for place in places)


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
        if name in values and _name_what_is_bound_around([expression], module, node)
    }


def _name_what_is_bound_around(expressions: Iterable[ast.AST], module: ModuleCode, node: _Definition) -> bool:
    """Whether they use a name that a function or a comprehension has bound in which the function was made."""
    names = {use.path[0] for use in references(expressions)}
    return bool(names) and not names.isdisjoint(names_bound_around(module.tree)[node])


def _compiled(function: Callable[..., Any]) -> list[Any]:
    """What can be seen of a function whose source can't be found."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    closure = [each.cell_contents for each in getattr(function, "__closure__", None) or () if each != CellType()]
    consts = [each for each in getattr(code, "co_consts", ()) if not isinstance(each, CodeType)]
    return [getattr(code, "co_code", b""), list(getattr(code, "co_names", ())), consts, closure]


def _attributes_of(value: type) -> list[list[Any]]:
    if issubclass(value, Enum):
        return [[name, member.value] for name, member in value.__members__.items()]
    return [[name, item] for name, item in sorted(vars(value).items()) if name not in _OF_EVERY_CLASS]


def _statement_of(code: ModuleCode, qualname: str) -> ast.ClassDef | None:
    """The ``class`` statement of a class; `None` unless it alone binds the name, and in no branch."""
    scope: ast.Module | ast.ClassDef = code.tree
    for name in qualname.split("."):
        bound = [each for each in bindings(scope) if each[0] == name]
        if len(bound) != 1 or not isinstance(bound[0][1], ast.ClassDef) or bound[0][1] not in scope.body:
            return None
        scope = bound[0][1]
    return scope if isinstance(scope, ast.ClassDef) else None


def _definition(modules: CodeModules, function: FunctionType, defined_in: str) -> tuple[ModuleCode, _Definition]:
    """Where the function is written. Raises `FingerprintError` where its source is not found."""
    module_name = _module_name(defined_in)
    module = modules.find(module_name)
    if module is None:
        raise FingerprintError(
            f"expected source for module {module_name!r}, found none: {ADVICE}", code="module-without-source"
        )
    node = _node_of(module, function)
    if node is None:
        raise FingerprintError(
            f"expected the source of {function.__qualname__!r} in module {module_name!r}, found none: {ADVICE}"
        )
    return module, node


def _node_of(module: ModuleCode, function: FunctionType) -> _Definition | None:
    """The definition that the function was made from: by its first line, else (the file was edited) by its name."""
    if function.__code__.co_filename.startswith("<"):
        return None  # made from a text, by exec or eval
    line = function.__code__.co_firstlineno
    if function.__name__ == "<lambda>":
        lambdas = [node for node in ast.walk(module.tree) if isinstance(node, ast.Lambda) and node.lineno == line]
        return lambdas[0] if lambdas else None
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
