"""All code that can change what a function computes: everything in its modules, but for what is shown not to matter.

The closure begins with the function's own module and follows every import within the user's packages, with the
``__init__`` of each package. All statements of these modules count. Left out are

- functions of other vertices, and functions, classes and constants without an effect of their own, if their name occurs
  nowhere in what counts: as a name, as an attribute or as a word in a text;
- imports of the standard library and of this package that nothing uses;
- files that a build has generated to hold a version.

A module that computes the names that it looks up (``getattr(x, name)``, ``globals()``, ``importlib``, ``eval``) counts
with its whole package. The package's other files count if any code in the closure can read them. Hidden files, modules
of tests and files in folders of tests count if it names them. So do files outside of its package that the code of a
module reads at a path that it makes of ``__file__`` (`own_files`).
"""

from __future__ import annotations

import ast
import hashlib
import os
import re
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from airflow_recovery.job.code_pieces import Piece, Pieces
from airflow_recovery.job.declared_job import DeclaredJob
from airflow_recovery.job.module_code import ModuleCode, canonical, find_module, without_docstring
from airflow_recovery.job.own_files import NAMES_ITSELF, own_files
from airflow_recovery.job.package_files import DataFile, FileIdentity, data_files, modules_below, of_tests
from airflow_recovery.job.references import ImportTarget

_OURS = "airflow_recovery"
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_READS_FILES = frozenset(
    [
        "open",
        "__file__",
        "__path__",
        "__spec__",
        "__loader__",
        "__package__",
        "__name__",
        "importlib",
        "importlib_resources",
        "pkgutil",
        "resources",
        "get_data",
        "pkg_resources",
        "pathlib",
        "Path",
        "os",
        "io",
        "glob",
        "sys",
        "inspect",
        "runpy",
        "ctypes",
        "cffi",
        "jinja2",
        "zipfile",
        "zipimport",
        "read_text",
        "read_bytes",
        "files",
    ]
)
"""Names without which no code comes to a file of its package, unless it names the file or the package in a text."""
_READS_SOURCE = frozenset(
    ["getsource", "getsourcelines", "getsourcefile", "findsource", "getcomments", "linecache", "co_firstlineno"]
)
_DOCSTRING_READERS = frozenset(["__doc__", "getdoc", "doctest"])
_WORD = re.compile(r"[^\W\d]\w*")

Cause = tuple[str, str]


@dataclass(frozen=True)
class CodeUnit:
    """One component of a fingerprint: a function, a class or a constant; the other code of a module; a file; a value.

    ``module`` is empty for the vertex's own. ``name`` is empty for all code of a module that has no name of its own.
    ``path``: of its file; empty without source. ``used_by``: the module and the name of the unit that led here; `None`
    for what counts by itself.
    """

    module: str
    name: str
    digest: str
    path: str = ""
    used_by: Cause | None = None
    code: ModuleCode | None = None
    pieces: tuple[Piece, ...] = ()
    data: DataFile | None = None

    @property
    def file(self) -> tuple[str, FileIdentity] | None:
        """The path of its file, and the file's identity when it was read; `None` without a file of its own."""
        found = self.data or self.code
        return (found.path, found.identity) if found is not None and found.identity is not None else None

    @property
    def lines(self) -> list[tuple[int, str]]:
        """The numbers of its lines in the file, and their texts; empty without source."""
        if self.code is None:
            return []
        left_out = {number for piece in self.pieces for node in piece.without for number in _line_numbers(node)}
        numbers = {number for piece in self.pieces for node in piece.nodes for number in _line_numbers(node)} - left_out
        source = self.code.text.splitlines()
        return [(number, source[number - 1]) for number in sorted(numbers) if number <= len(source)]


@dataclass(frozen=True)
class _ModuleUnits:
    units: list[CodeUnit]
    order: str
    with_docstrings: bool
    is_verbatim: bool


ORDER = "order of the code"
"""The name of the component that holds the order of definitions and imports."""


