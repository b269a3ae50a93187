"""A Delta Lake table as a token sink: the commit that adds the files has the token as its application transaction.

Delta keeps one version number for an application id. The lineage is the id, and the attempt the version. Delta does not
list its applications. So two more, of the whole table, say whose rows it holds: `_OWNER` and `_LATEST`.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, ClassVar

from airflow_recovery.checks import check_delta_folder
from airflow_recovery.errors import ConfigurationError, SinkRefused, SinkUnavailable
from airflow_recovery.locations import DELTA, comparable, delta_rs_uri
from airflow_recovery.model.codec import later
from airflow_recovery.model.committing import CommitKind, CommitMode, Replaces
from airflow_recovery.model.keys import RegionKey
from airflow_recovery.sinks.committer import Committable, CommitToken, Held, Owner, Probe, SinkResources, refused
from airflow_recovery.sinks.declaration import CommittingSink, check_replaced_rows, check_run_column
from airflow_recovery.sinks.owners import check_adoptable, check_owners, date_of, date_text, no_keys
from airflow_recovery.sinks.staged import StagedRows, with_key

if TYPE_CHECKING:
    import deltalake

ROUNDS = 5
"""How often a commit is tried, when others commit to the table at the same time."""
_WRITER_BITS = 36
_OWNER = "airflow-recovery#owner"
"""The application whose version says who commits to the table: the hash of an owner, and a kind."""
_LATEST = "airflow-recovery#latest"
"""The application whose version is the newest date that a sink with ``keeps="latest"`` has committed, in seconds."""
_ONE, _ALL, _NEWEST, _SEVERAL = range(4)
"""Kinds of owners: one lineage, with rows of its own; one that replaces all rows; one task, in order of its dates; and
several lineages, each with rows of its own (without a hash)."""
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
        return f"{DELTA}{comparable(self.uri).rstrip('/')}"

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

    def others(self, token: CommitToken) -> list[Owner]:
        """As `KnowsOwners`."""
        table = self._table(token)
        owners = self._check_owners(table, token)
        if table is not None:
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
        versions = {old.lineage: 0, new.lineage: held.attempt}
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
        token, mode = committable.token, CommitMode(self._sink.mode)
        staged = StagedRows(committable.manifest, self._resources.open_location)
        met: Exception | None = None
        for _ in range(ROUNDS):
            table = self._table(token)
            held = None if table is None else _held(table, token)
            if held is not None and held.is_of(token):
                return f"{self._uri}: applied before"
            if held is not None and (mode is CommitMode.APPEND or held.attempt >= token.attempt):
                raise refused(token, f"Delta table {self._uri}", held, mode, _remove(token))
            self._check_owners(table, token)
            met = self._write(table, staged, token, mode)
            if met is None:
                done = self._table(token)
                return f"{self._uri}: version {done.version() if done is not None else '?'}"
        raise self._no_answer(token, met) from met

    def _write(
        self, table: deltalake.DeltaTable | None, staged: StagedRows, token: CommitToken, mode: CommitMode
    ) -> Exception | None:
        """One commit. Returns the error where it met another one, and what it has read of the table is old.

        Raises `SinkRefused` where the table refuses these rows, and `SinkUnavailable` for everything else.
        """
        import deltalake
        import deltalake.exceptions
        import pyarrow  # type: ignore[import-untyped]

        versions = {token.lineage: token.attempt, **self._owner_versions(table, token)}
        if token.writer is not None:
            versions[_writers(token)] = _mark(token.attempt, token.writer)
        column, replaces = self._sink.run_column, self._sink.replaces
        schema, batches = staged.schema, staged.batches()
        if column is not None:
            schema, batches = with_key(schema, batches, column, token)
        how: dict[str, Any] = {"mode": "overwrite" if mode is CommitMode.REPLACE else "append"}
        if table is None:
            # The table is made, and somebody else may be first.
            how = {"mode": "error", "storage_options": self._options, "partition_by": column and [column]}
        elif replaces is Replaces.RUN:
            how |= {"predicate": f"{column} = '{token.lineage}'"}
        own: list[Exception] = []
        refusal = ""
        try:
            deltalake.write_deltalake(
                self._uri if table is None else table,
                pyarrow.RecordBatchReader.from_batches(schema, _noting_errors(batches, own)),
                commit_properties=self._properties(token, versions),
                **how,
            )
        except Exception as error:
            if not own:
                if _has_met_another(error):
                    return error
                refusal = _refusal(error)
                if not refusal:
                    raise self._no_answer(token, error) from error
        if own:
            # delta-rs has only the text of what the prepared files' store said.
            raise own[0]
        if refusal:
            # Outside of the handler, and without a cause: delta-rs puts rows into its message.
            raise SinkRefused(
                f"{token.text}: the Delta table {self._uri} refuses these rows: {refusal}. Nothing was committed, and "
                "no retry helps: change the table, or what the sink's function returns, and clear the task."
            )
        return None

    def _properties(self, token: CommitToken, versions: Mapping[str, int]) -> deltalake.CommitProperties:
        import deltalake

        return deltalake.CommitProperties(
            custom_metadata={
                "airflow_recovery": token.text,
                "airflow_recovery_lineage": token.lineage,
                "airflow_recovery_replaces": self._sink.replaces.value,
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
            "take them out in one commit: DeltaTable(uri).delete(predicate_of_its_rows, commit_properties="
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
            lineage, replaces = entry.get("airflow_recovery_lineage"), entry.get("airflow_recovery_replaces")
            if lineage is None and (text := _NAMED.fullmatch(entry.get("airflow_recovery", ""))):
                # A version before: it has named no group, and said nothing of what it replaces.
                lineage = token.key._replace(region=text[1], dag_id=text[2], run_key=text[3]).path
                mode = entry.get("operationParameters", {}).get("mode")
                replaces = Replaces.ALL.value if mode == "Overwrite" else None
            if lineage is not None and lineage != token.lineage and table.transaction_version(lineage):
                owner = Owner(RegionKey.of_path(lineage), None if replaces is None else Replaces(replaces))
                owners.setdefault(lineage, owner)
        return list(owners.values())

    def _check_run_column(self, table: deltalake.DeltaTable, token: CommitToken) -> None:
        """Raise `SinkRefused` if the run column can't separate the rows of ``token`` from others, with what to do."""
        import deltalake

        column = self._sink.run_column
        if self._sink.replaces is not Replaces.RUN or column is None:
            return
        kinds = {field.name: str(field.type) for field in table.schema().fields}
        if "string" not in kinds.get(column, ""):
            raise SinkRefused(
                f"{token.text}: expected a column {column} of strings in the Delta table {self._uri}, found "
                f"{kinds.get(column, 'none')}. A commit fills it with {token.lineage!r}. Nothing was done. Add it: "
                f"DeltaTable(uri).alter.add_columns([Field({column!r}, PrimitiveType('string'))])."
            )
        held = _held(table, token)
        if held is None:
            return
        builder = deltalake.QueryBuilder().register("held", table)

        def has(condition: str) -> bool:
            return bool(builder.execute(f"SELECT 1 FROM held WHERE {condition} LIMIT 1").read_all().num_rows)

        if has(f"{column} IS NULL") and not has(f"{column} = '{token.lineage}'"):
            raise SinkRefused(
                f"{no_keys(token, f'Delta table {self._uri}', column, held)} Give its rows the key: DeltaTable(uri)."
                f"update(updates={{{column!r}: "
                "{token.lineage}"
                "}}, predicate=predicate_of_its_rows). If it "
                f"has no rows there, take its token out{_remove(token)}"
            )

    @property
    def _options(self) -> dict[str, str] | None:
        return self._resources.storage_options(self._uri) or None

    def _table(self, token: CommitToken) -> deltalake.DeltaTable | None:
        """The table in its newest version; `None`: there is none. Raises `SinkUnavailable`."""
        import deltalake
        import deltalake.exceptions

        try:
            return deltalake.DeltaTable(self._uri, storage_options=self._options)
        except deltalake.exceptions.TableNotFoundError:
            return None
        except (deltalake.exceptions.DeltaError, OSError) as error:
            raise self._no_answer(token, error) from error

    def _no_answer(self, token: CommitToken, error: Exception | None) -> SinkUnavailable:
        return SinkUnavailable(
            f"{token.text}: delta-rs said of {self._uri}: {type(error).__name__}: {error}. Whether it was committed, "
            "the next try finds by the token: nothing is committed twice."
        )


