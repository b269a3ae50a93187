"""Which files beside a Python application are loaded with it: modules that it imports, and files that it names.

Python puts the folder of a program first on its path, then ``PYTHONPATH``. So a module that lies there is a part of the
application. Reads the source and runs none of it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from importlib.machinery import ModuleSpec
from importlib.util import decode_source
from pathlib import Path

from airflow_recovery.job.module_code import ModuleCode
from airflow_recovery.job.own_files import own_files
from airflow_recovery.job.package_files import of_tests

_COMPUTES_NAMES = frozenset(
    [
        *("import_module", "__import__", "run_path", "run_module", "exec", "eval", "iter_modules", "walk_packages"),
        *("spec_from_file_location", "SourceFileLoader", "addsitedir"),
    ]
)
"""Names with which code loads other code whose name is not in the source."""
_COMPUTES_FILES = frozenset(
    [
        *("open", "read_text", "read_bytes", "glob", "iglob", "rglob", "iterdir", "listdir", "scandir", "walk"),
        *("FileSystemLoader", "get_template", "getline", "getlines"),
    ]
)
_READS_PACKAGES = frozenset(["PackageLoader", "get_data", "pkg_resources", "resources", "importlib_resources"])
"""Names with which code reads the files of a package by the package's name."""
_STATEMENTS = (".sql", ".hql", ".j2", ".jinja", ".jinja2")
_MOST_ABOVE = 2
_NAMES_FILE = re.compile(r"[^\s\0:*?\"<>|]{1,200}")
_WORD = re.compile(r"[^\W\d]\w*")
_PASSES_ON = re.compile(r"^\s*(?:from\s+\S+\s+)?import\b.*$|^__all__\b.*$", re.MULTILINE)
_RENAMED = re.compile(r"\bas\s+(\w+)")
_LEFT_OUT = ("__pycache__",)
_OURS = "airflow_recovery"


def files_beside(application: Path, folders: Sequence[Path] = ()) -> list[Path]:
    """Return the files that ``application`` loads from its own folder or from ``folders``, sorted, itself left out.

    These are the modules that it imports, directly or through each other, with the whole package of each; and the
    files whose relative path is a text in one of these modules. If a module computes which code it loads, all modules
    of its folder count. If it makes a path of ``__file__`` and computes a part of it, all files of that folder count.
    A file that can't be parsed brings itself only. Follows no module of an installed distribution, nor of this package.
    """
    # A symbolic link stands for the program in its own folder: that one comes first on Python's path.
    own = dict.fromkeys((application.resolve().parent, application.parent))
    search = [*own, *_added_folders(application), *(folder for folder in folders if not _is_installed(folder))]
    found: set[Path] = set()
    waiting = [application]

    @cache
    def module(top: str) -> list[Path]:
        return list(_module(top, search)) if top != _OURS else []

    while waiting:
        path = waiting.pop()
        new = {one for one in _loaded_by(path, search, module) if one not in found and one != application}
        found |= new
        waiting += [one for one in new if one.suffix == ".py"]
    found -= _unread(found, application, search)
    programs = dict.fromkeys((application, application.resolve(), *sorted(found)))
    trees = [(path, _tree(path)) for path in programs if path.suffix == ".py"]
    read = own_files([(path, tree) for path, tree in trees if tree is not None])
    return sorted({*found, *(one for one in read if one != application)})


def _unread(found: set[Path], application: Path, search: Sequence[Path]) -> set[Path]:
    """Files of tests whose folder or name no code names, and files that a build generates to hold an unused version."""
    tests = {one: test for one in found if (test := _test_of(one, search))}
    code = [one for one in (application, *found) if one.suffix == ".py" and one not in tests]
    texts = {one: _text(one) for one in code}
    words = {one: set(_WORD.findall(text)) for one, text in texts.items()}
    named = set().union(*words.values())
    unread = {one for one, test in tests.items() if test not in named}
    for one in code:
        version = ModuleCode(one.stem, ModuleSpec(one.stem, None), str(one), texts[one])
        if one != application and _tree(one) is not None and version.is_version:
            others = [texts[other] for other in code if other != one]
            imports = [match[0] for text in others for match in _PASSES_ON.finditer(text) if one.stem in match[0]]
            names = {one.stem, *version.bound, *(name for text in imports for name in _RENAMED.findall(text))}
            used = (word for text in others for word in _WORD.findall(_PASSES_ON.sub("", text)))
            unread |= {one} if names.isdisjoint(used) else set()
    return unread


