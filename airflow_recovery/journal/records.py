"""The write-once records that recovery is a fold over (PROTOCOL section 2), and their JSON form.

Every record carries the identity of the run it belongs to, so that a journal of another DAG, run or environment under
the same prefix is refused. `airflow_recovery.journal.codec` turns records into bytes and back.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from airflow_recovery.shuffle.manifest import PartitionManifest


@dataclass(frozen=True)
class RunIdentity:
    """Which run of which job a journal belongs to.

    ``run_key`` names the logical date, else the asset partition, else the run id (`airflow_recovery.journal.layout`),
    so that a backfill, a cleared run or a re-created run finds the same journal.
    """

    dag_id: str
    run_key: str
    group_id: str


class AttemptState(str, Enum):
    """How an attempt ended."""

    FINISHED = "FINISHED"
    FENCED = "FENCED"


class FenceCause(str, Enum):
    """Why an attempt was ended without a result."""

    OWN_FAILURE = "own failure"
    SUPERSEDED = "superseded"
    LOST_INPUT = "lost input"


@dataclass(frozen=True)
class InputPin:
    """Attempt ``attempt`` of region ``region`` is what an attempt reads."""

    region: str
    attempt: int


@dataclass(frozen=True)
class ExternalObject:
    """One object outside the job that a vertex read: its full URI and identity."""

    vertex: str
    uri: str
    size: int
    etag: str


@dataclass(frozen=True)
class Failure:
    """What is known of a failure, for a machine: error type, Spark's condition and SQLSTATE, the exception chain."""

    type: str
    message: str
    condition: str | None = None
    sql_state: str | None = None
    chain: tuple[str, ...] = ()
    vertex: str | None = None


@dataclass(frozen=True)
class RegionPlan:
    """One region as one version of the code has it."""

    name: str
    vertices: tuple[str, ...]
    results: tuple[str, ...]
    inputs: tuple[str, ...]
    final: bool
    fingerprint: str | None
    vertex_fingerprints: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class PlanRecord:
    """``plan/<hash>``: topology and fingerprints of one version of the job for one run."""

    job: str
    regions: tuple[RegionPlan, ...]
    """In topological order."""


@dataclass(frozen=True)
class Claim:
    """``t/<region>/<n>.claim``: written before Spark is submitted; pins the inputs while the attempt is open."""

    region: str
    attempt: int
    writer: str
    plan_hash: str
    inputs: tuple[InputPin, ...]
    airflow_run_id: str
    try_number: int
    ti_id: str
    tag: str
    claimed_at: str
    epoch: str | None = None


@dataclass(frozen=True)
class Outcome:
    """``t/<region>/<n>.outcome``: the one object that ends an attempt. Finished: the trace and the manifests."""

    region: str
    attempt: int
    state: AttemptState
    writer: str
    ended_at: str
    fingerprint: str | None = None
    inputs: tuple[InputPin, ...] = ()
    externals: tuple[ExternalObject, ...] = ()
    outputs: tuple[PartitionManifest, ...] = ()
    spark_seconds: float | None = None
    application_id: str | None = None
    cause: FenceCause | None = None
    detail: str | None = None
    failure: Failure | None = None


@dataclass(frozen=True)
class Reset:
    """``t/<region>/<n>.reset``: attempts up to and including ``attempt`` do not count."""

    region: str
    attempt: int
    who: str
    why: str
    epoch: str | None = None


@dataclass(frozen=True)
class Lost:
    """``t/<region>/<n>.lost``: a consumer's report that a result is gone. Has no authority; the owner judges."""

    region: str
    attempt: int
    reporter: str
    evidence: tuple[str, ...]
    producer_ti_id: str = ""
    """The producer's task instance when it was woken: another one later has verified the result since."""
    plan: tuple[tuple[str, str], ...] = ()
    """The decision as shown to a person: (region, why it must run)."""


@dataclass(frozen=True)
class Released:
    """``t/<region>/<n>.released``: the data of this attempt may not be used any more."""

    region: str
    attempt: int
    who: str


@dataclass(frozen=True)
class PublishedRegion:
    """One region in a publish: the attempt, the etag of its outcome object, and the results that are in it."""

    region: str
    attempt: int
    outcome_etag: str
    results: tuple[str, ...]


@dataclass(frozen=True)
class Publish:
    """``publish/<k>``: the coherent cut that readers outside the run follow."""

    number: int
    regions: tuple[PublishedRegion, ...]
    skipped: tuple[str, ...] = ()
    published_at: str = ""


@dataclass(frozen=True)
class Closed:
    """``closed``: the run was purged; attempts of a later run of this key start above these."""

    highest: tuple[InputPin, ...] = ()


Record = PlanRecord | Claim | Outcome | Reset | Lost | Released | Publish | Closed
