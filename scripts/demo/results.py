"""The published sinks of a run: read as rows, and copied to where a person looks for them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow.parquet as parquet  # type: ignore[import-untyped]

from scripts.demo.journal_view import JournalView
from scripts.demo.rows import Rows, rows_of
from scripts.demo.trouble import local_path


def sink_rows(journal: JournalView) -> dict[str, Rows]:
    """The rows of every sink, from exactly the files that the journal names."""
    found = {}
    for sink in journal.sinks:
        manifest = journal.result(sink)
        files = [local_path(manifest.location) / each.path for each in manifest.objects]
        found[sink] = rows_of(row for file in files for row in parquet.read_table(file).to_pylist())
    return found


def copy_sinks(journal: JournalView, output: Path) -> None:
    """One folder of Parquet files a sink, named after it, below ``output``."""
    for sink in journal.sinks:
        manifest = journal.result(sink)
        for each in manifest.objects:
            target = output / sink / each.path
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(local_path(manifest.location) / each.path, target)
