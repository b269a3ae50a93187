"""A Delta Lake table as a token sink: the commit that adds the files has the token as its application transaction.

Delta keeps one version number for an application id. The lineage is the id, and the attempt the version. Delta does not
list its applications. So two more, of the whole table, say whose rows it holds: `_OWNER` and `_LATEST`.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, ClassVar

from airflow_recovery.checks import check_delta_folder
from airflow_recovery.errors import (
    ConfigurationError,
    RecoveryError,
    SinkRefused,
    SinkUnavailable,
    SinkUnreadable,
    StoreError,
)
from airflow_recovery.locations import DELTA, comparable, delta_rs_uri, scheme_of, split_uri
from airflow_recovery.model.codec import later
from airflow_recovery.model.committing import CommitKind, CommitMode, Replaces
from airflow_recovery.model.keys import RegionKey
from airflow_recovery.model.spark_types import Kind, columns_of, decimal_digits, delta_takes, sql_name
from airflow_recovery.sinks.answers import Answer, delta_features, no_answer, of_delta, refused_features
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
from airflow_recovery.sinks.owners import check_adoptable, check_owners, date_of, date_text, no_keys
from airflow_recovery.sinks.staged import StagedRows, check_lake_columns, with_key

if TYPE_CHECKING:
    import deltalake

    from airflow_recovery.store.object_store import ObjectStore

MOST_COMMITS = 1000
"""So many of a table's newest commits are looked through for a token."""
ROUNDS = 5
"""How often a commit is tried, when others commit to the table at the same time."""
_METADATA = "airflow_recovery"
"""In a commit's info: the token, as text."""
_REPLACES = "airflow_recovery_replaces"
_WRITER_BITS = 36
_TYPE_WITH_LENGTH = "__CHAR_VARCHAR_TYPE_STRING"
"""The key of a column's metadata that has char(n) or varchar(n), which is a string in the table's schema."""
_COPYING = ("DELETE", "UPDATE", "MERGE")
"""Operations that copy the rows which they don't change, and count in their metrics those that they delete."""
_DELETED = ("num_deleted_rows", "numDeletedRows", "num_target_rows_deleted", "numTargetRowsDeleted")
_OWNER = "airflow-recovery#owner"
"""The application whose version says who commits to the table: the hash of an owner, and a kind."""
_LATEST = "airflow-recovery#latest"
"""The application whose version is the newest date that a sink with ``keeps="latest"`` has committed, in seconds."""
_ONE, _ALL, _NEWEST, _SEVERAL = range(4)
"""Kinds of owners: one lineage, with rows of its own; one that replaces all rows; one task, in order of its dates; and
several lineages, each with rows of its own (without a hash)."""
_ADOPTED = -1
"""The version of a lineage whose rows `adopt` has given to another one. 0: a person has taken its token out."""
_NAMED = re.compile(r"(.+)@[0-9]+ of (.+) / (.+)")
"""The text of a `CommitToken` in the log."""
_LOG_ENTRIES = 500
"""How many commits of the table's log are read to name owners."""


@dataclass(frozen=True, kw_only=True)
class DeltaTable(CommittingSink):
    """Commits into the Delta table at ``uri`` (``s3://``, ``file://`` or an absolute path), which is made if need be.

    Delta-rs writes it in the task's process, so Spark needs no jar for that. Mode ``replace`` puts an attempt's rows in
    place of all rows of the table, or, with ``run_column``, of the rows that have the key of this DAG, run and task in
    that string column, which the result does not have and which is filled in; a new table is partitioned by it.
    ``keeps="latest"``: all rows are replaced, but never those of a later date of this task. Raises
    `JobDefinitionError` for another ``uri``.
    """

    uri: str
    run_column: str | None = later(None)
    keeps: str | None = later(None)
    kind: ClassVar[CommitKind] = CommitKind.TOKEN

    def __post_init__(self) -> None:
        super().__post_init__()
        check_delta_folder(self.uri, "DeltaTable: uri=")
        check_run_column(self, "DeltaTable")
        check_replaced_rows(self, "DeltaTable")

    @property
    def place(self) -> str:
        """As `CommittingSink.place`."""
        folder = "/".join(split_uri(self.uri)) if scheme_of(self.uri) is not None else comparable(self.uri)
        return f"{DELTA}{folder.rstrip('/')}"

    def table_uri(self) -> str:
        """See `CommittingSink.table_uri`."""
        return f"{DELTA}{self.uri}"

    def open(self, resources: SinkResources) -> _DeltaCommitter:
        """A committer, which has not connected yet. Raises `ConfigurationError` where delta-rs is not installed."""
        try:
            import deltalake  # noqa: F401
        except ImportError as error:
            raise ConfigurationError(
                "Expected deltalake (delta-rs) in the worker's environment, found none: install "
                "airflow-recovery[sinks]."
            ) from error
        return _DeltaCommitter(self, resources)


