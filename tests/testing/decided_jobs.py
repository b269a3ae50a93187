"""Jobs in whose runs trigger rules, branches, people and code decide which tasks succeed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from simulation import DagJob, job_of
from simulation.dag_job import with_optional

from airflow_recovery.testing.simulation.jobs import with_externals

SOLO_BESIDE: Mapping[str, tuple[str, ...]] = {"P": (), "C": ("P",), "D": ()}
JOIN: Mapping[str, tuple[str, ...]] = {"X": (), "Y": (), "J": ("X", "Y")}
BRANCH = {"branch": ("X", "Y")}
MIN_ONE = "none_failed_min_one_success"


def decided(
    upstream: Mapping[str, tuple[str, ...]],
    rules: Mapping[str, str] | None = None,
    *,
    optional: Mapping[str, tuple[str, ...]] | None = None,
    branches: Mapping[str, tuple[str, ...]] | None = None,
    skipping: Iterable[str] = (),
    operators: Iterable[str] = (),
) -> DagJob:
    """The regions in ``skipping`` read files, and skip themselves without any."""
    job = replace(
        with_externals(job_of(upstream), skipping),
        is_decided=True,
        rules=rules or {},
        branches=branches or {},
        skipping=frozenset(skipping),
        operators=frozenset(operators),
    )
    return with_optional(job, optional or {})