def _held(table: deltalake.DeltaTable, token: CommitToken) -> Held | None:
    """What the table holds of the lineage. Version 0 of its application: a person has taken the token out."""
    attempt = table.transaction_version(token.lineage)
    if not attempt:
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
        " in one commit: DeltaTable(uri).delete(predicate_of_its_rows, commit_properties=CommitProperties("
        f"app_transactions=[Transaction({token.lineage!r}, 0)]))"
    )


def _noting_errors(batches: Iterator[Any], failed: list[Exception]) -> Iterator[Any]:
    """Yield ``batches``; an error that they raise is appended to ``failed``, since delta-rs passes on only its text."""
    try:
        yield from batches
    except Exception as error:
        failed.append(error)
        raise


def _has_met_another(error: Exception) -> bool:
    """Whether another process has committed since the table was read, so that the commit may be tried again."""
    import deltalake.exceptions

    text = str(error)
    if isinstance(error, deltalake.exceptions.CommitFailedError):
        return "append-only" not in text
    return isinstance(error, deltalake.exceptions.DeltaError) and "table already exists" in text


def _refusal(error: Exception) -> str:
    """Why the table will refuse these rows again, without the rows; empty: that is not what the error says."""
    import deltalake.exceptions

    text = str(error)
    if isinstance(error, (deltalake.exceptions.SchemaMismatchError, deltalake.exceptions.DeltaProtocolError)):
        return text
    if isinstance(error, deltalake.exceptions.CommitFailedError) and "append-only" in text:
        return text
    if isinstance(error, deltalake.exceptions.DeltaError) and "failed validation check" in text:
        return text.partition("Preview of invalid data")[0].rpartition(":")[2].strip().rstrip(".") + (
            " (a constraint of the table, or a column that must not be null)"
        )
    # A value of one type where the table has another: delta-rs quotes it.
    return "a column has another type there, and not all values fit" if text.startswith("Cast error") else ""
