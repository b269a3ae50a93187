"""Which objects an external input consists of today: they belong to the trace, changed means run again."""

from __future__ import annotations

import os
import re
from collections.abc import Callable

from airflow_recovery.errors import ConfigurationError, JobDefinitionError, ObjectMissing, StoreAccessDenied
from airflow_recovery.globs import alternatives, is_glob, literal_start, matcher
from airflow_recovery.locations import comparable, scheme_of
from airflow_recovery.model.location import LOG_FOLDERS, is_hidden_from_spark, table_of_log
from airflow_recovery.model.records import ExternalObject
from airflow_recovery.store.object_store import ObjectInfo, ObjectStore

_DATA_OF_ICEBERG = "data"
_ENDINGS = (".avro", ".orc", ".parquet")
_BUCKET, _FOLDER = re.compile("[^:/]+://[^/]*"), re.compile("file:(?://)?|")


def list_objects(
    pattern: str,
    *,
    vertex: str,
    open_location: Callable[[str], ObjectStore],
    reads_tables: bool = False,
    archived: dict[str, str] | None = None,
) -> tuple[ExternalObject, ...]:
    """The objects that ``pattern`` names, as inputs of ``vertex``, sorted by URI, with size and etag.

    ``pattern`` is an URI (`airflow_recovery.locations`) or absolute path of one object or of a folder (all objects
    below it), or a glob as Hadoop has them (docs/patterns.md); a folder that matches stands for what is below it.
    Names that Spark hides (beginning with ``.``, or with ``_`` unless they hold a ``=``) are left out below a folder
    that matches, and as the last name of a file, unless the pattern spells that out. So are keys with an empty part
    (``a//b.csv``): Hadoop can't name them, and Spark would read ``a/b.csv``. A local object's etag is its content's
    hash.

    ``open_location`` opens the store of a folder. It decides which credentials are used.

    Files alone do not tell what a table has: a delete of a partition or a RESTORE writes to its log only. With
    ``reads_tables`` the newest commit in the log of each table that is listed is one of the objects.

    ``archived`` gets the storage class of each file that can't be read before it is restored, by its URI.

    Raises `ObjectMissing` where nothing matches; the errors of the store; `ConfigurationError` for any other URI.
    Without ``reads_tables``, raises `JobDefinitionError` for files of a table.
    """
    found: dict[str, ExternalObject] = {}
    for base, segments in _alternatives(pattern):
        store = open_location(base)
        files, logs = _listed(store, segments)
        above = _table_above(base, segments, files)
        tables = [(store, logs)] + ([(around := open_location(above), _logs_of(around))] if above else [])
        for at, its_logs in tables:
            if its_logs and not reads_tables:
                table, log = next(iter(its_logs.items()))
                raise JobDefinitionError(
                    f"vertex {vertex!r} reads the files {pattern}: expected files of their own, found those of a table "
                    f"at {at.base_uri}/{table}, whose log ({log.key.rpartition('/')[2]}) decides which of them count. "
                    "Read the table with a recoverable operator, at its {version:...} (docs/tables.md)",
                    code="input-is-a-table",
                )
        for at, infos in ((store, files), *((at, its_logs.values()) for at, its_logs in tables)):
            for info in infos:
                uri = f"{at.base_uri}/{info.key}"
                found[uri] = ExternalObject(vertex, uri, info.size, info.etag)
                if archived is not None:
                    archived.pop(uri, None)  # it may have been restored since the listing before
                    archived |= {uri: info.archived} if info.archived else {}
    externals = tuple(found[uri] for uri in sorted(found))
    if not externals:
        raise ObjectMissing(
            f"Input {pattern!r} of vertex {vertex!r} names no object. The store answered, so this is not an access "
            "problem: check the pattern, and whether the data has arrived, below names that are not empty ('//').",
            code="input-names-no-object",
            vertex=vertex,
        )
    return externals


def _listed(store: ObjectStore, segments: list[str]) -> tuple[list[ObjectInfo], dict[str, ObjectInfo]]:
    """The files that match, and the newest commit in the log of each table that does, by its folder."""
    files: list[ObjectInfo] = []
    logs: dict[str, ObjectInfo] = {}
    for info in store.list(literal_start(segments[0]) if segments else ""):
        table = table_of_log(info.key)
        if table is not None:
            logs[table] = max(logs.get(table, info), info, key=lambda one: one.key)
        if _matches(info.key.split("/"), segments):
            files.append(info)
    # The name of a file stands for all: a table without files is no missing input.
    return files, {
        table: log
        for table, log in logs.items()
        if _matches([*table.split("/")[:-1], "part"], segments) or any(info.key.startswith(table) for info in files)
    }


