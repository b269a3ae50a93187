"""A module in pieces: what always counts, and what can be left out as long as its name is used nowhere.

A piece with names is a function, a class or a plain constant that does nothing when its module is imported. All other
statements are pieces without a name. A function that a job, or Airflow, declares as a vertex or a task is a piece of
its own, also inside another function.
"""

from __future__ import annotations

import ast
import builtins
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from airflow_recovery.job.module_code import ModuleCode, canonical, without_docstring
from airflow_recovery.job.references import ImportTarget, Reference, bound_names, references

_DECORATORS = frozenset(("source", "vertex", "sink"))
_OF_TYPES = (ast.Name, ast.Attribute, ast.Subscript, ast.Tuple, ast.List, ast.Constant, ast.BinOp, ast.BitOr)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_WORD = re.compile(r"[^\W\d]\w*")
_DOTTED = re.compile(r"[\w.]+(:[\w.]+)?")

_COMPUTING_NAMES = frozenset(
    [
        "eval",
        "exec",
        "compile",
        "globals",
        "locals",
        "vars",
        "dir",
        "__import__",
        "__builtins__",
        "builtins",
        "pickle",
        "pydoc",
        "cloudpickle",
        "dill",
        "hydra",
        "joblib",
        "shelve",
        "marshal",
    ]
)
_COMPUTING_ATTRIBUTES = frozenset(
    [
        "import_module",
        "reload",
        "__dict__",
        "__getattribute__",
        "__subclasses__",
        "__globals__",
        "__builtins__",
        "attrgetter",
        "methodcaller",
        "getmembers",
        "walk_packages",
        "iter_modules",
        "entry_points",
        "spec_from_file_location",
        "module_from_spec",
        "exec_module",
        "load_module",
        "run_module",
        "run_path",
        "import_string",
        "resolve_name",
        "SourceFileLoader",
        "get_objects",
        "get_referrers",
        "_getframe",
        "currentframe",
        "find_spec",
        "find_loader",
        "getattr_static",
        "iter_entry_points",
        "load_entry_point",
        "symbol_by_name",
    ]
)
_LOOK_UPS = frozenset(("getattr", "setattr", "delattr", "hasattr"))

_PLAIN_CALLS = (
    "airflow",
    "airflow_recovery",
    "collections.OrderedDict",
    "collections.namedtuple",
    "dataclasses.field",
    "datetime",
    "decimal",
    "fractions",
    "logging.getLogger",
    "os.environ.get",
    "os.getenv",
    "os.path",
    "pathlib",
    "pendulum",
    "pyspark.sql.types",
    "re.compile",
    "typing",
    "uuid.UUID",
    "zoneinfo",
)
"""Functions and classes of other packages that do nothing but return a value, or declare a task of Airflow's."""
_PLAIN_BUILTINS = frozenset(
    ["bool", "bytes", "dict", "float", "frozenset", "int", "len", "list", "range", "set", "str", "tuple"]
)
_PLAIN_DECORATORS = (
    "abc",
    "contextlib",
    "dataclasses.dataclass",
    "enum.unique",
    "functools.cache",
    "functools.cached_property",
    "functools.lru_cache",
    "functools.total_ordering",
    "functools.wraps",
    "pyspark.sql.functions.pandas_udf",
    "pyspark.sql.functions.udf",
    "typing",
)
_DECLARING = ("airflow", "airflow_recovery")
_OF_INERT = (ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.IfExp, ast.JoinedStr, ast.Subscript)
_TEXTS = frozenset(["__file__", "__name__"])
_PATH_CALLS = ("os.path", "pathlib.Path", "pathlib.PurePath", "pathlib.PurePosixPath", "pathlib.PosixPath")
_PATH_ATTRIBUTES = frozenset(["anchor", "name", "parent", "parents", "parts", "stem", "suffix", "suffixes"])
_METHODS = frozenset(name for name in dir(str) if not name.startswith("_")) | {
    "absolute",
    "as_posix",
    "as_uri",
    "joinpath",
    "relative_to",
    "resolve",
    "with_name",
    "with_stem",
    "with_suffix",
}
"""Methods of texts and paths that do nothing but return a value."""
_PLAIN_BASES = ("abc", "enum", "typing")
_INERT_PACKAGES = (*sorted(sys.stdlib_module_names), "airflow", "airflow_recovery", "numpy", "pandas", "pyspark")
"""Packages whose attributes can be read without running the user's code."""
_UNREAD_DUNDERS = frozenset(
    [
        "__author__",
        "__commit_id__",
        "__copyright__",
        "__date__",
        "__email__",
        "__license__",
        "__version__",
        "__version_tuple__",
    ]
)


