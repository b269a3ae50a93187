"""A Delta Lake table as a token sink: the token is an application transaction of the commit that adds the files."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from airflow_recovery.errors import ConfigurationError, SinkUnavailable
from airflow_recovery.sinks.committer import Committable, CommitToken, Probe, SinkResources, refused
from airflow_recovery.sinks.declaration import CommittingSink
from airflow_recovery.sinks.staged import StagedRows
from airflow_recovery.topology.committing import CommitKind, CommitMode

if TYPE_CHECKING:
    import deltalake

ROUNDS = 5
"""How often a commit that met another one is begun anew."""


@dataclass(frozen=True, kw_only=True)
class DeltaTable(CommittingSink):
    """Commits into the Delta table at ``uri`` (``s3://``, ``file://`` or an absolute path), which is made if need be.

    By delta-rs, in the task's process: Spark needs no jar for it, and reads the table with its own connector.
    ``replace`` puts an attempt's rows in place of all rows.
    """

    uri: str
    kind: ClassVar[CommitKind] = CommitKind.TOKEN

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_text("uri", "s3://lake/delays")

    def open(self, resources: SinkResources) -> _DeltaCommitter:
        """Nothing is asked yet. Raises `ConfigurationError` where delta-rs is not installed."""
        try:
            import deltalake  # noqa: F401
        except ImportError as error:
            raise ConfigurationError(
                "Expected deltalake (delta-rs) in the worker's environment, found none: install "
                "airflow-recovery[sinks]."
            ) from error
        return _DeltaCommitter(self, resources)


class _DeltaCommitter:
    """The token's lineage is the application, its attempt the application's version.

    A commit reads the table first, and Delta refuses one that meets another commit of the same application after
    that: so of two processes with one lineage the second reads again, and finds what the first has done.
    """

    def __init__(self, sink: DeltaTable, resources: SinkResources) -> None:
        self._sink = sink
        self._uri = sink.uri.replace("s3a://", "s3://", 1)
        self._resources = resources

    def probe(self, token: CommitToken) -> Probe:
        table = self._table(token)
        held = None if table is None else table.transaction_version(token.lineage)
        return Probe.APPLIED if held == token.attempt else Probe.NOT_APPLIED

    def commit(self, committable: Committable) -> str:
        import deltalake
        import deltalake.exceptions
        import pyarrow  # type: ignore[import-untyped]

        token, mode = committable.token, CommitMode(self._sink.mode)
        staged = StagedRows(committable.manifest, self._resources.open_location)
        met: Exception | None = None
        for _ in range(ROUNDS):
            table = self._table(token)
            held = None if table is None else table.transaction_version(token.lineage)
            if held == token.attempt:
                return f"{self._uri}: applied before"
            if held is not None and (mode is CommitMode.APPEND or held > token.attempt):
                raise refused(token, f"Delta table {self._uri}", held, mode)
            try:
                deltalake.write_deltalake(
                    self._uri if table is None else table,
                    pyarrow.RecordBatchReader.from_batches(staged.schema, staged.batches()),
                    # Where there is no table it is made, and somebody else may be first.
                    mode="error" if table is None else "overwrite" if mode is CommitMode.REPLACE else "append",
                    storage_options=self._options if table is None else None,
                    commit_properties=deltalake.CommitProperties(
                        custom_metadata={"airflow_recovery": token.text},
                        app_transactions=[deltalake.Transaction(token.lineage, token.attempt)],
                        # Not again over what somebody else has written meanwhile: what was read is read anew.
                        max_commit_retries=0,
                    ),
                )
            except (deltalake.exceptions.CommitFailedError, deltalake.exceptions.DeltaError, OSError) as error:
                met = error
                continue
            done = self._table(token)
            return f"{self._uri}: version {done.version() if done is not None else '?'}"
        raise self._no_answer(token, met) from met

    @property
    def _options(self) -> dict[str, str] | None:
        return self._resources.storage_options(self._uri) or None

    def _table(self, token: CommitToken) -> deltalake.DeltaTable | None:
        """As it is now; `None`: there is none."""
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