class CodeModules:
    """The modules of a job's code. Each is looked up once, so one object serves all vertices of a job.

    ``declared``: by module, (name, first line) of the functions of vertices. ``own``: the namespaces of modules that
    may be loaded under another name. ``is_users``: whether a module is the user's whose package nobody has declared.
    """

    def __init__(
        self,
        declared: Mapping[str, Collection[tuple[str, int]]],
        own: Mapping[str, Mapping[str, Any]],
        *,
        is_users: Callable[[str], bool] = lambda module: False,
    ) -> None:
        self.is_users = is_users
        self._declared = declared
        self._own = own
        self._found: dict[str, ModuleCode | None] = {}
        self._pieces: dict[str, Pieces] = {}
        self._data: dict[str, list[tuple[str, frozenset[str], DataFile]]] = {}
        self._wraps: dict[tuple[str, str, int], bool] = {}
        self._own_files: dict[frozenset[Piece], list[Path]] = {}
        self._bases: dict[Any, CodeClosure] = {}

    def closure(self, packages: Collection[str], own_module: str, ignored: Iterable[str] = ()) -> CodeClosure:
        """Return a closure of a module without any of its functions, as `CodeClosure` takes it."""
        key = frozenset(packages), own_module, tuple(ignored)
        if key not in self._bases:
            base = self._bases[key] = CodeClosure(self, packages, own_module, ignored)
            base.add_names(own_module, ())
        return self._bases[key].copy()

    def data(self, code: ModuleCode) -> list[tuple[str, frozenset[str], DataFile]]:
        """Return the files of a package that are no modules: paths, the words of their names, what hashes them."""
        if code.name not in self._data:
            self._data[code.name] = [
                (path, frozenset(_WORD.findall(path.rpartition("/")[2])), read)
                for path, read in data_files(code.name, code.spec)
            ]
        return self._data[code.name]

    def own_files(self, pieces: Sequence[Piece]) -> list[Path]:
        """Return the files that pieces of code read together, as `own_files`."""
        key = frozenset(pieces)
        if key not in self._own_files:
            by_code: dict[ModuleCode, list[Piece]] = {}
            for piece in pieces:
                by_code.setdefault(piece.code, []).append(piece)
            trees = [(Path(code.path), _tree_of(those)) for code, those in by_code.items()]
            self._own_files[key] = own_files(trees, [node for piece in pieces for node in piece.without])
        return self._own_files[key]

    def only_wraps(
        self, code: ModuleCode, name: str, calls: int, is_users: Callable[[str], bool], depth: int = 0
    ) -> bool:
        """Whether a name means one function of the user's of which ``calls`` calls run nothing but definitions."""
        if name in code.bound:
            key = code.name, name, calls
            if key not in self._wraps:
                found = [each for each in ast.walk(code.tree) if isinstance(each, _FUNCTIONS) and each.name == name]
                is_one = len(found) == 1 and found[0] in code.tree.body and name not in code.imports
                self._wraps[key] = is_one and _binds_once(code, name) and _only_wraps(code, found[0], calls)
            return self._wraps[key]
        targets = code.imports.get(name, ())
        if len(targets) != 1 or targets[0].attribute is None or depth > 16:
            return False
        absolute = code.absolute(targets[0])
        module = self.find(absolute) if is_users(absolute) else None
        return module is not None and self.only_wraps(module, targets[0].attribute, calls, is_users, depth + 1)

    def find(self, name: str) -> ModuleCode | None:
        """As `find_module`."""
        if name not in self._found:
            self._found[name] = find_module(name)
        return self._found[name]

    def pieces(self, code: ModuleCode) -> Pieces:
        """Return the pieces of a module. They are kept with its syntax tree."""
        if code.name not in self._pieces:
            loaded = sys.modules.get(code.name)
            namespace = self._own.get(code.name) or (vars(loaded) if loaded is not None else {})
            jobs = frozenset(name for name, value in namespace.items() if issubclass(type(value), DeclaredJob))
            key = jobs, frozenset(self._declared.get(code.name, ()))
            cache: dict[Any, Pieces] = code.__dict__.setdefault("pieces", {})
            if key not in cache:
                cache[key] = Pieces(code, jobs.__contains__, key[1])
            self._pieces[code.name] = cache[key]
        return self._pieces[code.name]


