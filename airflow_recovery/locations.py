"""How places in stores are written, and the one table of the schemes of object stores.

``s3://bucket/prefix`` (or ``s3a://``), ``gs://bucket/prefix``, ``abfss://container@account.dfs.core.windows.net/prefix``
(or ``abfs://``), ``file:///folder``, or an absolute path. URIs are literal: a ``%`` or a space means itself. Another
store is one more object in the table (`register`).

A table whose snapshots are inputs or results: ``iceberg://catalog/namespace.table``, with ``?branch=name`` where that
is not ``main``; ``delta+`` before the location of a Delta table's folder. An input may end with ``as_of=``: a
snapshot's number, a version, or the name of a tag.

A table of a Hive metastore, as an input: ``hive://catalog/database.table`` (`MetastoreTable`). It keeps no snapshots.

What is no place, and still an input: ``version:...``, a text that stands for the state of something, and
``asset:...``, an asset of Airflow, which is known by its events (`AssetLocation`).

A result that another DAG has published: ``published:dag_id=...&result=...`` (`PublishedLocation`), which is no place
until the run's journal has been read.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import lru_cache
from importlib import import_module
from typing import Any, TypeGuard

from airflow_recovery.errors import ConfigurationError

BUILT_IN = (
    "airflow_recovery.store.s3_scheme",
    "airflow_recovery.store.google",
    "airflow_recovery.store.azure",
)
"""The modules of this package's own object stores. Each has one ``SCHEME``. They load when the first URI is read."""

ENTRY_POINTS = "airflow_recovery.stores"
"""The group of entry points by which other packages add stores. An entry point's name is a scheme, and it loads the
scheme's object."""


class UriScheme:
    """How the URIs of one object store are written: ``<scheme>://<bucket>/<prefix>``. Pure.

    `airflow_recovery.store.scheme.StoreScheme` is the whole object, of which this is a part.
    """

    name: str
    """The scheme, for example ``s3``."""
    aliases: tuple[str, ...] = ()
    """Other spellings of the scheme, for example ``s3a``."""
    form: str
    """A URI as messages show it, for example ``s3://<bucket>/<prefix>``."""
    bucket: re.Pattern[str] = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,254}")
    """Which names of buckets are read. A name never holds ``..``."""
    bucket_word: str = "bucket"
    """What the cloud calls a bucket."""
    has_host: bool = False
    """Whether the bucket is followed by ``@`` and the host of a server. `check_host` then decides about the host."""
    foreign_names: tuple[str, ...] = ()
    """Schemes that only other programs read, and take for this store. Locations with them are refused."""
    spark_settings: tuple[str, ...] = ()
    """What the names of Spark's settings begin with that only say how the store is reached. They change no rows."""

    def check_host(self, host: str, endpoint_host: str) -> None:
        """Raise `ValueError` if credentials must not be sent to ``host``, which a location names.

        ``endpoint_host``: the host that the connection names; empty if it names none.
        """
        raise ValueError(f"the host {host!r} is not known")

    @property
    def spellings(self) -> tuple[str, ...]:
        """The scheme, and its aliases."""
        return (self.name, *self.aliases)


@lru_cache(maxsize=1)
def _table() -> dict[str, UriScheme]:
    """Every scheme by each of its spellings."""
    schemes: list[UriScheme] = [import_module(module).SCHEME for module in BUILT_IN]
    return {spelling: scheme for scheme in schemes for spelling in scheme.spellings}


@lru_cache(maxsize=1)
def _installed() -> dict[str, Any]:
    """Entry points by the scheme. Read when a scheme is not in the table, since each installed package has a file."""
    from importlib.metadata import entry_points

    return {each.name: each for each in entry_points(group=ENTRY_POINTS)}


def schemes() -> Mapping[str, UriScheme]:
    """Every scheme by each of its spellings: this package's own, and those that were registered."""
    return dict(_table())