@dataclass(frozen=True)
class Uses:
    """What a piece of code uses.

    ``names``: names that it does not bind. ``bare``: those that are used by themselves, not for an attribute.
    ``attributes``: of whatever object. ``words``: identifiers in texts; ``dotted``: those at the end of a text that is
    a dotted name; ``paths``: such texts. ``imports``: what it imports when it runs, ``taken``: names of such modules,
    ``passed``: modules that are used by themselves. ``computes``: it computes the names that it looks up.
    ``looks_up``: it looks names up.
    """

    names: frozenset[str]
    bare: frozenset[str]
    attributes: frozenset[str]
    words: frozenset[str]
    dotted: frozenset[str]
    paths: frozenset[str] = frozenset()
    imports: tuple[ImportTarget, ...] = ()
    taken: frozenset[str] = frozenset()
    passed: tuple[ImportTarget, ...] = ()
    computes: bool = False
    looks_up: bool = False

    @cached_property
    def strong(self) -> frozenset[str]:
        """The names that are used otherwise than as a word in a text."""
        return self.names | self.attributes | self.dotted | self.taken


_NONE: frozenset[str] = frozenset()
_NO_USES = Uses(_NONE, _NONE, _NONE, _NONE, _NONE)


@dataclass(eq=False)
class Piece:
    """Some statements of a module. ``names`` are what they bind; a piece without names always counts.

    ``without``: nodes inside that do not count. ``decorators``: those that must be shown to do nothing but wrap, else
    the piece always counts. ``is_declared``: a vertex or a task. ``imports``: the piece is an import statement.
    """

    code: ModuleCode
    nodes: Sequence[ast.AST]
    names: tuple[str, ...] = ()
    without: Sequence[ast.AST] = ()
    decorators: Sequence[ast.expr] = ()
    is_declared: bool = False
    imports: ast.Import | ast.ImportFrom | None = None
    inner: list[Piece] = field(default_factory=list)

    @property
    def function(self) -> ast.AST:
        """The definition that the piece consists of."""
        return self.nodes[0]

    @cached_property
    def uses(self) -> Uses:
        """What it uses, without its docstrings."""
        return _uses(self)

    @cached_property
    def binds(self) -> frozenset[str]:
        """The names and attributes that it binds, in whatever scope."""
        return frozenset(name for node in self.nodes for inner in ast.walk(node) for name in _names_bound_by(inner))

    @cached_property
    def text(self) -> str:
        """Its normal form."""
        return "\n".join(canonical(node, without=self.without) for node in self.nodes)

    @cached_property
    def full_text(self) -> str:
        """Its normal form with docstrings."""
        return "\n".join(canonical(node, without=self.without, docstrings=True) for node in self.nodes)


