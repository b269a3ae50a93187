"""The identity of a plan."""

from __future__ import annotations

import hashlib

from airflow_recovery.journal.codec import canonical_json
from airflow_recovery.model.codec import to_json
from airflow_recovery.model.records import PlanRecord


def plan_hash(plan: PlanRecord) -> str:
    """Content hash of ``plan``; equal plans have equal hashes on every machine."""
    return hashlib.sha256(canonical_json(to_json(plan)).encode()).hexdigest()[:32]
