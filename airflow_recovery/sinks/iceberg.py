"""An Iceberg table as a token sink: the snapshot that adds the rows carries the token among its properties.

A token whose snapshot has expired is forgotten. So where a branch does not go back to its begin, it is said since when
it remembers (`ForgetsAttempts`). A person takes a token out by a snapshot that says attempt 0 of its lineage.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, ClassVar

from airflow_recovery.checks import shown
from airflow_recovery.errors import (
    ConfigurationError,
    JobDefinitionError,
    RecoveryError,
    SinkRefused,
    SinkUnavailable,
    SinkUnreadable,
)
from airflow_recovery.locations import ICEBERG, TableLocation
from airflow_recovery.model.codec import later
from airflow_recovery.model.committing import CommitKind, CommitMode, Replaces
from airflow_recovery.model.keys import RegionKey
from airflow_recovery.model.spark_types import Kind, iceberg_takes
from airflow_recovery.sinks.answers import Answer, no_answer, of_iceberg
from airflow_recovery.sinks.committer import (
    Committable,
    CommitToken,
    FoundRows,
    Held,
    Owner,
    Probe,
    Rows,
    SinkResources,
    not_again,
    refused,
)
from airflow_recovery.sinks.declaration import CommittingSink, check_replaced_rows, check_run_column
from airflow_recovery.sinks.own_rows import OwnRows, rows_of_key
from airflow_recovery.sinks.owners import check_adoptable, check_owners, no_keys
from airflow_recovery.sinks.staged import StagedRows, check_lake_columns, with_key
from airflow_recovery.store.iceberg_catalog import open_catalog

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table
    from pyiceberg.table.snapshots import Snapshot
    from pyiceberg.types import IcebergType

ROUNDS = 5
"""How often a commit is tried, when others commit to the table at the same time."""
_LINEAGE, _ATTEMPT, _WRITER = (f"airflow-recovery.{name}" for name in ("lineage", "attempt", "writer"))
_REPLACES = "airflow-recovery.replaces"
_ADOPTED = "-1"
"""The attempt of a lineage whose rows `adopt` has given to another one. 0: a person has taken its token out."""


@dataclass(frozen=True, kw_only=True)
class IcebergTable(CommittingSink):
    """Commits into the Iceberg table ``iceberg://catalog/namespace.table``, which must be there.

    Pyiceberg writes it in the task's process, so Spark needs no jar for that; the catalog is an Airflow connection of
    that id, or in pyiceberg's own configuration. Mode ``replace`` puts an attempt's rows in place of all rows of the
    table, or, with ``run_column``, of the rows that have the key of this DAG, run and task in that string column, which
    the result does not have and which is filled in. ``keeps="latest"``: all rows are replaced, but never those of a
    later date of this task. Raises `JobDefinitionError` for another ``uri``.
    """

    uri: str
    run_column: str | None = later(None)
    keeps: str | None = later(None)
    kind: ClassVar[CommitKind] = CommitKind.TOKEN

    def __post_init__(self) -> None:
        super().__post_init__()
        try:
            table = TableLocation.parse(self.uri)
        except (ValueError, AttributeError, TypeError):
            table = TableLocation("", "")
        if not table.is_iceberg or table.as_of:
            raise JobDefinitionError(
                f"IcebergTable: expected uri= as {ICEBERG}<catalog>/<namespace>.<table>, found {shown(self.uri)}: "
                "write it like that",
                code="iceberg-uri-unfit",
            )
        check_run_column(self, "IcebergTable")
        check_replaced_rows(self, "IcebergTable")

    @property
    def place(self) -> str:
        """As `CommittingSink.place`."""
        return TableLocation.parse(self.uri).uri

    def table_uri(self) -> str:
        """See `CommittingSink.table_uri`."""
        return self.uri

    def open(self, resources: SinkResources) -> _IcebergCommitter:
        """A committer, which has not connected yet. Raises `ConfigurationError` where pyiceberg is not installed."""
        try:
            import pyiceberg  # noqa: F401
        except ImportError as error:
            raise ConfigurationError(
                "Expected pyiceberg in the worker's environment, found none: install airflow-recovery[iceberg]."
            ) from error
        return _IcebergCommitter(self, resources)


class _IcebergCommitter:
    """A commit reads the table first, and the catalog refuses one that meets another commit to the branch after that:

    so of two processes with one lineage the second reads again, and finds what the first has done.
    """

    def __init__(self, sink: IcebergTable, resources: SinkResources) -> None:
        self._sink = sink
        self._location = TableLocation.parse(sink.uri)
        self._branch = self._location.branch_name
        self._resources = resources

    def probe(self, token: CommitToken) -> Probe:
        held = self.held(token)
        return Probe.APPLIED if held is not None and held.is_of(token) else Probe.NOT_APPLIED

    def held(self, token: CommitToken) -> Held | None:
        """As `RemembersAttempts`."""
        held = self._asked(token, lambda: _newest_held(self._load(), self._branch, token))
        return None if held is None else held[0]

    def others(self, token: CommitToken) -> list[Owner]:
        """As `KnowsOwners`; an owner whose snapshots have expired is forgotten."""
        table = self._asked(token, self._load)
        owners = self._check_owners(table, token)
        self._check_partitions(table, token)
        if self._sink.replaces is Replaces.RUN:
            self._asked(token, lambda: self._check_run_column(table, token))
        return owners

    def adopt(self, old: CommitToken, new: CommitToken) -> None:
        """As `KnowsOwners`: in one transaction of two snapshots."""
        table = self._asked(new, self._load)
        held = _newest_held(table, self._branch, old)
        if held is None:
            return
        mine = _newest_held(table, self._branch, new)
        check_adoptable(new, f"Iceberg table {self._sink.uri}", mine and mine[0])
        self._asked(new, lambda: self._hand_over(table, old, new, held[0]))

    def _hand_over(self, table: Table, old: CommitToken, new: CommitToken, held: Held) -> None:
        import pyarrow  # type: ignore[import-untyped]

        column = self._sink.run_column
        out = {_LINEAGE: old.lineage, _ATTEMPT: _ADOPTED, _WRITER: ""}
        own = self._properties(replace(new, attempt=held.attempt, writer=held.writer))
        empty = table.schema().as_arrow().empty_table()
        with table.transaction() as transaction:
            if column is None:
                transaction.append(empty, snapshot_properties=out, branch=self._branch)
                transaction.append(empty, snapshot_properties=own, branch=self._branch)
                return
            is_old = f"{column} = '{old.lineage}'"
            snapshot = table.metadata.snapshot_by_name(self._branch)
            rows = table.scan(row_filter=is_old, snapshot_id=snapshot.snapshot_id if snapshot else None).to_arrow()
            keys = pyarrow.array([new.lineage] * rows.num_rows, pyarrow.string())
            rows = rows.set_column(rows.schema.get_field_index(column), column, keys)
            transaction.append(empty, snapshot_properties=out, branch=self._branch)
            transaction.overwrite(rows, is_old, snapshot_properties=own, branch=self._branch)

    def remembers_since(self, token: CommitToken) -> datetime | None:
        """As `ForgetsAttempts`: the time of the oldest snapshot of the branch, unless that is the table's first."""
        since: datetime | None = self._asked(token, lambda: _remembers_since(self._load(), self._branch, token))
        return since

    def rows(self, committable: Committable, commit_id: str) -> FoundRows:
        """As `ChecksRows`: follow the files of the commit through the snapshots of the branch.

        Files that somebody deletes below the table's folder are not noticed.
        """
        found: FoundRows = self._asked(committable.token, lambda: self._found(self._load(), committable))
        return found

    def commit_again(self, committable: Committable, commit_id: str) -> str:
        """As `ChecksRows`."""
        return self._commit(committable, is_again=True)

    def take_out(self, committable: Committable, commit_id: str) -> None:
        """As `ChecksRows`: an empty snapshot says attempt 0."""
        token = committable.token
        properties = {_LINEAGE: token.lineage, _ATTEMPT: "0", _WRITER: ""}
        for _ in range(ROUNDS):
            table = self._asked(token, self._load)
            found = self._asked(token, partial(self._found, table, committable))
            if found.rows is not Rows.REMOVED:
                raise not_again(token, f"Iceberg table {self._sink.uri}", found)
            empty = table.schema().as_arrow().empty_table()
            met = self._append(table, empty, token, properties, is_replaced=False)
            if met is None:
                return
        raise self._no_answer(token, met) from met

    def _found(self, table: Table, committable: Committable) -> FoundRows:
        token, is_replaced = committable.token, self._sink.mode is CommitMode.REPLACE
        if self._sink.replaces is Replaces.LATEST:
            self._check_owners(table, token)
        held = _newest_held(table, self._branch, token)
        if held is not None and not held[0].is_of(token):
            return FoundRows(Rows.OVERWRITTEN, f"it holds {held[0].text}")
        head = table.metadata.snapshot_by_name(self._branch)
        live = set() if head is None else _files_of(table, head)
        if not live and committable.manifest.rows != 0:
            return FoundRows(Rows.REMOVED, "it has no rows")
        if self._sink.run_column is not None:
            self._check_run_column(table, token)
            count = _count(table, self._branch, f"{self._sink.run_column} = '{token.lineage}'")
            if count and held is None:
                self._check_remembers(table, token)
            return rows_of_key(
                token, count, committable.manifest.rows, is_held=held is not None, is_replaced=is_replaced
            )
        if held is None:
            return self._without_token(table, token)
        own = _own_rows(table, self._branch, held[1])
        if not own.expected and committable.manifest.rows != 0:
            raise SinkUnavailable(
                f"{token.text}: it was adopted, and which rows of {self._sink.uri} are its is not recorded."
            )
        if own.paths <= live and _has_delete_files(table, self._branch, held[1]):
            raise SinkUnavailable(
                f"{token.text}: rows of {self._sink.uri} were deleted since by delete files; whose they were is not "
                "recorded.",
                code="rows-removed-from-files",
            )
        found = own.found(others=bool(live - own.paths), is_replaced=is_replaced)
        assert found is not None
        return found

    def _without_token(self, table: Table, token: CommitToken) -> FoundRows:
        """The table has rows, and does not hold the token: taken out, rolled back, or the table was made again."""
        self._check_remembers(table, token)
        text = "it has rows, and no snapshot of its branch holds the token"
        if self._sink.mode is CommitMode.REPLACE:
            return FoundRows(Rows.OVERWRITTEN, text)
        return FoundRows(Rows.REMOVED if _was_taken_out(table, self._branch, token) else Rows.PARTLY, text)

    def _check_remembers(self, table: Table, token: CommitToken) -> None:
        since = _remembers_since(table, self._branch, token)
        if since is not None:
            raise SinkUnavailable(
                f"{token.text}: {self._sink.uri} has forgotten what was committed before {since.isoformat()}."
            )

    def commit(self, committable: Committable) -> str:
        return self._commit(committable)

    def _commit(self, committable: Committable, *, is_again: bool = False) -> str:
        token, mode = committable.token, CommitMode(self._sink.mode)
        staged = StagedRows(committable.manifest, self._resources.open_location)
        met: Exception | None = None
        for _ in range(ROUNDS):
            table = self._asked(token, self._load)
            held = _newest_held(table, self._branch, token)
            if held is not None and held[0].is_of(token):
                question = partial(self._found, table, committable)
                found = self._asked(token, question) if is_again else FoundRows(Rows.THERE)
                if found.rows is Rows.THERE:
                    return f"{self._sink.uri}: applied before, snapshot {held[1]}"
                if not found.may_be_committed_again(mode):
                    raise not_again(token, f"Iceberg table {self._sink.uri}", found)
            elif held is not None and (mode is CommitMode.APPEND or held[0].attempt >= token.attempt):
                raise refused(token, f"Iceberg table {self._sink.uri}", held[0], mode, _remove(token))
            self._check_owners(table, token)
            met = self._write(table, staged, token, mode)
            if met is None:
                done = table.metadata.snapshot_by_name(self._branch)
                return f"{self._sink.uri}: snapshot {done.snapshot_id if done is not None else '?'}"
        raise self._no_answer(token, met) from met

    def _write(self, table: Table, staged: StagedRows, token: CommitToken, mode: CommitMode) -> Exception | None:
        """One commit. Returns the error where it met another one, and what was read of the table is old.

        Raises `SinkRefused` where the table refuses these rows, and `SinkUnavailable` for everything else.
        """
        import pyarrow

        column = self._sink.run_column
        self._check_partitions(table, token)
        columns = {field.name: kind_of(field.field_type) for field in table.schema().fields}
        check_lake_columns(token, f"the Iceberg table {self._sink.uri}", staged.kinds, columns, iceberg_takes)
        schema, batches = staged.schema, staged.batches()
        if column is not None:
            schema, batches = with_key(schema, batches, column, token)
        rows, own = pyarrow.Table.from_batches(batches, schema), None
        if self._sink.replaces is Replaces.RUN:
            own = f"{column} = '{token.lineage}'"
        return self._append(
            table, rows, token, self._properties(token), is_replaced=mode is CommitMode.REPLACE, only=own
        )

    def _append(
        self,
        table: Table,
        rows: Any,
        token: CommitToken,
        properties: dict[str, str],
        *,
        is_replaced: bool,
        only: str | None = None,
    ) -> Exception | None:
        """As `_write`. ``is_replaced``: in place of all rows, or of those that the filter ``only`` finds."""
        # Pyiceberg would put the rows on top of what somebody else has committed meanwhile: it is to be read first.
        table.metadata.properties["commit.retry.num-retries"] = "0"
        try:
            if only is not None:
                table.overwrite(rows, only, snapshot_properties=properties, branch=self._branch)
            elif is_replaced:
                table.overwrite(rows, snapshot_properties=properties, branch=self._branch)
            else:
                table.append(rows, snapshot_properties=properties, branch=self._branch)
        except Exception as error:
            answer, why = of_iceberg(error)
            if answer is Answer.CONFLICT:
                return error
            if answer is Answer.REFUSED:
                raise SinkRefused(
                    f"{token.text}: the Iceberg table {self._sink.uri} refuses these rows: {why}. Nothing was "
                    "committed, and no retry helps: change the table, or what the sink's function returns, and clear "
                    "the task."
                ) from None
            raise self._no_answer(token, error) from error
        return None

    def _properties(self, token: CommitToken) -> dict[str, str]:
        return {
            _LINEAGE: token.lineage,
            _ATTEMPT: str(token.attempt),
            _WRITER: token.writer or "",
            _REPLACES: self._sink.replaces.value,
        }

    def _check_owners(self, table: Table, token: CommitToken) -> list[Owner]:
        """The owners of rows that ``token`` may meet. Raises as `check_owners`."""
        owners = _owners(table, self._branch, token)
        remove = (
            "remove them (table.delete(filter_of_its_rows)), and then its token by an empty snapshot: "
            "table.append(table.schema().as_arrow().empty_table(), snapshot_properties="
            f"{{{_LINEAGE!r}: <its dag/run/group/region>, {_ATTEMPT!r}: '0', {_WRITER!r}: ''}})"
        )
        check_owners(token, f"Iceberg table {self._sink.uri}", self._sink.replaces, owners, remove)
        return owners

    def _check_partitions(self, table: Table, token: CommitToken) -> None:
        """Raise `SinkRefused` if pyiceberg would write other values of a partition than those of its rows."""
        from pyiceberg.transforms import IdentityTransform
        from pyiceberg.types import DoubleType, FloatType

        schema = table.schema()
        unfit = [
            f"{schema.find_column_name(field.source_id)} ({schema.find_type(field.source_id)})"
            for field in table.spec().fields
            if isinstance(field.transform, IdentityTransform)
            and isinstance(schema.find_type(field.source_id), (FloatType, DoubleType))
        ]
        if unfit:
            raise SinkRefused(
                f"{token.text}: expected no partition by a floating point number in the Iceberg table "
                f"{self._sink.uri}, found one by column {', '.join(unfit)}: pyiceberg writes the partition's value "
                "with 32 bits, and other engines read that value. Nothing was committed, and no retry helps: partition "
                "the table by another column, and clear the task."
            )

    def _check_run_column(self, table: Table, token: CommitToken) -> None:
        """Raise `SinkRefused` if the run column can't separate the rows of ``token`` from others, with what to do."""
        from pyiceberg.types import StringType

        column = self._sink.run_column
        if column is None:
            return
        kind = next((field.field_type for field in table.schema().fields if field.name == column), None)
        if not isinstance(kind, StringType):
            raise SinkRefused(
                f"{token.text}: expected a column {column} of strings in the Iceberg table {self._sink.uri}, found "
                f"{kind or 'none'}. A commit fills it with {token.lineage!r}. Nothing was done. Add it: ALTER "
                f"TABLE ... ADD COLUMN {column} string.",
                code="run-column-missing",
                column=column,
            )
        held = _newest_held(table, self._branch, token)
        if held is None:
            return

        def has(condition: str) -> bool:
            return _count(table, self._branch, condition, 1) > 0

        if has(f"{column} IS NULL") and not has(f"{column} = '{token.lineage}'"):
            raise SinkRefused(
                f"{no_keys(token, f'Iceberg table {self._sink.uri}', column, held[0])} Give its rows the key: UPDATE "
                f"... SET {column} = '{token.lineage}' WHERE <its rows>. If it has no rows there, take its token out"
                f"{_remove(token)}",
                code="rows-without-key",
            )

    @cached_property
    def _catalog(self) -> Catalog:
        name = self._location.catalog
        return open_catalog(name, self._resources.catalog_properties(name))

    def _load(self) -> Table:
        from pyiceberg.exceptions import NoSuchTableError

        try:
            return self._catalog.load_table(self._location.name)
        except NoSuchTableError as error:
            raise ConfigurationError(
                f"Expected the table {self._sink.uri} that a sink commits to, found none: make it, with its columns."
            ) from error

    def _asked(self, token: CommitToken, question: Callable[[], Any]) -> Any:
        try:
            return question()
        except RecoveryError:
            raise
        except Exception as error:
            raise self._no_answer(token, error) from error

    def _no_answer(self, token: CommitToken, error: Exception | None) -> SinkUnavailable | SinkUnreadable:
        return no_answer(token, "Iceberg", self._sink.uri, "pyiceberg", error, of_iceberg)


