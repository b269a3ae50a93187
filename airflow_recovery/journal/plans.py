"""Content hashes: of a plan, which names its object, and of what an attempt reads."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable

from airflow_recovery.model.codec import digest_of, to_json
from airflow_recovery.model.inputs import InputRef
from airflow_recovery.model.records import PlanRecord


def plan_hash(plan: PlanRecord) -> str:
    """The hash of ``plan``, 32 hex digits; equal plans have equal hashes on every machine."""
    return digest_of(to_json(plan))[:32]


def reading_of(fingerprint: str | None, inputs: Iterable[InputRef]) -> str:
    """Digest of what an attempt reads but for what it may take over: the code, and the rows of its side inputs.

    A side input that was made again with equal rows is the same; one without digests is another with each attempt.
    """
    refs = sorted([ref.region, sorted(ref.digests) or ref.attempt] for ref in inputs)
    return hashlib.sha256(json.dumps([fingerprint, refs]).encode()).hexdigest()[:32]
