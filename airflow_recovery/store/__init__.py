"""Object stores: bytes under keys, with put-if-absent. S3 and a local directory.

This room knows nothing of jobs, attempts or Airflow. It says precisely what a store answered: missing, denied, timed
out and unavailable are different errors, and a write with an unknown outcome is never repeated here.
"""

from airflow_recovery.store.budget import BudgetedStore
from airflow_recovery.store.object_store import ObjectInfo, ObjectStore, StoredObject
from airflow_recovery.store.opening import open_store
from airflow_recovery.store.parallel import get_many
from airflow_recovery.store.probe import probe

__all__ = [
    "BudgetedStore",
    "ObjectInfo",
    "ObjectStore",
    "StoredObject",
    "get_many",
    "open_store",
    "probe",
]