class Pieces:
    """The pieces of one module, in order.

    ``is_job``: whether a name of the module's is a job. ``declared``: (name, first line) of vertices' functions.
    """

    def __init__(self, code: ModuleCode, is_job: Callable[[str], bool], declared: frozenset[tuple[str, int]]) -> None:
        self._code = code
        self._is_job = is_job
        self._declared = declared
        self._plain: set[str] = set()
        self._declaring_functions: set[str] = set()
        self._operators: set[str] = set()
        self.all: tuple[Piece, ...] = tuple(self._split(without_docstring(code.tree.body)))

    @cached_property
    def of_function(self) -> dict[ast.AST, Piece]:
        """For each function of the module the innermost piece that holds it."""
        found: dict[ast.AST, Piece] = {}
        for piece in self.all:
            for each in (piece, *piece.inner):
                found.update({node: each for part in each.nodes for node in ast.walk(part)})
        return found

    # --- statements ---------------------------------------------------------------------------------------------------

    def _split(self, statements: Iterable[ast.stmt]) -> Iterator[Piece]:
        for statement in statements:
            yield from self._pieces_of(statement)

    def _pieces_of(self, statement: ast.stmt) -> Iterator[Piece]:
        if isinstance(statement, (ast.Import, ast.ImportFrom)):
            yield Piece(self._code, [statement], imports=statement)
        elif isinstance(statement, _FUNCTIONS):
            yield from self._function(statement)
        elif isinstance(statement, ast.ClassDef):
            names = (statement.name,) if self._is_plain_class(statement) else ()
            if names and self._is_operator(statement):
                self._operators.add(statement.name)
            yield self._piece(statement, names, self._foreign(statement, ()))
        elif isinstance(statement, (ast.Assign, ast.AnnAssign)):
            yield from self._assignment(statement)
        elif isinstance(statement, ast.If) and (
            self._resolves(statement.test, ("typing.TYPE_CHECKING",)) or _is_of_a_program(statement.test)
        ):
            yield from self._split(statement.orelse)
        elif isinstance(statement, ast.With) and all(
            isinstance(item.context_expr, ast.Call) and self._resolves(item.context_expr.func, ("airflow",))
            for item in statement.items
        ):
            yield from self._declaring_block(statement)
        elif isinstance(statement, ast.Pass) or (isinstance(statement, ast.Expr) and self._only_declares(statement)):
            return
        else:
            yield self._piece(statement, ())

    def _piece(self, statement: ast.stmt, names: tuple[str, ...], foreign: Sequence[ast.expr] = ()) -> Piece:
        inner = [piece for node in ast.iter_child_nodes(statement) for piece in self._declared_below(node)]
        return Piece(
            self._code,
            [statement],
            names,
            without=[piece.function for piece in inner],
            decorators=foreign,
            inner=inner,
        )

    def _declared_below(self, node: ast.AST) -> Iterator[Piece]:
        if isinstance(node, _FUNCTIONS) and (ours := self._declaring(node)) and self._is_plain_header(node, ours):
            yield Piece(self._code, [node], (node.name,), ours, self._foreign(node, ours), is_declared=True)
            return
        for child in ast.iter_child_nodes(node):
            yield from self._declared_below(child)

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[Piece]:
        ours = self._declaring(node)
        foreign = self._foreign(node, ours)
        is_special = node.name.startswith("__") and node.name.endswith("__")
        names = (node.name,) if self._is_plain_header(node, ours) and not is_special else ()
        inner = [piece for child in ast.iter_child_nodes(node) for piece in self._declared_below(child)]
        if ours:
            self._declaring_functions.add(node.name)
        without = [*ours, *(piece.function for piece in inner)]
        if any(self._resolves(each, ("airflow",)) and _name_of(each).endswith("dag") for each in ours):
            # Airflow calls the function of a DAG once, to declare its tasks: as if its body stood here.
            yield Piece(self._code, [node], names, without, foreign, is_declared=True)
            yield from self._split(without_docstring(node.body))
        else:
            yield Piece(self._code, [node], names, without, foreign, bool(ours), None, inner)

    def _assignment(self, statement: ast.Assign | ast.AnnAssign) -> Iterator[Piece]:
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        names = tuple(sorted(name for target in targets for name in bound_names(target)))
        are_names = all(isinstance(each, ast.Name) for target in targets for each in _elements(target))
        if names == ("__all__",) and are_names and isinstance(statement.value, (ast.List, ast.Tuple)):
            # It always counts. Its texts are no uses, unless the list is read.
            yield Piece(self._code, [statement], names, is_declared=True)
            exported = Piece(self._code, [statement])
            exported.uses = _NO_USES
            yield exported
            return
        is_special = any(name.startswith("__") and name not in _UNREAD_DUNDERS for name in names)
        if not are_names or is_special or not (statement.value is None or self._is_plain(statement.value)):
            yield self._piece(statement, ())
            return
        if statement.value is not None and self._is_inert(statement.value):
            self._plain.update(names)
        is_declared = isinstance(statement.value, ast.Call) and self._resolves(statement.value.func, _DECLARING)
        yield Piece(self._code, [statement], names, is_declared=is_declared)

    def _declaring_block(self, statement: ast.With) -> Iterator[Piece]:
        """``with DAG(...) as dag:``, whose body is taken as if it stood at the top."""
        for item in statement.items:
            names = tuple(sorted(bound_names(item.optional_vars))) if item.optional_vars is not None else ()
            if not self._is_plain(item.context_expr):
                yield Piece(self._code, [item])
            elif names:
                yield Piece(self._code, [item], names, is_declared=True)
        yield from self._split(statement.body)

    def _only_declares(self, statement: ast.Expr) -> bool:
        """A docstring; ``flights.co_locate(...)``; ``flights.sink(...)(clean)``; ``a >> b`` and calls of a DAG's."""
        value = statement.value
        if isinstance(value, ast.Constant):
            return True
        if isinstance(value, ast.BinOp) and isinstance(value.op, (ast.RShift, ast.LShift)):
            return any(top == "airflow" for top in self._external_tops) and self._is_task(value)
        if not isinstance(value, ast.Call):
            return False
        called = value.func
        if isinstance(called, ast.Call):
            called = called.func
        is_of_job = (
            isinstance(called, ast.Attribute)
            and isinstance(called.value, ast.Name)
            and called.attr in (*_DECORATORS, "co_locate")
            and called.value.id in self._code.bound | self._code.imports.keys()
            and self._is_job(called.value.id)
        )
        return (is_of_job and self._are_plain_arguments(value.func)) or self._is_plain(value)

    @cached_property
    def _external_tops(self) -> set[str]:
        return {target.module.partition(".")[0] for targets in self._code.imports.values() for target in targets}

    def _is_task(self, node: ast.expr) -> bool:
        if isinstance(node, ast.BinOp):
            return (
                isinstance(node.op, (ast.RShift, ast.LShift)) and self._is_task(node.left) and self._is_task(node.right)
            )
        return self._is_plain(node)

    # --- what does nothing when it is evaluated -----------------------------------------------------------------------

    def _is_plain_header(self, node: ast.FunctionDef | ast.AsyncFunctionDef, ours: Sequence[ast.expr]) -> bool:
        arguments = node.args
        defaults = [*arguments.defaults, *(each for each in arguments.kw_defaults if each is not None)]
        annotations = [
            each.annotation for each in ast.walk(arguments) if isinstance(each, ast.arg) and each.annotation is not None
        ]
        foreign = [each for each in node.decorator_list if each not in ours]
        return (
            all(map(self._is_plain, defaults))
            and all(map(_is_plain_type, (*annotations, *([node.returns] if node.returns is not None else []))))
            and all(self._are_plain_arguments(each) for each in (*ours, *foreign))
        )

    def _is_plain_class(self, node: ast.ClassDef) -> bool:
        return (
            not node.keywords
            and all(self._is_plain_base(base) for base in node.bases)
            and all(self._are_plain_arguments(each) for each in node.decorator_list)
            and all(map(self._is_plain_member, without_docstring(node.body)))
        )

    def _is_operator(self, node: ast.ClassDef) -> bool:
        """Whether a plain class is an operator of Airflow's that adds no special method, such as a constructor."""
        functions = [each.name for each in node.body if isinstance(each, _FUNCTIONS)]
        has_special = any(name.startswith("__") and name.endswith("__") for name in functions)
        return bool(node.bases) and all(map(self._is_operator_class, node.bases)) and not has_special

    def _is_plain_base(self, base: ast.expr) -> bool:
        inner = base.value if isinstance(base, ast.Subscript) else base
        if self._resolves(inner, _PLAIN_BASES) or self._is_operator_class(inner):
            return True
        known = getattr(builtins, inner.id, None) if isinstance(inner, ast.Name) else None
        return isinstance(known, type) and not self._is_bound(_name_of(inner))

    def _is_plain_member(self, node: ast.stmt) -> bool:
        if isinstance(node, _FUNCTIONS):
            known = ("property", "staticmethod", "classmethod")
            return self._is_plain_header(node, ()) and all(
                (isinstance(each, ast.Name) and each.id in known and not self._is_bound(each.id))
                or self._resolves(each, _PLAIN_DECORATORS)
                for each in node.decorator_list
            )
        if isinstance(node, ast.AnnAssign):
            is_plain = node.value is None or self._is_plain(node.value)
            return isinstance(node.target, ast.Name) and _is_plain_type(node.annotation) and is_plain
        if isinstance(node, ast.Assign):
            return all(isinstance(each, ast.Name) for each in node.targets) and self._is_plain(node.value)
        return isinstance(node, ast.Pass) or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))

    def _is_plain(self, node: ast.expr) -> bool:
        """Whether evaluating it does nothing that other code could notice."""
        if isinstance(node, (ast.Constant, ast.Name, ast.Lambda)):
            return True
        if isinstance(node, ast.Starred):
            return self._is_plain(node.value)
        if isinstance(node, (ast.Tuple, ast.List, ast.Set)):
            return all(map(self._is_plain, node.elts))
        if isinstance(node, ast.Dict):
            return all(key is None or self._is_plain(key) for key in node.keys) and all(
                map(self._is_plain, node.values)
            )
        if isinstance(node, ast.Attribute):
            return self._resolves(node, _INERT_PACKAGES)
        if isinstance(node, ast.Call):
            return self._is_plain_call(node)
        return isinstance(node, _OF_INERT) and self._is_inert(node)

    def _is_inert(self, node: ast.expr | None) -> bool:
        """Whether it is made of constants, texts and paths alone, whose operators and methods run no code of a user."""
        if node is None or isinstance(node, ast.Constant):
            return True
        if isinstance(node, ast.Name):
            is_text = node.id in _TEXTS and not self._is_bound(node.id)
            return is_text or (node.id in self._plain and self._times_bound[node.id] == 1)
        if isinstance(node, ast.Attribute):
            return node.attr in _PATH_ATTRIBUTES and self._is_inert(node.value)
        if isinstance(node, ast.Call):
            called = node.func
            is_method = isinstance(called, ast.Attribute) and called.attr in _METHODS and self._is_inert(called.value)
            if not is_method and not self._resolves(called, _PATH_CALLS):
                return False
            return all(map(self._is_inert, (*node.args, *(each.value for each in node.keywords))))
        return isinstance(node, (*_OF_INERT, ast.Tuple, ast.FormattedValue, ast.Slice)) and all(
            self._is_inert(child) for child in ast.iter_child_nodes(node) if isinstance(child, ast.expr)
        )

    @cached_property
    def _times_bound(self) -> Counter[str]:
        names = (node for node in ast.walk(self._code.tree) if isinstance(node, ast.Name))
        return Counter(name.id for name in names if not isinstance(name.ctx, ast.Load))

    def _is_plain_call(self, node: ast.Call) -> bool:
        called = node.func
        is_known = (
            self._resolves(called, _PLAIN_CALLS)
            or (isinstance(called, ast.Attribute) and called.attr in _METHODS and self._is_inert(called.value))
            or (
                isinstance(called, ast.Name)
                and (
                    (called.id in _PLAIN_BUILTINS and not self._is_bound(called.id))
                    or called.id in self._declaring_functions
                    or called.id in self._operators
                )
            )
        )
        if isinstance(called, ast.Call):  # recoverable(BashOperator)(...)
            is_known = is_known and all(map(self._is_operator_class, called.args)) and not called.keywords
        return is_known and self._are_plain_arguments(node)

    def _is_operator_class(self, node: ast.expr) -> bool:
        """Whether making an object of a class runs no code of the user's."""
        return self._resolves(node, _DECLARING) or (isinstance(node, ast.Name) and node.id in self._operators)

    def _are_plain_arguments(self, node: ast.expr) -> bool:
        """Whether the arguments of a call are plain; a name without a call is."""
        if not isinstance(node, ast.Call):
            return True
        return all(map(self._is_plain, node.args)) and all(self._is_plain(each.value) for each in node.keywords)

    def _is_bound(self, name: str) -> bool:
        return name in self._code.bound or name in self._code.imports

    # --- decorators ---------------------------------------------------------------------------------------------------

    def _declaring(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> list[ast.expr]:
        """Decorators such as ``@flights.vertex(...)`` and ``@task``: what they say is in the fingerprint by itself."""
        first = min([node.lineno, *(each.lineno for each in node.decorator_list)])
        is_declared = (node.name, first) in self._declared
        return [
            each
            for each in node.decorator_list
            if self._declares_vertex(each, is_declared=is_declared) or self._resolves(each, _DECLARING)
        ]

    def _foreign(
        self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef, ours: Sequence[ast.expr]
    ) -> list[ast.expr]:
        return [
            each for each in node.decorator_list if each not in ours and not self._resolves(each, _PLAIN_DECORATORS)
        ]

    def _declares_vertex(self, decorator: ast.expr, *, is_declared: bool) -> bool:
        called = decorator.func if isinstance(decorator, ast.Call) else decorator
        if not (
            isinstance(called, ast.Attribute) and called.attr in _DECORATORS and isinstance(called.value, ast.Name)
        ):
            return False
        name = called.value.id
        if self._is_bound(name):
            return self._is_job(name)
        return is_declared  # a name of a function that declares a job: its form has to do

    def _resolves(self, node: ast.expr, known: Sequence[str]) -> bool:
        """Whether a name, or a call of it, is always one of ``known`` of another package."""
        while isinstance(node, ast.Call):
            node = node.func
        path = _name_of(node).split(".")
        targets = self._code.imports.get(path[0], ())
        if not path[0] or not targets or path[0] in self._code.bound:
            return False
        for target in targets:
            if target.level:
                return False
            full = ".".join([target.module, *([target.attribute] if target.attribute else []), *path[1:]])
            if not any(full == each or full.startswith(f"{each}.") for each in known):
                return False
        return True


def _is_of_a_program(test: ast.expr) -> bool:
    """``__name__ == "__main__"``, which does not hold in a module that is imported."""
    return isinstance(test, ast.Compare) and ast.unparse(test) in ("__name__ == '__main__'", "'__main__' == __name__")


def _name_of(node: ast.expr) -> str:
    """``a.b.c``; empty for anything else."""
    while isinstance(node, ast.Call):
        node = node.func
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(parts)]) if isinstance(node, ast.Name) else ""


