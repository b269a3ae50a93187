"""Which objects an external input consists of today: they belong to the trace, changed means run again."""

from __future__ import annotations

import re
from collections.abc import Callable
from fnmatch import translate

from airflow_recovery.errors import JobDefinitionError, ObjectMissing
from airflow_recovery.locations import SCHEMES, comparable
from airflow_recovery.model.location import is_hidden_from_spark, table_of_log
from airflow_recovery.model.records import ExternalObject
from airflow_recovery.store.object_store import ObjectInfo, ObjectStore
from airflow_recovery.store.opening import open_store

_ROOT = re.compile(rf"(?:{'|'.join(SCHEMES)})://[^/]*|file:(?://)?|")
_GLOB = re.compile(r"[*?\[{]")
_ALTERNATIVES = re.compile(r"\{([^{}]*)\}")


def list_objects(
    pattern: str,
    *,
    vertex: str,
    endpoint_url: str | None = None,
    region_name: str | None = None,
    open_location: Callable[[str], ObjectStore] | None = None,
    reads_tables: bool = False,
) -> tuple[ExternalObject, ...]:
    """The objects that ``pattern`` names, as inputs of ``vertex``, sorted by URI, with size and etag.

    ``pattern`` is an URI (`airflow_recovery.locations`) or absolute path of one object or of a folder (all objects
    below it), or a glob over path segments: ``*``, ``?``, ``[...]``, ``{a,b}``; a folder that matches stands for what
    is below it.
    Names that Spark hides (beginning with ``.``, or with ``_`` unless they hold a ``=``) are left out unless the
    pattern spells them out. So are keys with an empty part (``a//b.csv``): Hadoop can't name them, and Spark would read
    ``a/b.csv``. A local object's etag is its content's hash.

    ``open_location`` opens its store; without it, credentials are the process's own.

    Files alone do not tell what a table has: a delete of a partition or a RESTORE writes to its log only. With
    ``reads_tables`` the newest commit in the log of each table that is listed is one of the objects.

    Raises `ObjectMissing` where nothing matches; the errors of the store; `ConfigurationError` for any other URI.
    Without ``reads_tables``, raises `JobDefinitionError` for files of a table.
    """
    base, segments = _split(pattern)
    literal = _GLOB.split(segments[0], maxsplit=1)[0] if segments else ""
    if open_location is not None:
        store = open_location(base)
    else:
        store = open_store(base, endpoint_url=endpoint_url, region_name=region_name)
    matchers = [_matcher(segment) for segment in segments]
    found: list[ObjectInfo] = []
    logs: dict[str, ObjectInfo] = {}
    for info in store.list(literal):
        table = table_of_log(info.key)
        if table is not None:
            logs[table] = max(logs.get(table, info), info, key=lambda one: one.key)
        if _matches(info.key.split("/"), segments, matchers):
            found.append(info)
    tables = [
        table
        for table in logs
        # The name of a file stands for all: a table without files is no missing input.
        if _matches([*table.split("/")[:-1], "part"], segments, matchers)
        or any(info.key.startswith(table) for info in found)
    ]
    if tables and not reads_tables:
        raise JobDefinitionError(
            f"vertex {vertex!r} reads the files {pattern}: expected files of their own, found those of a table at "
            f"{store.base_uri}/{tables[0]}, whose log ({logs[tables[0]].key.rpartition('/')[2]}) decides which of them "
            "count. Read the table with a recoverable operator, at its {version:...} (docs/tables.md)"
        )
    found += [logs[table] for table in tables if logs[table] not in found]
    externals = tuple(
        ExternalObject(vertex, f"{store.base_uri}/{info.key}", info.size, info.etag)
        for info in sorted(found, key=lambda one: one.key)
    )
    if not externals:
        raise ObjectMissing(
            f"Input {pattern!r} of vertex {vertex!r} names no object. The store answered, so this is not an access "
            "problem: check the pattern, and whether the data has arrived, below names that are not empty ('//')."
        )
    return externals


def may_list(pattern: str, folder: str) -> bool:
    """Whether what ``pattern`` lists and what lies below ``folder`` may have objects in common. Looks at names alone.

    Both are locations without templates; a ``folder`` is literal, also if its name has characters of globs.
    """
    base, segments = _split(comparable(pattern))
    literal, names = _path(base), _path(comparable(folder))
    if _root(base) != _root(comparable(folder)) or any(a != b for a, b in zip(literal, names, strict=False)):
        return False
    if len(names) <= len(literal):
        return True
    return _matches(names[len(literal) :], segments, [_matcher(segment) for segment in segments], is_folder=True)


def object_key(pattern: str, uri: str) -> str:
    """What names an object among those of ``pattern``: its path below the part of the pattern that does not vary."""
    base, _ = _split(pattern)
    return "/".join(_path(uri)[len(_path(base)) :])


def _root(uri: str) -> str:
    return _ROOT.match(uri)[0]  # type: ignore[index]


def _path(uri: str) -> list[str]:
    return [piece for piece in uri.removeprefix(_ROOT.match(uri)[0]).split("/") if piece]  # type: ignore[index]


def _split(pattern: str) -> tuple[str, list[str]]:
    """The folder above everything that varies, and the segments below it: ``s3://b/p/*/x`` is ``s3://b/p``, [*, x]."""
    root = _ROOT.match(pattern)
    scheme = root[0] if root else ""
    is_absolute = pattern[len(scheme) :].startswith("/")
    segments = [piece for piece in pattern[len(scheme) :].split("/") if piece]
    # One segment at least stays below: a single object is found by listing its folder.
    fixed = next((at for at, segment in enumerate(segments) if _GLOB.search(segment)), max(len(segments) - 1, 0))
    return scheme + ("/" if is_absolute else "") + "/".join(segments[:fixed]), segments[fixed:]


def _matcher(segment: str) -> re.Pattern[str]:
    """A regular expression for one segment. Alternatives do not nest; within them nothing else is special."""
    parts = _ALTERNATIVES.split(segment)
    expressions = [
        "|".join(re.escape(piece) for piece in part.split(",")) if at % 2 else _glob(part)
        for at, part in enumerate(parts)
    ]
    return re.compile("".join(f"(?:{expression})" for expression in expressions))


def _glob(text: str) -> str:
    # fnmatch's own form is anchored at the end, and Hadoop writes [^a] where Python has [!a].
    return translate(text.replace("[^", "[!")).removesuffix("\\Z").removesuffix("\\z")


def _matches(
    names: list[str], segments: list[str], matchers: list[re.Pattern[str]], *, is_folder: bool = False
) -> bool:
    """Whether the path ``names`` is listed; with ``is_folder``, whether anything below it may be."""
    if (len(names) < len(segments) and not is_folder) or "" in names:
        return False
    for at, name in enumerate(names):
        if at < len(matchers) and not matchers[at].fullmatch(name):
            return False
        spelled_out = at < len(segments) and segments[at][0] == name[0]
        if not spelled_out and is_hidden_from_spark(name):
            return False
    return True