def kind_of(given: IcebergType) -> Kind:
    """Spark's type for a type of Iceberg; of one that Spark does not have, Iceberg's name."""
    from pyiceberg.types import ListType, MapType, StructType

    if isinstance(given, ListType):
        return "array", kind_of(given.element_type)
    if isinstance(given, MapType):
        return "map", kind_of(given.key_type), kind_of(given.value_type)
    if isinstance(given, StructType):
        return "struct", tuple((field.name, kind_of(field.field_type)) for field in given.fields)
    names = {"int": "integer", "timestamp": "timestamp_ntz", "timestamptz": "timestamp"}
    return names.get(str(given), str(given))


def _entries(table: Table, snapshot: Snapshot) -> Iterator[Any]:
    """The entries of a snapshot's manifests of data files."""
    from pyiceberg.manifest import ManifestContent

    for manifest in snapshot.manifests(table.io):
        if manifest.content == ManifestContent.DATA:
            yield from manifest.fetch_manifest_entry(table.io, discard_deleted=False)


def _count(table: Table, branch: str, condition: str, most: int | None = None) -> int:
    """How many rows of the branch fulfil ``condition``; ``most``: it counts no further."""
    snapshot = table.metadata.snapshot_by_name(branch)
    if snapshot is None:
        return 0
    scan = table.scan(condition, snapshot_id=snapshot.snapshot_id, limit=most)
    return scan.count() if most is None else scan.to_arrow().num_rows


