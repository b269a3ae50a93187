"""``commit=`` of a drop-in operator: which of its declarations, and of its outputs, a sink can take over."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from airflow_recovery.errors import JobDefinitionError, UserCodeError
from airflow_recovery.sinks.declaration import checked_sink

if TYPE_CHECKING:
    from airflow_recovery.model.manifest import PartitionManifest
    from airflow_recovery.sinks.declaration import CommittingSink


def checked_commit(task_id: str, commit: object, outputs: Mapping[str, str | None]) -> CommittingSink | None:
    """``commit=`` of an operator with these outputs. Raises `JobDefinitionError` where it could not be honoured."""
    sink = checked_sink(commit, task_id, is_parallel=False)
    if sink is None:
        return None
    if len(outputs) != 1:
        raise JobDefinitionError(
            f"{task_id}: expected one output with commit=, found {', '.join(outputs)}: a finish is prepared for one "
            "target. Have the rows that are committed written by an operator of their own.",
            code="commit-of-several-outputs",
        )
    ((name, uri),) = outputs.items()
    if uri is not None:
        raise JobDefinitionError(
            f"{task_id}: expected output {name!r} without a URI, since it has commit=, found {uri!r}: what one attempt "
            "has prepared must stay as it is until it is committed, and another attempt would write to the same "
            f"place. Declare outputs=[{name!r}] and give the application {{output:{name}}}.",
            code="commit-with-uri",
        )
    return sink


def check_prepared(sink: CommittingSink, manifest: PartitionManifest, where: str) -> None:
    """Raise `UserCodeError` where ``sink`` reads rows, and those of ``manifest`` are not plain Parquet files.

    Of anything else it would not see all of the rows: those of files in other formats; the columns that are names of
    folders (``partitionBy``); or which files of a table format still belong to the table.
    """
    if not sink.reads_rows:
        return
    unfit = [file.path for file in manifest.objects if "/" in file.path or not file.path.endswith(".parquet")]
    if unfit or not manifest.objects:
        text = f"{unfit[0]!r}" if unfit else "nothing"
        raise UserCodeError(
            f"{where}: expected Parquet files beside each other in {manifest.location}, as {type(sink).__name__} reads "
            f"them, found {text}. Let the application write with .write.parquet(...) and without partitionBy; nothing "
            "was committed.",
            code="committed-files-unfit",
            where=where,
            found=unfit[0] if unfit else None,
        )