class _DeltaCommitter:
    """The token's lineage is the application, its attempt the application's version; who finished it is the version of
    a second application (`_mark`), set by the same commit.

    A commit reads the table first, and Delta refuses one that meets another commit of the same application after
    that: so of two processes with one lineage the second reads again, and finds what the first has done.
    """

    def __init__(self, sink: DeltaTable, resources: SinkResources) -> None:
        self._sink = sink
        self._uri = delta_rs_uri(sink.uri)
        self._resources = resources

    def probe(self, token: CommitToken) -> Probe:
        held = self.held(token)
        return Probe.APPLIED if held is not None and held.is_of(token) else Probe.NOT_APPLIED

    def held(self, token: CommitToken) -> Held | None:
        """As `RemembersAttempts`."""
        table = self._table(token)
        return None if table is None else _held(table, token)

    def rows(self, committable: Committable, commit_id: str) -> FoundRows:
        """As `ChecksRows`: follow the files of the commit through the table's log.

        Files that somebody deletes below the table's folder are not noticed.
        """
        return self._found(self._table(committable.token), committable, commit_id)

    def commit_again(self, committable: Committable, commit_id: str) -> str:
        """As `ChecksRows`."""
        return self._commit(committable, commit_id)

    def take_out(self, committable: Committable, commit_id: str) -> None:
        """As `ChecksRows`: a commit without files has version 0 of the token's application."""
        token = committable.token
        for _ in range(ROUNDS):
            table = self._table(token)
            found = self._found(table, committable, commit_id)
            if found.rows is not Rows.REMOVED:
                raise not_again(token, f"Delta table {self._uri}", found)
            met = None if table is None else self._written(token, partial(self._take_out, table, token))
            if met is None:
                return
        raise self._no_answer(token, met) from met

    def _take_out(self, table: deltalake.DeltaTable, token: CommitToken) -> None:
        properties = self._properties(token, {token.lineage: 0})
        table.create_write_transaction([], "append", table.schema(), commit_properties=properties)

    def _found(self, table: deltalake.DeltaTable | None, committable: Committable, commit_id: str) -> FoundRows:
        token, is_replaced = committable.token, self._sink.mode is CommitMode.REPLACE
        if self._sink.replaces is Replaces.LATEST:
            self._check_owners(table, token)
        if table is None:
            return FoundRows(Rows.REMOVED, "there is no table any more")
        live = set(table.get_add_actions(flatten=True).column("path").to_pylist())
        held = _held(table, token)
        if held is not None and not held.is_of(token):
            return FoundRows(Rows.OVERWRITTEN, f"it holds {held.text}")
        if not live and committable.manifest.rows != 0:
            return FoundRows(Rows.REMOVED, "it has no rows")
        if self._sink.run_column is not None:
            self._check_run_column(table, token)
            count = _count(table, f"{self._sink.run_column} = '{token.lineage}'")
            return rows_of_key(
                token, count, committable.manifest.rows, is_held=held is not None, is_replaced=is_replaced
            )
        if held is None:
            return self._without_token(table, token)
        try:
            own = self._own_rows(table, live, token, commit_id)
        except (StoreError, _NotInLog) as error:
            raise self._no_answer(token, error) from error
        found = own.found(others=bool(live - own.paths), is_replaced=is_replaced)
        if not own.expected and committable.manifest.rows != 0:
            raise SinkUnavailable(
                f"{token.text}: it was adopted, and which rows of {self._uri} are its is not recorded."
            )
        if found is None:
            raise SinkUnavailable(
                f"{token.text}: rows were removed from files of {self._uri} that hold its rows and rows of others; "
                "whose they were is not recorded.",
                code="rows-removed-from-files",
            )
        return found

    def _own_rows(self, table: deltalake.DeltaTable, live: Set[str], token: CommitToken, name: str) -> OwnRows:
        """Raises `_NotInLog` and the store's errors."""
        log = _Log(self._resources.open_location(self._sink.uri))
        newest, has_vectors = table.version(), "deletionVectors" in (table.protocol().reader_features or ())
        named = re.search(r": version (\d+)$", name)
        if named and int(named[1]) <= newest and not has_vectors:
            entry = log.read(int(named[1]))
            if entry.is_of(token) and entry.added.keys() <= live:
                return OwnRows(entry.added)
        version = _version_of(log, newest, token)
        own = OwnRows(log.read(version).added)
        if has_vectors or not own.paths <= live:
            for later in range(version + 1, newest + 1):
                entry = log.read(later)
                own.follow(entry.removed, entry.added, entry.deleted, is_known=entry.is_known)
        return own

    def _without_token(self, table: deltalake.DeltaTable, token: CommitToken) -> FoundRows:
        """The table has rows, and does not hold the token: a person took it out, or the table was made again."""
        if self._sink.mode is CommitMode.REPLACE:
            return FoundRows(Rows.OVERWRITTEN, "it has rows, and does not hold its token")
        if table.transaction_version(token.lineage) == 0:
            return FoundRows(Rows.REMOVED, "a person took its token out")
        return FoundRows(Rows.PARTLY, "it has rows, and does not hold its token")

    def others(self, token: CommitToken) -> list[Owner]:
        """As `KnowsOwners`."""
        table = self._table(token)
        self._check_features(table, token)
        owners = self._check_owners(table, token)
        if table is not None and self._sink.replaces is Replaces.RUN:
            self._check_run_column(table, token)
        return owners

    def adopt(self, old: CommitToken, new: CommitToken) -> None:
        """As `KnowsOwners`: in one commit, which changes the keys of the rows, too."""
        table = self._table(new)
        held = None if table is None else _held(table, old)
        if table is None or held is None:
            return
        check_adoptable(new, f"Delta table {self._uri}", _held(table, new))
        writers, mark = table.transaction_version(_writers(old)), table.transaction_version(_OWNER)
        versions = {old.lineage: _ADOPTED, new.lineage: held.attempt}
        if writers is not None:
            versions |= {_writers(new): writers}
        for kind, name in ((_ONE, _lineage), (_ALL, _lineage), (_NEWEST, _task)):
            if mark == _owner(name(old), kind):
                versions |= {_OWNER: _owner(name(new), kind)}
        properties = self._properties(new, versions)
        column = self._sink.run_column
        try:
            if (
                column is not None
                and table.update(
                    updates={column: f"'{new.lineage}'"},
                    predicate=f"{column} = '{old.lineage}'",
                    commit_properties=properties,
                )["num_updated_rows"]
            ):
                return
            table.create_write_transaction([], "append", table.schema(), commit_properties=properties)
        except Exception as error:
            raise self._no_answer(new, error) from error

    def commit(self, committable: Committable) -> str:
        return self._commit(committable)

    def _commit(self, committable: Committable, again: str | None = None) -> str:
        """``again``: what the commit before was called, which this one repeats if its rows were removed."""
        token, mode = committable.token, CommitMode(self._sink.mode)
        staged = StagedRows(committable.manifest, self._resources.open_location)
        met: Exception | None = None
        for _ in range(ROUNDS):
            table = self._table(token)
            held = None if table is None else _held(table, token)
            if held is not None and held.is_of(token):
                found = FoundRows(Rows.THERE) if again is None else self._found(table, committable, again)
                if found.rows is Rows.THERE:
                    return f"{self._uri}: applied before"
                if not found.may_be_committed_again(mode):
                    raise not_again(token, f"Delta table {self._uri}", found)
            elif held is not None and (mode is CommitMode.APPEND or held.attempt >= token.attempt):
                raise refused(token, f"Delta table {self._uri}", held, mode, _remove(token))
            self._check_owners(table, token)
            met = self._write(table, staged, token, mode)
            if met is None:
                return f"{self._uri}: version {self._committed_version(token)}"
        raise self._no_answer(token, met) from met

    def _committed_version(self, token: CommitToken) -> str:
        """The version that has this token, where the log says so at once; it is asked for again later if not."""
        try:
            table = self._table(token)
            assert table is not None
            return str(_version_of(_Log(self._resources.open_location(self._sink.uri)), table.version(), token))
        except (RecoveryError, _NotInLog, AssertionError):
            return "?"

    def _write(
        self, table: deltalake.DeltaTable | None, staged: StagedRows, token: CommitToken, mode: CommitMode
    ) -> Exception | None:
        """One commit. Returns the error where it met another one, and what it has read of the table is old.

        Raises `SinkRefused` where the table refuses these rows, and `SinkUnavailable` for everything else.
        """
        import deltalake
        import pyarrow  # type: ignore[import-untyped]

        versions = {token.lineage: token.attempt, **self._owner_versions(table, token)}
        if token.writer is not None:
            versions[_writers(token)] = _mark(token.attempt, token.writer)
        column, replaces = self._sink.run_column, self._sink.replaces
        columns = None if table is None else columns_of(table.schema().to_json())
        check_lake_columns(token, f"the Delta table {self._uri}", staged.kinds, columns, delta_takes)
        schema, batches = staged.schema, staged.batches()
        if table is not None:
            batches = self._checked_values(batches, staged.kinds, table, token)
        if column is not None:
            schema, batches = with_key(schema, batches, column, token)
        how: dict[str, Any] = {"mode": "overwrite" if mode is CommitMode.REPLACE else "append"}
        if table is None:
            # The table is made, and somebody else may be first.
            how = {"mode": "error", "storage_options": self._options, "partition_by": column and [column]}
        elif replaces is Replaces.RUN:
            how |= {"predicate": f"{column} = '{token.lineage}'"}
        own: list[Exception] = []
        return self._written(
            token,
            lambda: deltalake.write_deltalake(
                self._uri if table is None else table,
                pyarrow.RecordBatchReader.from_batches(schema, _noting_errors(batches, own)),
                commit_properties=self._properties(token, versions),
                **how,
            ),
            own,
        )

    def _checked_values(
        self, batches: Iterator[Any], kinds: Mapping[str, Kind], table: deltalake.DeltaTable, token: CommitToken
    ) -> Iterator[Any]:
        """Yield ``batches``.

        Raises `SinkRefused` for a value that a partition column would not keep, and for one that is longer than the
        column's char(n) or varchar(n), which only Spark checks.
        """
        checks = [
            (name, partial(_why_no_partition, kind=kinds[name]))
            for name in table.metadata().partition_columns
            if name in kinds
        ]
        checks += [(name, partial(_why_too_long, kind=kind)) for name, kind in _lengths(table).items() if name in kinds]
        for batch in batches:
            for name, why_not in checks:
                why = why_not(batch.column(name))
                if why is not None:
                    raise SinkRefused(
                        f"{token.text}: column {name} ({sql_name(kinds[name])}) of {self._uri} has a value that {why}. "
                        "Nothing was committed, and no retry helps: change that value in the sink's function, or the "
                        "column of the table, and clear the task."
                    )
            yield batch

    def _written(
        self, token: CommitToken, write: Callable[[], object], own: Sequence[Exception] = ()
    ) -> Exception | None:
        """Commit by ``write``. Returns and raises as `_write`; ``own``: the errors of the prepared rows' store."""
        refusal = ""
        try:
            write()
        except Exception as error:
            if not own:
                answer, why = of_delta(error)
                if answer is Answer.CONFLICT:
                    return error
                if answer is not Answer.REFUSED:
                    raise self._no_answer(token, error) from error
                refusal = why
        if own:
            # delta-rs has only the text of what the prepared files' store said.
            raise own[0]
        if refusal:
            # Outside of the handler, and without a cause: delta-rs puts rows into its message.
            raise self._refuses(token, refusal)
        return None

    def _refuses(self, token: CommitToken, why: str) -> SinkRefused:
        return SinkRefused(
            f"{token.text}: the Delta table {self._uri} refuses these rows: {why}. Nothing was committed, and "
            "no retry helps: change the table, or what the sink's function returns, and clear the task."
        )

    def _check_features(self, table: deltalake.DeltaTable | None, token: CommitToken) -> None:
        """Raise `SinkRefused` if delta-rs can't commit to a table with these table features."""
        unknown = [] if table is None else _unknown_features(table)
        if unknown:
            raise self._refuses(token, delta_features(unknown))

    def _properties(self, token: CommitToken, versions: Mapping[str, int]) -> deltalake.CommitProperties:
        import deltalake

        return deltalake.CommitProperties(
            custom_metadata={
                _METADATA: token.text,
                "airflow_recovery_lineage": token.lineage,
                _REPLACES: self._sink.replaces.value,
            },
            app_transactions=[deltalake.Transaction(*version) for version in versions.items()],
            # Not again over what somebody else has written meanwhile: what was read is read anew.
            max_commit_retries=0,
        )

    def _owner_versions(self, table: deltalake.DeltaTable | None, token: CommitToken) -> dict[str, int]:
        """What the versions of `_OWNER` and `_LATEST` are from this commit on."""
        replaces, date = self._sink.replaces, date_of(token.run_key)
        if replaces is Replaces.ALL:
            return {_OWNER: _owner(_lineage(token), _ALL)}
        if replaces is Replaces.LATEST and date is not None:
            return {_OWNER: _owner(_task(token), _NEWEST), _LATEST: int(date.timestamp())}
        mark = None if table is None else table.transaction_version(_OWNER)
        own = [_owner(_lineage(token), kind) for kind in (_ONE, _ALL)]
        is_alone = mark in own if mark else table is None or not self._named(table, token)
        return {_OWNER: own[0] if is_alone else _SEVERAL}

    def _check_owners(self, table: deltalake.DeltaTable | None, token: CommitToken) -> list[Owner]:
        """The owners of rows that ``token`` may meet, as far as the table tells them. Raises as `check_owners`."""
        mark = 0 if table is None else table.transaction_version(_OWNER) or 0
        owners: list[Owner] = []
        if table is None or mark in (_owner(_lineage(token), _ONE), _owner(_lineage(token), _ALL)):
            pass
        elif mark == _owner(_task(token), _NEWEST):
            newest, mine = table.transaction_version(_LATEST) or 0, date_of(token.run_key)
            run_key = date_text(datetime.fromtimestamp(newest, timezone.utc))
            is_other = mine is None or int(mine.timestamp()) != newest
            owners = [Owner(token.key._replace(run_key=run_key), Replaces.LATEST)] if is_other else []
        else:
            owners = self._named(table, token)
            kind = {_ALL: Replaces.ALL, _NEWEST: Replaces.LATEST}.get(mark & 3, Replaces.RUN) if mark else None
            if kind in (Replaces.ALL, Replaces.LATEST):
                # One that replaces all rows has the table for itself.
                owners = [replace(owner, replaces=kind) for owner in owners if _is_owner(owner, mark)][:1]
            if kind is not None and not owners:
                owners = [Owner(None, kind)]
        remove = (
            "remove them: DeltaTable(uri).delete(predicate_of_its_rows); and then its token by a commit without files: "
            "table = DeltaTable(uri); table.create_write_transaction([], 'append', table.schema(), commit_properties="
            f"CommitProperties(app_transactions=[Transaction({_OWNER!r}, 0), Transaction(<its dag/run/group/region>, "
            "0)]))"
        )
        check_owners(token, f"Delta table {self._uri}", self._sink.replaces, owners, remove)
        return owners

    def _named(self, table: deltalake.DeltaTable, token: CommitToken) -> list[Owner]:
        """The other lineages that the table holds and its log names, the newest first; each once."""
        import deltalake.exceptions

        try:
            log = table.history(_LOG_ENTRIES)
        except (deltalake.exceptions.DeltaError, OSError) as error:
            raise self._no_answer(token, error) from error
        owners: dict[str, Owner] = {}
        for entry in log:
            lineage, replaces = entry.get("airflow_recovery_lineage"), entry.get(_REPLACES)
            if lineage is None and (text := _NAMED.fullmatch(entry.get(_METADATA, ""))):
                # A version before: it has named no group, and said nothing of what it replaces.
                lineage = token.key._replace(region=text[1], dag_id=text[2], run_key=text[3]).path
                mode = entry.get("operationParameters", {}).get("mode")
                replaces = Replaces.ALL.value if mode == "Overwrite" else None
            if lineage is not None and lineage != token.lineage and (table.transaction_version(lineage) or 0) > 0:
                owner = Owner(RegionKey.of_path(lineage), None if replaces is None else Replaces(replaces))
                owners.setdefault(lineage, owner)
        return list(owners.values())

    def _check_run_column(self, table: deltalake.DeltaTable, token: CommitToken) -> None:
        """Raise `SinkRefused` if the run column can't separate the rows of ``token`` from others, with what to do."""
        column = self._sink.run_column
        if column is None:
            return
        kinds = {field.name: str(field.type) for field in table.schema().fields}
        if "string" not in kinds.get(column, ""):
            raise SinkRefused(
                f"{token.text}: expected a column {column} of strings in the Delta table {self._uri}, found "
                f"{kinds.get(column, 'none')}. A commit fills it with {token.lineage!r}. Nothing was done. Add it: "
                f"DeltaTable(uri).alter.add_columns([Field({column!r}, PrimitiveType('string'))]).",
                code="run-column-missing",
                column=column,
            )
        held = _held(table, token)
        if held is None:
            return
        literal = f"'{token.lineage}'"
        if _count(table, f"{column} IS NULL", 1) and not _count(table, f"{column} = '{token.lineage}'", 1):
            raise SinkRefused(
                f"{no_keys(token, f'Delta table {self._uri}', column, held)} Give its rows the key: DeltaTable(uri)."
                f"update(updates={ {column: literal} }, predicate=predicate_of_its_rows). If it has no rows there, "
                f"take its token out{_remove(token)}",
                code="rows-without-key",
            )

    @property
    def _options(self) -> dict[str, str] | None:
        return self._resources.storage_options(self._uri) or None

    def _table(self, token: CommitToken) -> deltalake.DeltaTable | None:
        """The table in its newest version; `None`: there is none. Raises `SinkUnreadable` and `SinkUnavailable`."""
        import deltalake
        import deltalake.exceptions

        try:
            return deltalake.DeltaTable(self._uri, storage_options=self._options)
        except deltalake.exceptions.TableNotFoundError:
            return None
        except (deltalake.exceptions.DeltaError, OSError) as error:
            raise self._no_answer(token, error) from error

    def _no_answer(self, token: CommitToken, error: Exception | None) -> SinkUnavailable | SinkUnreadable:
        return no_answer(token, "Delta", self._uri, "delta-rs", error, of_delta)


