"""What users hand to public constructors: types are checked here alone, against the constructors' own annotations.

Every refusal says where, what was expected, what was found, and what to do. Pure, and imported by every room.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from enum import Enum
from functools import lru_cache
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints, is_typeddict

from airflow_recovery.errors import JobDefinitionError, RecoveryError
from airflow_recovery.globs import check_glob
from airflow_recovery.locations import (
    DELTA,
    EXPECTED_TABLE,
    ICEBERG,
    VERSION,
    MetastoreTable,
    PublishedLocation,
    TableLocation,
    expected,
    is_asset,
    is_in_metastore,
    is_misread,
    is_published,
    is_stated,
    is_table,
    scheme_at,
    scheme_of,
)

_NOT_GIVEN = object()
_NAMES: dict[Any, tuple[str, str]] = {
    str: ("a text that is not empty", "texts"),
    bool: ("True or False", "booleans"),
    int: ("a whole number", "whole numbers"),
    float: ("a number", "numbers"),
    NoneType: ("None", "None"),
    Any: ("any value", "values"),
    object: ("any value", "values"),
}
_MOST_CHARS = 200
_MOST_VERSION_CHARS = 1000
_WITHOUT_SNAPSHOTS = ("hudi", "hive", "jdbc", "parquet", "orc", "kudu", "hbase")
"""What a scheme may begin with whose tables keep no snapshots here that a reader could be given."""


def check_arguments(
    function: Callable[..., object],
    arguments: Mapping[str, object],
    where: str,
    *,
    templated: Collection[str] = (),
    error: Callable[..., RecoveryError] = JobDefinitionError,
) -> None:
    """Raise ``error`` where one of ``arguments``, by name, is not of the type that ``function`` has annotated it with.

    A text must hold more than spaces. What ``arguments`` has and ``function`` does not name is passed over, so that a
    constructor may hand in its ``locals()``; so is a type that is imported for type checkers alone. Of the names in
    ``templated``, what Airflow makes only when the task runs (an ``XComArg``, or a text with a template) passes: check
    it again then.
    """
    for name, hint in _hints(function).items():
        if name not in arguments:
            continue
        value, default = arguments[name], _default(function, name)
        if value is default or fits(value, hint) or (name in templated and is_known_later(value)):
            continue
        advice = "" if default is _NOT_GIVEN else f", or leave it out (it is then {default!r})"
        raise error(
            f"{where}: expected {name}= as {described(hint)}, found {shown(value)}: write it like that{advice}",
            code="argument-unfit",
            where=where,
            argument=name,
            found=shown(value),
        )


def check_location(
    uri: object, where: str, *, templated: bool = True, to_read: bool = False, tables: bool = False
) -> Any:
    """``uri`` without a slash at its end; as it is where Airflow puts in another (``templated``).

    ``tables``: it may be a table's (`TableLocation`), which comes back in its one spelling; ``as_of`` only ``to_read``.
    What is only ``to_read`` may be another DAG's published result (`PublishedLocation`), and with ``tables`` also a
    table of a Hive metastore (`MetastoreTable`), a version or an asset.

    What is read is listed, and in a listing two slashes are one: ``to_read`` lets them pass.

    Raises `JobDefinitionError`, beginning with ``where``, for what no store of ours could list or write.
    """
    if to_read and (is_published(uri) or (tables and is_stated(uri))):
        return uri if is_template(uri) and (templated or is_published(uri)) else _checked_named(uri, where)
    if to_read:
        _check_glob(uri, where)
    if isinstance(uri, str) and is_template(uri):
        head = uri.partition("{")[0]
        if templated and (not head or _begins_a_location(head, tables=tables)):
            return uri
        if not templated:
            raise JobDefinitionError(
                f"{where}: expected a location without a template, found {uri!r}: write it out",
                code="location-is-template",
            )
    if templated and is_known_later(uri) and not isinstance(uri, str):
        return uri
    text = uri if isinstance(uri, str) else ""
    if tables and is_table(text):
        return _checked_table(text, where, to_read=to_read)
    if tables and text.startswith(tuple(f"{kind}{mark}" for kind in _WITHOUT_SNAPSHOTS for mark in ("://", "+", ":"))):
        raise JobDefinitionError(
            f"{where}: expected a table that keeps snapshots ({EXPECTED_TABLE}), found {shown(uri)}: nobody could tell "
            "which of its states was read or made. Name the folder that it lies in, or leave the table out",
            code="table-without-snapshots",
        )
    has_bucket = scheme_of(text) is not None
    path = text.partition("://")[2] if has_bucket else text.removeprefix("file://").removeprefix("file:")
    if not has_bucket and not path.startswith("/"):
        raise JobDefinitionError(
            f"{where}: expected {expected()}, found {shown(uri)}: "
            "every machine that runs a task must find the same place by it",
            code="location-unfit",
            where=where,
        )
    segments = (path if has_bucket else path[1:]).removesuffix("/").split("/")
    if to_read:
        segments = segments[:1] + [segment for segment in segments[1:] if segment]
    if any(segment in ("", ".", "..") for segment in segments) or not text.isprintable():
        raise JobDefinitionError(
            f"{where}: expected {'a bucket' if has_bucket else 'a folder below /'}, and names between single "
            f"slashes, found {shown(uri)}: write it without empty names, '.', '..' and invisible characters",
            code="location-names-unfit",
        )
    return text.removesuffix("/")


def _begins_a_location(head: str, *, tables: bool) -> bool:
    """Whether a location may begin with ``head``, the text in front of a template."""
    return scheme_at(head) is not None or head.startswith(("file:/", "/", *((ICEBERG, DELTA) if tables else ())))


def _check_glob(pattern: object, where: str) -> None:
    if not isinstance(pattern, str) or is_table(pattern):
        return
    try:
        check_glob(pattern)
    except ValueError as error:
        raise JobDefinitionError(
            f"{where}: {error}. A pattern of files is one as Hadoop has them (docs/patterns.md)", code="glob-unfit"
        ) from None


def _checked_named(uri: str, where: str) -> str:
    """What is only read, and has no files that could be listed by its name."""
    if is_published(uri):
        _check_published(uri, where)
    if is_published(uri) or is_asset(uri):
        return uri
    if is_in_metastore(uri):
        try:
            return MetastoreTable.parse(uri).uri
        except ValueError as error:
            raise JobDefinitionError(f"{where}: {error}: write it like that") from None
    text = uri.removeprefix(VERSION).strip()
    if text in ("", "None") or len(text) > _MOST_VERSION_CHARS or not text.isprintable():
        raise JobDefinitionError(
            f"{where}: expected Version() to be rendered to a text of at most {_MOST_VERSION_CHARS} printable "
            f"characters that stands for the state of the input, found {shown(text)}: its template has no such value "
            "in this run. Check what the template names",
            code="version-text-unfit",
        )
    return f"{VERSION}{text}"


def _check_published(uri: str, where: str) -> None:
    try:
        location = PublishedLocation.parse(uri)
    except ValueError as error:
        raise JobDefinitionError(
            f"{where}: {error}: write published(...)", code="published-unfit", where=where
        ) from None
    for name in ("logical_date", "partition_key", "run_id"):
        value = getattr(location, name)
        if value is not None and value.strip() in ("", "None"):
            raise JobDefinitionError(
                f"{where}: expected {name}= of the run of {location.dag_id!r} that is read, found {value!r}: this run "
                "has no such value (a run that was triggered without a logical date has none). Name the run with "
                "run_id=, partition_key= or logical_date=",
                code="published-run-without-value",
                name=name,
            )


def _checked_table(text: str, where: str, *, to_read: bool) -> str:
    try:
        table = TableLocation.parse(text)
    except ValueError as error:
        raise JobDefinitionError(f"{where}: {error}: write it like that", code="table-location-unfit") from None
    if not table.is_iceberg:
        check_delta_folder(table.name, where)
    if table.as_of and not to_read:
        raise JobDefinitionError(
            f"{where}: expected a table without as_of=, found {shown(text)}: what is written becomes its newest "
            "snapshot. Leave it out",
            code="output-as-of",
        )
    return table.uri if not table.as_of else text


def check_delta_folder(folder: object, where: str) -> None:
    """As `check_location`, of a Delta table's folder. Raises `JobDefinitionError` for one that delta-rs can't name."""
    if is_misread(check_location(folder, where, templated=False)):
        raise JobDefinitionError(
            f"{where}: expected a folder without a '%' before two hexadecimal digits, found {shown(folder)}: delta-rs "
            "would take another folder. Rename it",
            code="delta-folder-misread",
        )


def is_template(text: str) -> bool:
    """Whether the text holds an expression, a statement or a comment of Jinja."""
    return "{{" in text or "{%" in text or "{#" in text


def is_known_later(value: object) -> bool:
    """Whether Airflow puts in another value before the task runs: an ``XComArg``, or a text with a template."""
    if isinstance(value, str):
        return is_template(value)
    return not isinstance(value, type) and hasattr(value, "resolve") and hasattr(value, "iter_references")


def shown(value: object) -> str:
    """``value`` for a message: at most so long that the message can still be read."""
    text = repr(value)
    return text if len(text) <= _MOST_CHARS else f"{text[:_MOST_CHARS]}..."


def fits(value: object, hint: Any) -> bool:
    """Whether ``value`` is of the annotated type: a text is no list of texts, and True is no number."""
    origin, arguments = get_origin(hint), get_args(hint)
    if hint in (Any, object):
        return True
    if origin in (Union, UnionType):
        return any(fits(value, argument) for argument in arguments)
    if origin is Literal:
        return any(type(value) is type(argument) and value == argument for argument in arguments)
    if origin is type:
        return isinstance(value, type)
    if origin is Callable:
        return callable(value)
    if origin is not None and issubclass(origin, Mapping):
        of_key, of_value = arguments
        return isinstance(value, origin) and all(fits(k, of_key) and fits(v, of_value) for k, v in value.items())
    if origin is not None:  # a tuple, a list, a sequence
        is_collection = isinstance(value, origin) and not isinstance(value, (str, bytes, bytearray))
        return is_collection and all(fits(item, arguments[0]) for item in value)  # type: ignore[attr-defined]
    if hint in (int, float):
        numbers = (int, float) if hint is float else int
        return isinstance(value, numbers) and not isinstance(value, bool) and value == value
    return isinstance(value, hint) and (hint is not str or bool(value.strip()))


def described(hint: Any, *, many: bool = False) -> str:
    """An annotated type in words, for "expected ... as": ``str`` is "a text that is not empty"; ``many``: "texts"."""
    origin, arguments = get_origin(hint), get_args(hint)
    if hint in _NAMES:
        return _NAMES[hint][many]
    if origin in (Union, UnionType):
        return ", or ".join(dict.fromkeys(described(argument, many=many) for argument in arguments))
    if origin is Literal:
        return " or ".join(repr(argument) for argument in arguments)
    if origin is type:
        return "a class"
    if origin is Callable:
        return "a function"
    if origin is not None and issubclass(origin, Mapping):
        of_key, of_value = (described(argument, many=True) for argument in arguments)
        return f"a mapping of {of_key} to {of_value}"
    if origin is not None:
        return f"a {'tuple' if origin is tuple else 'list'} of {described(arguments[0], many=True)}"
    return f"{hint.__name__}.{next(iter(hint)).name}, ..." if issubclass(hint, Enum) else f"{hint.__name__}(...)"


@lru_cache(maxsize=256)
def _hints(function: Callable[..., object]) -> dict[str, Any]:
    """Its parameters' annotations. A type that is imported for type checkers alone may be anything."""
    unknown: dict[str, Any] = {}
    while True:
        try:
            hints = get_type_hints(function, localns=unknown)
        except NameError as missing:  # noqa: PERF203
            unknown[str(missing.name)] = object
        else:
            hints.pop("return", None)
            return hints


