"""A driver without Spark: real files, the product's own spec, failure report and finish; the rows are made up.

The rows of a result follow from its name, its parameters and all the rows that its region reads, so that a wrong or a
missing input shows in every result below it. No function of the job is called.
"""

from __future__ import annotations

import hashlib
import io
import time

from airflow_recovery.runtime.driver import driver_log, exit_code_of
from airflow_recovery.runtime.outcome import finish_attempt
from airflow_recovery.runtime.progress import Progress
from airflow_recovery.runtime.receipt import reporting_failure
from airflow_recovery.runtime.region import RegionResult
from airflow_recovery.runtime.spec import RegionSpec, VertexSpec
from airflow_recovery.runtime.stores import open_spec_store
from airflow_recovery.runtime.writer import listed_objects
from airflow_recovery.shuffle.location import key_below
from airflow_recovery.shuffle.manifest import PartitionManifest
from airflow_recovery.storage.object_store import ObjectStore

FILES = 2
"""Of a result: an attempt that dies between them leaves a part of it."""
ROWS_IN_A_FILE = 3


def drive_plain(spec: RegionSpec) -> int:
    """Run one attempt to its outcome object; the exit code of the process, as `runtime.driver.drive` has it."""
    log = driver_log()
    progress = Progress(log, spec.attempt)

    def run() -> None:
        with reporting_failure(spec, progress, log):
            finish_attempt(spec, _run(spec), log)

    return exit_code_of(run, spec, log)


def _run(spec: RegionSpec) -> RegionResult:
    started = time.monotonic()
    store = open_spec_store(spec.results)
    read = [row for each in spec.inputs for row in rows_of(store, each)]
    read += [f"{each.uri} {each.etag}" for each in spec.trace.externals]
    outputs = tuple(_write(spec, store, each, read) for each in spec.vertices if each.is_result)
    return RegionResult(outputs, round(time.monotonic() - started, 3), application_id=None)


def _write(spec: RegionSpec, store: ObjectStore, vertex: VertexSpec, read: list[str]) -> PartitionManifest:
    import pyarrow  # type: ignore[import-untyped]
    import pyarrow.parquet as parquet  # type: ignore[import-untyped]

    location = f"{spec.location}/{vertex.name}"
    told = "\n".join([vertex.name, spec.subtask.key, repr(sorted(vertex.params.items())), *sorted(read)])
    for number in range(FILES):
        rows = [
            hashlib.blake2b(f"{told}\n{number}.{row}".encode(), digest_size=8).hexdigest()
            for row in range(ROWS_IN_A_FILE)
        ]
        body = io.BytesIO()
        parquet.write_table(pyarrow.table({"row": rows}), body)
        store.put(f"{key_below(store.base_uri, location)}/part-{number}.parquet", body.getvalue())
    digest = hashlib.sha256(told.encode()).hexdigest() if vertex.is_digested else None
    objects = listed_objects(store, location)
    return PartitionManifest(vertex.name, location, objects, rows=FILES * ROWS_IN_A_FILE, digest=digest)


def rows_of(store: ObjectStore, manifest: PartitionManifest) -> list[str]:
    """Every row of a result as text, in a fixed order. ``store`` is the one that holds it.

    In one thread: whoever calls this may fork.
    """
    import pyarrow.parquet as parquet

    found = []
    below = key_below(store.base_uri, manifest.location)
    for each in manifest.objects:
        body = io.BytesIO(store.get(f"{below}/{each.path}").body)
        # Not `read_table`, which imports pandas.
        found += [repr(row) for row in parquet.ParquetFile(body).read(use_threads=False).to_pylist()]
    return sorted(found)