class _NotInLog(Exception):
    """What was looked for is not in the part of the table's log that is there."""


@dataclass(frozen=True)
class _LogEntry:
    """One version of the table: {path: rows} of the files that it has added, and the paths that it has removed.

    ``deleted``: as of `OwnRows.follow`. ``transactions``: {application: version}.
    """

    added: Mapping[str, int]
    removed: Collection[str]
    deleted: int | None
    transactions: Mapping[str, int]
    is_known: bool
    """It is another token's commit, or has restored files that were there before."""

    def is_of(self, token: CommitToken) -> bool:
        """Whether it is a commit of the token's attempt."""
        return self.transactions.get(token.lineage) == token.attempt


class _Log:
    """The table's log, one JSON file a version, which stay for 30 days unless the table is set up otherwise."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    def read(self, version: int) -> _LogEntry:
        """Raises `ObjectMissing` for a version that was cleaned up, and the store's errors."""
        body = self._store.get(f"_delta_log/{version:020}.json", max_bytes=None).body.decode()
        actions = [json.loads(line) for line in body.splitlines() if line.strip()]
        added = {add["path"]: _rows_of(add) for action in actions if (add := action.get("add"))}
        removes = [remove for action in actions if (remove := action.get("remove"))]
        info: dict[str, Any] = next((action["commitInfo"] for action in actions if "commitInfo" in action), {})
        files = [file for action in actions for kind in ("add", "remove") if (file := action.get(kind))]
        has_changed = any(file.get("dataChange", True) for file in files)
        transactions = {txn["appId"]: txn["version"] for action in actions if (txn := action.get("txn"))}
        # A commit that replaces the rows of one key copies the others of their files.
        is_copy = info.get(_REPLACES) == Replaces.RUN.value
        is_known = (_METADATA in info and not is_copy) or info.get("operation") == "RESTORE"
        return _LogEntry(
            added, [remove["path"] for remove in removes], _deleted(info, has_changed), transactions, is_known
        )


