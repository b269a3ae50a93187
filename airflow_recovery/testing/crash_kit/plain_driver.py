"""A driver without Spark: real files, the product's own spec, failure report and finish; the rows are made up.

The rows of a result follow from its name, its parameters and all the rows that its region reads, so that a wrong or a
missing input shows in every result below it. No function of the job is called.
"""

from __future__ import annotations

import hashlib
import io
import time

from airflow_recovery.driver.attempt_result import AttemptResult
from airflow_recovery.driver.driver import driver_log, exit_code_of
from airflow_recovery.driver.exit_report import reporting_failure
from airflow_recovery.driver.outcome import finish_attempt
from airflow_recovery.driver.progress import Progress
from airflow_recovery.driver.region_spec import RegionSpec, VertexSpec
from airflow_recovery.driver.stores import open_spec_store
from airflow_recovery.driver.writer import listed_objects
from airflow_recovery.journal.journal import Journal
from airflow_recovery.model.location import key_below
from airflow_recovery.model.manifest import PartitionManifest
from airflow_recovery.model.records import CommittedBatch
from airflow_recovery.model.split import Split
from airflow_recovery.splits.committed_batches import check_cover, folder_of, numbers_of, refs_of, to_read, union_of
from airflow_recovery.splits.mode import SplitOutcome
from airflow_recovery.splits.spec import SplitSpec
from airflow_recovery.store.object_store import ObjectStore

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


def _run(spec: RegionSpec) -> AttemptResult:
    started = time.monotonic()
    store = open_spec_store(spec.results)
    read = [row for manifest in spec.inputs for row in rows_of(store, manifest)]
    if isinstance(spec.mode, SplitSpec):
        return _run_splits(spec, spec.mode, store, read)
    read += [f"{external.uri} {external.etag}" for external in spec.trace.externals]
    outputs = tuple(
        _write(spec, store, vertex, read, f"{spec.location}/{vertex.name}")
        for vertex in spec.vertices
        if vertex.is_result
    )
    return AttemptResult(outputs, round(time.monotonic() - started, 3), application_id=None)


def _run_splits(spec: RegionSpec, splits: SplitSpec, store: ObjectStore, read: list[str]) -> AttemptResult:
    """One split a batch. What rows a split has follows from it alone, whichever attempt reads it."""
    started = time.monotonic()
    journal = Journal(open_spec_store(spec.journal), spec.identity, writer=spec.trace.writer)
    assigned = [Split.of_external(external) for external in spec.trace.externals if external.vertex == splits.vertex]
    results = [vertex for vertex in spec.vertices if vertex.is_result]
    batches = list(journal.read_committed_batches(spec.region, numbers_of(splits.base)))
    for number, split in enumerate(to_read(assigned, batches)):
        described = [*read, f"{split.uri} {split.etag}"]
        outputs = (
            _write(spec, store, result, described, f"{spec.location}/{result.name}/{number:04d}") for result in results
        )
        batch = CommittedBatch(spec.region, spec.attempt, number, spec.trace.writer, (split.key,), tuple(outputs), "")
        journal.commit_batch(batch)
        batches.append(batch)
    check_cover(assigned, batches)
    return AttemptResult(
        union_of(folder_of(batches), [result.name for result in results], batches),
        round(time.monotonic() - started, 3),
        application_id=None,
        mode=SplitOutcome(refs_of(batches)),
    )


def _write(
    spec: RegionSpec, store: ObjectStore, vertex: VertexSpec, read: list[str], location: str
) -> PartitionManifest:
    import pyarrow  # type: ignore[import-untyped]
    import pyarrow.parquet as parquet  # type: ignore[import-untyped]

    described = "\n".join([vertex.name, spec.subtask.key, repr(sorted(vertex.params.items())), *sorted(read)])
    for number in range(FILES):
        rows = [
            hashlib.blake2b(f"{described}\n{number}.{row}".encode(), digest_size=8).hexdigest()
            for row in range(ROWS_IN_A_FILE)
        ]
        body = io.BytesIO()
        parquet.write_table(pyarrow.table({"row": rows}), body)
        store.put(f"{key_below(store.base_uri, location)}/part-{number}.parquet", body.getvalue())
    # Those of several batches could not be put together.
    is_digested = vertex.is_digested and not isinstance(spec.mode, SplitSpec)
    digest = hashlib.sha256(described.encode()).hexdigest() if is_digested else None
    objects = listed_objects(store, location)
    return PartitionManifest(vertex.name, location, objects, rows=FILES * ROWS_IN_A_FILE, digest=digest)


def rows_of(store: ObjectStore, manifest: PartitionManifest) -> list[str]:
    """Every row of a result as text, in a fixed order. ``store`` is the one that holds it.

    In one thread: whoever calls this may fork.
    """
    import pyarrow.parquet as parquet

    rows = []
    below = key_below(store.base_uri, manifest.location)
    for file in manifest.objects:
        body = io.BytesIO(store.get(f"{below}/{file.path}").body)
        # Not `read_table`, which imports pandas.
        rows += [repr(row) for row in parquet.ParquetFile(body).read(use_threads=False).to_pylist()]
    return sorted(rows)
