"""The published sinks of a run: read as rows, and copied to where a person looks for them."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as parquet  # type: ignore[import-untyped]

from airflow_recovery.store import ObjectStore
from scripts.demo.journal_view import JournalView
from scripts.demo.rows import Rows, rows_of


def sink_rows(journal: JournalView, open_data: Callable[[str], ObjectStore]) -> dict[str, Rows]:
    """The rows of every sink, from exactly the files that the journal names. ``open_data`` opens the store of one."""
    results = {}
    for sink in journal.sinks:
        manifest = journal.result(sink)
        store = open_data(manifest.location)
        files = [io.BytesIO(store.get(file.path).body) for file in manifest.objects]
        results[sink] = rows_of(row for file in files for row in parquet.read_table(file).to_pylist())
    return results


def copy_sinks(journal: JournalView, output: Path, open_data: Callable[[str], ObjectStore]) -> None:
    """One folder of Parquet files a sink, named after it, below ``output``."""
    for sink in journal.sinks:
        manifest = journal.result(sink)
        store = open_data(manifest.location)
        for file in manifest.objects:
            target = output / sink / file.path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(store.get(file.path).body)
