"""Which names outside itself a piece of code uses: a static walk with Python's scoping rules, no code is run."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


@dataclass(frozen=True)
class ImportTarget:
    """What an import statement binds a name to: a module, or ``attribute`` of it. ``level`` counts leading dots."""

    module: str
    level: int = 0
    attribute: str | None = None


@dataclass(frozen=True)
class Reference:
    """A use of ``path[0]`` and of attributes of it (``helpers.twice`` is ``("helpers", "twice")``).

    With ``imported`` the first name was bound by an import inside the code itself, else it is a name of the module.
    """

    path: tuple[str, ...]
    imported: ImportTarget | None = None


def references(nodes: Iterable[ast.AST], *, without: Iterable[ast.AST] = ()) -> frozenset[Reference]:
    """Return every use of a name that the code does not bind itself. ``without`` are nodes to leave out.

    Where Python's rules need a run to tell (a name of a class body, a name that is bound on one path only) the use
    counts: a fingerprint may change needlessly, but never stay by mistake.
    """
    skip = frozenset(map(id, without))
    return frozenset(reference for node in nodes for reference in _walk(node, skip))


def imported_names(statement: ast.Import | ast.ImportFrom) -> dict[str, ImportTarget]:
    """Return what each name means that the statement binds. ``import a.b`` binds ``a``; a star binds nothing here."""
    if isinstance(statement, ast.Import):
        tops = {alias: alias.name.partition(".")[0] for alias in statement.names}
        return {alias.asname or top: ImportTarget(alias.name if alias.asname else top) for alias, top in tops.items()}
    return {
        alias.asname or alias.name: ImportTarget(statement.module or "", statement.level, alias.name)
        for alias in statement.names
        if alias.name != "*"
    }


@lru_cache(maxsize=64)
def names_bound_around(tree: ast.Module) -> Mapping[ast.AST, frozenset[str]]:
    """For each function of a module what the functions around it bind: parameters, variables, targets of loops.

    One walk for all of them, since every task fingerprints all vertices.
    """
    found: dict[ast.AST, frozenset[str]] = {}
    _collect_bound(tree, frozenset(), found)
    return found


def _collect_bound(node: ast.AST, bound: frozenset[str], found: dict[ast.AST, frozenset[str]]) -> None:
    if isinstance(node, _FUNCTIONS):
        found[node] = bound
        scope = _Scope(_body(node))
        bound |= (_parameters(node) | scope.bound | set(scope.imports)) - scope.not_local
    elif isinstance(node, _COMPREHENSIONS):
        bound |= bound_names(node)
    for child in ast.iter_child_nodes(node):
        _collect_bound(child, bound, found)


def bindings(scope: ast.Module | ast.ClassDef) -> Iterator[tuple[str, ast.AST]]:
    """Each place that binds a name of a module or of a class body: the name, and the statement or the target.

    In branches and loops as well; for a module also in functions that declare the name ``global``.
    """
    below: list[ast.AST] = list(scope.body)
    while below:
        node = below.pop()
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield node.name, node
            continue
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            yield from ((name, node) for name in imported_names(node))
        elif isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            yield node.targets[0].id, node
            below.append(node.value)
            continue
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            if node.value is not None:
                yield node.target.id, node
                below.append(node.value)
            continue
        elif isinstance(node, ast.ExceptHandler) and node.name:
            yield node.name, node
        elif isinstance(node, (ast.Name, ast.MatchAs, ast.MatchStar, ast.MatchMapping)):
            yield from ((name, node) for name in bound_names(node))
        if not isinstance(node, (ast.Lambda, *_COMPREHENSIONS)):
            below += ast.iter_child_nodes(node)
    if isinstance(scope, ast.Module):
        globals_in = (node for node in ast.walk(scope) if isinstance(node, ast.Global))
        yield from ((name, node) for node in globals_in for name in node.names)


def default_values(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> dict[str, ast.expr]:
    """Return the expression of each parameter's default value, by the parameter's name."""
    positional = [argument.arg for argument in (*node.args.posonlyargs, *node.args.args)]
    defaults = dict(zip(reversed(positional), reversed(node.args.defaults), strict=False))
    named = zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True)
    return defaults | {argument.arg: value for argument, value in named if value is not None}


def bound_names(target: ast.AST) -> set[str]:
    """Return the names that an assignment target, or any expression or pattern with targets in it, binds."""
    names = set()
    for node in ast.walk(target):
        if isinstance(node, ast.Name) and isinstance(node.ctx, (ast.Store, ast.Del)):
            names.add(node.id)
        elif isinstance(node, (ast.MatchAs, ast.MatchStar)) and node.name:
            names.add(node.name)
        elif isinstance(node, ast.MatchMapping) and node.rest:
            names.add(node.rest)
    return names


def _walk(node: ast.AST, skip: frozenset[int]) -> Iterator[Reference]:
    if id(node) in skip:
        return
    if isinstance(node, _FUNCTIONS):
        yield from _walk_function(node, skip)
    elif isinstance(node, _COMPREHENSIONS):
        yield from _walk_comprehension(node, skip)
    elif isinstance(node, ast.Attribute):
        yield from _walk_attribute(node, skip)
    elif isinstance(node, ast.Name):
        if isinstance(node.ctx, ast.Load):
            yield Reference((node.id,))
    else:
        if isinstance(node, ast.ClassDef):
            yield from _imports_of_class_body(node)
        for child in ast.iter_child_nodes(node):
            yield from _walk(child, skip)


def _walk_attribute(node: ast.Attribute, skip: frozenset[int]) -> Iterator[Reference]:
    path: list[str] = []
    inner: ast.expr = node
    while isinstance(inner, ast.Attribute):
        path.append(inner.attr)
        inner = inner.value
    if isinstance(inner, ast.Name):
        yield Reference((inner.id, *reversed(path)))
    else:
        yield from _walk(inner, skip)


def _walk_function(
    node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda, skip: frozenset[int]
) -> Iterator[Reference]:
    # Decorators, defaults and annotations are evaluated outside.
    annotations = (argument.annotation for argument in _arguments(node))
    outside: list[ast.AST | None] = [*node.args.defaults, *node.args.kw_defaults, *annotations]
    if not isinstance(node, ast.Lambda):
        outside += [*node.decorator_list, node.returns]
    body = _body(node)
    for expression in outside:
        if expression is not None:
            yield from _walk(expression, skip)

    scope = _Scope(body)
    local = _parameters(node) | scope.bound
    yield from (Reference((name,)) for name in scope.not_local)
    for reference in (use for node in body for use in _walk(node, skip)):
        head = reference.path[0]
        if reference.imported is not None or head in scope.not_local:
            yield reference
        elif head in scope.imports:
            for target in scope.imports[head]:
                yield Reference(reference.path, target)
        elif head not in local:
            yield reference


def _arguments(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> list[ast.arg]:
    variadic = [argument for argument in (node.args.vararg, node.args.kwarg) if argument]
    return [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs, *variadic]


def _parameters(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> set[str]:
    return {argument.arg for argument in _arguments(node)} | {kind.name for kind in getattr(node, "type_params", [])}


def _body(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> list[ast.AST]:
    return [node.body] if isinstance(node, ast.Lambda) else list(node.body)


def _walk_comprehension(node: ast.AST, skip: frozenset[int]) -> Iterator[Reference]:
    bound = {name for child in ast.iter_child_nodes(node) for name in _comprehension_targets(child)}
    for child in ast.iter_child_nodes(node):
        for reference in _walk(child, skip):
            if reference.imported is not None or reference.path[0] not in bound:
                yield reference
    # The first iterable is evaluated outside, where a name that the comprehension binds means something else.
    assert isinstance(node, _COMPREHENSIONS)
    yield from _walk(node.generators[0].iter, skip)


def _imports_of_class_body(node: ast.ClassDef) -> Iterator[Reference]:
    for name, targets in _Scope(node.body).imports.items():
        for target in targets:
            yield Reference((name,), target)


def _comprehension_targets(node: ast.AST) -> set[str]:
    return bound_names(node.target) if isinstance(node, ast.comprehension) else set()


class _Scope:
    """The names that one body binds, without those of functions, classes and lambdas inside it."""

    def __init__(self, body: Iterable[ast.AST]) -> None:
        self.bound: set[str] = set()
        self.imports: dict[str, list[ImportTarget]] = {}
        self.not_local: set[str] = set()
        for node in body:
            self._collect(node)

    def _collect(self, node: ast.AST) -> None:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            self.bound.add(node.name)
            return
        if isinstance(node, ast.Lambda):
            return
        if isinstance(node, _COMPREHENSIONS):
            # Only a walrus binds a name out here.
            for inner in ast.walk(node):
                if isinstance(inner, ast.NamedExpr):
                    self.bound |= bound_names(inner.target)
            return
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            for name, target in imported_names(node).items():
                self.imports.setdefault(name, []).append(target)
        elif isinstance(node, (ast.Global, ast.Nonlocal)):
            # A nonlocal name is bound by the enclosing function, which takes it out again.
            self.not_local.update(node.names)
        elif isinstance(node, ast.ExceptHandler) and node.name:
            self.bound.add(node.name)
        elif isinstance(node, (ast.Name, ast.MatchAs, ast.MatchStar, ast.MatchMapping)):
            self.bound |= bound_names(node)
        for child in ast.iter_child_nodes(node):
            self._collect(child)