def register(scheme: UriScheme) -> None:
    """Add ``scheme`` to the table of this process. Raises `ConfigurationError` if another object has its name."""
    if not isinstance(scheme, UriScheme):
        raise ConfigurationError(f"Expected the object of a store's scheme, found {scheme!r}. Name such an object.")
    table = _table()
    for spelling in scheme.spellings:
        other = table.get(spelling)
        if other is not None and type(other) is not type(scheme):
            raise ConfigurationError(
                f"Expected a scheme that no other store has, found {spelling!r}, which is that of "
                f"{type(other).__module__}.{type(other).__qualname__}. Choose another name."
            )
        if not _SCHEME.fullmatch(spelling) or spelling in _NO_STORES:
            raise ConfigurationError(
                f"Expected a scheme of small letters and digits that is not in use for something else, found "
                f"{spelling!r}. Choose another name."
            )
    table.update(dict.fromkeys(scheme.spellings, scheme))


def scheme_at(uri: str) -> UriScheme | None:
    """The object for ``uri``'s scheme; `None` if ``uri`` is no place in an object store."""
    spelling, separator, _ = uri.partition("://")
    if not separator:
        return None
    scheme = _table().get(spelling)
    if scheme is None and spelling not in _NO_STORES and spelling in _installed():
        register(_installed()[spelling].load())
        scheme = _table().get(spelling)
    return scheme


def expected() -> str:
    """How locations are written, for messages."""
    forms = dict.fromkeys(scheme.form for scheme in _table().values())
    return f"{', '.join(forms)}, file:///<folder> or an absolute path"


ICEBERG, DELTA = "iceberg://", "delta+"
"""What the location of a table begins with."""
EXPECTED_TABLE = "iceberg://<catalog>/<namespace>.<table> or delta+<the location of a folder>"
_QUERY = r"(?:\?(?P<query>[^?#\s]+))?"
_MAIN = "main"
_SCHEME = re.compile("[a-z][a-z0-9]*")
_NO_STORES = frozenset(("file", "hive", "http", "https", "iceberg"))
"""Schemes of other places."""
_ICEBERG = re.compile(rf"{ICEBERG}(?P<catalog>[\w-]+)/(?P<name>[^/?&#.\s]+(?:\.[^/?&#.\s]+)+){_QUERY}")
_ENCODED = re.compile("%[0-9A-Fa-f]{2}")
_DELTA = re.compile(rf"delta\+(?P<name>[^?#]+){_QUERY}")


@dataclass(frozen=True)
class TableLocation:
    """A branch of a table. ``catalog``: of Iceberg; ``name``: ``namespace.table``, or a Delta table's folder.

    ``as_of``: the snapshot, version or tag that is meant; empty: the newest.
    """

    catalog: str
    name: str
    branch: str = ""
    as_of: str = ""

    @property
    def is_iceberg(self) -> bool:
        """Else it is a Delta table, which has no catalog and no branch."""
        return bool(self.catalog)

    @property
    def branch_name(self) -> str:
        """As Iceberg has it."""
        return self.branch or _MAIN

    @property
    def uri(self) -> str:
        """The table's location, in its one spelling, whichever snapshot is meant."""
        if not self.is_iceberg:
            return f"{DELTA}{comparable(self.name)}"
        return f"{ICEBERG}{self.catalog}/{self.name}" + (f"?branch={self.branch}" if self.branch else "")

    @classmethod
    def parse(cls, uri: str) -> TableLocation:
        """Raises `ValueError` for what is no table's location, or not written like one."""
        match = (_ICEBERG if uri.startswith(ICEBERG) else _DELTA).fullmatch(uri)
        if match is None:
            raise ValueError(f"expected {EXPECTED_TABLE}, found {uri!r}")
        options = dict(part.partition("=")[::2] for part in (match["query"] or "").split("&") if part)
        known = {"branch", "as_of"} if uri.startswith(ICEBERG) else {"as_of"}
        if options.keys() - known or not all(options.values()):
            raise ValueError(f"expected {' and '.join(sorted(known))} behind the '?', found {uri!r}")
        if not uri.startswith(ICEBERG):
            if not options.get("as_of", "0").isdecimal():
                raise ValueError(f"expected as_of= as a version's number, for Delta has no tags, found {uri!r}")
            return cls("", match["name"].rstrip("/"), "", options.get("as_of", ""))
        branch = options.get("branch", "")
        return cls(match["catalog"], match["name"], "" if branch == _MAIN else branch, options.get("as_of", ""))


