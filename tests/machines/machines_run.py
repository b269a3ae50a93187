"""A run whose results are on S3, and whose tasks run on several machines."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow.parquet as parquet
from journal_objects import JournalObjects
from pipeline import DagRun, Pipeline

from airflow_recovery.store.s3 import S3Store


@dataclass(frozen=True)
class MachinesPipeline(Pipeline):
    """As `Pipeline`; results are in its bucket, too."""

    def open_results(self, uri: str) -> S3Store:
        return self.open_s3(uri)

    def rows(self, journal: JournalObjects, result: str) -> list[tuple[Any, ...]]:
        """All rows of a result as it is now, sorted."""
        tables = [parquet.read_table(io.BytesIO(store.get(key).body)) for store, key in self._objects(journal, result)]
        return sorted(tuple(row[name] for name in sorted(row)) for table in tables for row in table.to_pylist())

    def delete(self, journal: JournalObjects, *results: str) -> None:
        """Delete the registered objects of results."""
        for result in results:
            for store, key in self._objects(journal, result):
                store.delete([key])

    def _objects(self, journal: JournalObjects, result: str) -> Iterator[tuple[S3Store, str]]:
        manifest = journal.manifest(result)
        store = self.open_s3(manifest["location"])
        return ((store, key) for key, _, _ in manifest["objects"])


def machine_of(run: DagRun, region: str) -> str:
    """The machine on which the newest try of a region ran."""
    return str(run.airflow.task_instance(run.dag_id, run.run_id, run.task(region))["hostname"])


def start_worker(
    pipeline: MachinesPipeline,
    workers: list[str],
    queue: str,
    *,
    concurrency: int = 1,
    env: Mapping[str, str] | None = None,
    scratch_bytes: int | None = None,
) -> str:
    """One more machine, which takes tasks of ``queue`` alone, ``concurrency`` at once; its name."""
    name = pipeline.airflow.add_worker(queues=(queue,), concurrency=concurrency, env=env, scratch_bytes=scratch_bytes)
    workers.append(name)
    pipeline.airflow.start(name)
    return name


def start_held(pipeline: MachinesPipeline, dag_id: str) -> DagRun:
    """A run of `relay`: ``numbers`` is written, ``total`` is held in its driver."""
    run = pipeline.run(dag_id)
    run.hold("total")
    run.start()
    run.wait_called("total")
    return run


def miss_heartbeat(run: DagRun, region: str = "total") -> None:
    """Let Airflow find that the task of a region gives no heartbeat: its machine is dead, frozen or cut off."""
    run.airflow.miss_heartbeat(run.dag_id, run.run_id, run.task(region))


def assert_total(pipeline: MachinesPipeline, journal: JournalObjects, executions: dict[str, int]) -> None:
    """A run of `relay` has ended well, and each region has run so many times."""
    journal.check()
    assert journal.executions() == executions
    assert pipeline.rows(journal, "total") == [(45,)]
