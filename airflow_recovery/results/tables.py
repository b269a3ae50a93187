"""Tables as inputs and results: which snapshot there is, whose commit it was, and whether it still counts.

A result that is a table's snapshot has a manifest of one object: its path is the snapshot's number (Delta: the
version), its etag the table's own id. It is there while the table has it and its branch's head descends from it, or
a tag of the user's pins it. Nothing here deletes a table, a snapshot or a file, or moves a branch. The tags of
ours keep a snapshot from being expired, and make nothing of what was rolled back count again.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial, reduce
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import unquote

from airflow_recovery.errors import (
    ConfigurationError,
    JobDefinitionError,
    ObjectMissing,
    RecoveryError,
    StoreAccessDenied,
    StoreUnavailable,
    UserCodeError,
)
from airflow_recovery.journal.run_state import RunState
from airflow_recovery.locations import TableLocation, comparable, delta_rs_uri, is_table
from airflow_recovery.model.codec import digest_of
from airflow_recovery.model.keys import RegionKey
from airflow_recovery.model.manifest import PartitionManifest, ResultObject
from airflow_recovery.model.records import ExternalObject
from airflow_recovery.results.table_line import OwnCommits, TableCommit, TableLine
from airflow_recovery.store.iceberg_catalog import open_catalog

if TYPE_CHECKING:
    import deltalake
    import pyarrow as pa  # type: ignore[import-untyped]
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import CreateTableTransaction, Table

    from airflow_recovery.store.object_store import ObjectStore

Asked = TypeVar("Asked")

ICEBERG_TOKEN = "airflow-recovery.token"
"""The property of an Iceberg snapshot that names the attempt which committed it."""
DELTA_TOKEN = "airflow_recovery"
"""The same in a Delta commit's info; it may stand in ``userMetadata`` as well."""
ICEBERG_SETTING = f"spark.sql.iceberg.snapshot-property.{ICEBERG_TOKEN}"
DELTA_USER_METADATA = "spark.databricks.delta.commitInfo.userMetadata"
"""What has Spark's writers put the token there."""
_ICEBERG_SINK = ("airflow-recovery.lineage", "airflow-recovery.attempt", "airflow-recovery.writer")
"""The properties by which a sink's snapshot names its attempt (`airflow_recovery.sinks.iceberg`)."""
_KEEPS_ROWS = frozenset(
    ("OPTIMIZE", "REORG", "VACUUM START", "VACUUM END", "SET TBLPROPERTIES", "UNSET TBLPROPERTIES", "COMPUTE STATS")
)
"""Operations of Delta that change no row. A restore is one, too: its version tells what the table's rows are then."""
OUR_TAGS = "recovery-"
_LOGGED = re.compile(r"/(?P<version>[0-9]{20})\.(?:json|(?P<checkpoint>checkpoint\..*))$")
ROUNDS = 5
"""How often a commit is tried, when others commit to the table at the same time."""
MOST_COMMITS = 1000
"""So many of a Delta table's newest commits are looked through for a token."""


@dataclass(frozen=True)
class Snapshot:
    """One state of a table: the table's own id, Iceberg's snapshot or Delta's version, and how many bytes it has."""

    table: str
    version: str
    size: int


@dataclass(frozen=True)
class TableLost:
    """Why a registered snapshot does not count any more. ``is_moved``: somebody forced its branch elsewhere."""

    text: str
    is_moved: bool = False


def token_of(key: RegionKey, attempt: int, writer: str) -> str:
    """What an attempt's commit carries. No two attempts have the same, in whatever journal."""
    return f"{key.path}@{attempt}@{writer}"


def tag_of(journal: str, key: RegionKey, attempt: int) -> str:
    """The tag with which an attempt keeps its snapshot from being expired.

    ``journal``, the base URI of the store of the journals: deployments with DAGs of the same name may share a catalog.
    """
    return f"{OUR_TAGS}{digest_of([comparable(journal).rstrip('/'), key.path])[:16]}-{attempt}"


