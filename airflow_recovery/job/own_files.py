"""Which files Python code reads at paths that it makes of ``__file__``, as far as its syntax tells.

A path that is known to its end names one file. If a part of it is computed (``Path(__file__).parent / f"{name}.csv"``),
every file below the known part counts, but for hidden files, those in folders of tests and Python's own. Nothing is
run.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import reduce
from pathlib import Path

from airflow_recovery.job.package_files import of_tests

_SAME = frozenset(
    [
        *("abspath", "absolute", "as_posix", "expanduser", "fspath", "normpath", "realpath", "resolve", "str"),
        *("Path", "PosixPath", "PurePath", "PurePosixPath", "join", "joinpath"),
    ]
)
"""Functions and methods that return the path that they are given, with further parts behind it."""
_OF_PYTHON = (".py", ".pyc", ".pyo", ".pyi")
_WITH = frozenset(["with_name", "with_stem", "with_suffix"])
_BINDING = (ast.Assign, ast.AnnAssign, ast.NamedExpr, ast.Return, ast.arguments)
_ITSELF = frozenset(["__file__", "__spec__", "__loader__", "getabsfile", "getfile", "getsourcefile"])
_RESOURCES = frozenset(["PackageLoader", "files", "get_data", "open_binary", "open_text", "resource_filename"])
NAMES_ITSELF = _ITSELF | _RESOURCES | {"argv"}
"""Names without which no code comes to the folder of its own file."""
_SEARCHED_BY_AIRFLOW = "template_searchpath"
_WRITES = frozenset(["FileHandler", "makedirs", "mkdir", "rmtree", "touch", "unlink", "write_bytes", "write_text"])
_WITHOUT_FOLDER = frozenset(
    [
        *("basename", "exists", "getLogger", "is_file", "isfile", "name", "open", "print", "read_bytes", "read_text"),
        *("debug", "error", "info", "relpath", "stat", "stem", "suffix", "suffixes", "warning"),
    ]
)
"""Functions, methods and attributes that read no other file when they are given ``__file__``."""
_Paths = frozenset[Path]
_NONE: _Paths = frozenset()


@dataclass(frozen=True)
class OwnPaths:
    """What the code of one module makes of ``__file__``: paths by the names that hold them, and paths that it uses."""

    by_name: Mapping[str, _Paths]
    used: _Paths


def own_files(modules: Sequence[tuple[Path, ast.AST]], without: Collection[ast.AST] = ()) -> list[Path]:
    """Return the files that some modules read together, sorted. ``modules``: the path and the syntax tree of each.

    A name may be bound in one module and used in another. ``without``: nodes that do not count.
    """
    if not any(names_itself(tree) for _, tree in modules):
        return []
    known: dict[str, _Paths] = {}
    for path, tree in modules:
        for name, paths in own_paths(tree, path).by_name.items():
            known[name] = known.get(name, _NONE) | paths
    used = {each for path, tree in modules for each in own_paths(tree, path, known, without).used}
    return sorted({file for each in used for file in _files_at(each)} - {path for path, _ in modules})


def own_paths(
    tree: ast.AST, path: Path, known: Mapping[str, _Paths] | None = None, without: Collection[ast.AST] = ()
) -> OwnPaths:
    """Return the paths in the code of the file at ``path``. ``known``: those that other modules hold, by name."""
    reader = _Reader(path, {name: set(paths) for name, paths in (known or {}).items()}, frozenset(without))
    try:
        for _ in range(3):  # a name may be made of one that is bound further down
            reader.bind(tree)
        reader.use(tree)
    except RecursionError:
        reader.used.add(path.parent)
    return OwnPaths({name: frozenset(paths) for name, paths in reader.names.items()}, frozenset(reader.used))


def names_itself(tree: ast.AST) -> bool:
    """Whether code has a way to the folder of its own file."""
    names = (getattr(node, "id", getattr(node, "attr", "")) for node in ast.walk(tree))
    return not NAMES_ITSELF.isdisjoint(names)


def _files_at(path: Path) -> Iterator[Path]:
    """The file, or all data below the folder."""
    if path.is_file():
        yield path
    elif path != Path(path.anchor):
        yield from (one for one in path.rglob("*") if _is_data(one.relative_to(path)) and one.is_file())


def _is_data(below: Path) -> bool:
    is_hidden = any(part.startswith(".") or part == "__pycache__" for part in below.parts)
    return not is_hidden and below.suffix not in _OF_PYTHON and not of_tests(below.parts[:-1])


@dataclass
class _Reader:
    path: Path
    names: dict[str, set[Path]]
    without: frozenset[ast.AST] = frozenset()
    used: set[Path] = field(default_factory=set)
    values: dict[ast.AST, _Paths] = field(default_factory=dict)

    def bind(self, tree: ast.AST) -> None:
        """Read what names, attributes and functions hold."""
        self.values.clear()
        for node in ast.walk(tree):
            if isinstance(node, ast.Assign):
                for target in node.targets:
                    self._hold(target, node.value)
            elif isinstance(node, (ast.AnnAssign, ast.NamedExpr)) and node.value is not None:
                self._hold(node.target, node.value)
            elif isinstance(node, ast.alias) and node.asname:
                self._keep(node.asname, frozenset(self.names.get(node.name.rpartition(".")[2], ())))
            elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                arguments = [*node.args.posonlyargs, *node.args.args]
                defaults = list(zip(reversed(arguments), reversed(node.args.defaults), strict=False))
                defaults += zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True)  # type: ignore[arg-type]
                for argument, default in defaults:
                    if default is not None:
                        self._keep(argument.arg, self.value(default))
                for inner in ast.walk(node):
                    if isinstance(inner, ast.Return) and inner.value is not None:
                        self._keep(node.name, self.value(inner.value))

    def use(self, tree: ast.AST) -> None:
        """Record each path that the code does more with than to bind it or to make another path of it."""
        self.values.clear()
        self._use(tree)

    def _use(self, node: ast.AST) -> None:
        if node in self.without or getattr(node, "arg", "") == _SEARCHED_BY_AIRFLOW:
            return
        if _changes_path(node):  # folders of modules are followed by the imports
            inside = (each for each in ast.walk(node) if isinstance(each, ast.expr))
            self.used |= {path for each in inside for path in self.value(each) - {self.path} if path.is_file()}
            return
        if isinstance(node, ast.Call) and _called(node) in _RESOURCES:
            self.used.add(self.path.parent)
        for child in ast.iter_child_nodes(node):
            paths = self.value(child) if isinstance(child, ast.expr) else _NONE
            if paths and not isinstance(node, _BINDING) and not _writes(node):
                is_begin = isinstance(node, (ast.FormattedValue, ast.BinOp))
                self.used |= {each.parent if is_begin and not each.exists() else each for each in paths - {self.path}}
                if self.path in paths and not _reads_no_folder(node):
                    self.used.add(self.path.parent)  # whatever is given ``__file__`` may make another path of it
            elif not paths and (begin := self._begin(child)):
                self.used |= begin
                self._use(ast.Tuple(elts=self._behind_first(child), ctx=ast.Load()))
            elif not paths:
                self._use(child)

    def _hold(self, target: ast.AST, value: ast.expr) -> None:
        if isinstance(target, ast.Name):
            self._keep(target.id, self.value(value))
        elif isinstance(target, ast.Attribute):
            self._keep(target.attr, self.value(value))
        elif isinstance(target, (ast.Tuple, ast.List)) and isinstance(value, (ast.Tuple, ast.List)):
            for each, item in zip(target.elts, value.elts, strict=False):
                self._hold(each, item)

    def _keep(self, name: str, paths: _Paths) -> None:
        if paths:
            self.names.setdefault(name, set()).update(paths)

    def value(self, node: ast.expr | None) -> _Paths:
        """The paths that an expression may be; none if it is not made of ``__file__``, or is not known to its end."""
        if node is None:
            return _NONE
        if node not in self.values:
            self.values[node] = self._value(node)
        return self.values[node]

    def _value(self, node: ast.expr) -> _Paths:
        if isinstance(node, ast.Name):
            return frozenset([self.path]) if node.id in _ITSELF else frozenset(self.names.get(node.id, ()))
        if isinstance(node, ast.Attribute):
            if node.attr == "parent":
                return frozenset(path.parent for path in self.value(node.value))
            if node.attr == "__file__":
                return frozenset([self.path])
            is_of_python = isinstance(node.value, ast.Name) and node.value.id in ("os", "sys")
            return _NONE if is_of_python else frozenset(self.names.get(node.attr, ()))
        if isinstance(node, ast.Subscript):
            return self._above(node)
        if isinstance(node, (ast.IfExp, ast.BoolOp)):
            values = node.values if isinstance(node, ast.BoolOp) else [node.body, node.orelse]
            return _NONE.union(*map(self.value, values))
        if isinstance(node, ast.Call) and (paths := self._returned(node, _called(node))):
            return paths
        pieces = self._pieces(node)
        return _joined(pieces) if pieces and all(isinstance(each, (str, frozenset)) for each in pieces) else _NONE

    def _returned(self, node: ast.Call, name: str) -> _Paths:
        if name in _ITSELF:
            return frozenset([self.path])
        if name == "dirname" and node.args:
            return frozenset(path.parent for path in self.value(node.args[0]))
        if name in _WITH and isinstance(node.func, ast.Attribute):
            return self._renamed(name, node.func.value, node.args)
        return _NONE if node.args else frozenset(self.names.get(name, ()))

    def _above(self, node: ast.Subscript) -> _Paths:
        value, at = node.value, node.slice
        if ast.unparse(node) == "sys.argv[0]":
            return frozenset([self.path])
        if not isinstance(value, ast.Attribute) or value.attr != "parents":
            return _NONE
        number = at.value if isinstance(at, ast.Constant) and isinstance(at.value, int) else None
        found = [list(path.parents) for path in self.value(value.value)]
        return frozenset(path for each in found for path in (each if number is None else each[number : number + 1]))

    def _renamed(self, method: str, value: ast.expr, given: Sequence[ast.expr]) -> _Paths:
        """Another file of the same folder. If its name is computed, the folder."""
        paths = self.value(value)
        with suppress(ValueError, TypeError):
            if len(given) == 1 and isinstance(given[0], ast.Constant):
                return frozenset(getattr(path, method)(given[0].value) for path in paths)
        return frozenset(path.parent for path in paths)

    def _begin(self, node: ast.AST) -> _Paths:
        """The folder in which a path lies whose end is computed, if more than its first part is known."""
        known: list[str | _Paths] = []
        for piece in self._pieces(node):
            if piece is None:
                break
            known.append(piece)
        if len(known) < 2:
            return _NONE
        is_text = isinstance(node, ast.JoinedStr) or (isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add))
        is_whole = not is_text or str(known[-1]).endswith("/")
        return frozenset(path if is_whole else path.parent for path in _joined(known))

    def _behind_first(self, node: ast.AST) -> list[ast.expr]:
        """The parts of a path, but for a known one that it begins with."""
        if isinstance(node, ast.JoinedStr):
            return node.values[1:]
        if isinstance(node, ast.BinOp):
            return [node.left, node.right]
        given = node.args if isinstance(node, ast.Call) else []
        is_method = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and self.value(node.func.value)
        return given if is_method else given[1:]

    def _pieces(self, node: ast.AST | None) -> list[str | _Paths | None]:
        """The parts of a path: one that is made of ``__file__``, then texts; `None` for a part that is computed."""
        if isinstance(node, ast.BinOp):
            behind: list[str | _Paths | None] = []
            first: ast.expr = node
            while isinstance(first, ast.BinOp) and isinstance(first.op, (ast.Div, ast.Add)):
                behind += _text(first.right, "/" if isinstance(first.op, ast.Div) else "")
                first = first.left
            return [*self._first(first), *reversed(behind)] if first is not node else []
        if isinstance(node, ast.JoinedStr) and node.values and isinstance(node.values[0], ast.FormattedValue):
            rest = [piece for each in node.values[1:] for piece in _text(each, "")]
            return [*self._first(node.values[0].value), *rest]
        if isinstance(node, ast.Call):
            name, given = _called(node), list(node.args)
            if isinstance(node.func, ast.Attribute) and self.value(node.func.value):
                given = [node.func.value, *given]
            if name in _SAME and given:
                rest = [piece for each in given[1:] for piece in _text(each, "/")]
                return [*self._first(given[0]), *rest]
        return []

    def _first(self, node: ast.expr) -> list[str | _Paths | None]:
        return [paths] if (paths := self.value(node)) else (self._pieces(node) or [None])


def _called(node: ast.Call) -> str:
    """The last part of the name of a function or a method."""
    return str(getattr(node.func, "attr", getattr(node.func, "id", "")))


def _writes(node: ast.AST) -> bool:
    """Whether a path is only written to, or made, here."""
    if isinstance(node, ast.Attribute):
        return node.attr in _WRITES
    if not isinstance(node, ast.Call):
        return False
    modes = [*node.args[1:2], *(each.value for each in node.keywords if each.arg == "mode")]
    is_written = any(isinstance(mode, ast.Constant) and str(mode.value)[:1] in ("w", "x", "a") for mode in modes)
    return _called(node) in _WRITES or (_called(node) == "open" and is_written)


def _reads_no_folder(node: ast.AST) -> bool:
    """Whether ``__file__`` is only logged, compared or opened here."""
    if isinstance(node, ast.Call):
        return _called(node) in _WITHOUT_FOLDER
    return isinstance(node, (ast.Compare, ast.Expr, ast.FormattedValue)) or (
        isinstance(node, ast.Attribute) and node.attr in _WITHOUT_FOLDER
    )


def _text(node: ast.AST, separator: str) -> list[str | _Paths | None]:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return [separator + node.value]
    return [None]


def _joined(pieces: Sequence[str | _Paths | None]) -> _Paths:
    first, *rest = pieces
    if not isinstance(first, frozenset):
        return _NONE
    return frozenset(Path(reduce(lambda text, piece: f"{text}{piece}", rest, str(path))) for path in first)


def _changes_path(node: ast.AST) -> bool:
    """``sys.path.insert(0, ...)``, ``sys.path += [...]``, ``sys.path[:0] = [...]``."""
    if isinstance(node, (ast.Assign, ast.AugAssign)):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        return any(ast.unparse(target).startswith("sys.path") for target in targets)
    called = node.func if isinstance(node, ast.Call) else None
    is_of_path = isinstance(called, ast.Attribute) and ast.unparse(called.value) == "sys.path"
    return is_of_path and getattr(called, "attr", "") in ("append", "extend", "insert")