def _rows_of(add: Mapping[str, Any]) -> int:
    """How many rows a file has, less those that its deletion vector leaves out."""
    rows = json.loads(add.get("stats") or "{}").get("numRecords")
    if rows is None:
        raise _NotInLog(f"the log does not record how many rows {add['path']} has")
    return int(rows) - int((add.get("deletionVector") or {}).get("cardinality", 0))


def _deleted(info: Mapping[str, Any], has_changed: bool) -> int | None:
    """How many rows a commit has left out when it copied the others; `None`: it has copied none."""
    if not has_changed:
        return 0
    if info.get("operation") not in _COPYING:
        return None
    metrics = info.get("operationMetrics") or {}
    return int(next((metrics[name] for name in _DELETED if metrics.get(name) is not None), 0))


def _unknown_features(table: deltalake.DeltaTable) -> list[str]:
    """The table's features that delta-rs can't write: asked by a commit to an empty table that has them, in a folder.

    A list of ours would be wrong with the next version of delta-rs.
    """
    found = table.protocol()
    writers, readers = found.writer_features, found.reader_features or []
    refused = _refused(found.min_reader_version, found.min_writer_version, readers, writers)
    if not refused or writers is None:
        return refused
    # One by one, since delta-rs has other names for them than the table.
    return [
        name
        for name in writers
        if _refused(found.min_reader_version, found.min_writer_version, [one for one in readers if one == name], [name])
    ]