class OpenTable(ABC):
    """One table as it was when it was opened. A method that asks it once more raises its client's errors."""

    def __init__(self, location: TableLocation) -> None:
        self.location = location

    @property
    @abstractmethod
    def id(self) -> str:
        """Its own id, which a table that is made anew under its name does not have."""

    @abstractmethod
    def newest(self) -> Snapshot | None:
        """The head of its branch; `None`: nothing was ever committed there."""

    @abstractmethod
    def as_of(self, version: str) -> Snapshot | None:
        """The snapshot of that number, or with that tag; `None`: it has none."""

    @abstractmethod
    def committed_by(self, token: str) -> Snapshot | None:
        """The newest snapshot of its branch that carries ``token``."""

    @abstractmethod
    def why_lost(self, version: str) -> TableLost | None:
        """`None` where that snapshot counts."""

    @abstractmethod
    def line(self) -> TableLine:
        """The commits that its newest snapshot consists of."""

    @property
    @abstractmethod
    def folder(self) -> str:
        """The location of the folder in which its files lie."""

    def keep(self, version: str, tag: str) -> bool:
        """Keep that snapshot from being expired. Returns whether it does: a Delta table has no tags."""
        return False

    def our_tags(self) -> frozenset[str]:
        """The tags whose names begin as ours do, those of other deployments among them."""
        return frozenset()

    def let_go(self, tag: str) -> bool:
        """Take a tag of ours away, and nothing else. Returns whether it was there."""
        return False


