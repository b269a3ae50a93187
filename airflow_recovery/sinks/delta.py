"""A Delta Lake table as a token sink: the commit that adds the files has the token as its application transaction.

Delta keeps one version number for an application id. The lineage is the id, and the attempt the version.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from airflow_recovery.checks import check_delta_folder
from airflow_recovery.errors import ConfigurationError, SinkRefused, SinkUnavailable
from airflow_recovery.locations import DELTA, delta_rs_uri
from airflow_recovery.model.committing import CommitKind, CommitMode
from airflow_recovery.sinks.committer import Committable, CommitToken, Held, Probe, SinkResources, refused
from airflow_recovery.sinks.declaration import CommittingSink
from airflow_recovery.sinks.staged import StagedRows

if TYPE_CHECKING:
    import deltalake

ROUNDS = 5
"""How often a commit is tried, when others commit to the table at the same time."""
_WRITER_BITS = 36


@dataclass(frozen=True, kw_only=True)
class DeltaTable(CommittingSink):
    """Commits into the Delta table at ``uri`` (``s3://``, ``file://`` or an absolute path), which is made if need be.

    Delta-rs writes it in the task's process, so Spark needs no jar for that. Mode ``replace`` puts an attempt's rows in
    place of all rows of the table. Raises `JobDefinitionError` for another ``uri``.
    """

    uri: str
    kind: ClassVar[CommitKind] = CommitKind.TOKEN

    def __post_init__(self) -> None:
        super().__post_init__()
        check_delta_folder(self.uri, "DeltaTable: uri=")

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

        transactions = [deltalake.Transaction(token.lineage, token.attempt)]
        if token.writer is not None:
            transactions.append(deltalake.Transaction(_writers(token), _mark(token.attempt, token.writer)))
        own: list[Exception] = []
        refusal = ""
        try:
            deltalake.write_deltalake(
                self._uri if table is None else table,
                pyarrow.RecordBatchReader.from_batches(staged.schema, _noting_errors(staged.batches(), own)),
                # Where there is no table it is made, and somebody else may be first.
                mode="error" if table is None else "overwrite" if mode is CommitMode.REPLACE else "append",
                storage_options=self._options if table is None else None,
                commit_properties=deltalake.CommitProperties(
                    custom_metadata={"airflow_recovery": token.text},
                    app_transactions=transactions,
                    # Not again over what somebody else has written meanwhile: what was read is read anew.
                    max_commit_retries=0,
                ),
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