def _files_of(table: Table, snapshot: Snapshot) -> set[str]:
    """The paths of a snapshot's data files."""
    from pyiceberg.manifest import ManifestEntryStatus

    return {
        entry.data_file.file_path for entry in _entries(table, snapshot) if entry.status != ManifestEntryStatus.DELETED
    }


def _since(table: Table, branch: str, snapshot_id: int) -> list[Snapshot]:
    """The snapshots of the branch from ``snapshot_id`` on, the oldest first."""
    from pyiceberg.table.snapshots import ancestors_of

    line: list[Snapshot] = []
    for snapshot in ancestors_of(table.metadata.snapshot_by_name(branch), table.metadata):
        line.insert(0, snapshot)
        if snapshot.snapshot_id == snapshot_id:
            break
    return line


def _own_rows(table: Table, branch: str, snapshot_id: int) -> OwnRows:
    from pyiceberg.manifest import ManifestEntryStatus
    from pyiceberg.table.snapshots import Operation

    own: OwnRows | None = None
    for snapshot in _since(table, branch, snapshot_id):
        entries = [entry for entry in _entries(table, snapshot) if entry.snapshot_id == snapshot.snapshot_id]
        by_status: dict[Any, dict[str, int]] = {status: {} for status in ManifestEntryStatus}
        for entry in entries:
            by_status[entry.status][entry.data_file.file_path] = entry.data_file.record_count
        added, removed = by_status[ManifestEntryStatus.ADDED], by_status[ManifestEntryStatus.DELETED]
        if own is None:
            own = OwnRows(added)
            continue
        # Of an overwrite it is not recorded whether it has copied rows: with another number of them it has not.
        operation = snapshot.summary.operation if snapshot.summary is not None else None
        is_copy = operation is Operation.REPLACE or sum(added.values()) == sum(removed.values())
        own.follow(removed, added, 0 if is_copy else None, is_known=_is_known(snapshot))
    assert own is not None
    return own