class Tables:
    """The tables of a deployment. Talks to nobody until one is opened.

    ``catalog_properties``: pyiceberg's, by the catalog's name; what is missing in them, pyiceberg's own configuration
    has. ``delta_options``: delta-rs' storage options for a location. ``open_location``: the store of a folder.
    """

    def __init__(
        self,
        catalog_properties: Callable[[str], Mapping[str, str]],
        delta_options: Callable[[str], Mapping[str, str]],
        open_location: Callable[[str], ObjectStore],
    ) -> None:
        self._catalog_properties = catalog_properties
        self._delta_options = delta_options
        self._open_location = open_location
        self._catalogs: dict[str, Catalog] = {}

    def open(self, uri: str) -> OpenTable | None:
        """The table at ``uri``, as it is now; `None`: there is none.

        Raises `ConfigurationError` for a catalog that is not configured and for what is no such table, and
        `StoreUnavailable` or `StoreAccessDenied` where nobody answers.
        """
        location = TableLocation.parse(uri)
        return _asked(uri, lambda: self._iceberg(location) if location.is_iceberg else self._delta(location))

    def external(self, uri: str, vertex: str) -> ExternalObject:
        """The snapshot that ``uri`` names now, as an input of ``vertex``. Raises `ObjectMissing`, and as `open`."""
        location = TableLocation.parse(uri)
        table = self._opened(uri, vertex)
        as_of = location.as_of
        snapshot = _asked(uri, partial(table.as_of, as_of) if as_of else table.newest)
        if snapshot is None:
            missing = f"{location.as_of!r}: expired, or never there" if location.as_of else "any: nothing was committed"
            raise ObjectMissing(
                f"Input {uri!r} of vertex {vertex!r}: the table has no snapshot {missing}.",
                code="snapshot-missing",
                found=missing,
            )
        return ExternalObject(vertex, location.uri, snapshot.size, f"{snapshot.table}@{snapshot.version}")

    def before_own(self, uri: str, vertex: str, key: RegionKey) -> tuple[ExternalObject, OwnCommits]:
        """As `external`, of a table that the region ``key`` writes as well: the snapshot before its own commits.

        A snapshot that the table does not have any more has size 0; one that it can't name is ``?``.
        """
        location = TableLocation.parse(uri)
        table = self._opened(uri, vertex)
        own = _asked(uri, table.line).seen_by(key)
        snapshot = _asked(uri, partial(table.as_of, own.base)) if own.base else None
        if snapshot is None and not own.own:
            raise ObjectMissing(
                f"Input {uri!r} of vertex {vertex!r}: the table has no snapshot: nothing was committed."
            )
        size = snapshot.size if snapshot is not None else 0
        return ExternalObject(vertex, location.uri, size, f"{table.id}@{own.base or '?'}"), own

    def line(self, uri: str) -> TableLine:
        """As `OpenTable.line`; empty where there is no table. Raises as `open`."""
        table = self.open(uri)
        return TableLine((), is_whole=True) if table is None else _asked(uri, table.line)

    def why_unreadable(self, uri: str, version: str) -> str | None:
        """Why the table's snapshot of that number can't be read; `None` where it can. Raises as `open`."""
        table = self.open(uri)
        lost = None if table is None else _asked(uri, partial(table.why_lost, version))
        return None if lost is None else lost.text

    def _opened(self, uri: str, vertex: str) -> OpenTable:
        table = self.open(uri)
        if table is None:
            raise ObjectMissing(
                f"Input {uri!r} of vertex {vertex!r}: expected a table, found none of that name.", code="table-missing"
            )
        return table

    def committed(self, result: str, uri: str, token: str) -> PartitionManifest | None:
        """The snapshot that the attempt of ``token`` has committed, as its result. `None`: it has committed none."""
        table = self.open(uri)
        snapshot = None if table is None else _asked(uri, partial(table.committed_by, token))
        if snapshot is None:
            return None
        registered = ResultObject(snapshot.version, snapshot.size, snapshot.table)
        return PartitionManifest(result, TableLocation.parse(uri).uri, (registered,), managed=False)

    def why_lost(self, manifest: PartitionManifest) -> TableLost | None:
        """`None` where the snapshot that was registered still counts. Raises as `open`."""
        table = self.open(manifest.location)
        if table is None:
            return TableLost(f"{manifest.location} is gone: its catalog has no such table")
        [registered] = manifest.objects
        if table.id != registered.etag:
            return TableLost(f"{manifest.location} was dropped and made anew: it is table {table.id} now")
        return _asked(manifest.location, partial(table.why_lost, registered.path))

    def keep(self, manifest: PartitionManifest, tag: str) -> bool:
        """Keep a result's snapshot from being expired, with a tag. Raises as `open`."""
        [registered] = manifest.objects
        return self._tagged(manifest.location, lambda table: table.keep(registered.path, tag))

    def our_tags(self, location: str) -> frozenset[str]:
        """As `OpenTable.our_tags`; none where there is no table. Raises as `open`."""
        table = self.open(location)
        return frozenset() if table is None else table.our_tags()

    def let_go(self, location: str, tag: str) -> bool:
        """Take our tag away; the snapshot is the table's to expire then. Raises as `open`."""
        return self._tagged(location, lambda table: table.let_go(tag))

    def _tagged(self, location: str, change: Callable[[OpenTable], bool]) -> bool:
        """``change`` is made again on what others have committed meanwhile."""
        met: Exception | None = None
        for _ in range(ROUNDS):
            table = self.open(location)
            if table is None:
                return False
            try:
                return change(table)
            except Exception as error:
                met = error
        assert met is not None
        raise _no_answer(location, met) from met

    def iceberg(self, location: TableLocation) -> Table | None:
        """Pyiceberg's own, as it is now; `None`: there is none. Raises as `open`."""
        return _asked(location.uri, lambda: self._load(location))

    def new_iceberg(self, location: TableLocation, columns: pa.Schema, folder: str | None) -> CreateTableTransaction:
        """Make a table that is not there, in ``folder``, or where its catalog has its tables.

        It is there once this is committed, with whatever else was. Raises `ConfigurationError` for a namespace that is
        not there, `UserCodeError` for columns that no table may have, and as `open`.
        """
        from pyiceberg.io.pyarrow import UnsupportedPyArrowTypeException

        catalog, namespace = _asked(location.uri, lambda: self._catalog(location)), location.name.rpartition(".")[0]
        if not _asked(location.uri, lambda: catalog.namespace_exists(namespace)):
            raise ConfigurationError(
                f"Expected the namespace {namespace!r} of {location.uri} in the catalog {location.catalog!r}, found "
                "none, so that the table can't be made: make the namespace."
            )
        try:
            return catalog.create_table_transaction(location.name, columns, folder)
        except (ValueError, TypeError, UnsupportedPyArrowTypeException) as error:
            raise UserCodeError(
                f"{location.uri}: can't be made with the columns of these rows: {error}. Nothing was written, and no "
                "retry helps: change what the vertex returns"
            ) from None
        except Exception as error:
            raise _no_answer(location.uri, error) from error

    def _iceberg(self, location: TableLocation) -> OpenTable | None:
        table = self._load(location)
        return None if table is None else _Iceberg(location, table)

    def _load(self, location: TableLocation) -> Table | None:
        catalog = self._catalog(location)
        from pyiceberg import exceptions

        try:
            return catalog.load_table(location.name)
        except exceptions.NoSuchIcebergTableError as error:
            raise ConfigurationError(
                f"Expected an Iceberg table at {location.uri}, found one of another format, which keeps no snapshots "
                f"to read again: {error}. Give the folder that it lies in."
            ) from error
        except (exceptions.NoSuchTableError, exceptions.NoSuchNamespaceError):
            return None
        except (exceptions.UnauthorizedError, exceptions.ForbiddenError) as error:
            raise StoreAccessDenied(f"The catalog of {location.uri} refuses to answer: {error}") from error

    def _catalog(self, location: TableLocation) -> Catalog:
        """Raises `ConfigurationError` for one that nobody has configured, and what it raises where it is connected."""
        try:
            from pyiceberg.exceptions import NotInstalledError
        except ImportError as error:
            raise ConfigurationError(
                f"Expected pyiceberg in this environment, to ask for {location.uri}, found none: install "
                "airflow-recovery[iceberg]."
            ) from error
        if location.catalog not in self._catalogs:
            properties = dict(self._catalog_properties(location.catalog))
            try:
                self._catalogs[location.catalog] = open_catalog(location.catalog, properties)
            except ValueError as error:  # pyiceberg's word for no catalog of that name, or of a kind it does not know
                # It may name the properties, of which some are secrets.
                secrets = (value for name, value in properties.items() if value and name != "type")
                met = reduce(lambda text, secret: text.replace(secret, "..."), secrets, str(error))
                raise ConfigurationError(
                    f"Expected the catalog {location.catalog!r} as an Airflow connection of that id, or in pyiceberg's "
                    f"own configuration, found: {met}. Its extra has pyiceberg's properties (type, uri, warehouse); "
                    "a driver that runs elsewhere needs pyiceberg's own (docs/tables.md).",
                    code="catalog-unknown",
                    catalog=location.catalog,
                ) from None
            except (ImportError, NotInstalledError) as error:
                raise ConfigurationError(
                    f"Expected what pyiceberg needs for the catalog {location.catalog!r} in this environment, found: "
                    f"{error}. Install the extra of pyiceberg's for it (sql-postgres, glue, hive, ...)."
                ) from error
        return self._catalogs[location.catalog]

    def _delta(self, location: TableLocation) -> OpenTable | None:
        try:
            from deltalake.exceptions import TableNotFoundError
        except ImportError as error:
            raise ConfigurationError(
                f"Expected deltalake (delta-rs) in this environment, to ask for {location.uri}, found none: install "
                "airflow-recovery[sinks]."
            ) from error
        load = self.delta_loader(location.name)
        try:
            return _Delta(location, load, lambda: self._open_location(location.name))
        except TableNotFoundError:
            return None

    def delta_loader(self, folder: str) -> Callable[[int | None], deltalake.DeltaTable]:
        """What loads the table in ``folder`` with delta-rs, at a version or as it is now. Raises delta-rs' errors."""
        import deltalake

        uri = delta_rs_uri(folder)
        options = dict(self._delta_options(uri)) or None
        return lambda version: deltalake.DeltaTable(uri, version=version, storage_options=options)


