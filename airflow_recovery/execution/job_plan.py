"""From a declared job and a run's facts to the plan that the journal records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from airflow_recovery.job import Job
from airflow_recovery.job.fingerprint import region_fingerprint, vertex_fingerprint
from airflow_recovery.journal.records import PlanRecord, RegionPlan
from airflow_recovery.runtime.spec import RunFacts


@dataclass(frozen=True)
class JobPlan:
    """The plan of one run, and what its vertices' templates came to."""

    record: PlanRecord
    params: Mapping[str, Mapping[str, Any]]
    patterns: Mapping[str, str]
    """Sources by name: where their files lie."""


def plan_job(job: Job, ref: str, facts: RunFacts) -> JobPlan:
    """Render every vertex's parameters over the run, take the fingerprints, and lay out the regions.

    Raises `JobDefinitionError` for a template that can't be rendered, `FingerprintError` for code that can't be read.
    """
    params: dict[str, Mapping[str, Any]] = {}
    patterns: dict[str, str] = {}
    fingerprints: dict[str, str] = {}
    for name in job.vertices:
        params[name] = job.render_params(name, facts)
        splits = job.render_splits(name, facts)
        if splits is not None:
            patterns[name] = splits.pattern
        fingerprints[name] = vertex_fingerprint(job, name, params[name])
    regions = tuple(
        RegionPlan(
            name=region.name,
            vertices=region.vertices,
            results=region.results,
            inputs=region.upstream,
            final=region.is_final,
            fingerprint=region_fingerprint(region, fingerprints),
            vertex_fingerprints=tuple((name, fingerprints[name]) for name in region.vertices),
        )
        for region in job.regions().regions
    )
    return JobPlan(PlanRecord(ref, regions), params, patterns)