class CodeClosure:
    """The code that counts for one function. Add roots, then read `units`."""

    def __init__(
        self, modules: CodeModules, packages: Iterable[str], own_module: str, ignored: Iterable[str] = ()
    ) -> None:
        """``packages``: dotted names. ``ignored``: names of modules, or patterns of files, that do not count."""
        self._modules = modules
        self._packages = set(packages)
        self._own = own_module
        self._ignored = tuple(ignored)
        self._codes: dict[str, ModuleCode] = {}
        self._kept: dict[Piece, Cause | None] = {}
        self._whole: set[str] = set()
        self._used: set[str] = set()
        self._words: set[str] = set()
        self._looks_up = False
        self._by_name: dict[str, tuple[Piece, ...]] = {}
        self._labels: dict[Piece, str] = {}
        self._tests: dict[str, tuple[str, ...]] = {}
        self._renamed: dict[str, tuple[str, ...]] = {}
        self._bound_in: dict[str, tuple[str, ...]] = {}
        self._versions: dict[str, tuple[tuple[str, str], ...]] = {}
        self._known: dict[str, _ModuleUnits] = {}
        self._following: Cause | None = None
        self._queue: list[tuple[Callable[..., Any], tuple[Any, ...], Cause | None]] = []

    def copy(self) -> CodeClosure:
        """Return a closure that begins with what this one holds, and does not compute its units again."""
        self._code_units()
        made = copy(self)
        for name, value in vars(self).items():
            if isinstance(value, (dict, set, list)):
                setattr(made, name, value.copy())
        return made

    # --- roots --------------------------------------------------------------------------------------------------------

    def add_function(self, code: ModuleCode, node: ast.AST, label: str = "") -> Piece | None:
        """Add the function that ``node`` of the module defines, with the piece that holds it: its unit is ``label``."""
        self._run(self._add_module, code.name)
        piece = self._modules.pieces(code).of_function.get(node)
        if piece is None:
            return None
        if piece.function is node and label:
            self._labels[piece] = label
            self._known.pop(code.name, None)
        self._run(self._keep, piece)
        return piece

    def add_names(self, module: str, names: Iterable[str]) -> bool:
        """Add names of a module that is loaded by another way; whether it is the user's and exists."""
        if not self._run(self._add_module, module):
            return False
        for name in names:
            self._run(self._use, name)
        return True

    def add_whole(self, module: str) -> bool:
        """Add all code of a module; whether it is the user's and exists."""
        if not self._run(self._add_module, module):
            return False
        self._run(self._take_whole, module)
        return True

    def is_users(self, module: str) -> bool:
        """Whether a module belongs to the user's packages."""
        is_declared = any(module == package or module.startswith(f"{package}.") for package in self._packages)
        return is_declared or self._modules.is_users(module)

    def add_package(self, module: str) -> None:
        """Count the package of a module among the user's."""
        self._packages.add(package_of(module))

    def label(self, module: str) -> str:
        """Return a module's name; empty for the own one: Airflow, a driver and `__main__` give it different names."""
        return "" if module == self._own else module

    # --- the walk -----------------------------------------------------------------------------------------------------

    def _run(self, step: Callable[..., Any], *arguments: Any) -> Any:
        """Take a step, and then all steps that follow from it, without recursion."""
        answer = step(*arguments)
        while self._queue:
            later, given, self._following = self._queue.pop()
            later(*given)
        self._following = None
        return answer

    def _later(self, step: Callable[..., Any], *arguments: Any, cause: Cause | None = None) -> None:
        self._queue.append((step, arguments, cause))

    def _add_module(self, name: str) -> bool:
        """Whether it is a module of the user's."""
        if name in self._codes:
            return True
        if not self.is_users(name):
            return False
        code = self._modules.find(name)
        if code is None:
            return False
        self._codes[name] = code
        parent = name.rpartition(".")[0]
        if parent:
            self._add_module(parent)
        if name != self._own and self._ignores(name):
            return True
        if code.opaque:
            self._later(self._take_package, name)
            return True
        if code.is_version:
            return True
        for piece in self._modules.pieces(code).all:
            self._register(piece)
        if package_of(name) in self._whole:
            self._later(self._take_whole, name)
        return True

    def _register(self, piece: Piece) -> None:
        if piece.imports is not None:
            self._later(self._import, piece)
        elif (
            not piece.names
            or not all(self._is_plain_decorator(piece.code, each) for each in piece.decorators)
            or any(self._is_used(name, piece) for name in piece.names)
        ):
            self._later(self._keep, piece)
        else:
            for name in piece.names:
                self._by_name[name] = (*self._by_name.get(name, ()), piece)
        for inner in piece.inner:
            self._register(inner)

    def _is_used(self, name: str, piece: Piece) -> bool:
        if name in self._used or piece.code.name in self._whole:
            return True
        return name in self._words and (self._looks_up or not piece.is_declared)

    def _import(self, piece: Piece) -> None:
        """An import at the top: its modules are in the closure; what it binds is a use only if that is used."""
        self._kept[piece] = None
        self._known.pop(piece.code.name, None)
        statement = piece.imports
        assert statement is not None
        for alias in statement.names:
            bound = alias.asname or alias.name.partition(".")[0]
            self._bound_in[bound] = (*self._bound_in.get(bound, ()), piece.code.name)
        if isinstance(statement, ast.Import):
            for alias in statement.names:
                self._add_module(alias.name)
                for part in alias.name.split(".") if alias.asname else ():
                    self._alias(piece.code, alias.asname, part)
            return
        for alias in statement.names:
            target = ImportTarget(statement.module or "", statement.level, alias.name)
            self._follow(piece.code, target)
            if alias.name == "*":
                self._later(self._take_whole, piece.code.absolute(target))
            else:
                bound = alias.asname or alias.name
                self._alias(piece.code, bound, alias.name)
                for module in (piece.code.absolute(target), self._module_of(piece.code, target)):
                    if module in self._codes and self._codes[module].is_version:
                        known = self._versions.get(piece.code.name, ())
                        self._versions[piece.code.name] = (*known, (bound, module))
                        self._use_versions(piece.code.name)

    def _alias(self, code: ModuleCode, bound: str | None, name: str) -> None:
        if bound is not None and name != bound:
            self._renamed[bound] = (*self._renamed.get(bound, ()), name)
            if bound in self._used or bound in self._words or code.name in self._whole:
                self._use(name)

    def _follow(self, code: ModuleCode, target: ImportTarget) -> None:
        """Add the module of an import, and the submodule that its name may be."""
        absolute = code.absolute(target)
        if not self._add_module(absolute) or target.attribute in (None, "*"):
            return
        package = self._codes[absolute]
        if package.is_package and target.attribute not in package.bound:
            self._add_module(f"{absolute}.{target.attribute}")

    def _follow_texts(self, texts: Iterable[str]) -> None:
        """Add the modules that texts name, for others to import: ``shop.plugins:Plugin``."""
        for text in texts:
            parts = text.replace(":", ".").split(".")
            names = [".".join(parts[:depth]) for depth in range(len(parts), 1, -1)] if all(parts) else []
            next(filter(self._add_module, names), None)

    def _module_of(self, code: ModuleCode, target: ImportTarget, depth: int = 0) -> str | None:
        """The module of the user's that an import binds a name to; `None` if it binds something else."""
        self._follow(code, target)
        absolute = code.absolute(target)
        if target.attribute is None:
            return absolute if absolute in self._codes else None
        below = f"{absolute}.{target.attribute}"
        if below in self._codes:
            return below
        module = self._codes.get(absolute)
        for further in module.imports.get(target.attribute, ()) if module is not None and depth < 16 else ():
            if (found := self._module_of(module, further, depth + 1)) is not None:  # type: ignore[arg-type]
                return found
        return None

    def _keep(self, piece: Piece) -> None:
        if piece in self._kept:
            return
        self._kept[piece] = self._following
        self._known.pop(piece.code.name, None)
        code, uses = piece.code, piece.uses
        cause = (self.label(code.name), self._name(piece))
        for target in uses.imports:
            self._follow(code, target)
            if (module := self._codes.get(code.absolute(target))) is not None and module.is_version:
                self._hold_whole(module.name)
            if target.attribute == "*":
                self._later(self._take_whole, code.absolute(target), cause=cause)
        self._follow_texts(uses.paths)
        for name in sorted(uses.strong - self._used):
            self._later(self._use, name, cause=cause)
        for name in sorted(uses.words - self._words):
            self._later(self._read_word, name, cause=cause)
        if uses.looks_up and not self._looks_up:
            self._looks_up = True
            for name in sorted(self._words):
                self._later(self._wake, name, cause=cause)
        if uses.computes:
            self._later(self._take_package, code.name, cause=cause)
        bound = [target for name in uses.bare & code.imports.keys() for target in code.imports[name]]
        for target in (*bound, *uses.passed):
            if (passed := self._module_of(code, target)) is not None:
                self._later(self._take_module, passed, cause=cause)
        self._use_versions(code.name)

    def _use(self, name: str) -> None:
        if name not in self._used:
            self._used.add(name)
            self._wake(name)
            for module in tuple(self._versions):
                self._use_versions(module)

    def _read_word(self, name: str) -> None:
        if name not in self._words:
            self._words.add(name)
            self._wake(name)

    def _wake(self, name: str) -> None:
        """Keep what has this name."""
        for module in self._tests.pop(name, ()):
            self._later(self._take_whole, module, cause=self._following)
        for module in self._bound_in.get(name, ()):
            self._known.pop(module, None)
        for piece in self._by_name.get(name, ()):
            if self._is_used(name, piece):
                self._later(self._keep, piece, cause=self._following)
        for original in self._renamed.get(name, ()):
            self._later(self._use, original, cause=self._following)

    def _take_module(self, name: str) -> None:
        """A module that is passed as a value: all of it; of a package also what lies below it, as its attributes."""
        if self._codes[name].is_package:
            self._take_package(name, below=name)
        else:
            self._take_whole(name)

    def _take_whole(self, name: str) -> None:
        if not self._add_module(name) or name in self._whole or (name != self._own and self._ignores(name)):
            return
        self._hold_whole(name)
        code = self._codes[name]
        if code.opaque or code.is_version:
            return
        for piece in self._modules.pieces(code).all:
            for each in (piece, *piece.inner):
                if each.imports is None:
                    self._later(self._keep, each, cause=self._following)
                else:
                    for alias in each.imports.names:
                        self._later(self._use, alias.name.rpartition(".")[2], cause=self._following)

    def _take_package(self, name: str, below: str = "") -> None:
        top = below or package_of(name)
        code = self._modules.find(top)
        for module in (name,) if code is None else modules_below(top, code.spec):
            test = of_tests(module.split(".")[1:]) if module not in self._codes else ""
            if test and test not in self._used and test not in self._words:
                self._tests[test] = (*self._tests.get(test, ()), module)
            else:
                self._take_whole(module)

    def _hold_whole(self, name: str) -> None:
        self._whole.add(name)
        self._known.pop(name, None)

    def _use_versions(self, module: str) -> None:
        """A version that code of the module uses counts; one that it passes on only does not."""
        for bound, version_file in self._versions.get(module, ()):
            is_read = any(
                piece.imports is None and piece.code.name == module and bound in piece.uses.names
                for piece in self._kept
            )
            is_known = bound.startswith("__") and bound in self._used
            if is_read or is_known or version_file.rpartition(".")[2] in self._used:
                self._hold_whole(version_file)

    def _is_plain_decorator(self, code: ModuleCode, decorator: ast.expr) -> bool:
        """Whether a decorator of the user's does nothing but return another function."""
        calls = 1
        while isinstance(decorator, ast.Call):
            decorator, calls = decorator.func, calls + 1
        return isinstance(decorator, ast.Name) and self._modules.only_wraps(code, decorator.id, calls, self.is_users)

    def _ignores(self, name: str) -> bool:
        return any(name == each or name.startswith(f"{each}.") or fnmatchcase(name, each) for each in self._ignored)

    # --- the answer ---------------------------------------------------------------------------------------------------

    def units(self) -> list[CodeUnit]:
        """Return all components of the code, by module and name."""
        return [*self._code_units(), *self._data_units()]

    def _code_units(self) -> list[CodeUnit]:
        with_docstrings = not (_DOCSTRING_READERS.isdisjoint(self._used) and _DOCSTRING_READERS.isdisjoint(self._words))
        is_verbatim = not (_READS_SOURCE.isdisjoint(self._used) and _READS_SOURCE.isdisjoint(self._words))
        found: list[CodeUnit] = []
        order: list[str] = []
        for name, code in sorted(self._codes.items(), key=lambda item: (self.label(item[0]), item[0])):
            known = self._known.get(name)
            if known is None or (known.with_docstrings, known.is_verbatim) != (with_docstrings, is_verbatim):
                known = self._known[name] = self._units_of(code, with_docstrings, is_verbatim)
            found += known.units
            order.append(known.order)
        found.append(CodeUnit("", ORDER, _hash(order)))
        return found

    def _units_of(self, code: ModuleCode, with_docstrings: bool, is_verbatim: bool) -> _ModuleUnits:
        groups: dict[str, list[Piece]] = {}
        texts: dict[str, list[str]] = {}
        order: list[str] = []
        is_own = code.name == self._own
        if (not is_own and self._ignores(code.name)) or (code.is_version and code.name not in self._whole):
            pass
        elif code.opaque or code.is_version:
            texts[""] = [code.opaque or canonical(code.tree)]
        else:
            for piece in self._in_order(code):
                if piece.imports is not None:
                    text = self._import_text(piece)
                else:
                    text = piece.full_text if with_docstrings else piece.text
                if text:
                    unit = self._name(piece)
                    groups.setdefault(unit, []).append(piece)
                    texts.setdefault(unit, []).append(text)
                    order.append(unit)
            if with_docstrings:
                texts.setdefault("", []).append(f"docstring {ast.get_docstring(code.tree)!r}")
            if is_verbatim:
                texts.setdefault("", []).append(code.text)
        units = [self._unit(code, unit, groups.get(unit, []), texts[unit]) for unit in sorted(texts)]
        return _ModuleUnits(units, f"{self.label(code.name)}: {order}", with_docstrings, is_verbatim)

    def _name(self, piece: Piece) -> str:
        return self._labels.get(piece) or ", ".join(piece.names)

    def _in_order(self, code: ModuleCode) -> Iterator[Piece]:
        for piece in self._modules.pieces(code).all:
            for each in (piece, *piece.inner):
                if each in self._kept:
                    yield each

    def _unit(self, code: ModuleCode, name: str, pieces: list[Piece], texts: list[str]) -> CodeUnit:
        causes = [self._kept[piece] for piece in pieces]
        used_by = causes[0] if causes and None not in causes else None
        return CodeUnit(self.label(code.name), name, _hash(texts), code.path, used_by, code, tuple(pieces))

    def _import_text(self, piece: Piece) -> str:
        """The modules that an import runs, and the names that are used of what it binds; empty if it does nothing."""
        statement, code = piece.imports, piece.code
        assert statement is not None
        is_whole = code.name in self._whole
        pieces = []
        for alias in statement.names:
            bound = alias.asname or alias.name.partition(".")[0]
            is_used = is_whole or alias.name == "*" or bound in self._used or bound in self._words
            if isinstance(statement, ast.Import):
                module, name = alias.name, ""
            else:
                module, name = code.absolute(ImportTarget(statement.module or "", statement.level)), alias.name
            if not is_used and _has_no_effect(module):
                continue
            shown = self.label(module) if self.is_users(module) else module
            below = f"{module}.{name}" if name and f"{module}.{name}" in self._codes else ""
            pieces.append(f"{shown}:{name} as {bound}" if is_used else f"{shown} {below}")
        return "import " + ", ".join(dict.fromkeys(pieces)) if pieces else ""

    def _data_units(self) -> Iterator[CodeUnit]:
        """The files of the packages that are no modules, if anything here can read them."""
        reads = not _READS_FILES.isdisjoint(self._used)
        for package in sorted({package_of(name) for name in self._codes}):
            code = self._modules.find(package)
            if code is None or not code.is_package:
                continue
            for path, words, read in self._modules.data(code):
                is_read = reads or package.rpartition(".")[2] in self._words or not words.isdisjoint(self._words)
                parts = path.split("/")
                if hidden := [part for part in parts if part.startswith(".")]:  # an editor's, say
                    named = {word for part in hidden for word in _WORD.findall(part)}
                    is_read = bool(named) and named <= self._words
                if (test := of_tests(parts[1:-1])) and test not in self._words:
                    is_read = False
                if is_read and not self._ignores_file(path):
                    yield CodeUnit(path, "", read(), data=read)
        for path, read in self._beside():
            if not self._ignores_file(path.removeprefix("./")) and not self._ignores_file(read.path):
                yield CodeUnit(path, "", read(), data=read)

    def _beside(self) -> Iterator[tuple[str, DataFile]]:
        """The files that the code reads outside of its packages: their paths from the deployment's folder on."""
        pieces = self._pieces_with_paths()
        if not pieces:
            return
        codes = dict.fromkeys(piece.code for piece in pieces)
        found = self._modules.own_files(pieces)
        packages = [Path(path) for code in self._codes.values() for path in code.spec.submodule_search_locations or ()]
        folder = os.path.commonpath([os.path.dirname(_top(code)) for code in codes])
        for path in found:
            if not any(map(path.is_relative_to, packages)):
                yield f"./{os.path.relpath(path, folder)}", DataFile(str(path))

    def _pieces_with_paths(self) -> list[Piece]:
        """The pieces of code that may hold a path which is made of ``__file__``."""
        waiting = [
            piece
            for code in self._codes.values()
            if code.identity is not None and not (code.opaque or code.is_version)
            if code.name == self._own or not self._ignores(code.name)
            for piece in self._in_order(code)
        ]
        names, found = set(NAMES_ITSELF), list[Piece]()
        while new := [piece for piece in waiting if not names.isdisjoint(piece.uses.strong)]:
            found += new
            taken = set(new)
            waiting = [piece for piece in waiting if piece not in taken]
            names.update(*(piece.binds for piece in new))
        return found

    def _ignores_file(self, path: str) -> bool:
        return any(fnmatchcase(path, each) or path == each for each in self._ignored)


