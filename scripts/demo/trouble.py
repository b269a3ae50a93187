"""What act two does to data: a result disappears. (Drivers are killed by `testing.spark_drivers`.)"""

from __future__ import annotations

from pathlib import Path

from airflow_recovery.shuffle.manifest import PartitionManifest


def delete_objects(manifest: PartitionManifest) -> int:
    """Delete every object that the manifest names (a ``file://`` location); how many."""
    folder = local_path(manifest.location)
    for each in manifest.objects:
        (folder / each.path).unlink()
    return len(manifest.objects)


def local_path(uri: str) -> Path:
    """The folder behind a ``file://`` URI of ours; its characters are literal."""
    return Path(uri.removeprefix("file://"))