def _elements(target: ast.expr) -> Sequence[ast.expr]:
    return target.elts if isinstance(target, (ast.Tuple, ast.List)) else [target]


def _is_plain_type(node: ast.expr) -> bool:
    return all(isinstance(each, (*_OF_TYPES, ast.expr_context)) for each in ast.walk(node))


def _names_bound_by(node: ast.AST) -> Iterator[str]:
    if isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, ast.Store):
        yield node.id if isinstance(node, ast.Name) else node.attr
    elif isinstance(node, _FUNCTIONS):
        yield node.name
    elif isinstance(node, ast.arg):
        yield node.arg
    elif isinstance(node, ast.alias):
        yield node.asname or node.name


# --- uses -------------------------------------------------------------------------------------------------------------


def _uses(piece: Piece) -> Uses:
    found = references(piece.nodes, without=piece.without)
    free = {use for use in found if use.imported is None}
    local = {use for use in found if use.imported is not None}
    scan = _Scan(piece)
    for node in piece.nodes:
        scan.visit(node)
    return Uses(
        names=frozenset(use.path[0] for use in free),
        bare=frozenset(use.path[0] for use in free if len(use.path) == 1),
        attributes=frozenset(scan.attributes),
        words=frozenset(scan.words),
        dotted=frozenset(scan.dotted),
        paths=frozenset(scan.paths),
        imports=tuple(scan.imports),
        taken=frozenset(target.attribute for target in scan.imports if target.attribute not in (None, "*")),
        passed=tuple({use.imported for use in local if len(use.path) == 1 and use.imported is not None}),
        computes=scan.computes or not _COMPUTING_NAMES.isdisjoint(_tops_of(piece.code, free)),
        looks_up=scan.looks_up,
    )