def check_names(named: Iterable[tuple[str, str]], state: RunState) -> None:
    """Raise `JobDefinitionError` where one Iceberg table has two names in ``named`` and what attempts have recorded.

    ``named``: (location, table's id). Two catalogs that hold one table each move it on without the other, and neither
    tells which snapshot counts.
    """
    names: dict[str, str] = {}
    for uri, table_id in (*named, *_recorded(state)):
        location = TableLocation.parse(uri)
        if not location.is_iceberg:
            continue
        name = f"{location.catalog}/{location.name}"
        other = names.setdefault(table_id, name)
        if other != name:
            raise JobDefinitionError(
                f"expected one name for the table {table_id}, found {other} and {name}: two catalogs that hold one "
                "table don't see each other's commits. Name it by one of them everywhere in this DAG.",
                code="table-of-two-names",
            )


def _recorded(state: RunState) -> Iterator[tuple[str, str]]:
    """The tables that attempts of this run have read or made: (location, the table's id)."""
    for region in state.regions.values():
        for attempt in region.attempts.values():
            if attempt.outcome is None:
                continue
            for output in attempt.outcome.outputs:
                if is_table(output.location):
                    yield output.location, output.objects[0].etag
            for external in attempt.outcome.externals:
                if is_table(external.uri):
                    yield external.uri, external.etag.rpartition("@")[0]