def _is_known(snapshot: Snapshot) -> bool:
    """Whether it is another token's commit. One that replaces the rows of one key copies the others of their files."""
    properties = _properties_of(snapshot)
    return _LINEAGE in properties and properties.get(_REPLACES) != Replaces.RUN.value


def _was_taken_out(table: Table, branch: str, token: CommitToken) -> bool:
    """A person took the token out, or the branch was rolled back and only commits with tokens were made since."""
    from pyiceberg.table.snapshots import ancestors_of

    noted = next(_noted(table, branch, token), None)
    if noted is not None:
        return noted[1][_ATTEMPT] == "0"
    own = [one for one in table.metadata.snapshots if _properties_of(one).get(_LINEAGE) == token.lineage]
    line = list(ancestors_of(table.metadata.snapshot_by_name(branch), table.metadata))
    since = [one for one in line if own and one.timestamp_ms >= own[-1].timestamp_ms]
    return bool(own) and all(_LINEAGE in _properties_of(one) for one in since)


def _has_delete_files(table: Table, branch: str, snapshot_id: int) -> bool:
    """Whether a snapshot after ``snapshot_id`` has deleted rows without removing their files."""
    since = map(_properties_of, _since(table, branch, snapshot_id)[1:])
    return any(int(properties.get("added-delete-files", 0)) for properties in since)