def _tops_of(code: ModuleCode, uses: Iterable[Reference]) -> Iterator[str]:
    """The names that are used, and the packages that these are imported from."""
    for use in uses:
        yield use.path[0]
        yield from (target.module.partition(".")[0] for target in code.imports.get(use.path[0], ()) if target.attribute)


class _Scan:
    """What a syntax walk finds without Python's rules of scopes."""

    def __init__(self, piece: Piece) -> None:
        self._code = piece.code
        self._skip = frozenset(map(id, piece.without))
        self._bound = {
            each.arg if isinstance(each, ast.arg) else each.id
            for node in piece.nodes
            for each in ast.walk(node)
            if isinstance(each, ast.arg) or (isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store))
        }
        self.attributes: set[str] = set()
        self.words: set[str] = set()
        self.dotted: set[str] = set()
        self.paths: set[str] = set()
        self.imports: list[ImportTarget] = []
        self.computes = False
        self.looks_up = False

    def visit(self, node: ast.AST) -> None:
        """Look at a node and at all nodes below it."""
        if id(node) in self._skip:
            return
        if isinstance(node, ast.Attribute):
            self._name(node.attr)
            self.attributes.add(node.attr)
            self.computes |= node.attr == "modules" and _name_of(node) == "sys.modules"
        elif isinstance(node, ast.Constant):
            self._text(node.value)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            self._import(node)
        elif isinstance(node, ast.MatchClass):
            self.attributes.update(node.kwd_attrs)
        elif isinstance(node, ast.Name) and node.id in _LOOK_UPS:
            self.looks_up = self.computes = True  # handed on, for others to call
        for child in self._below(node):
            self.visit(child)

    def _below(self, node: ast.AST) -> Iterator[ast.AST]:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _LOOK_UPS:
            self._look_up(node)
            yield from node.args
            yield from node.keywords
            return
        for name, value in ast.iter_fields(node):
            below = value if isinstance(value, list) else [value]
            if name == "body" and isinstance(node, (ast.ClassDef, *_FUNCTIONS)):
                below = without_docstring(below)
            yield from (child for child in below if isinstance(child, ast.AST))

    def _text(self, value: object) -> None:
        if not isinstance(value, (str, bytes)):
            return
        text = value if isinstance(value, str) else value.decode("latin-1")
        words = _WORD.findall(text)
        self.words.update(words)
        if words and _DOTTED.fullmatch(text) and ("." in text or ":" in text):
            self.dotted.add(words[-1])
            self.paths.add(text)

    def _import(self, node: ast.Import | ast.ImportFrom) -> None:
        for alias in node.names:
            if isinstance(node, ast.Import):
                self.imports.append(ImportTarget(alias.name))
            else:
                self.imports.append(ImportTarget(node.module or "", node.level, alias.name))
                self._name(alias.name)

    def _name(self, name: str) -> None:
        self.computes |= name in _COMPUTING_ATTRIBUTES

    def _look_up(self, call: ast.Call) -> None:
        name = call.args[1] if len(call.args) > 1 else None
        if isinstance(name, ast.Constant) and isinstance(name.value, str):
            self.looks_up = True
            self.attributes.add(name.value)
            self._name(name.value)
        elif not call.args or not self._is_of_another_package(call.args[0]):
            self.looks_up = self.computes = True

    def _is_of_another_package(self, node: ast.expr) -> bool:
        """``getattr(functions, name)`` of a package that is not the user's looks nothing up here."""
        name = _name_of(node).partition(".")[0]
        targets = self._code.imports.get(name, ())
        is_hidden = name in self._code.bound or name in self._bound
        return (
            bool(targets)
            and not is_hidden
            and all(not target.level and target.module.partition(".")[0] in _INERT_PACKAGES for target in targets)
        )