def _refused(reader: int, writer: int, readers: list[str], writers: list[str] | None) -> list[str]:
    """Which features delta-rs refuses when it commits to an empty table of this protocol."""
    import deltalake.exceptions

    protocol: dict[str, Any] = {"minReaderVersion": reader, "minWriterVersion": writer}
    if reader >= 3:
        protocol["readerFeatures"] = readers
    if writers is not None:
        protocol["writerFeatures"] = writers
    columns = {"type": "struct", "fields": [{"name": "n", "type": "long", "nullable": True, "metadata": {}}]}
    metadata = {
        "id": "0",
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps(columns),
        "partitionColumns": [],
        "configuration": {},
    }
    first = [{"protocol": protocol}, {"metaData": metadata}]
    with TemporaryDirectory() as folder:
        log = Path(folder, "_delta_log")
        log.mkdir()
        (log / f"{0:020}.json").write_text("\n".join(map(json.dumps, first)))
        try:
            empty = deltalake.DeltaTable(folder)
            empty.create_write_transaction([], "append", empty.schema())
        except deltalake.exceptions.DeltaError as error:
            return refused_features(error)
    return []


def _version_of(log: _Log, newest: int, token: CommitToken) -> int:
    """The newest version whose commit has the token. Raises `_NotInLog`, and as `_Log.read`."""
    for version in range(newest, max(-1, newest - MOST_COMMITS), -1):
        if log.read(version).is_of(token):
            return version
    raise _NotInLog(f"the commit of {token.text} is not in the part of the log that is there")