def is_table(location: object) -> TypeGuard[str]:
    """Whether a table is meant, whose snapshot is what counts, and no folder of a store."""
    return isinstance(location, str) and location.startswith((ICEBERG, DELTA))


PUBLISHED = "published:"
"""What the name of another DAG's published result begins with."""
VERSION = "version:"
"""What the declaration of an input begins with that is known by a text."""
ASSET = "asset:"
"""What the name of an asset begins with."""
HIVE = "hive://"
"""What the location of a table of a Hive metastore begins with."""
EXPECTED_METASTORE = f"{HIVE}<catalog>/<database>.<table>"
_HIVE = re.compile(rf"{HIVE}(?P<catalog>[\w-]+)/(?P<database>\w+)\.(?P<table>\w+)")
_UNSAFE, _ESCAPE = re.compile(r"[~&={}%\s]"), re.compile("~([0-9A-F]{2})")
_RUN_OF_PUBLISHED = ("logical_date", "partition_key", "run_id", "run_key")


@dataclass(frozen=True)
class PublishedLocation:
    """What the newest publish of one run names ``result``. Exactly one of the last four names the run.

    ``run_key`` is that of the journal. ``before_s``: so many seconds before the logical date. Values may be templates.
    """

    dag_id: str
    result: str
    group_id: str
    before_s: float = 0.0
    logical_date: str | None = None
    partition_key: str | None = None
    run_id: str | None = None
    run_key: str | None = None

    @property
    def uri(self) -> str:
        """The result's name as one text. What names the run stays as it is written, since it may be a template."""
        parts = {name: value for name, value in asdict(self).items() if value}
        return PUBLISHED + "&".join(
            f"{name}={value if name in _RUN_OF_PUBLISHED else _escaped(str(value))}" for name, value in parts.items()
        )

    @classmethod
    def parse(cls, uri: str) -> PublishedLocation:
        """Inverse of `uri`, once it was rendered. Raises `ValueError` for what is not written like one."""
        parts = dict(part.partition("=")[::2] for part in uri.removeprefix(PUBLISHED).split("&"))
        run = {name: parts.pop(name) for name in _RUN_OF_PUBLISHED if name in parts}
        try:
            named = {name: _unescaped(value) for name, value in parts.items()}
            location = cls(**{**named, "before_s": float(named.get("before_s", 0)), **run})  # type: ignore[arg-type]
        except (TypeError, ValueError):
            location = None
        if location is None or len(run) != 1 or not uri.startswith(PUBLISHED):
            raise ValueError(f"expected what published('dag', 'result') returns, found {uri!r}")
        return location


@dataclass(frozen=True)
class MetastoreTable:
    """A table of the Hive metastore that the connection ``catalog`` leads to. Hive's names are in lower case."""

    catalog: str
    database: str
    table: str

    @property
    def uri(self) -> str:
        """Its location, in its one spelling."""
        return f"{HIVE}{self.catalog}/{self.database}.{self.table}"

    @classmethod
    def parse(cls, uri: str) -> MetastoreTable:
        """Raises `ValueError` for what is not written like one."""
        match = _HIVE.fullmatch(uri)
        if match is None:
            raise ValueError(f"expected {EXPECTED_METASTORE}, found {uri!r}")
        return cls(match["catalog"], match["database"].lower(), match["table"].lower())


