"""What one task has read and made, as values: for OpenLineage, and for whatever else tells of lineage.

A managed result is one dataset, whichever attempt of whichever run made it: ``airflow-recovery`` /
``<dag>.<group>.<result>``; its place in the store is that of one attempt. A user's own location, and an external input,
is named as OpenLineage names files: ``s3://bucket`` / ``path``; of inputs, by folder, since a folder may have many.
Splits that are no files (days, ranges of keys, what an enumerator names) don't say where they lie, and are left out.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from airflow_recovery.locations import (
    HIVE,
    ICEBERG,
    MetastoreTable,
    PublishedLocation,
    TableLocation,
    is_asset,
    is_in_metastore,
    is_published,
    is_table,
    is_version,
    scheme_of,
    split_uri,
)
from airflow_recovery.model.keys import OPERATORS_GROUP
from airflow_recovery.model.records import RunIdentity
from airflow_recovery.model.split import SCHEME

if TYPE_CHECKING:
    from airflow_recovery.attempt.region_task import RegionResult
    from airflow_recovery.attempt.run import Run
    from airflow_recovery.model.manifest import PartitionManifest
    from airflow_recovery.model.records import ExternalObject, Outcome

NAMESPACE = "airflow-recovery"


@dataclass(frozen=True)
class LineageDataset:
    """One dataset as one attempt saw it; `None` is not known. ``digest`` is of the rows, whatever their order."""

    namespace: str
    name: str
    attempt: int | None = None
    digest: str | None = None
    rows: int | None = None
    bytes: int | None = None
    files: int | None = None
    location: str | None = None


@dataclass(frozen=True)
class LineageRun:
    """How one try of a region has succeeded: ``decision`` is ``ran`` or ``kept``, ``seconds_saved`` Spark's time."""

    region: str
    decision: str
    attempt: int
    run_key: str
    seconds_saved: float


@dataclass(frozen=True)
class Lineage:
    """What one task has read and made; ``runs`` has several regions where it ran a batch of subtasks."""

    inputs: tuple[LineageDataset, ...] = ()
    outputs: tuple[LineageDataset, ...] = ()
    runs: tuple[LineageRun, ...] = ()

    def __add__(self, other: Lineage) -> Lineage:
        return Lineage(self.inputs + other.inputs, self.outputs + other.outputs, self.runs + other.runs)


NO_LINEAGE = Lineage()


def lineage_of(run: Run, result: RegionResult) -> Lineage:
    """The lineage of one region's try: the same whether its attempt ran now or was kept."""
    identity, outcome = run.journal.identity, result.outcome
    kept = LineageRun(result.region, result.decision.value, result.attempt, identity.run_key, result.seconds_saved)
    return Lineage(
        inputs=(*_results_read(run, outcome), *_folders_read(outcome.externals)),
        outputs=tuple(_made(identity, outcome.attempt, output) for output in outcome.outputs),
        runs=(kept,),
    )


def _results_read(run: Run, outcome: Outcome) -> Iterable[LineageDataset]:
    region = run.regions[outcome.region]
    for ref in outcome.inputs:
        producer = run.regions.get(ref.region)
        results = producer.results if producer is not None else ()
        digests = dict(ref.digests)
        for name in results:
            if not region.reads or name in region.reads:
                yield LineageDataset(
                    NAMESPACE, _logical(run.journal.identity, name), attempt=ref.attempt, digest=digests.get(name)
                )


def _folders_read(externals: Iterable[ExternalObject]) -> Iterable[LineageDataset]:
    folders: dict[str, list[ExternalObject]] = {}
    for external in externals:
        if external.uri.startswith(SCHEME) or is_version(external.uri) or is_asset(external.uri):
            continue
        if is_published(external.uri):
            read = PublishedLocation.parse(external.uri)
            of = RunIdentity(read.dag_id, read.run_key or "", read.group_id)
            yield LineageDataset(NAMESPACE, _logical(of, read.result), bytes=external.size)
            continue
        is_whole = is_table(external.uri) or is_in_metastore(external.uri)
        folder = external.uri if is_whole else external.uri.rpartition("/")[0]
        folders.setdefault(folder, []).append(external)
    for folder, objects in folders.items():
        namespace, name = _physical(folder)
        yield LineageDataset(namespace, name, bytes=sum(external.size for external in objects), files=len(objects))


def _made(identity: RunIdentity, attempt: int, manifest: PartitionManifest) -> LineageDataset:
    namespace, name = (
        (NAMESPACE, _logical(identity, manifest.result)) if manifest.managed else _physical(manifest.location)
    )
    return LineageDataset(
        namespace,
        name,
        attempt=attempt,
        digest=manifest.digest,
        rows=manifest.rows,
        bytes=manifest.size,
        files=len(manifest.objects),
        location=manifest.location,
    )


def _logical(identity: RunIdentity, result: str) -> str:
    if identity.group_id == OPERATORS_GROUP:
        return f"{identity.dag_id}.{result}"
    return f"{identity.dag_id}.{identity.group_id}.{result}"


def _physical(uri: str) -> tuple[str, str]:
    """OpenLineage's names: ``s3://bucket``, ``gs://bucket`` or ``abfss://...`` and the key; ``file`` and the path.

    Of an Iceberg table its catalog, ``iceberg://catalog``, and its name there; of a Delta table its folder.
    """
    if is_in_metastore(uri):
        found = MetastoreTable.parse(uri)
        return f"{HIVE}{found.catalog}", f"{found.database}.{found.table}"
    if is_table(uri):
        table = TableLocation.parse(uri)
        return (f"{ICEBERG}{table.catalog}", table.name) if table.is_iceberg else _physical(table.name)
    if scheme_of(uri) is not None:
        root, path = split_uri(uri)
        return root, path.strip("/")
    return "file", urlsplit(uri).path or uri