def _table_above(base: str, segments: list[str], files: list[ObjectInfo]) -> str | None:
    """The folder that may be a table, of which ``files`` are some files or partitions; else `None`.

    Names alone tell: a partition's has a ``=``, and a file of a table ends as `_ENDINGS` do. A listing that begins at
    the table itself has found the log without this.
    """
    if not any(info.key.endswith(_ENDINGS) for info in files):
        return None
    fixed = _path(base)
    names = [*fixed, *segments]
    at = next((at for at, name in enumerate(names) if "=" in name), len(fixed))
    if at > len(fixed) or (at == len(fixed) and not (segments and literal_start(segments[0]))):
        return None
    if names[at - 1 : at] == [_DATA_OF_ICEBERG]:
        at -= 1
    start = "/" if base.removeprefix(_root(base)).startswith("/") else ""
    return f"{_root(base)}{start}{'/'.join(names[:at])}"


def _logs_of(store: ObjectStore) -> dict[str, ObjectInfo]:
    """The newest commit in the log of the table that lies at the store's base, by its folder: an empty text.

    `{}` without a table, or without the right to list there: who may read the partition alone reads no log.
    """
    try:
        commits = [info for name in LOG_FOLDERS for info in store.list(f"{name}/") if table_of_log(info.key) == ""]
    except StoreAccessDenied:
        return {}
    return {"": max(commits, key=lambda info: info.key)} if commits else {}


def may_list(pattern: str, folder: str) -> bool:
    """Whether what ``pattern`` lists and what lies below ``folder`` may have objects in common. Looks at names alone.

    Both are locations without templates; a ``folder`` is literal, also if its name has characters of globs.
    """
    names = _path(comparable(folder))
    return _root(comparable(pattern)) == _root(comparable(folder)) and any(
        _may_meet(_path(base), segments, names) for base, segments in _alternatives(comparable(pattern))
    )


def object_key(pattern: str, uri: str) -> str:
    """What names an object among those of ``pattern``: its path below the part of the pattern that does not vary."""
    bases = [f"/{'/'.join(_path(base))}" for base, _ in _alternatives(pattern)]
    return "/".join(_path(uri)[len(_path(os.path.commonpath(bases))) :])


def _root(uri: str) -> str:
    root = _FOLDER if scheme_of(uri) is None else _BUCKET
    return root.match(uri)[0]  # type: ignore[index]


def _path(uri: str) -> list[str]:
    return [piece for piece in uri.removeprefix(_root(uri)).split("/") if piece]


def _alternatives(pattern: str) -> list[tuple[str, list[str]]]:
    """The folder above everything that varies, and the segments below it: ``s3://b/p/*/x`` is ``s3://b/p``, [*, x].

    One for each of the `alternatives`. Raises `ConfigurationError` for what is no pattern.
    """
    root = _root(pattern)
    try:
        found = [_split(root, each) for each in alternatives(pattern.removeprefix(root))]
        for _, segments in found:
            for segment in segments:
                matcher(segment)
    except ValueError as error:
        raise ConfigurationError(f"pattern {pattern!r}: {error} (docs/patterns.md)") from None
    return found


def _split(root: str, path: str) -> tuple[str, list[str]]:
    segments = [piece for piece in path.split("/") if piece]
    # One segment at least stays below: a single object is found by listing its folder.
    fixed = next((at for at, segment in enumerate(segments) if is_glob(segment)), max(len(segments) - 1, 0))
    return root + ("/" if path.startswith("/") else "") + "/".join(segments[:fixed]), segments[fixed:]


def _may_meet(literal: list[str], segments: list[str], names: list[str]) -> bool:
    if any(a != b for a, b in zip(literal, names, strict=False)):
        return False
    varying, below = names[len(literal) :], names[len(literal) + len(segments) :]
    return all(matcher(segment).fullmatch(name) for segment, name in zip(segments, varying, strict=False)) and not any(
        is_hidden_from_spark(name) for name in below
    )


def _matches(names: list[str], segments: list[str]) -> bool:
    """Whether the path ``names`` is listed."""
    if len(names) < len(segments) or "" in names:
        return False
    if not all(matcher(segment).fullmatch(name) for segment, name in zip(segments, names, strict=False)):
        return False
    below, last = names[len(segments) :], len(names) - 1
    if below:
        return not any(is_hidden_from_spark(name) for name in below)
    return segments[last][0] == names[last][0] or not is_hidden_from_spark(names[last])