@dataclass(frozen=True)
class AssetLocation:
    """An asset of Airflow by its name, its URI, or both. One of them may be empty."""

    name: str
    asset_uri: str

    @property
    def uri(self) -> str:
        """The asset as one text."""
        return f"{ASSET}name={_escaped(self.name)}&uri={_escaped(self.asset_uri)}"

    @property
    def text(self) -> str:
        """What people and jobs are shown: the URI if it is known, else the name."""
        return self.asset_uri or self.name

    @classmethod
    def parse(cls, uri: str) -> AssetLocation:
        """Inverse of `uri`."""
        name, asset_uri = (_unescaped(part.partition("=")[2]) for part in uri.removeprefix(ASSET).split("&"))
        return cls(name, asset_uri)


def is_version(location: object) -> TypeGuard[str]:
    """Whether an input is known by a text alone."""
    return isinstance(location, str) and location.startswith(VERSION)


def is_asset(location: object) -> TypeGuard[str]:
    """Whether an asset of Airflow is meant."""
    return isinstance(location, str) and location.startswith(ASSET)


def is_in_metastore(location: object) -> TypeGuard[str]:
    """Whether a table of a Hive metastore is meant."""
    return isinstance(location, str) and location.startswith(HIVE)


def is_stated(location: object) -> TypeGuard[str]:
    """Whether a text stands for the state of the input: it is no place whose files or snapshots could be read."""
    return is_version(location) or is_asset(location) or is_in_metastore(location)


def name_of(vertex: str, uri: str) -> str:
    """An input that `is_stated`, for people. ``vertex``: its name in the trace."""
    return vertex if is_version(uri) else f"{vertex} ({AssetLocation.parse(uri).text if is_asset(uri) else uri})"


def _escaped(text: str) -> str:
    return _UNSAFE.sub(lambda match: f"~{ord(match[0]) % 256:02X}", text)


def _unescaped(text: str) -> str:
    return _ESCAPE.sub(lambda code: chr(int(code[1], 16)), text)


def is_published(location: object) -> TypeGuard[str]:
    """Whether a result is meant that another DAG has published."""
    return isinstance(location, str) and location.startswith(PUBLISHED)


def delta_rs_uri(folder: str) -> str:
    """What delta-rs is given for ``folder``: a URL, whose path ends before a '?' or a '#'."""
    uri = folder.replace("s3a://", "s3://", 1)
    return uri if uri.startswith("/") else uri.replace("?", "%3F").replace("#", "%23")


def is_misread(folder: str) -> bool:
    """Whether delta-rs takes ``folder`` for another one, however it is written: it decodes what looks encoded."""
    return _ENCODED.search(folder) is not None


def scheme_of(uri: str) -> str | None:
    """``s3``, ``gs`` or ``abfss``, for example, for a place in an object store; `None` for every other text."""
    scheme = scheme_at(uri)
    return None if scheme is None else scheme.name


def split_uri(uri: str) -> tuple[str, str]:
    """The root of an object store's ``uri`` in its one spelling, as ``gs://bucket``, and what is behind its slash."""
    bucket, _, path = uri.partition("://")[2].partition("/")
    container, at, host = bucket.partition("@")
    return f"{scheme_of(uri)}://{container}{at}{host.lower()}", path


def comparable(uri: str) -> str:
    """``uri`` with one spelling of each scheme: ``file:///x`` and ``/x`` are ``file:/x``, ``s3a://`` is ``s3://``."""
    if uri.startswith(DELTA):
        return DELTA + comparable(uri[len(DELTA) :])
    scheme = scheme_of(uri)
    if scheme is not None:
        return f"{scheme}://{uri.partition('://')[2]}"
    if uri.startswith("/"):
        return "file:" + uri
    if uri.startswith("file:///"):
        return "file:" + uri[len("file://") :]
    return uri