def _count(table: deltalake.DeltaTable, condition: str, most: int | None = None) -> int:
    """How many rows fulfil ``condition``; ``most``: it counts no further."""
    import deltalake

    limit = "" if most is None else f" LIMIT {most}"
    query = f"SELECT count(*) AS n FROM (SELECT 1 FROM held WHERE {condition}{limit})"
    counted = deltalake.QueryBuilder().register("held", table).execute(query).read_all()
    return int(counted["n"][0].as_py())


def _held(table: deltalake.DeltaTable, token: CommitToken) -> Held | None:
    """What the table holds of the lineage. Version 0 of its application: a person has taken the token out."""
    attempt = table.transaction_version(token.lineage)
    if attempt is None or attempt <= 0:
        return None
    mark = table.transaction_version(_writers(token))
    if mark is None or mark >> _WRITER_BITS != attempt:
        return Held(attempt)
    # The writer's name is not in the table: it is this token's, or that of somebody else.
    is_own = token.writer is not None and mark == _mark(attempt, token.writer)
    return Held(attempt, token.writer if is_own else f"{mark & (1 << _WRITER_BITS) - 1:09x}")


def _lineage(token: CommitToken) -> str:
    return token.lineage


def _task(token: CommitToken) -> str:
    """The lineage without the run."""
    return token.key._replace(run_key="*").path