class _Iceberg(OpenTable):
    def __init__(self, location: TableLocation, table: Table) -> None:
        super().__init__(location)
        self._table = table
        self._branch = location.branch_name

    @property
    def id(self) -> str:
        return str(self._table.metadata.table_uuid)

    def newest(self) -> Snapshot | None:
        return self._found(self._table.metadata.snapshot_by_name(self._branch))

    def as_of(self, version: str) -> Snapshot | None:
        refs = self._table.metadata.refs
        if version in refs:
            return self._found(self._table.metadata.snapshot_by_name(version))
        return self._found(self._table.metadata.snapshot_by_id(int(version))) if version.isdecimal() else None

    def committed_by(self, token: str) -> Snapshot | None:
        mine = (snapshot for snapshot in self._line() if snapshot_token(snapshot) == token)
        return self._found(next(mine, None))

    def why_lost(self, version: str) -> TableLost | None:
        metadata, where = self._table.metadata, f"snapshot {version} of {self.location.uri}"
        mine = metadata.snapshot_by_id(int(version))
        if mine is None:
            return TableLost(f"{where} has expired: the table does not have it any more")
        tags = {name for name, ref in metadata.refs.items() if ref.snapshot_id == int(version)} - {self._branch}
        tags = {name for name in tags if metadata.refs[name].snapshot_ref_type == "tag"}
        if any(not name.startswith(OUR_TAGS) for name in tags):
            return None
        line = self._line()
        if not line:
            return TableLost(f"{where} was rolled back: branch {self._branch!r} is gone")
        if any(snapshot.snapshot_id == int(version) for snapshot in line):
            return None
        if tags and line[-1].timestamp_ms > mine.timestamp_ms:
            return None  # what lies between was expired, and our tag has kept this one alone
        head = line[0].snapshot_id
        if any(snapshot.snapshot_id == head for snapshot in self._ancestors(mine)):
            return TableLost(f"{where} was rolled back: branch {self._branch!r} is at its ancestor {head}")
        return TableLost(
            f"{where} is not on branch {self._branch!r} any more, which was force-moved to {head}", is_moved=True
        )

    def keep(self, version: str, tag: str) -> bool:
        ref = self._table.metadata.refs.get(tag)
        if ref is not None and ref.snapshot_id == int(version):
            return True
        # A tag of this name at another snapshot is of an attempt that the journal has lost, with the same number.
        snapshots = self._table.manage_snapshots()
        (snapshots if ref is None else snapshots.remove_tag(tag)).create_tag(int(version), tag).commit()
        return True

    def our_tags(self) -> frozenset[str]:
        refs = self._table.metadata.refs
        return frozenset(name for name in refs if name.startswith(OUR_TAGS) and refs[name].snapshot_ref_type == "tag")

    def let_go(self, tag: str) -> bool:
        ref = self._table.metadata.refs.get(tag)
        if ref is None or ref.snapshot_ref_type != "tag" or not tag.startswith(OUR_TAGS):
            return False
        self._table.manage_snapshots().remove_tag(tag).commit()
        return True

    def line(self) -> TableLine:
        found = self._line()
        known = {str(snapshot.snapshot_id) for snapshot in self._table.metadata.snapshots}
        # Who expires the parent of a snapshot leaves its id there (Java), or not (pyiceberg); the first has number 1.
        is_whole = not found or (found[-1].parent_snapshot_id is None and found[-1].sequence_number == 1)
        commits = tuple(_iceberg_commit(snapshot) for snapshot in found)
        return TableLine(commits, frozenset(known - {commit.version for commit in commits}), is_whole)

    @property
    def folder(self) -> str:
        return str(self._table.location())

    def _line(self) -> list[Any]:
        """The head of the branch and its ancestors, as far as they have not expired."""
        return self._ancestors(self._table.metadata.snapshot_by_name(self._branch))

    def _ancestors(self, snapshot: Any) -> list[Any]:
        from pyiceberg.table.snapshots import ancestors_of

        return list(ancestors_of(snapshot, self._table.metadata))

    def _found(self, snapshot: Any) -> Snapshot | None:
        if snapshot is None:
            return None
        size = snapshot.summary.additional_properties.get("total-files-size", "0") if snapshot.summary else "0"
        return Snapshot(self.id, str(snapshot.snapshot_id), int(size))


