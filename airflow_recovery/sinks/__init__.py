"""Sinks that take over what an attempt has prepared: declarations for a job's module, and committers that do it.

A job's module imports this, so it is light: drivers, pyarrow and delta-rs are imported when a committer is opened, in
the task's process (never in Spark). Knows nothing of the journal, nor of who may commit when: that is
`airflow_recovery.attempt.commit`. Names are Flink's two-phase commit's: `Committer`, `Committable`, prepare, commit.
"""

from airflow_recovery.model.committing import CommitKind, CommitMode, CommitSpec
from airflow_recovery.sinks.committer import (
    Committable,
    Committer,
    CommitToken,
    DatabaseAddress,
    Held,
    Probe,
    RemembersAttempts,
    SinkResources,
)
from airflow_recovery.sinks.declaration import CommittingSink, sink_of, spec_of
from airflow_recovery.sinks.delta import DeltaTable
from airflow_recovery.sinks.postgres import PostgresTable
from airflow_recovery.sinks.probed import ProbedSink

__all__ = [
    "CommitKind",
    "CommitMode",
    "CommitSpec",
    "CommitToken",
    "Committable",
    "Committer",
    "CommittingSink",
    "DatabaseAddress",
    "DeltaTable",
    "Held",
    "PostgresTable",
    "Probe",
    "ProbedSink",
    "RemembersAttempts",
    "SinkResources",
    "sink_of",
    "spec_of",
]
