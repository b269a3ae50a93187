"""Result partitions: what they are made of, and whether that is still there.

Asks object stores, never Spark, and never writes. Never imports Airflow.
"""

from airflow_recovery.shuffle.availability import Availability, AvailabilityState, probe_manifest
from airflow_recovery.shuffle.manifest import PartitionManifest, ResultObject

__all__ = ["Availability", "AvailabilityState", "PartitionManifest", "ResultObject", "probe_manifest"]