def _iceberg_commit(snapshot: Any) -> TableCommit:
    summary = snapshot.summary
    noted = summary.additional_properties if summary is not None else {}
    authors = [noted[ICEBERG_TOKEN]] if ICEBERG_TOKEN in noted else []
    if _ICEBERG_SINK[0] in noted:
        authors.append("@".join(str(noted.get(name, "")) for name in _ICEBERG_SINK))
    parent = snapshot.parent_snapshot_id
    is_first = parent is None and snapshot.sequence_number == 1
    return TableCommit(
        str(snapshot.snapshot_id),
        "" if is_first else None if parent is None else str(parent),
        tuple(authors),
        summary is not None and summary.operation.value == "replace",
    )


def snapshot_token(snapshot: Any) -> str | None:
    """The token that a snapshot of pyiceberg's carries."""
    found: str | None = snapshot.summary.additional_properties.get(ICEBERG_TOKEN) if snapshot.summary else None
    return found


class _Delta(OpenTable):
    def __init__(
        self,
        location: TableLocation,
        load: Callable[[int | None], deltalake.DeltaTable],
        open_folder: Callable[[], ObjectStore],
    ) -> None:
        super().__init__(location)
        self._load = load
        self._open_folder = open_folder
        self._table = load(None)

    @property
    def id(self) -> str:
        return str(self._table.metadata().id)

    def newest(self) -> Snapshot | None:
        return self._found(self._table)

    def as_of(self, version: str) -> Snapshot | None:
        table = self._version(int(version))
        return None if table is None else self._found(table)

    def committed_by(self, token: str) -> Snapshot | None:
        for commit in self._history(MOST_COMMITS):
            if commit.get(DELTA_TOKEN) == token or token in str(commit.get("userMetadata", "")).split():
                return self.as_of(str(commit["version"]))
        return None

    def why_lost(self, version: str) -> TableLost | None:
        where, number, newest = f"version {version} of {self.location.uri}", int(version), self._table.version()
        if number > newest:
            return TableLost(f"{where} was rolled back: its newest version is {newest}")
        if number == newest:
            return None
        commits = self._history(newest - number)
        if self._table.version() != newest:
            return self.why_lost(version)  # it was committed to meanwhile
        for commit in commits:
            if commit["version"] > number and _goes_before(commit, number):
                return TableLost(f"{where} was rolled back: version {commit['version']} restored an older one")
        table = self._version(number)
        if table is None:
            return TableLost(f"{where} has expired: the table's log does not have it any more")
        may_be_gone = _files(table).keys() - _files(self._table).keys()
        if may_be_gone:
            there = {info.key: info.archived for info in self._open_folder().list()}
            gone = sorted(may_be_gone - there.keys())
            if gone:
                return TableLost(f"{where} has expired: {gone[0]} was vacuumed, one of {len(gone)} of its files")
            archived = sorted(path for path in may_be_gone if there[path])
            if archived:
                what = f"{archived[0]} is archived (storage class {there[archived[0]]})"
                return TableLost(f"{where} can't be read: {what}, one of {len(archived)} of its files")
        return None

    def line(self) -> TableLine:
        commits: list[TableCommit] = []
        undone: set[str] = set()
        history = self._history(MOST_COMMITS)
        goes_on_at = oldest = self._table.version()
        for commit in history:
            number = oldest = int(commit["version"])
            if number > goes_on_at:
                undone.add(str(number))
                continue
            commits.append(_delta_commit(commit))
            restored = _restored(commit) if commit.get("operation") == "RESTORE" else None
            goes_on_at = number - 1 if restored is None else restored
        return TableLine(tuple(commits), frozenset(undone), oldest == 0)

    @property
    def folder(self) -> str:
        return self.location.name

    def _history(self, limit: int) -> list[dict[str, Any]]:
        """The newest commits. The table is as new as they are: delta-rs lists those that came after it was loaded,

        and counts down from the version that it has loaded, so that each would have another's number.
        """
        for _ in range(ROUNDS):
            commits = self._table.history(limit)
            following = f"_delta_log/{self._table.version() + 1:020}.json"
            if not any(info.key == following for info in self._open_folder().list(following)):
                return commits
            self._table = self._load(None)
        raise StoreUnavailable(f"{self.location.uri} was committed to again and again while its log was read")

    def _version(self, number: int) -> deltalake.DeltaTable | None:
        from deltalake.exceptions import DeltaError

        if number == self._table.version():
            return self._table
        try:
            return self._load(number)
        except DeltaError as error:
            if self._is_in_log(number):
                raise _no_answer(f"{self.location.uri}, version {number},", error) from error
            return None

    def _is_in_log(self, number: int) -> bool:
        """Whether the log has what that version is put together of: all commits up to it, or since a checkpoint."""
        commits: set[int] = set()
        begins = {-1}
        for info in self._open_folder().list("_delta_log/"):
            found = _LOGGED.search(info.key)
            if found is not None:
                (begins if found["checkpoint"] else commits).add(int(found["version"]))
        since = max(begin for begin in begins if begin <= number)
        return commits >= set(range(since + 1, number + 1))

    def _found(self, table: deltalake.DeltaTable) -> Snapshot:
        return Snapshot(str(table.metadata().id), str(table.version()), sum(_files(table).values()))