def _test_of(path: Path, search: Sequence[Path]) -> str:
    below = (path.relative_to(folder).with_suffix("") for folder in search if path.is_relative_to(folder))
    return next((of_tests(one.parts) for one in below), "")


def _text(path: Path) -> str:
    try:
        return decode_source(path.read_bytes())
    except (OSError, SyntaxError, UnicodeDecodeError):
        return ""


def _tree(path: Path) -> ast.Module | None:
    try:
        return ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError):
        return None


def included_files(specification: Path) -> list[Path]:
    """Return the files that a specification of Spark's declarative pipelines includes, sorted; `[]` for another file.

    Its ``libraries`` are globs, from the folder of the specification on.
    """
    if specification.suffix not in (".yml", ".yaml"):
        return []
    import yaml

    try:
        libraries = yaml.safe_load(specification.read_bytes())["libraries"]
        patterns = [library["glob"]["include"] for library in libraries]
    except (OSError, yaml.YAMLError, KeyError, TypeError):
        return []
    found = {
        one
        for pattern in patterns
        for one in specification.parent.glob(f"{pattern}/*" if pattern.endswith("**") else pattern)
        if one.is_file() and _counts(one)
    }
    return sorted(found)


def _loaded_by(path: Path, search: Sequence[Path], module: Callable[[str], Iterable[Path]]) -> Iterator[Path]:
    tree = _tree(path)
    if tree is None:
        return
    names = {getattr(node, "attr", getattr(node, "id", "")) for node in ast.walk(tree)}
    names |= {node.name.rpartition(".")[2] for node in ast.walk(tree) if isinstance(node, ast.alias)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield from module(alias.name.partition(".")[0])
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield from module((node.module or "").partition(".")[0])
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield from _named(node.value, [path.parent, *search])
            if names & _READS_PACKAGES and all(part.isidentifier() for part in node.value.split(".")):
                yield from module(node.value.partition(".")[0])
    if names & _COMPUTES_NAMES or _changes_path(tree):
        yield from (one for one in path.parent.rglob("*.py") if _counts(one))
    if names & _COMPUTES_FILES:
        # Statements and templates are code, in whatever way their names are made.
        yield from (one for one in path.parent.rglob("*") if one.suffix in _STATEMENTS and _counts(one))


def _changes_path(tree: ast.AST) -> bool:
    """Whether the code names ``sys.path``."""
    return any(
        isinstance(node, ast.Attribute) and node.attr == "path" and getattr(node.value, "id", "") == "sys"
        for node in ast.walk(tree)
    )


def _added_folders(application: Path) -> Iterator[Path]:
    """Where a program that changes ``sys.path`` may find its modules: folders below its own, and those above it."""
    try:
        changes = application.suffix == ".py" and _changes_path(ast.parse(application.read_bytes()))
    except (OSError, SyntaxError, ValueError, RecursionError):
        return
    if changes:
        folder = application.resolve().parent
        yield from (one for one in sorted(folder.iterdir()) if one.is_dir() and _counts(one))
        yield from (one for one in list(folder.parents)[:_MOST_ABOVE] if one != Path(one.anchor))


def _module(top: str, search: Iterable[Path]) -> Iterator[Path]:
    """The file of a top-level module, or all files of such a package: relative imports stay inside it."""
    for folder in search:
        package = folder / top
        if package.is_dir() and any(_counts(one) for one in package.rglob("*.py")):
            yield from (one for one in package.rglob("*") if one.is_file() and _counts(one))
            return
        modules = [one for one in folder.glob(f"{top}.*") if one.suffix in (".py", ".so", ".pyd", ".pyc")]
        if top and modules:
            yield from modules
            return


def _named(text: str, folders: Iterable[Path]) -> Iterator[Path]:
    if not _NAMES_FILE.fullmatch(text) or text.startswith(("/", "~")) or text in (".", ".."):
        return
    for folder in folders:
        path = folder / text
        try:
            if path.is_file() and path.resolve().is_relative_to(folder.resolve()):
                yield path
                return
        except OSError:
            return


def _counts(path: Path) -> bool:
    return path.suffix != ".pyc" and not any(part in _LEFT_OUT for part in path.parts)


def _is_installed(folder: Path) -> bool:
    return any(part in ("site-packages", "dist-packages") for part in folder.parts) or not folder.is_dir()