def _default(function: Any, name: str) -> object:
    if is_typeddict(function):
        return _NOT_GIVEN
    while hasattr(function, "__wrapped__"):  # Airflow wraps constructors
        function = function.__wrapped__
    by_name: dict[str, object] = function.__kwdefaults__ or {}
    positional = function.__code__.co_varnames[: function.__code__.co_argcount]
    defaults = function.__defaults__ or ()
    by_name = {**by_name, **dict(zip(positional[len(positional) - len(defaults) :], defaults, strict=True))}
    return by_name.get(name, _NOT_GIVEN)


_ADDRESS = re.compile(r"<(?:[^<>]|<\w+>)*\bat 0x[0-9a-fA-F]+[^<>]*>")


def check_no_address(value: object, where: str, error: Callable[..., RecoveryError] = JobDefinitionError) -> None:
    """Raise ``error`` if a text in ``value`` (a text, or texts in lists and mappings) has a memory address in it.

    Such a text is made by a template that names a method, and is another one in each process.
    """
    if isinstance(value, str):
        found = _ADDRESS.search(value) if " at 0x" in value else None
        if found is not None:
            raise error(
                f"{where}: expected a value, found {found[0]}: a template names a method or an object, whose text is "
                "another one in each process. For a key of a mapping write {{ params['keys'] }}, not "
                "{{ params.keys }}; for the value of a method, call it",
                code="value-has-address",
                where=where,
            )
    elif isinstance(value, Mapping):
        for name, item in value.items():
            check_no_address(name, where, error)
            check_no_address(item, where, error)
    elif isinstance(value, (list, tuple, set, frozenset)):
        for item in value:
            check_no_address(item, where, error)
