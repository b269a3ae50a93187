"""Result partitions: what they are made of, whether that is still there, and how it is let go.

Data is deleted in one place, `airflow_recovery.results.release`. Never imports Airflow.
"""

from airflow_recovery.model.manifest import PartitionManifest, ResultObject
from airflow_recovery.results.availability import Availability, AvailabilityState, probe_manifest

__all__ = ["Availability", "AvailabilityState", "PartitionManifest", "ResultObject", "probe_manifest"]
