"""The rows that a run has published, read past Spark, Airflow and the proxy."""

from __future__ import annotations

import io
from typing import Any

import pyarrow.parquet as parquet  # type: ignore[import-untyped]

from airflow_recovery.model.keys import RegionKey
from airflow_recovery.verify.history import Attempt
from airflow_recovery.verify.records import Manifest
from scripts.soak.ground import Ground
from scripts.soak.people import history_of
from scripts.soak.runs import RunName
from scripts.soak.truth import Rows, truths, wrong_rows


def wrong_results(ground: Ground, name: RunName) -> list[str]:
    """A text for each published result of a run that is not what plain Python comes to.

    Raises the stores' errors, and `ValueError` for a file that is no Parquet.
    """
    history = history_of(ground, name)
    if not history.publishes:
        return ["nothing is published"]
    published: dict[str, Rows] = {}
    for region in history.regions.values():
        attempt = region.current
        if attempt is not None and attempt.outcome is not None and (attempt.committed or not attempt.has("released")):
            # A subtask's results have the name of the vertex: its key tells them apart.
            _, bracket, key = region.name.partition("[")
            for manifest in attempt.outcome.outputs:
                # An operator's results have its name before them.
                result = manifest.result.rpartition(".")[2]
                published[f"{result}{bracket}{key}"] = rows_of(ground, name, attempt, manifest)
    return wrong_rows(published, truths(name.dag_id, name.day))


def rows_of(ground: Ground, name: RunName, attempt: Attempt, manifest: Manifest) -> Rows:
    """The rows of one result; of a sink that has committed, those in its table."""
    if attempt.committed is not None and attempt.committed.is_done:
        key = RegionKey(name.dag_id, name.run_key, name.group_id, attempt.of.region).path
        return [tuple(row) for row in ground.ask("SELECT amount, id FROM booked WHERE run_key = %s", key)]
    if manifest.location.startswith("iceberg://"):
        table = ground.catalog().load_table(manifest.location.partition("://lake/")[2])
        (snapshot,) = manifest.objects
        return _tuples(table.scan(snapshot_id=int(snapshot)).to_arrow())
    if manifest.location.startswith("delta+"):
        (version,) = manifest.objects
        return _tuples(ground.delta(manifest.location.rpartition("/")[2], int(version)).to_pyarrow_table())
    store = ground.open_data(manifest.location)
    bodies = {path: store.get(path, max_bytes=None).body for path in manifest.objects}
    if name.dag_id == "shell":
        return [(line,) for body in bodies.values() for line in body.decode().splitlines()]
    tables = [
        parquet.read_table(io.BytesIO(body), partitioning=None)
        for path, body in bodies.items()
        if path.endswith(".parquet")
    ]
    return [row for table in tables for row in _tuples(table)]


def _tuples(table: Any) -> Rows:
    return [tuple(row[name] for name in sorted(row)) for row in table.to_pylist()]