def package_of(module: str) -> str:
    """The package whose code travels with a module: its top one. A job inside this package has the one below that."""
    parts = module.split(".")
    return ".".join(parts[:2]) if parts[0] == _OURS else parts[0]


def _tree_of(pieces: Iterable[Piece]) -> ast.Module:
    return ast.Module([node for piece in pieces for node in piece.nodes if isinstance(node, ast.stmt)], [])


def _top(code: ModuleCode) -> str:
    """The path of the file or of the folder of a module's top package."""
    path, depth = code.path, code.name.count(".")
    for _ in range(depth + code.is_package):
        path = os.path.dirname(path)
    return path


def _has_no_effect(module: str) -> bool:
    return module.partition(".")[0] in (_OURS, *sys.stdlib_module_names) and module != "__future__"


def _binds_once(code: ModuleCode, name: str) -> bool:
    return not any(
        isinstance(node, ast.Name) and node.id == name and not isinstance(node.ctx, ast.Load)
        for node in ast.walk(code.tree)
    )


def _only_wraps(code: ModuleCode, function: ast.AST, calls: int) -> bool:
    """Whether ``calls`` calls of a function and of what it returns run nothing but definitions."""
    assert isinstance(function, _FUNCTIONS)
    inner = None
    for statement in without_docstring(function.body):
        if isinstance(statement, _FUNCTIONS):
            defaults = [*statement.args.defaults, *(each for each in statement.args.kw_defaults if each is not None)]
            is_plain = all(isinstance(each, (ast.Constant, ast.Name)) for each in defaults)
            if inner is not None or not is_plain or not all(_is_wraps(code, each) for each in statement.decorator_list):
                return False
            inner = statement
        elif not (isinstance(statement, ast.Return) and isinstance(statement.value, ast.Name)):
            return False
    is_bare = not function.decorator_list or all(_is_wraps(code, each) for each in function.decorator_list)
    return is_bare and (calls == 1 or (inner is not None and _only_wraps(code, inner, calls - 1)))


def _is_wraps(code: ModuleCode, decorator: ast.expr) -> bool:
    """``@wraps(function)`` of `functools`."""
    called = decorator.func if isinstance(decorator, ast.Call) else None
    if isinstance(called, ast.Name):
        return list(code.imports.get(called.id, ())) == [ImportTarget("functools", 0, "wraps")]
    is_wraps = isinstance(called, ast.Attribute) and called.attr == "wraps" and isinstance(called.value, ast.Name)
    return is_wraps and list(code.imports.get(called.value.id, ())) == [ImportTarget("functools")]  # type: ignore[union-attr]


def _line_numbers(node: ast.AST) -> range:
    first, last = getattr(node, "lineno", None), getattr(node, "end_lineno", None)
    decorators = [each.lineno for each in getattr(node, "decorator_list", ())]
    return range(min([first, *decorators]), last + 1) if first and last else range(0)


def _hash(texts: Iterable[str]) -> str:
    digest = hashlib.sha256()
    for text in texts:
        encoded = text.encode("utf-8", "surrogatepass")
        digest.update(b"%d " % len(encoded) + encoded)
    return digest.hexdigest()
