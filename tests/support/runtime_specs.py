"""Region specs of the job in `code/regionjobs/numbers.py`, as the region task makes them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from airflow_recovery.driver import RegionSpec, RunDates, StoreSpec, VertexSpec
from airflow_recovery.journal.journal import Journal
from airflow_recovery.model.inputs import InputRef
from airflow_recovery.model.manifest import PartitionManifest
from airflow_recovery.model.records import AttemptTrace, ExternalObject, Outcome, RunIdentity
from airflow_recovery.store import open_store

JOB = "regionjobs.numbers:numbers"
IDENTITY = RunIdentity("dag", "2026-01-01", "group")


def region_spec(
    folder: Path,
    *vertices: VertexSpec,
    inputs: tuple[PartitionManifest, ...] = (),
    externals: tuple[ExternalObject, ...] = (),
    region: str = "r",
    attempt: int = 1,
) -> RegionSpec:
    """One attempt; everything of the run is below ``folder``."""
    (folder / "receipts").mkdir(parents=True, exist_ok=True)
    return RegionSpec(
        job=JOB,
        identity=IDENTITY,
        trace=AttemptTrace(
            region,
            attempt,
            f"writer-{attempt}",
            "f1",
            tuple(InputRef(manifest.result, 1) for manifest in inputs),
            externals,
        ),
        tag=f"tag-{folder.name}-{region}-{attempt}",
        vertices=vertices,
        inputs=inputs,
        run=RunDates("2026-01-01", None, None),
        location=f"file://{folder}/data/{region}/{attempt}",
        journal=StoreSpec(f"file://{folder}/journal"),
        results=StoreSpec(f"file://{folder}/data"),
        receipt=str(folder / "receipts" / f"{region}-{attempt}"),
    )


def vertex(
    name: str, *, is_result: bool = False, is_scratch: bool = False, params: dict[str, Any] | None = None
) -> VertexSpec:
    return VertexSpec(name, params or {}, is_result, is_scratch)


def troubled(what: str, *, ready: object = "", go: object = "") -> tuple[VertexSpec, VertexSpec]:
    """A pipelined vertex that gets into trouble ``what``, and its sink."""
    source = vertex("troubled", params={"what": what, "ready": str(ready), "go": str(go)})
    return source, vertex("checked", is_result=True)


def write_numbers(folder: Path, *names: str) -> tuple[ExternalObject, ...]:
    """Input files 0..9 and 10..19 for the vertex ``raw``."""
    folder.mkdir(parents=True, exist_ok=True)
    found = []
    for start, name in zip((0, 10), names or ("0.csv", "10.csv"), strict=True):
        path = folder / name
        path.write_text("".join(f"{number}\n" for number in range(start, start + 10)))
        found.append(ExternalObject("raw", f"file://{path}", path.stat().st_size, "etag"))
    return tuple(found)


def journal_of(spec: RegionSpec) -> Journal:
    return Journal(open_store(spec.journal.uri), spec.identity, writer="test")


def outcome_of(spec: RegionSpec) -> Outcome | None:
    return journal_of(spec).read_outcome(spec.region, spec.attempt)