def _properties_of(snapshot: Snapshot) -> Mapping[str, str]:
    return snapshot.summary.additional_properties if snapshot.summary is not None else {}


def _newest_held(table: Table, branch: str, token: CommitToken) -> tuple[Held, int] | None:
    """What the branch holds of the lineage, the newest, and in which snapshot. Attempt 0: a person has taken it out."""
    noted = next(_noted(table, branch, token), None)
    if noted is None or int(noted[1][_ATTEMPT]) <= 0:
        return None
    snapshot, properties = noted
    return Held(int(properties[_ATTEMPT]), properties[_WRITER] or None), snapshot.snapshot_id


def _remembers_since(table: Table, branch: str, token: CommitToken) -> datetime | None:
    from pyiceberg.table.snapshots import ancestors_of

    line = list(ancestors_of(table.metadata.snapshot_by_name(branch), table.metadata))
    # Who expires the parent of a snapshot leaves its id there (Java), or not (pyiceberg); the first one has number 1.
    is_whole = not line or (line[-1].parent_snapshot_id is None and line[-1].sequence_number == 1)
    if is_whole or any(_noted(table, branch, token)):
        return None
    return datetime.fromtimestamp(line[-1].timestamp_ms / 1000, timezone.utc)


def _owners(table: Table, branch: str, token: CommitToken) -> list[Owner]:
    """The other lineages of which the branch holds an attempt, the newest first."""
    from pyiceberg.table.snapshots import ancestors_of

    newest: dict[str, Owner | None] = {}
    for snapshot in ancestors_of(table.metadata.snapshot_by_name(branch), table.metadata):
        properties = _properties_of(snapshot)
        lineage, replaces = properties.get(_LINEAGE), properties.get(_REPLACES)
        if lineage is None or lineage == token.lineage or lineage in newest:
            continue
        is_out = properties.get(_ATTEMPT) in ("0", _ADOPTED)
        newest[lineage] = (
            None if is_out else Owner(RegionKey.of_path(lineage), Replaces(replaces) if replaces else None)
        )
    return [owner for owner in newest.values() if owner is not None]


def _noted(table: Table, branch: str, token: CommitToken) -> Iterator[tuple[Snapshot, Mapping[str, str]]]:
    """The snapshots of the branch that say something of the lineage, the newest first, and what they say."""
    from pyiceberg.table.snapshots import ancestors_of

    for snapshot in ancestors_of(table.metadata.snapshot_by_name(branch), table.metadata):
        properties = _properties_of(snapshot)
        if properties.get(_LINEAGE) == token.lineage:
            yield snapshot, properties


def _remove(token: CommitToken) -> str:
    return (
        " by an empty snapshot: table.append(table.schema().as_arrow().empty_table(), snapshot_properties="
        f"{{{_LINEAGE!r}: {token.lineage!r}, {_ATTEMPT!r}: '0', {_WRITER!r}: ''}})"
    )