def _owner(name: str, kind: int) -> int:
    """The version of `_OWNER` for an owner of that name."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:7], "big") << 2 | kind


def _is_owner(owner: Owner, mark: int) -> bool:
    if owner.key is None:
        return False
    token = CommitToken(*owner.key, 0)
    return mark in (_owner(_lineage(token), _ALL), _owner(_task(token), _NEWEST))


def _writers(token: CommitToken) -> str:
    """The application whose version says who finished the attempt that the lineage's version names."""
    return f"{token.lineage}#writer"


def _mark(attempt: int, writer: str) -> int:
    """An application's version is a number: the attempt, and so many bits of its writer's hash.

    A version of ours that knows no writers leaves it behind: it names another attempt then.
    """
    digest = hashlib.sha256(writer.encode()).digest()
    return attempt << _WRITER_BITS | int.from_bytes(digest[:8], "big") >> 64 - _WRITER_BITS


def _remove(token: CommitToken) -> str:
    return (
        " by a commit without files: table = DeltaTable(uri); table.create_write_transaction([], 'append', "
        "table.schema(), commit_properties=CommitProperties(app_transactions="
        f"[Transaction({token.lineage!r}, 0)]))"
    )


def _why_no_partition(array: Any, kind: Kind) -> str | None:
    """Why a partition column of a Delta table would not keep a value of ``array``; `None`: it keeps all."""
    import pyarrow
    import pyarrow.compute as pc  # type: ignore[import-untyped]

    if kind == "string" and pc.any(pc.equal(array.cast(pyarrow.string()), "")).as_py():
        return "is an empty text, which is null in a partition column of a Delta table"
    if kind == "binary" and array.null_count < len(array):
        return "delta-rs would replace by other bytes in a partition column: use a string, such as hex()"
    numbers = array.unique().to_pylist() if decimal_digits(kind) is not None else ()
    if any(number is not None and number < 0 and number != number.to_integral_value() for number in numbers):
        return "is a negative number with a fraction: no reader could read a partition that delta-rs makes of it"
    return None


def _lengths(table: deltalake.DeltaTable) -> dict[str, str]:
    """The columns of strings to which Spark has given a length, with that type, such as varchar(3)."""
    given = {
        field["name"]: field["metadata"].get(_TYPE_WITH_LENGTH, "")
        for field in json.loads(table.schema().to_json())["fields"]
    }
    return {name: kind for name, kind in given.items() if re.fullmatch(r"(var)?char\(\d+\)", kind)}


def _why_too_long(array: Any, kind: str) -> str | None:
    """Why a column of type ``kind``, such as varchar(3), does not hold a value of ``array``; `None`: it holds all."""
    import pyarrow
    import pyarrow.compute as pc

    most, found = int(kind.split("(")[1][:-1]), pc.max(pc.utf8_length(array.cast(pyarrow.string()))).as_py()
    return None if found is None or found <= most else f"has {found} characters, and the column is {kind}"


def _noting_errors(batches: Iterator[Any], failed: list[Exception]) -> Iterator[Any]:
    """Yield ``batches``; an error that they raise is appended to ``failed``, since delta-rs passes on only its text."""
    try:
        yield from batches
    except Exception as error:
        failed.append(error)
        raise
