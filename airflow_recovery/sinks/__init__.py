"""Sinks that commit a result elsewhere once an attempt has finished: to PostgreSQL, Delta, Iceberg, or by functions.

Spark writes an attempt's rows to the store of results (prepare); then the task's process has the target take them over
(commit), and asks it whether it has, if the answer was lost. Names are those of Flink's two-phase commit (FLIP-143):
`Committer`, `Committable`.

A job's module imports this room, so it is light: drivers, pyarrow and delta-rs are imported when a committer is opened,
never in Spark. Who may commit, and when, is decided in `airflow_recovery.attempt.commit`; nothing here knows the
journal.
"""

from airflow_recovery.model.committing import CommitKind, CommitMode, CommitSpec
from airflow_recovery.sinks.committer import (
    ChecksRows,
    Committable,
    Committer,
    CommitToken,
    DatabaseAddress,
    ForgetsAttempts,
    FoundRows,
    Held,
    Probe,
    RemembersAttempts,
    Rows,
    SinkResources,
)
from airflow_recovery.sinks.declaration import CommittingSink, sink_of, spec_of
from airflow_recovery.sinks.delta import DeltaTable
from airflow_recovery.sinks.iceberg import IcebergTable
from airflow_recovery.sinks.postgres import PostgresTable
from airflow_recovery.sinks.probed import ProbedSink

__all__ = [
    "ChecksRows",
    "CommitKind",
    "CommitMode",
    "CommitSpec",
    "CommitToken",
    "Committable",
    "Committer",
    "CommittingSink",
    "DatabaseAddress",
    "DeltaTable",
    "ForgetsAttempts",
    "FoundRows",
    "Held",
    "IcebergTable",
    "PostgresTable",
    "Probe",
    "ProbedSink",
    "RemembersAttempts",
    "Rows",
    "SinkResources",
    "sink_of",
    "spec_of",
]