def _goes_before(commit: dict[str, Any], number: int) -> bool:
    """Whether the commit has restored a state before version ``number``; by a time, it is taken to."""
    if commit.get("operation") != "RESTORE":
        return False
    restored = _restored(commit)
    return restored is None or restored < number


def _restored(commit: dict[str, Any]) -> int | None:
    """The version whose state a restore has brought back; `None`: it names a time."""
    try:
        return int((commit.get("operationParameters") or {})["version"])
    except (KeyError, TypeError, ValueError):
        return None


def _delta_commit(commit: dict[str, Any]) -> TableCommit:
    number, operation = int(commit["version"]), commit.get("operation")
    authors = (str(commit.get(DELTA_TOKEN, "")), *str(commit.get("userMetadata") or "").split())
    keeps_rows = operation in _KEEPS_ROWS or (operation == "RESTORE" and _restored(commit) is not None)
    return TableCommit(str(number), str(number - 1) if number else "", tuple(filter(None, authors)), keeps_rows)


def _files(table: deltalake.DeltaTable) -> dict[str, int]:
    """The files of a version with their sizes, by their names below the table's folder, which the log has encoded."""
    import pyarrow as pa

    actions = pa.table(table.get_add_actions(flatten=True))
    paths, sizes = actions["path"].to_pylist(), actions["size_bytes"].to_pylist()
    return {unquote(path): size for path, size in zip(paths, sizes, strict=True)}


def _asked(uri: str, question: Callable[[], Asked]) -> Asked:
    """What is said of a table. Raises `StoreUnavailable` where there is no answer, and our own errors as they are."""
    try:
        return question()
    except RecoveryError:
        raise
    except Exception as error:
        raise _no_answer(uri, error) from error


def _no_answer(uri: str, error: Exception) -> StoreUnavailable:
    return StoreUnavailable(f"{uri} gave no answer: {type(error).__name__}: {str(error)[:500]}", code="table-no-answer")
